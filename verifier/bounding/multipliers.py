"""Multipliers with their masks as a proof that can be evaluated again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verifier.bounding.anderson import Cut, RowGeometry, RowMaskCut, SharedGeometry
from verifier.bounding.ascent import Best
from verifier.bounding.base import Bound, Objective, Proof, Region
from verifier.bounding.lagrangian import Lagrangian
from verifier.bounding.sweep import Sweep
from verifier.network.network import Affine, Network
from verifier.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class GroupMasks:
    """The masks of one set of cuts at one group: one bit per weight of each kink, or two bits per input."""

    per_weight: bool
    bits: tuple[Bool[Tensor, "D S ..."], ...]

    @classmethod
    def of(cls, cut: Cut) -> GroupMasks:
        return cls(isinstance(cut, RowMaskCut), cut.masks)

    def empty(self, objectives: int) -> GroupMasks:
        """Masks of the same form, for that many objectives, with no bit set."""
        bits = [b.new_zeros(b.shape[0], objectives, *b.shape[2:]) for b in self.bits]
        return GroupMasks(self.per_weight, tuple(bits))

    def cut(self, layer: Affine, region: Region, index: Int[Tensor, " a"]) -> Cut | None:
        """The cuts of these masks, with constants for the region; None if the weights are out of reach."""
        if self.per_weight:
            return RowGeometry.of(layer, region, index).cut(self.bits[0])
        geometry = SharedGeometry.of(layer, region, index)
        return None if geometry is None else geometry.cut(self.bits)


@dataclass(frozen=True, eq=False)
class MultiplierProof(Proof):
    """The multipliers of a Lagrangian and the masks of its cuts, set by set and group by group."""

    point: Float[Tensor, "D S V"]
    masks: tuple[tuple[GroupMasks | None, ...], ...] = ()

    def evaluate(self, net: Network, region: Region, objective: Objective) -> Float[Tensor, "D S"]:
        dual = self.dual(Sweep.prepare(net, region, objective.layer), objective)
        point = self.point.to(region.lower.dtype).clone()
        dual.project(point)
        return dual.evaluate(point).lower

    def dual(self, sweep: Sweep, objective: Objective) -> Lagrangian:
        """The Lagrangian that the multipliers belong to."""
        dual = Lagrangian(sweep, objective)
        for masks in self.masks:
            cuts = [
                None if m is None else m.cut(layer, sweep.region, kinks.index)
                for m, layer, kinks in zip(masks, sweep.net.layers, sweep.kinks, strict=False)
            ]
            dual = dual.with_cuts(tuple(cuts))
        return dual

    def joined(self, parts: Sequence[MultiplierProof]) -> MultiplierProof:
        longest = max(parts, key=lambda part: len(part.masks))
        parts = [part._padded(longest) for part in parts]
        sets = [
            tuple(None if group[0] is None else _joined_masks(group) for group in zip(*same, strict=True))
            for same in zip(*(part.masks for part in parts), strict=True)
        ]
        return MultiplierProof(torch.cat([part.point for part in parts], dim=1), tuple(sets))

    def _padded(self, like: MultiplierProof) -> MultiplierProof:
        """With as many sets of masks as `like`: a deadline may have ended one part before its masks were added.

        The variables of cuts come last, and a cut with multiplier zero changes nothing.
        """
        count = self.point.shape[1]
        missing = tuple(
            tuple(None if m is None else m.empty(count) for m in masks) for masks in like.masks[len(self.masks) :]
        )
        extra = like.point.shape[-1] - self.point.shape[-1]
        return MultiplierProof(torch.nn.functional.pad(self.point, (0, extra)), (*self.masks, *missing))


def _joined_masks(parts: Sequence[GroupMasks | None]) -> GroupMasks:
    known = [part for part in parts if part is not None]
    bits = [torch.cat(same, dim=1) for same in zip(*(part.bits for part in known), strict=True)]
    return GroupMasks(known[0].per_weight, tuple(bits))


def proved(dual: Lagrangian, best: Best) -> Bound:
    """The result of an ascent on a Lagrangian."""
    masks = tuple(tuple(None if c is None else GroupMasks.of(c) for c in cuts) for cuts in dual.cuts)
    x0 = dual.evaluate(best.point).x0
    return Bound(best.lower, x0, MultiplierProof(best.point, masks), best.iterations)
