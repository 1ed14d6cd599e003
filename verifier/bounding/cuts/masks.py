"""Sets of masks for batches of domains: bits only, so that they can be stored, inherited and gathered.

A mask gives a valid cut in every domain; its constants are computed from the domain's own boxes when a dual is made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

import torch

from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.anderson import Cut, RowGeometry, SharedGeometry
from verifier.bounding.cuts.balanced import BalancedGeometry
from verifier.shapes import Bool, Float, Int, Tensor

Geometry = BalancedGeometry | SharedGeometry | RowGeometry


class Form(Enum):
    """How bits stand for a mask."""

    BALANCED = "balanced"  # one bit per input of the group
    SHARED = "shared"  # two bits per input: for positive, then for negative weights, source by source
    ROWS = "rows"  # one bit per weight of each kink

    def geometry(self, sweep: Sweep, k: int) -> Geometry | None:
        """What all cuts of this form at group k share; None if the weights are out of reach."""
        of = (sweep.net.layers[k - 1], sweep.region, sweep.kinks[k - 1].index)
        if self is Form.ROWS:
            return RowGeometry.of(*of)
        return BalancedGeometry.of(*of) if self is Form.BALANCED else SharedGeometry.of(*of)


@dataclass(frozen=True, eq=False)
class GroupBits:
    """The bits of one cut at the kinks of one group, all sources side by side."""

    form: Form
    bits: Bool[Tensor, "D #S ..."]

    def cut(self, geometry: Geometry) -> Cut:
        """The cut, with constants for the geometry's regions.  Require: the geometry of this form at this group."""
        if isinstance(geometry, SharedGeometry):
            return geometry.cut(self.bits.split([term.n_in for _, term in geometry.terms], dim=-1))
        return geometry.cut(self.bits)


@dataclass(frozen=True, eq=False)
class CutMasks:
    """For every cut the bits of each group; None where a group takes no cut.

    All cuts have bits at the same groups or fewer.  The bits are bytes on the device of the domains.
    """

    cuts: tuple[tuple[GroupBits | None, ...], ...] = ()

    @property
    def count(self) -> int:
        """How many cuts each neuron has, at most."""
        return len(self.cuts)

    @property
    def bytes_each(self) -> int:
        """The memory that the masks of one region take."""
        return sum(g.bits[:1].numel() for cut in self.cuts for g in cut if g is not None)

    def select(self, rows: Int[Tensor, " d"]) -> CutMasks:
        """The masks of some regions; a region may be named more than once."""
        return self._mapped(lambda g: replace(g, bits=g.bits[rows]))

    def part(self, start: int, stop: int) -> CutMasks:
        """The masks of the objectives from `start` up to `stop`."""
        return self._mapped(lambda g: g if g.bits.shape[1] == 1 else replace(g, bits=g.bits[:, start:stop]))

    def padded(self, like: CutMasks, shape: Sequence[int]) -> CutMasks:
        """With as many cuts as `like`; the new ones have empty masks for so many regions and objectives."""
        missing = CutMasks(like.cuts[self.count :])
        return self.join(missing._mapped(lambda g: replace(g, bits=g.bits.new_zeros(*shape, *g.bits.shape[2:]))))

    def _mapped(self, change: Callable[[GroupBits], GroupBits]) -> CutMasks:
        return CutMasks(tuple(tuple(None if g is None else change(g) for g in cut) for cut in self.cuts))

    def join(self, other: CutMasks) -> CutMasks:
        """The cuts of both."""
        return CutMasks((*self.cuts, *other.cuts))

    @classmethod
    def cat(cls, parts: Sequence[CutMasks], dim: int = 0) -> CutMasks:
        """The masks of several batches (or, with dim 1, of several parts of an objective) as one.

        Require: all have as many cuts, of the same forms and at the same groups.
        """
        columns = zip(*(part.cuts for part in parts), strict=True)
        return cls(tuple(tuple(_cat(same, dim) for same in zip(*cut, strict=True)) for cut in columns))


def _cat(parts: Sequence[GroupBits | None], dim: int) -> GroupBits | None:
    known = [part for part in parts if part is not None]
    if len(known) not in (0, len(parts)) or len({part.form for part in known}) > 1:
        raise ValueError("only masks of the same forms at the same groups can be put together")
    return replace(known[0], bits=torch.cat([part.bits for part in known], dim=dim)) if known else None


def refreshed(masks: CutMasks, uses: Float[Tensor, "D C"], new: CutMasks) -> tuple[CutMasks, Bool[Tensor, "D C"]]:
    """Masks in which every region's least used cuts have given way to new ones, and which cuts these are.

    Require: at most as many new cuts, of the same form and at the same groups as all old ones.
    """
    weakest = uses.argsort(dim=1)[:, : new.count]
    replaced = torch.zeros_like(uses, dtype=torch.bool).scatter_(1, weakest, True)
    cuts = []
    for c, old in enumerate(masks.cuts):
        groups = list(old)
        for n, fresh in enumerate(new.cuts):
            here = weakest[:, n] == c
            groups = [_where(here, a, b) for a, b in zip(fresh, groups, strict=True)]
        cuts.append(tuple(groups))
    return CutMasks(tuple(cuts)), replaced


def _where(here: Bool[Tensor, " D"], new: GroupBits | None, old: GroupBits | None) -> GroupBits | None:
    if new is None and old is None:
        return None
    if new is None or old is None or new.form is not old.form:
        raise ValueError("a cut can only be replaced by one of the same form at the same groups")
    chosen = here.reshape(-1, *[1] * (new.bits.dim() - 1))
    return replace(old, bits=torch.where(chosen, new.bits, old.bits))
