"""The saddle-point form of the Anderson relaxation: prices against primal points, and the best answer of either side.

source: [SCB] sec:sp, eq:alphak-condg, eq:betak-condg, eq:price-caps

The multipliers of the exponentially many cuts enter the Lagrangian only through sums ("statistics"), so the masks
themselves are forgotten as soon as they have been added.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import torch

from verifier.bounding.core.state import State, tree_map
from verifier.bounding.core.sweep import Kinks, Remainder, Sweep, dot
from verifier.bounding.cuts.anderson import RowGeometry
from verifier.bounding.solvers.lagrangian import Lagrangian, Multipliers
from verifier.network.network import Affine
from verifier.shapes import Float, Tensor

T = TypeVar("T")


def blend(first: T, second: T, weight: float) -> T:
    """(1 - weight) first + weight second."""
    return tree_map(lambda a, b: torch.lerp(a, b, weight), first, second)


@dataclass(frozen=True, eq=False)
class Prices(State):
    """The multipliers at the kinks of one group, cuts only as far as the Lagrangian sees them.

    `total` is the sum of all beta; `spread[i]` the sum of (W.I)^T beta for the i-th term of the group; `constant` what
    offsets contribute; `g` the coefficient of -z.  All are linear in the multipliers.
    """

    alpha: Float[Tensor, "D S a"]
    total: Float[Tensor, "D S a"]
    spread: tuple[Float[Tensor, "D S _"], ...]
    constant: Float[Tensor, "D S"]
    g: Float[Tensor, "D S a"]

    def plus(self, other: Prices) -> Prices:
        return tree_map(torch.add, self, other)


@dataclass(frozen=True, eq=False)
class Primal(State):
    """A point of the boxes: the input, and x and z at the kinks of each group."""

    x0: Float[Tensor, "D S n0"]
    x: tuple[Float[Tensor, "D S _"], ...]
    z: tuple[Float[Tensor, "D S _"], ...]


@dataclass(frozen=True, eq=False)
class Caps(State):
    """The largest alpha, and the largest sum of all beta, that each kink of a group may have."""

    alpha: Float[Tensor, "D S a"]
    beta: Float[Tensor, "D S a"]

    @classmethod
    def of(cls, prices: Prices) -> Caps:
        """[SCB] eq:price-caps: the value at the start or, where that is zero, a hundredth of the group's largest."""
        return cls(_cap(prices.alpha), _cap(prices.total))


def _cap(start: Float[Tensor, "D S a"]) -> Float[Tensor, "D S a"]:
    if not start.shape[-1]:
        return start
    return torch.where(start > 0, start, start.amax(dim=-1, keepdim=True) / 100)


@dataclass(frozen=True, eq=False)
class Answer(State):
    """The bound for given prices, the primal minimiser, and the coefficients of the input and of x at the kinks."""

    lower: Float[Tensor, "D S"]
    vertex: Primal
    lam0: Float[Tensor, "D S n0"]
    f: tuple[Float[Tensor, "D S _"], ...]


