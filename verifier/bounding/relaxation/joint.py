"""Sums of products by the symbols that all of them share, for small boxes.

A sweep that comes to a group of products needs a lower bound of lam . (p q).  With the forms of a zonotope,
p = p0 + sum_g eps_g P_g and q = q0 + sum_g eps_g Q_g with all |eps_g| <= 1,

    lam . (p q)  =  lam . (q0 p + p0 q - p0 q0)  +  eps . B eps        with B_gh = sum_i lam_i P_gi Q_hi,

in which terms of different products cancel, while faces of single products would add them up.  The quadratic form is
bounded from below entry by entry: by min(B_gg, 0) on the diagonal, because 0 <= eps_g^2 <= 1, and by -|B_gh| beside it.
What is convex costs nothing: V diag(e) V^T with e >= 0 is nowhere negative, whatever the floats in V are, so it may be
taken off first; V and e are about the eigenvectors of B and the eigenvalues above zero.  The better of both counts.

requires:   forms of the factors that hold for the whole box, with their errors
guarantees: as any elimination of a sweep: constants below, rounding errors counted
source:     quadratic forms of noise symbols as in affine arithmetic; the split into a convex part and a rest as in
            alpha-BB (Adjiman et al. 1998)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from verifier.bounding.core.base import together
from verifier.bounding.core.state import State
from verifier.bounding.relaxation.form import AffineForm
from verifier.bounding.relaxation.smooth import Lines, Products
from verifier.operators import gamma
from verifier.shapes import Float, Int, Tensor

if TYPE_CHECKING:
    from verifier.bounding.core.sweep import Choice, Remainder

MOST_SYMBOLS = 64
"""More of them, and the eigenvectors take too long."""

CHUNK = 2**20
"""Bytes of the forms that are worked on at a time: what a cache holds."""

MARGIN = 64
"""Roundings of scalars around each long sum, generously."""


@dataclass(frozen=True, eq=False)
class Factors(State):
    """The factors p and q of a group of products, in float64; `rest` is what their errors can add to each product."""

    p: Float[Tensor, "D n"]
    q: Float[Tensor, "D n"]
    spread_p: Float[Tensor, "D g n"]
    spread_q: Float[Tensor, "D g n"]
    size: Float[Tensor, "D n"]
    rest: Float[Tensor, "D n"]

    @classmethod
    def of(cls, form: AffineForm, boxes: Int[Tensor, " D"]) -> Factors:
        """Those of a group's pre-activations, in some of the boxes."""
        p, q = form.of_boxes(boxes).halves()
        rest = p.error * (q.radius + q.error) + q.error * p.radius
        size = p.radius * q.radius
        return cls(p.centre, q.centre, p.spread, q.spread, size, rest * (1 + gamma(MARGIN)))


@dataclass(frozen=True, eq=False)
class JointProducts(Products):
    """Products that a sweep eliminates together.  There is nothing to choose."""

    factors: Factors

    def relax(
        self, lam: Float[Tensor, "D S n"], choice: Choice, rest: Remainder, priced: bool
    ) -> tuple[Float[Tensor, "D S n_hat"], Float[Tensor, "D S n"], Lines | None]:
        f = self.factors
        centres = f.p.unsqueeze(1) * f.q.unsqueeze(1) * lam
        least, error = least_form(lam, f)
        rest.value += least - centres.sum(dim=-1)
        rest.summed += centres.abs().sum(dim=-1) + least.abs()
        rest.error += error + (lam.abs() @ f.rest.unsqueeze(-1)).squeeze(-1) * (1 + gamma(lam.shape[-1] + MARGIN))
        return torch.cat([lam * f.q.unsqueeze(1), lam * f.p.unsqueeze(1)], dim=-1), lam, None


def least_form(lam: Float[Tensor, "D S n"], f: Factors) -> tuple[Float[Tensor, "D S"], Float[Tensor, "D S"]]:
    """About the least value of eps . B eps, and how much less rounding may have hidden, in parts."""
    each = lam.shape[1] * f.spread_p.shape[1] ** 2 * lam.element_size()
    starts = range(0, max(1, len(lam)), together(each, CHUNK))
    parts = [slice(start, start + starts.step) for start in starts]
    found = [_least(lam[part], f.select(part)) for part in parts]
    return torch.cat([least for least, _ in found]), torch.cat([error for _, error in found])


def _least(lam: Float[Tensor, "D S n"], f: Factors) -> tuple[Float[Tensor, "D S"], Float[Tensor, "D S"]]:
    form = (lam.unsqueeze(2) * f.spread_p.unsqueeze(1)) @ f.spread_q.unsqueeze(1).transpose(-1, -2)
    form = (form + form.transpose(-1, -2)) / 2
    e, v = torch.linalg.eigh(form.nan_to_num(0.0, 0.0, 0.0))
    e = e.clamp(min=0)
    bent = form - (v * e.unsqueeze(-2)) @ v.transpose(-1, -2)
    least = torch.maximum(_entrywise(form), _entrywise(bent))
    size = (lam.abs() @ f.size.unsqueeze(-1)).squeeze(-1) + (e * v.abs().sum(dim=-2).square()).sum(dim=-1)
    symbols = form.shape[-1]
    return least, 4 * gamma(symbols * symbols + symbols + lam.shape[-1] + MARGIN) * size


def _entrywise(form: Float[Tensor, "D S g g"]) -> Float[Tensor, "D S"]:
    """The least value of eps . form eps, as if every product of two symbols were on its own."""
    diagonal = form.diagonal(dim1=-2, dim2=-1)
    return diagonal.clamp(min=0).sum(dim=-1) - form.abs().sum(dim=(-2, -1))
