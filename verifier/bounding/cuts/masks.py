"""Masks as bits, and the oracle that finds them: they are stored, inherited and gathered; cuts are made from them.

A mask gives a valid cut in every domain; its constants are computed from the domain's own boxes when a dual is made.
The oracle is the separation oracle of the Anderson relaxation, asked at a primal point for all groups at once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

import torch

from verifier.bounding.core.ascent import Average
from verifier.bounding.core.state import State, once, tree_map
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.anderson import Cut, RowGeometry, SharedGeometry, reads_only_moved_inputs
from verifier.bounding.cuts.balanced import BalancedGeometry
from verifier.bounding.relaxation.relu import Kinks
from verifier.shapes import Bool, Float, Tensor

Geometry = BalancedGeometry | SharedGeometry | RowGeometry

Threshold = float | None
"""Of the oracle: a number that all neurons of a group share, or None for the z of each neuron (exact masks)."""


class Form(Enum):
    """How bits stand for a mask."""

    BALANCED = "balanced"  # one bit per input of the group
    SHARED = "shared"  # two bits per input: for positive, then for negative weights, source by source
    ROWS = "rows"  # one bit per weight of each kink
    MIXED = "mixed"  # one share per weight of each kink: a mixture of masks
    LEARNED = "learned"  # one share per input, as BALANCED: these are variables, and bits are where they begin

    @classmethod
    def of(cls, threshold: Threshold) -> Form:
        """The cheapest form of the masks that an oracle with this threshold finds."""
        if threshold is None:
            return cls.ROWS
        return cls.BALANCED if threshold == 0.5 else cls.SHARED


class Geometries:
    """What all cuts of one form at one group share, for one batch of regions: large, so it is computed once."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self._known: dict[tuple[int, Form], Geometry | None] = {}

    def at(self, k: int, form: Form) -> Geometry | None:
        """Of group k (from 0); None if it has no kinks, or if its weights are out of reach: it then takes no cut."""
        form = {Form.MIXED: Form.ROWS, Form.LEARNED: Form.BALANCED}.get(form, form)
        if (k, form) not in self._known:
            self._known[k, form] = self._made(k, form)
        return self._known[k, form]

    def _made(self, k: int, form: Form) -> Geometry | None:
        kinks = self.sweep.bent(k + 1)
        if kinks is None:
            return None
        of = (self.sweep.net.layers[k], self.sweep.region, kinks.index)
        if form is Form.ROWS:
            return RowGeometry.of(*of)
        return SharedGeometry.of(*of) if form is Form.SHARED else BalancedGeometry.of(*of)

    def rows(self) -> tuple[RowGeometry | None, ...]:
        """The weights of the kinks of all groups, one by one."""
        found = (self.at(k, Form.ROWS) for k in range(len(self.sweep.neurons)))
        return tuple(geometry if isinstance(geometry, RowGeometry) else None for geometry in found)


@dataclass(frozen=True, eq=False)
class GroupBits(State):
    """The bits of one cut at the kinks of one group, all sources side by side.

    A cut depends linearly on its mask, so the cuts of several masks, mixed, are the cut of a mask whose entries lie
    between 0 and 1.  Such a mask is held in single precision: any number of the interval gives a valid cut.
    """

    form: Form
    bits: Bool[Tensor, "D #S ..."] | Float[Tensor, "D #S ..."]

    def begun(self) -> GroupBits:
        """The same once the variables have taken it over, if it is learned."""
        return replace(self, bits=self.bits[..., :0]) if self.form is Form.LEARNED else self

    def cut(self, geometry: Geometry) -> Cut:
        """The cut, with constants for the geometry's regions.  Require: the geometry of this form at this group."""
        made: Cut = once(lambda mine, bits: mine.cut(bits), geometry, self.bits)
        return made


def by_weight(bits: GroupBits, geometry: RowGeometry) -> Tensor:
    """The same mask with an entry for each weight of each kink, [D, #S, a, t].  Require: the geometry of the group."""
    if bits.form in (Form.ROWS, Form.MIXED):
        return bits.bits
    doubled = [part.chunk(2, dim=-1) for part in bits.bits.split([2 * size for size in geometry.sizes], dim=-1)]
    positive, negative = (torch.cat([pair[side] for pair in doubled], dim=-1) for side in (0, 1))
    return torch.where(geometry.weights > 0, positive[..., geometry.columns], negative[..., geometry.columns])


MaskSet = tuple[GroupBits | None, ...]
"""The bits of one cut, group by group; None where a group takes no cut."""


