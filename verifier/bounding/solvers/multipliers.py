"""Multipliers with their masks: a proof that can be evaluated again, and a state that a child can start from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import prod

import torch

from verifier.bounding.core.ascent import Best
from verifier.bounding.core.base import Bound, Objective, Proof, Region
from verifier.bounding.core.state import halved
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.anderson import Cut, RowGeometry, RowMaskCut, SharedGeometry
from verifier.bounding.solvers.alpha_crown import SlopeDual, SlopeProof
from verifier.bounding.solvers.lagrangian import Lagrangian
from verifier.network.network import Network
from verifier.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class Bits:
    """Zeros and ones, one per byte or (`packed`) eight of them."""

    data: Tensor  # [D, S, ..., size], or [D, S, ..., ceil(size / 8)] if packed
    size: int
    packed: bool = False

    @classmethod
    def of(cls, mask: Bool[Tensor, "D S ..."]) -> Bits:
        return cls(mask, mask.shape[-1])

    def compact(self) -> Bits:
        if self.packed:
            return self
        eights = torch.nn.functional.pad(self.data, (0, -self.size % 8)).unflatten(-1, (-1, 8))
        return Bits((eights * self._weights()).sum(dim=-1, dtype=torch.uint8), self.size, packed=True)

    def unpacked(self) -> Bool[Tensor, "D S ..."]:
        if not self.packed:
            return self.data
        return (self.data.unsqueeze(-1) & self._weights()).bool().flatten(-2)[..., : self.size]

    def _weights(self) -> Tensor:
        return 2 ** torch.arange(8, dtype=torch.uint8, device=self.data.device)

    def empty(self, regions: int, objectives: int) -> Bits:
        """As many bits, none of them set."""
        return replace(self, data=self.data.new_zeros(regions, objectives, *self.data.shape[2:]))

    def cat(self, parts: Sequence[Bits], dim: int) -> Bits:
        """Packed or not as this one is."""
        found = [part.compact() if self.packed else Bits.of(part.unpacked()) for part in parts]
        return replace(self, data=torch.cat([part.data for part in found], dim=dim))


@dataclass(frozen=True, eq=False)
class GroupMasks:
    """The masks of one set of cuts at one group: one bit per weight of each kink, or two bits per input."""

    per_weight: bool
    bits: tuple[Bits, ...]

    @classmethod
    def of(cls, cut: Cut) -> GroupMasks:
        return cls(isinstance(cut, RowMaskCut), tuple(Bits.of(mask) for mask in cut.masks))

    def empty(self, regions: int, objectives: int) -> GroupMasks:
        """Masks of the same form with no bit set."""
        return replace(self, bits=tuple(b.empty(regions, objectives) for b in self.bits))

    def at(self, where: tuple[slice | Tensor, ...]) -> GroupMasks:
        """The masks of some regions or objectives."""
        return replace(self, bits=tuple(replace(b, data=b.data[where]) for b in self.bits))

    def cat(self, parts: Sequence[GroupMasks], dim: int) -> GroupMasks:
        columns = zip(*(part.bits for part in parts), strict=True)
        return replace(self, bits=tuple(same[0].cat(same, dim) for same in columns))

    @property
    def bytes_each(self) -> int:
        """Of one region and objective, not packed."""
        return sum(prod(b.data.shape[2:-1]) * b.size for b in self.bits)

    def compact(self) -> GroupMasks:
        return replace(self, bits=tuple(b.compact() for b in self.bits))

    def cut(self, geometry: RowGeometry | SharedGeometry) -> Cut:
        """The cuts of these masks, with constants for the geometry's regions."""
        masks = tuple(b.unpacked() for b in self.bits)
        return geometry.cut(masks[0]) if isinstance(geometry, RowGeometry) else geometry.cut(masks)


MaskSet = tuple[GroupMasks | None, ...]
"""The masks of one set of cuts, group by group."""


class Explicit(Proof):
    """A proof that has multipliers one by one, if not only these."""

    @abstractmethod
    def explicit(self) -> MultiplierProof:
        """The multipliers and their masks."""


