"""Rows that end in products, as quadratic functions of the symbols of a zonotope.

Where a group of products is read by the output alone, a row is an affine function of the other groups plus a sum of
products of affine functions: with the forms of a zonotope a quadratic function of its symbols, exactly but for the
errors of the forms.  Such rows are bounded as a whole (`relaxation.quadratic`), and so are their combinations: a
quadratic level set beside another quadratic function, as in the conditions of Lyapunov functions.

requires:   the zonotopes of boxes, made `without` these groups
guarantees: planes as those of a sweep: rigorous, in both tiers
source:     multipliers on output constraints as in INVPROP
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from verifier.bounding.core.closing import closes
from verifier.bounding.core.state import State, cat
from verifier.bounding.core.sweep import Plane
from verifier.bounding.relaxation.form import AffineForm, BoxForm
from verifier.bounding.relaxation.quadratic import MARGIN, Convexity, Quadratics, Tangents, tangents
from verifier.bounding.relaxation.zonotope import Zonotopes
from verifier.bounding.rows import Conjunction, onto_simplex
from verifier.network.network import Network
from verifier.operators import LinearMap, gamma
from verifier.shapes import Bool, Float, Int, Tensor

CHUNK = 8 * 2**20
"""Bytes of the forms that are worked on at a time: what a cache holds."""

SWEEPS = 3
"""Over the symbols, for the minimiser of a row; one more after each change of the weights."""

STEPS = 6
"""Of the ascent over weights of rows."""


def last_products(net: Network) -> frozenset[int]:
    """The groups of products that the output alone reads."""
    read = {source for group in net.groups for source, _ in group.terms}
    last = {source for source, _ in net.output.terms} - read
    return frozenset(k for k in last if k and net.groups[k - 1].function.is_product)


@dataclass(eq=False)
class _Sum:
    """Functions of symbols, as their terms are added; `size` is the magnitude of all terms, `terms` how many there are.

    `error` is what the forms leave open.
    """

    constant: Float[Tensor, "p m"]
    linear: Float[Tensor, "p m g"]
    form: Float[Tensor, "p m g g"]
    error: Float[Tensor, "p m"]
    size: Float[Tensor, "p m"]
    terms: int = 1

    @classmethod
    def begun(cls, rows: Conjunction, symbols: int) -> _Sum:
        """Only what stands on the right of the rows."""
        new, shape = rows.c.new_zeros, rows.c.shape
        return cls(-rows.c, new(*shape, symbols), new(*shape, symbols, symbols), new(shape), rows.c.abs())

    def affine(self, rows: Float[Tensor, "p m n"], x: BoxForm) -> None:
        """Add rows . x."""
        size = rows.abs()
        self.constant = self.constant + _along(rows, x.centre)
        self.linear[..., : x.spread.shape[1]] += rows @ x.spread.transpose(1, 2)
        self.size = self.size + _along(size, x.centre.abs() + x.radius)
        self.error = self.error + _along(size, x.error)
        self.terms += rows.shape[-1]

    def products(self, rows: Float[Tensor, "p m n"], term: LinearMap, factors: tuple[BoxForm, BoxForm]) -> None:
        """Add rows . term(p q), with the factors p and q."""
        p, q = factors
        lam, count = term.transpose(rows), p.spread.shape[1]
        self.constant = self.constant + _along(lam, p.centre * q.centre)
        mixed = q.centre.unsqueeze(1) * p.spread + p.centre.unsqueeze(1) * q.spread
        self.linear[..., :count] += lam @ mixed.transpose(1, 2)
        part = (lam.unsqueeze(2) * p.spread.unsqueeze(1)) @ q.spread.unsqueeze(1).transpose(-1, -2)
        self.form[..., :count, :count] += (part + part.transpose(-1, -2)) / 2
        large_p, large_q = (f.centre.abs() + f.radius for f in (p, q))
        size = lam.abs()
        self.size = self.size + _along(size, large_p * large_q)
        self.error = self.error + _along(size, p.error * (large_q + q.error) + q.error * large_p)
        # The multipliers of the products are rounded themselves.
        largest = (large_p + p.error) * (large_q + q.error)
        self.error = self.error + gamma(term.depth + MARGIN) * _along(rows.abs(), term.magnitude(largest))
        self.terms += lam.shape[-1]

    def quadratics(self) -> Quadratics:
        rounding = 2 * gamma(self.terms + self.linear.shape[-1] + MARGIN)
        error = self.error * (1 + gamma(self.terms + MARGIN)) + rounding * self.size
        return Quadratics(self.constant, self.linear, self.form, error)


@dataclass(frozen=True, eq=False)
class CurvedPlanes(State):
    """Planes below the best combination of each pair's rows and, if there are several, below each of them.

    `owed` is what every symbol takes from the combination, `doubt` what errors of the forms can.
    """

    plane: Plane
    weights: Float[Tensor, "P m"]
    owed: Float[Tensor, "P g"]
    doubt: Float[Tensor, "P S"]


@dataclass(frozen=True, eq=False)
class CurvedRows:
    """The rows of pairs of a box and a clause, over zonotopes of the boxes."""

    net: Network
    last: frozenset[int]
    found: Zonotopes
    ends: tuple[Float[Tensor, "D n0"], Float[Tensor, "D n0"]]
    rows: Conjunction
    box: Int[Tensor, " P"]

    @property
    def symbols(self) -> int:
        """All that some form uses."""
        return max(len(form.spread) for form in (self.found.output, self._inputs, *self._factors))

    @property
    def _factors(self) -> list[AffineForm]:
        return [form for k in sorted(self.last) if (form := self.found.factors[k - 1]) is not None]

    @property
    def _inputs(self) -> AffineForm:
        return AffineForm.of_box(*self.ends, self.found.output.centre.dtype, self.found.moving)

    def planes(self) -> CurvedPlanes:
        """Of all pairs, part by part."""
        pairs, rows = self.rows.c.shape
        together = max(1, CHUNK // (8 * rows * self.symbols**2))
        every = torch.arange(pairs, device=self.box.device)
        return cat([self._planes(some) for some in every.split(together)])

    def _planes(self, some: Int[Tensor, " p"]) -> CurvedPlanes:
        rows, present, box = self.quadratics(some), self.rows.present[some], self.box[some]
        convexity = Convexity.of(rows.form)
        both, mixed, weights = tangents(rows, convexity, None, SWEEPS), rows, torch.ones_like(rows.constant)
        if present.shape[1] > 1:
            weights = good_weights(rows, convexity, both, present)
            mixed, best = mixture(rows, convexity, both, weights)
            both = cat([best, both], dim=1)
        inputs = self._inputs
        owed = both.linear[:, 0].abs()
        owed[:, : len(inputs.spread)] = 0.0  # the plane has those of the inputs
        owed = owed + mixed.form[:, 0].abs().sum(dim=-1)
        return CurvedPlanes(self._plane(both, inputs.of_boxes(box), box), weights, owed, both.error)

    def quadratics(self, some: Int[Tensor, " p"]) -> Quadratics:
        """The rows of some pairs as functions of the symbols."""
        box, rows = self.box[some], self.rows.select(some)
        total = _Sum.begun(rows, self.symbols)
        total.affine(rows.A, self.found.output.of_boxes(box))
        if rows.B is not None:
            total.affine(rows.B, self._inputs.of_boxes(box))
        for source, term in self.net.output.terms:
            if source in self.last:
                form = self.found.factors[source - 1]
                assert form is not None
                total.products(rows.A, term, form.of_boxes(box).halves())
        return total.quadratics()

    def _plane(self, found: Tangents, inputs: BoxForm, box: Int[Tensor, " p"]) -> Plane:
        """As functions of the input, whose symbols come first; all others take what they can."""
        moving = self.found.moving
        axes = torch.arange(inputs.centre.shape[1], device=box.device) if moving is None else moving
        count = len(axes)
        radius, centre = inputs.radius[:, axes].unsqueeze(1), inputs.centre[:, axes].unsqueeze(1)
        own = found.linear[..., :count]
        steep = torch.where(radius > 0, own / radius, 0.0)
        others = found.linear[..., count:].abs().sum(dim=-1)
        value = found.constant - others - (steep * centre).sum(dim=-1)
        size = (steep * centre).abs().sum(dim=-1) + found.linear.abs().sum(dim=-1) + found.constant.abs()
        error = found.error + gamma(found.linear.shape[-1] + MARGIN) * size
        slope = steep.new_zeros(*steep.shape[:2], inputs.centre.shape[1]).index_copy_(2, axes, steep)
        low, high = (side[box].unsqueeze(1) for side in self.ends)
        return Plane(slope, found.lower, torch.where(slope >= 0, low, high), value, error)


def good_weights(
    rows: Quadratics, convexity: Convexity, alone: Tangents, present: Bool[Tensor, "p m"]
) -> Float[Tensor, "p m"]:
    """Of the rows of every pair, on the simplex.  Pairs of which a row alone is above zero take that one."""
    scale = rows.scale
    value, first = (alone.lower / scale).masked_fill(~present, -torch.inf).max(dim=1)
    best = torch.nn.functional.one_hot(first, scale.shape[1]).to(scale.dtype)
    rest = torch.nonzero(~closes(value)).flatten()
    if len(rest):
        known = best[rest], value[rest]
        best[rest] = _climbed(rows.select(rest), convexity.select(rest), known, present[rest])
    weights = best / scale
    return weights / weights.sum(dim=1, keepdim=True)


def mixture(
    rows: Quadratics, convexity: Convexity, alone: Tangents, weights: Float[Tensor, "p m"]
) -> tuple[Quadratics, Tangents]:
    """What the weights make of the rows, and a tangent of it.

    The curvature of some rows makes up for that of others, so combinations of several are made convex anew.
    """
    mixed, several = rows.combined(weights), (weights > 0).sum(dim=1, keepdim=True) > 1
    cheap = convexity.combined(weights)
    sharp = Convexity.of(mixed.form.where(several[..., None, None], 0.0))
    diagonal = torch.where(several.unsqueeze(-1), sharp.diagonal, cheap.diagonal)
    start = (weights.unsqueeze(1) @ alone.point).clamp(-1.0, 1.0)
    return mixed, tangents(mixed, Convexity(diagonal, sharp.error.where(several, cheap.error)), start, SWEEPS)


def _climbed(
    rows: Quadratics,
    convexity: Convexity,
    known: tuple[Float[Tensor, "p m"], Float[Tensor, " p"]],
    present: Bool[Tensor, "p m"],
) -> Float[Tensor, "p m"]:
    """Normalised supergradient steps from equal weights; the best of all iterates and of what is `known` is kept.

    Rows are scaled alike.  Each has its own convexity, and that of a combination is their sum.
    """
    scale, (best, value) = rows.scale, known
    form = rows.form + torch.diag_embed(convexity.diagonal)
    each = replace(rows, constant=rows.constant - convexity.diagonal.sum(dim=-1), form=form)
    count = present.sum(dim=1, keepdim=True).to(scale.dtype)
    weights, point = present / count, None
    for t in range(STEPS):
        mixed = each.combined(weights / scale)
        none = Convexity(torch.zeros_like(mixed.linear), torch.zeros_like(mixed.constant))
        found = tangents(mixed, none, point, 1)
        point, reached = found.point, found.lower.squeeze(1)
        better = reached > value
        value = torch.where(better, reached, value)
        best = torch.where(better.unsqueeze(-1), weights, best)
        gradient = (each.values(point) / scale).nan_to_num(0.0, 0.0, 0.0) * present
        gradient = (gradient - gradient.sum(dim=1, keepdim=True) / count) * present
        size = gradient.abs().amax(dim=1, keepdim=True).clamp(min=torch.finfo(gradient.dtype).tiny)
        step = 0.5 / (t + 1) ** 0.7
        weights = onto_simplex((weights + step * gradient / size).unsqueeze(1), present.unsqueeze(1)).squeeze(1)
    return best


def _along(rows: Float[Tensor, "p m n"], vector: Float[Tensor, "p n"]) -> Float[Tensor, "p m"]:
    return (rows @ vector.unsqueeze(-1)).squeeze(-1)
