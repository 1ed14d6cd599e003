"""Sets of masks for batches of domains: bits only, so that they can be stored, inherited and gathered.

A mask gives a valid cut in every domain; its constants are computed from the domain's own boxes when a dual is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial

import torch

from verifier.bounding.core.state import State, tree_map
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.anderson import Cut, RowGeometry, SharedGeometry
from verifier.bounding.cuts.balanced import BalancedGeometry
from verifier.shapes import Bool, Float, Tensor

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
class GroupBits(State):
    """The bits of one cut at the kinks of one group, all sources side by side."""

    form: Form
    bits: Bool[Tensor, "D #S ..."]

    def cut(self, geometry: Geometry) -> Cut:
        """The cut, with constants for the geometry's regions.  Require: the geometry of this form at this group."""
        if isinstance(geometry, SharedGeometry):
            return geometry.cut(self.bits.split([term.n_in for _, term in geometry.terms], dim=-1))
        return geometry.cut(self.bits)


@dataclass(frozen=True, eq=False)
class CutMasks(State):
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

    def padded(self, like: CutMasks, shape: Sequence[int]) -> CutMasks:
        """With as many cuts as `like`; the new ones have empty masks for so many regions and objectives."""
        missing = CutMasks(like.cuts[self.count :])
        return self.join(tree_map(lambda bits: bits.new_zeros(*shape, *bits.shape[2:]), missing))

    def join(self, other: CutMasks) -> CutMasks:
        """The cuts of both."""
        return CutMasks((*self.cuts, *other.cuts))


def refreshed(masks: CutMasks, uses: Float[Tensor, "D C"], new: CutMasks) -> CutMasks:
    """Masks in which every region's least used cuts have given way to new ones.

    Require: at most as many new cuts, of the same form and at the same groups as all old ones.
    """
    weakest = uses.argsort(dim=1)[:, : new.count]
    cuts = []
    for c, old in enumerate(masks.cuts):
        groups = old
        for n, fresh in enumerate(new.cuts):
            groups = tree_map(partial(_where, weakest[:, n] == c), fresh, groups)
        cuts.append(groups)
    return CutMasks(tuple(cuts))


def _where(here: Bool[Tensor, " D"], new: Bool[Tensor, "D #S ..."], old: Bool[Tensor, "D #S ..."]) -> Tensor:
    return torch.where(here.reshape(-1, *[1] * (new.dim() - 1)), new, old)
