"""The saddle-point form of the Anderson relaxation: prices against primal points, and the best answer of either side.

source: [SCB] sec:sp, eq:alphak-condg, eq:betak-condg, eq:price-caps

The paper keeps sums ("statistics") of the multipliers of exponentially many cuts.  All of them are linear in the masks:
cuts of one neuron, mixed, are one cut whose mask has entries between 0 and 1.  So the prices are held as multipliers of
a Lagrangian with one mixed cut per neuron, whatever the number of masks was, and prove their bound like any others.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from verifier.bounding.core.state import State, tree_map
from verifier.bounding.core.sweep import Remainder, Sweep
from verifier.bounding.cuts.anderson import RowGeometry
from verifier.bounding.cuts.masks import CutMasks, Form, GroupBits, by_weight
from verifier.bounding.solvers.lagrangian import Inner, Lagrangian, Multipliers, priced
from verifier.shapes import Bool, Float, Tensor

T = TypeVar("T")


def blend(first: T, second: T, weight: float) -> T:
    """(1 - weight) first + weight second."""
    return tree_map(lambda a, b: torch.lerp(a, b, weight), first, second)


@dataclass(frozen=True, eq=False)
class DualVertex(State):
    """A vertex of the capped prices of one group: at each kink alpha, and one of all constraints from above."""

    alpha: Float[Tensor, "D S a"]
    beta0: Float[Tensor, "D S a"]
    beta1: Float[Tensor, "D S a"]
    beta_c: Float[Tensor, "D S a"]
    mask: Bool[Tensor, "D S a t"] | None  # of the cuts; None where there are none


@dataclass(frozen=True, eq=False)
class Prices(State):
    """The multipliers at the kinks of one group; `beta_c` is the sum over all cuts, `mask` their mixture."""

    alpha: Float[Tensor, "D S a"]
    beta0: Float[Tensor, "D S a"]
    beta1: Float[Tensor, "D S a"]
    beta_c: Float[Tensor, "D S a"]
    mask: Float[Tensor, "D S a t"] | None  # None where a group takes no cuts

    @property
    def total(self) -> Float[Tensor, "D S a"]:
        """The sum of all beta."""
        return self.beta0 + self.beta1 + self.beta_c

    def towards(self, reply: DualVertex, weight: float) -> Prices:
        """(1 - weight) times these and weight times the reply."""
        beta_c = torch.lerp(self.beta_c, reply.beta_c, weight)
        mask = self.mask
        if mask is not None and reply.mask is not None:
            part = _share(weight * reply.beta_c, beta_c)
            mask = torch.lerp(mask, reply.mask.to(mask.dtype), part.unsqueeze(-1)).clamp_(0.0, 1.0)
        alpha = torch.lerp(self.alpha, reply.alpha, weight)
        beta0 = torch.lerp(self.beta0, reply.beta0, weight)
        beta1 = torch.lerp(self.beta1, reply.beta1, weight)
        return Prices(alpha, beta0, beta1, beta_c, mask)


def _share(part: Float[Tensor, "D S a"], whole: Float[Tensor, "D S a"]) -> Float[Tensor, "D S a"]:
    """part / whole, between 0 and 1; 0 where there is nothing."""
    return torch.where(whole > 0, part / whole, 0.0).clamp_(0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Primal(State):
    """A point of the boxes: the input, and x and z at the kinks of each group."""

    x0: Float[Tensor, "D S n0"]
    x: tuple[Float[Tensor, "D S _"], ...]
    z: tuple[Float[Tensor, "D S _"], ...]

    def flat(self) -> Float[Tensor, "D S P"]:
        """All of it side by side."""
        return torch.cat([self.x0, *self.x, *self.z], dim=-1)

    @classmethod
    def shaped(cls, flat: Float[Tensor, "D S P"], sizes: Sequence[int]) -> Primal:
        """The inverse of `flat`; `sizes` are the kinks of each group."""
        inputs = flat.shape[-1] - 2 * sum(sizes)
        x0, *rest = flat.split([inputs, *sizes, *sizes], dim=-1)
        return cls(x0, tuple(rest[: len(sizes)]), tuple(rest[len(sizes) :]))


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
class Saddle(State):
    """The bilinear function of prices and primal points, and the best answer of either side.

    The multipliers of splits keep the values that the initial ascent found.
    """

    dual: Lagrangian  # without cuts
    rows: tuple[RowGeometry | None, ...]
    splits: tuple[Float[Tensor, "D S _"], ...]

    @classmethod
    def of(cls, dual: Lagrangian, point: Float[Tensor, "D S V"], rows: tuple[RowGeometry | None, ...]) -> Saddle:
        return cls(replace(dual, cuts=()), rows, tuple(at.split for at in dual.views(point)))

    @property
    def sweep(self) -> Sweep:
        return self.dual.sweep

    def start(self, dual: Lagrangian, point: Float[Tensor, "D S V"], masks: CutMasks) -> tuple[Prices, ...]:
        """The prices of explicit multipliers; `masks` are those of the dual's cuts."""
        found = []
        for k, at in enumerate(dual.views(point)):
            free, rows = self.sweep.kinks[k].ambiguous, self.rows[k]
            beta_c, mask = torch.zeros_like(at.alpha), None
            if rows is not None:
                mask = at.alpha.new_zeros(*at.alpha.shape, rows.weights.shape[-1])
                for bits, beta in zip((cut[k] for cut in masks.cuts), at.cuts, strict=True):
                    if bits is not None:
                        beta_c = beta_c + beta * free
                        part = _share(beta * free, beta_c).unsqueeze(-1)
                        mask = torch.lerp(mask, by_weight(bits, rows).to(mask.dtype).expand_as(mask), part)
            found.append(Prices(at.alpha * free, at.beta0 * free, at.beta1 * free, beta_c, mask))
        return tuple(found)

    def multipliers(self, prices: Sequence[Prices]) -> tuple[Float[Tensor, "D S V"], CutMasks]:
        """The prices as the variables of a Lagrangian with these masks."""
        blocks = [[p.alpha for p in prices], [p.beta0 for p in prices], [p.beta1 for p in prices], list(self.splits)]
        blocks.append([p.beta_c for p in prices])
        nothing = self.dual.zero()[..., :0]  # a network may have no group at all
        masks = tuple(None if p.mask is None else GroupBits(Form.MIXED, p.mask) for p in prices)
        return torch.cat([nothing, *(part for block in blocks for part in block)], dim=-1), CutMasks((masks,))

    def answer(self, prices: Sequence[Prices]) -> Inner:
        """The bound for given prices: the least value over the boxes, and where it is attained."""
        both = zip(self.rows, prices, strict=True)
        cuts = tuple(None if rows is None or p.mask is None else rows.cut(p.mask) for rows, p in both)
        return self.dual.with_cuts(cuts).evaluate(self.multipliers(prices)[0])

    def reply(self, primal: Primal, caps: Sequence[Caps], with_cuts: bool) -> tuple[DualVertex, ...]:
        """The prices that are worst for a primal point: [SCB] eq:alphak-condg and eq:betak-condg."""
        values, x_hats = self.sweep.through_kinks(primal.x0, primal.x)
        found = []
        for k, (kinks, x_hat) in enumerate(zip(self.sweep.kinks, x_hats, strict=True)):
            x, z, rows = primal.x[k], primal.z[k], self.rows[k] if with_cuts else None
            beta = caps[k].beta * kinks.ambiguous
            gain0 = x - kinks.u_hat * z
            gain1 = x - x_hat + kinks.l_hat * (1 - z)
            best = torch.maximum(gain0, gain1)
            use_cut, mask = torch.zeros_like(kinks.ambiguous), None
            if rows is not None:
                excess = rows.excess(values, z)
                gain_cut = x - z * (rows.bias + rows.w_u.sum(dim=-1)) + excess.clamp(min=0).sum(dim=-1)
                use_cut = (gain_cut > best) & (gain_cut >= 0)
                best = torch.maximum(best, gain_cut)
                mask = excess >= 0
            use0 = (gain0 == best) & (best >= 0)
            use1 = (gain1 == best) & (best >= 0) & ~use0
            alpha = caps[k].alpha * (x_hat >= x) * kinks.ambiguous
            found.append(DualVertex(alpha, beta * use0, beta * use1, beta * use_cut, mask))
        return tuple(found)

    def gradient(self, prices: Sequence[DualVertex]) -> Float[Tensor, "D S P"]:
        """What each coordinate of a primal point is worth at given prices without cuts; as `Primal.flat` has them."""
        f: dict[int, Tensor] = {}

        def eliminate(k: int, lam: Tensor | None, rest: Remainder) -> Tensor:
            kinks, at = self.sweep.kinks[k - 1], prices[k - 1]
            own = self.sweep.zeros(k, self.dual.objective) if lam is None else lam
            lam_kinks = kinks.gather(own)
            f[k] = (lam_kinks - at.alpha + at.beta0 + at.beta1) * kinks.ambiguous
            multipliers = Multipliers(at.alpha, at.beta0, at.beta1, self.splits[k - 1], ())
            return kinks.scatter(own, priced(kinks, lam_kinks, multipliers))

        slope = self.sweep.walk(self.dual.objective, eliminate).slope
        g = [p.beta0 * kinks.u_hat + p.beta1 * kinks.l_hat for p, kinks in zip(prices, self.sweep.kinks, strict=True)]
        return torch.cat([slope, *(f[k] for k in range(1, self.sweep.layer)), *(-part for part in g)], dim=-1)
