"""Quadratic functions of symbols in [-1, 1], and linear ones below them.

f(eps) = constant + linear . eps + eps . form eps is bounded from below in two steps.  A diagonal D >= 0 that makes
form + D convex is added, and taken off again by its least value: -D_g eps_g^2 is at least -D_g, with equality at the
ends of the symbol, where most minima are.  Of the convex function that this leaves, every tangent is a lower bound, and
the one at its minimiser loses nothing.  The minimiser is found symbol by symbol; it need not be exact.

D comes from a convex part of the form: R R^T is nowhere negative, whatever the floats in R are, and what it leaves of
the form is made diagonally dominant by its row sums.  R is a Cholesky factor of forms that are convex, nothing for
concave ones, and made of eigenvectors for all others.

A bound that took the linear and the quadratic part each on its own would lose as much as the quadratic part varies: on
boxes of Lyapunov functions, nearly everything.

requires:   all symbols in [-1, 1]; float64
guarantees: constants below, all rounding errors counted; what is not finite proves nothing
source:     alpha-BB (Adjiman et al. 1998)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from verifier.bounding.core.closing import settled
from verifier.bounding.core.state import State
from verifier.operators import gamma
from verifier.shapes import Float, Tensor

MARGIN = 64
"""Roundings of scalars around each long sum, generously."""

NUDGE = 2.0**-30
"""What a form may lack to be convex and still count as such, in relation to its entries: it gets it from D."""


@dataclass(frozen=True, eq=False)
class Quadratics(State):
    """S functions on each of D boxes; each is within `error` of what it stands for.  Forms are symmetric."""

    constant: Float[Tensor, "D S"]
    linear: Float[Tensor, "D S g"]
    form: Float[Tensor, "D S g g"]
    error: Float[Tensor, "D S"]

    @cached_property
    def scale(self) -> Float[Tensor, "D S"]:
        """How much each function can vary, about; never zero."""
        varies = self.linear.abs().sum(dim=-1) + self.form.abs().sum(dim=(-2, -1))
        return varies.clamp(min=torch.finfo(varies.dtype).tiny ** 0.25)

    def combined(self, weights: Float[Tensor, "D S"]) -> Quadratics:
        """The sum of all functions of a box with weights >= 0, as its only one."""
        size = (weights * (self.constant.abs() + self.scale)).sum(dim=1, keepdim=True)
        error = (weights * self.error).sum(dim=1, keepdim=True)
        row, symbols = weights.unsqueeze(1), self.linear.shape[-1]
        return Quadratics(
            (weights * self.constant).sum(dim=1, keepdim=True),
            row @ self.linear,
            (row @ self.form.flatten(2)).unflatten(2, (symbols, symbols)),
            error * (1 + gamma(MARGIN)) + gamma(weights.shape[1] + MARGIN) * size,
        )

    def values(self, eps: Float[Tensor, "D 1 g"]) -> Float[Tensor, "D S"]:
        """All functions at one point of each box, without errors."""
        bent = (self.form @ eps.unsqueeze(-1)).squeeze(-1)
        return self.constant + ((self.linear + bent) * eps).sum(dim=-1)


@dataclass(frozen=True, eq=False)
class Convexity(State):
    """Diagonals that make forms convex, and what they may lack because of rounding, for any two points."""

    diagonal: Float[Tensor, "D S g"]
    error: Float[Tensor, "D S"]

    @classmethod
    def of(cls, form: Float[Tensor, "D S g g"]) -> Convexity:
        """By a convex part of each form; forms that are zero need none."""
        diagonal, error = form.new_zeros(form.shape[:-1]), form.new_zeros(form.shape[:-2])
        bent = torch.nonzero((form != 0).any(dim=-1).any(dim=-1), as_tuple=True)
        if len(bent[0]):
            diagonal[bent], error[bent] = _diagonals(form[bent])
        return cls(diagonal, error)

    def combined(self, weights: Float[Tensor, "D S"]) -> Convexity:
        """One for the sum of the forms of each box with weights >= 0."""
        row = weights.unsqueeze(1)
        error = (row @ self.error.unsqueeze(-1)).squeeze(-1)
        return Convexity(row @ self.diagonal, error * (1 + gamma(weights.shape[1] + MARGIN)))


def _diagonals(form: Float[Tensor, "F g g"]) -> tuple[Float[Tensor, "F g"], Float[Tensor, " F"]]:
    root = _root(form.nan_to_num(0.0, 0.0, 0.0))
    rest = form - root @ root.transpose(-1, -2)
    on = rest.diagonal(dim1=-2, dim2=-1)
    lacking = (rest.abs().sum(dim=-1) - on.abs() - on).clamp(min=0)
    # Two points of [-1, 1] differ by up to 2, so that a wrong entry costs up to four times itself.
    size = form.abs().sum(dim=(-2, -1)) + root.abs().sum(dim=-2).square().sum(dim=-1) + lacking.sum(dim=-1)
    return lacking, 8 * gamma(form.shape[-1] + MARGIN) * size


def _root(form: Float[Tensor, "F g g"]) -> Float[Tensor, "F g g"]:
    """R with R R^T near the convex part of each form: all of it, nothing, or what the eigenvectors say."""
    unit = torch.eye(form.shape[-1], dtype=form.dtype, device=form.device)
    nudge = NUDGE * form.abs().amax(dim=(-2, -1), keepdim=True) * unit
    found = torch.linalg.cholesky_ex(form + nudge)
    mixed = found.info != 0
    root: Tensor = found.L.masked_fill(mixed[:, None, None], 0.0)
    mixed &= torch.linalg.cholesky_ex(nudge - form).info != 0
    if bool(mixed.any()):
        e, v = torch.linalg.eigh(form[mixed])
        root[mixed] = v * e.clamp(min=0).sqrt().unsqueeze(-2)
    return root


@dataclass(frozen=True, eq=False)
class Tangents(State):
    """linear . eps + constant is below each function, up to `error`; `point` is where it touches the convex one."""

    linear: Float[Tensor, "D S g"]
    constant: Float[Tensor, "D S"]
    error: Float[Tensor, "D S"]
    point: Float[Tensor, "D S g"]

    @property
    def lower(self) -> Float[Tensor, "D S"]:
        """The least value, rounded down."""
        return settled(self.constant - self.linear.abs().sum(dim=-1), self.error)


def tangents(f: Quadratics, convexity: Convexity, start: Float[Tensor, "D S g"] | None, sweeps: int) -> Tangents:
    """At points near the minimisers of the convex functions, found from `start` in some sweeps over the symbols."""
    diagonal = convexity.diagonal
    convex = f.form + torch.diag_embed(diagonal)
    point, slope = minimiser(f.linear, convex, start, sweeps)
    bent = (slope - f.linear) / 2  # the form times the point
    constant = f.constant - (bent * point).sum(dim=-1) - diagonal.sum(dim=-1)
    size = f.constant.abs() + f.linear.abs().sum(dim=-1) + convex.abs().sum(dim=(-2, -1)) + diagonal.sum(dim=-1)
    # Every step of a sweep rounds the slope once more.
    rounding = 4 * gamma(point.shape[-1] * (sweeps + 2) + MARGIN) * size
    return Tangents(slope, constant, f.error + convexity.error + rounding, point)


def minimiser(
    linear: Float[Tensor, "D S g"], form: Float[Tensor, "D S g g"], start: Float[Tensor, "D S g"] | None, sweeps: int
) -> tuple[Float[Tensor, "D S g"], Float[Tensor, "D S g"]]:
    """About the least point of linear . eps + eps . form eps in [-1, 1] for convex forms, and the slope there."""
    twice = 2 * form
    if start is None:
        point, slope = torch.zeros_like(linear), linear.clone()
    else:
        point, slope = start.clone(), linear + (twice @ start.unsqueeze(-1)).squeeze(-1)
    pace = 1 / twice.diagonal(dim1=-2, dim2=-1).clamp(min=torch.finfo(linear.dtype).tiny)
    for _ in range(sweeps):
        for g in range(point.shape[-1]):
            old = point[..., g]
            new = torch.addcmul(old, slope[..., g], pace[..., g], value=-1.0).nan_to_num(0.0).clamp(-1.0, 1.0)
            slope.addcmul_(twice[..., g, :], (new - old).unsqueeze(-1))
            point[..., g] = new
    return point, slope