@dataclass(frozen=True, eq=False)
class CutMasks(State):
    """For every cut the bits of each group.  The bits are bytes on the device of the domains."""

    cuts: tuple[MaskSet, ...] = ()

    @property
    def count(self) -> int:
        """How many cuts each neuron has, at most."""
        return len(self.cuts)

    @property
    def places(self) -> list[tuple[int, int]]:
        """Every cut and the groups that take it, in the order of the variables; both count from 0."""
        return [(c, k) for c, cut in enumerate(self.cuts) for k, bits in enumerate(cut) if bits is not None]

    def padded(self, like: CutMasks, shape: Sequence[int]) -> CutMasks:
        """With as many cuts as `like`; the new ones have empty masks for so many regions and objectives."""
        missing = CutMasks(like.cuts[self.count :])
        return self.join(tree_map(lambda bits: bits.new_zeros(*shape, *bits.shape[2:]), missing))

    def join(self, other: CutMasks) -> CutMasks:
        """The cuts of both."""
        return CutMasks((*self.cuts, *other.cuts))

    @property
    def groups(self) -> frozenset[int]:
        """The groups that take some cut, counted from 0."""
        return frozenset(k for _, k in self.places)

    @property
    def learned(self) -> dict[int, GroupBits]:
        """By the group: where the shares begin that are variables."""
        found = (pair for cut in self.cuts for pair in enumerate(cut))
        return {k: bits for k, bits in found if bits is not None and bits.form is Form.LEARNED}

    def begun(self) -> CutMasks:
        """The same once the variables have taken over what is learned."""
        return CutMasks(tuple(tuple(None if g is None else g.begun() for g in cut) for cut in self.cuts))

    def only(self, groups: Container[int]) -> CutMasks:
        """The same at some groups; the others take no cut."""
        return CutMasks(tuple(tuple(g if k in groups else None for k, g in enumerate(cut)) for cut in self.cuts))


def find_masks(
    geometries: Geometries,
    average: Average,
    form: Form,
    threshold: float = 0.5,
    groups: Container[int] | None = None,
) -> MaskSet:
    """The masks of the most violated cuts at an averaged point; regions that have left get empty masks.

    Require: some point in `average`.  `threshold` is the z of all neurons where they share a mask.  Groups without
    kinks take no cut, nor do those whose neurons read one input each or whose weights are out of reach, nor any but
    the given ones.
    """
    sweep, rows, (values, z) = geometries.sweep, average.rows, average.mean()
    found: list[GroupBits | None] = []
    for k, layer in enumerate(sweep.net.layers[: len(sweep.neurons)]):
        x, kinks = values[k + 1], sweep.bent(k + 1)
        takes = (groups is None or k in groups) and not reads_only_moved_inputs(layer)
        geometry = None if x is None or not takes else geometries.at(k, form)
        if x is None or geometry is None or kinks is None:
            found.append(None)
            continue
        if len(rows) < sweep.region.count:
            geometry = geometry.select(rows)
        if isinstance(geometry, RowGeometry):
            bits = geometry.bits(values, z[k] if z else _middle(kinks.select(rows), x, layer.forward(values)))
        elif isinstance(geometry, SharedGeometry):
            bits = geometry.bits(values, threshold)
        else:
            bits = geometry.bits(values)
        if len(rows) < sweep.region.count:
            bits = bits.new_zeros(sweep.region.count, *bits.shape[1:]).index_copy_(0, rows, bits)
        found.append(GroupBits(form, bits))
    return tuple(found)


class Selection(ABC):
    """Which masks are added when it is time for some."""

    @abstractmethod
    def masks(self, geometries: Geometries, average: Average, form: Form, threshold: float, number: int) -> MaskSet:
        """One for each kink, as `find_masks` has them; `number` counts those that were added before."""


@dataclass(frozen=True)
class MostViolated(Selection):
    """What the oracle finds."""

    def masks(self, geometries: Geometries, average: Average, form: Form, threshold: float, number: int) -> MaskSet:
        return find_masks(geometries, average, form, threshold)


@dataclass(frozen=True)
class RandomMasks(Selection):
    """Every bit a fair coin: what the oracle is to be compared with.

    The coins are the same for all regions and objectives, so that a batch is bounded like its members, and on all
    devices, because they are tossed in main memory.
    source: [SCB], "Ran. Selection" in the appendix on the selection criterion
    """

    seed: int = 0

    def masks(self, geometries: Geometries, average: Average, form: Form, threshold: float, number: int) -> MaskSet:
        like = find_masks(geometries, average, form, threshold)
        coins = torch.Generator().manual_seed(1000 * self.seed + number)
        return tree_map(partial(_tossed, coins), like)


def _tossed(coins: torch.Generator, like: Bool[Tensor, "D S ..."]) -> Bool[Tensor, "D S ..."]:
    return torch.randint(2, like.shape[2:], generator=coins).bool().to(like.device).expand_as(like)


def _middle(kinks: Kinks, x: Float[Tensor, "d S n"], x_hat: Float[Tensor, "d S n"]) -> Float[Tensor, "d S a"]:
    """The z of each kink: the middle of what Big-M leaves for it, x / u_hat <= z <= (x_hat - l_hat - x) / -l_hat.

    The choice changes bounds by less than .001, see docs/measured/bounding.md.
    """
    x, x_hat = x.index_select(-1, kinks.index), x_hat.index_select(-1, kinks.index)
    ends = x / kinks.u_hat + (x_hat - kinks.l_hat - x) / -kinks.l_hat
    return torch.where(kinks.ambiguous, 0.5 * ends, 0.0).clamp(0.0, 1.0)