@dataclass(frozen=True, eq=False)
class MultiplierProof(Explicit):
    """The multipliers of a Lagrangian and the masks of its cuts, set by set and group by group."""

    point: Float[Tensor, "D S V"]
    masks: tuple[MaskSet, ...] = ()

    def explicit(self) -> MultiplierProof:
        return self

    def evaluate(self, net: Network, region: Region, objective: Objective) -> Float[Tensor, "D S"]:
        dual = self.dual(Lagrangian(Sweep.prepare(net, region, objective.layer), objective))
        return dual.evaluate(self.start(dual)).lower

    def dual(self, plain: Lagrangian) -> Lagrangian:
        """The Lagrangian that the multipliers belong to: with cuts whose constants are those of its regions."""
        sweep = plain.sweep

        @cache  # the sets of masks share what they have in common: it is large
        def geometry(k: int, per_weight: bool) -> RowGeometry | SharedGeometry:
            kind = RowGeometry if per_weight else SharedGeometry
            found = kind.of(sweep.net.layers[k], sweep.region, sweep.kinks[k].index)
            assert found is not None, "masks exist only where the weights are within reach"
            return found

        for masks in self.masks:
            cuts = [None if m is None else m.cut(geometry(k, m.per_weight)) for k, m in enumerate(masks)]
            plain = plain.with_cuts(tuple(cuts))
        return plain

    def start(self, dual: Lagrangian) -> Float[Tensor, "D S V"]:
        """The multipliers in the precision of `dual`; those of cuts that it does not have are left out."""
        point = self.point[..., : dual.variables].to(dual.sweep.region.lower.dtype, copy=True)
        dual.project(point)
        return point

    def joined(self, parts: Sequence[MultiplierProof]) -> MultiplierProof:
        return _together(parts, dim=1)

    def cat(self, parts: Sequence[MultiplierProof]) -> MultiplierProof:
        return _together(parts, dim=0)

    def part(self, start: int, stop: int) -> MultiplierProof:
        return self._at((slice(None), slice(start, stop)))

    def select(self, rows: Int[Tensor, " d"]) -> MultiplierProof:
        return self._at((rows,))

    def compact(self) -> MultiplierProof:
        masks = tuple(tuple(None if m is None else m.compact() for m in masks) for masks in self.masks)
        return MultiplierProof(halved(self.point), masks)

    def _at(self, where: tuple[slice | Tensor, ...]) -> MultiplierProof:
        masks = tuple(tuple(None if m is None else m.at(where) for m in masks) for masks in self.masks)
        return MultiplierProof(self.point[where], masks)

    def padded(self, like: MultiplierProof) -> MultiplierProof:
        """With as many sets of masks as `like`: a deadline may have ended one part before its masks were added.

        The variables of cuts come last, and a cut with multiplier zero changes nothing.
        """
        shape = self.point.shape[:2]
        missing = tuple(
            tuple(None if m is None else m.empty(*shape) for m in masks) for masks in like.masks[len(self.masks) :]
        )
        extra = like.point.shape[-1] - self.point.shape[-1]
        return MultiplierProof(torch.nn.functional.pad(self.point, (0, extra)), (*self.masks, *missing))


def _together(parts: Sequence[MultiplierProof], dim: int) -> MultiplierProof:
    """Proofs side by side, over regions or over objectives."""
    longest = max(parts, key=lambda part: len(part.masks))
    parts = [part.padded(longest) for part in parts]
    sets = [
        tuple(_one_group(group, dim) for group in zip(*same, strict=True))
        for same in zip(*(part.masks for part in parts), strict=True)
    ]
    return MultiplierProof(torch.cat([part.point for part in parts], dim=dim), tuple(sets))


def _one_group(parts: Sequence[GroupMasks | None], dim: int) -> GroupMasks | None:
    """A group has masks in all parts or in none: that depends on its weights and kinks only."""
    known = [part for part in parts if part is not None]
    return known[0].cat(known, dim) if known else None


def masks_of(warm: Proof | None) -> tuple[MaskSet, ...]:
    """The sets of masks that a state has."""
    return warm.explicit().masks if isinstance(warm, Explicit) else ()


def with_cuts_of(warm: Proof, plain: Lagrangian) -> Lagrangian:
    """The Lagrangian with the cuts of a parent's state, if it has any."""
    return warm.explicit().dual(plain) if isinstance(warm, Explicit) else plain


def point_of(warm: Proof, dual: Lagrangian) -> Float[Tensor, "D S V"]:
    """The multipliers of a parent's state; those of cuts that `dual` does not have are left out.

    Neurons that were split since are settled: the multipliers of the splits take over.  Slopes become multipliers of
    the same value.  Raises TypeError for a state of any other kind.
    """
    if isinstance(warm, Explicit):
        point = warm.explicit().start(dual)
        dual.settle(point)
        return point
    if not isinstance(warm, SlopeProof):
        raise TypeError(f"multipliers cannot start from {type(warm).__name__}")
    slopes = SlopeDual(dual.sweep, dual.objective)
    choices = slopes.choices(warm.start(slopes))
    trace = dual.sweep.backward(dual.objective, choices)
    return dual.from_trace(trace, [c.slope for c in choices], [c.split for c in choices])


def proof_of(dual: Lagrangian, point: Float[Tensor, "D S V"]) -> MultiplierProof:
    """Multipliers with the masks of the cuts they belong to."""
    masks = tuple(tuple(None if c is None else GroupMasks.of(c) for c in cuts) for cuts in dual.cuts)
    return MultiplierProof(point, masks)


def proved(dual: Lagrangian, best: Best) -> Bound:
    """The result of an ascent on a Lagrangian."""
    return Bound(best.lower, dual.evaluate(best.point).x0, proof_of(dual, best.point), best.iterations)