@dataclass(frozen=True, eq=False)
class Saddle(State):
    """The bilinear function of prices and primal points, and the best answer of either side.

    The multipliers of splits keep the values that the initial ascent found.
    """

    dual: Lagrangian  # its cuts matter for the start only
    rows: tuple[RowGeometry | None, ...]
    splits: tuple[Float[Tensor, "D S _"], ...]

    @classmethod
    def of(cls, dual: Lagrangian, point: Float[Tensor, "D S V"], rows: tuple[RowGeometry | None, ...]) -> Saddle:
        return cls(dual, rows, tuple(at.split for at in dual.views(point)))

    @property
    def sweep(self) -> Sweep:
        return self.dual.sweep

    def start(self, point: Float[Tensor, "D S V"]) -> tuple[Prices, ...]:
        """The prices of explicit multipliers."""
        found = []
        for k, at in enumerate(self.dual.views(point)):
            kinks, layer = self.sweep.kinks[k], self.sweep.net.layers[k]
            prices = big_m_prices(layer, kinks, at)
            for cuts, beta in zip(self.dual.cuts, at.cuts, strict=True):
                cut = cuts[k]
                if cut is not None:
                    free = beta * kinks.ambiguous
                    parts = [part for _, part in cut.transpose(free)]
                    offset = (free * cut.offset).sum(dim=-1)
                    prices = prices.plus(Prices(torch.zeros_like(free), free, tuple(parts), offset, free * cut.zc))
            found.append(prices)
        return tuple(found)

    def answer(self, prices: Sequence[Prices], blends: int) -> Answer:
        """Minimise over the boxes, after `blends` roundings of the prices."""
        sweep = self.sweep
        coefficients: dict[int, Tensor] = {}

        def eliminate(k: int, lam: Tensor | None, rest: Remainder) -> Tensor:
            at = prices[k - 1]
            own = sweep.zeros(k, self.dual.objective) if lam is None else lam
            mu, coefficients[k] = self._eliminate(k, own, at, rest, blends)
            for (source, _), part in zip(sweep.net.layers[k - 1].terms, at.spread, strict=True):
                rest.subtract(source, part)
            return mu

        plane = sweep.walk(self.dual.objective, eliminate)
        f = tuple(coefficients[k] for k in range(1, sweep.layer))
        x = tuple(torch.where(c < 0, kinks.u_hat, 0.0) for c, kinks in zip(f, sweep.kinks, strict=True))
        z = tuple((p.g > 0).to(p.g.dtype) for p in prices)
        return Answer(plane.lower, Primal(plane.x0, x, z), plane.slope, f)

    def _eliminate(self, k: int, lam: Tensor, at: Prices, rest: Remainder, blends: int) -> tuple[Tensor, Tensor]:
        kinks = self.sweep.kinks[k - 1]
        lam_kinks = kinks.gather(lam)
        f = lam_kinks - at.alpha + at.total
        value = torch.where(kinks.ambiguous, f.clamp(max=0) * kinks.u_hat - at.g.clamp(min=0), -at.g * kinks.upper)
        rest.value += value.sum(dim=-1) + at.constant
        if self.sweep.slacks is not None:
            price = kinks.gather(self.sweep.slacks[k - 1])
            weight = lam_kinks.abs() + at.alpha + (4 + blends) * at.total
            rest.error += dot(weight * (kinks.ambiguous | (kinks.upper > 0)), price)
        stable = (lam_kinks + at.total) * kinks.upper
        if kinks.sign is not None:
            stable = stable - kinks.sign * self.splits[k - 1]
        mu_kinks = torch.where(kinks.ambiguous, at.alpha, stable)
        return kinks.scatter(lam, mu_kinks), f

    def reply(self, primal: Primal, caps: Sequence[Caps], with_cuts: bool) -> tuple[Prices, ...]:
        """The prices that are worst for a primal point: [SCB] eq:alphak-condg and eq:betak-condg."""
        values, x_hats = self.sweep.through_kinks(primal.x0, primal.x)
        found = []
        for k, (kinks, x_hat) in enumerate(zip(self.sweep.kinks, x_hats, strict=True)):
            x, z, layer = primal.x[k], primal.z[k], self.sweep.net.layers[k]
            alpha = caps[k].alpha * (x_hat >= x) * kinks.ambiguous
            beta = caps[k].beta * kinks.ambiguous
            gain0 = x - kinks.u_hat * z
            gain1 = x - x_hat + kinks.l_hat * (1 - z)
            best = torch.maximum(gain0, gain1)
            rows = self.rows[k] if with_cuts else None
            cut = None
            if rows is not None:
                cut = rows.excess(values, z)
                gain_cut = x - z * (rows.bias + rows.w_u.sum(dim=-1)) + cut.clamp(min=0).sum(dim=-1)
                use_cut = (gain_cut > best) & (gain_cut >= 0)
                best = torch.maximum(best, gain_cut)
            use0 = (gain0 == best) & (best >= 0)
            use1 = (gain1 == best) & (best >= 0) & ~use0
            at = Multipliers(alpha, beta * use0, beta * use1, torch.zeros_like(x), ())
            prices = big_m_prices(layer, kinks, at)
            if rows is not None and cut is not None:
                prices = prices.plus(_cut_prices(rows, cut >= 0, beta * use_cut))
            found.append(prices)
        return tuple(found)


def big_m_prices(layer: Affine, kinks: Kinks, at: Multipliers) -> Prices:
    """The statistics of alpha, beta0 and beta1: cuts with empty and full masks, sharpened by l_hat and u_hat."""
    beta0, beta1 = at.beta0 * kinks.ambiguous, at.beta1 * kinks.ambiguous
    full = beta1.new_zeros(*beta1.shape[:-1], layer.size).index_copy_(-1, kinks.index, beta1)
    constant = (beta1 * (kinks.l_hat - layer.bias[kinks.index])).sum(dim=-1)
    return Prices(
        at.alpha * kinks.ambiguous,
        beta0 + beta1,
        tuple(term.transpose(full) for _, term in layer.terms),
        constant,
        beta0 * kinks.u_hat + beta1 * kinks.l_hat,
    )


def _cut_prices(rows: RowGeometry, mask: Tensor, beta: Float[Tensor, "D S a"]) -> Prices:
    """The statistics of one cut per kink."""
    kept = (mask * rows.w_l).sum(dim=-1)
    zc = rows.bias + kept + (~mask * rows.w_u).sum(dim=-1)
    spread = [part for _, part in rows.spread(mask * rows.weights * beta.unsqueeze(-1))]
    constant = (beta * kept).sum(dim=-1)
    return Prices(torch.zeros_like(beta), beta, tuple(spread), constant, beta * zc)
