"""Witnesses as bytes (docs/proofs.md): all those of a batch are made at once, array by array.

requires:   witnesses whose numbers were rounded as they are written
guarantees: one list of pieces for every pair of a region and an objective, regions first
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from verifier.bounding.core.sweep import Kinks, Sweep
from verifier.bounding.cuts.anderson import RowMaskCut, SharedCut
from verifier.bounding.cuts.balanced import BalancedCut
from verifier.operators import LinearMap, Sum
from verifier.proofs.stream import Bools, Ints, Piece, sets, varint
from verifier.proofs.witness import CutPart, GroupPart, Precision, Witness
from verifier.shapes import Bool, Int, Tensor

Doubles = NDArray[np.float64]
Words = Sequence[Piece]
"""Consecutive pieces."""

Masks = tuple[int, Words, bytes]
"""Which weights a cut keeps: the form, what comes before the set of its neurons, and what after it."""

SLOPES, DELTAS, CUTS = 1, 2, 4
BALANCED, SHARED, ROWS = 0, 1, 2
SHARE, SHIFT = 0, 1

ONE = varint(1)
"""How many rows a witness is for."""

TYPES = {"|u1": b"\0", "<u2": b"\1", "<f4": b"\2", "<f8": b"\3"}
"""The byte that says what numbers follow."""


@dataclass(frozen=True)
class Wording:
    """How the numbers of a witness are written: as they were rounded; what scales with the objective, times `unit`."""

    precision: Precision
    unit: float = 1.0

    def shares(self, values: Doubles) -> NDArray[Any]:
        """Numbers of [0, 1]."""
        if self.precision.steps is None:
            return values.astype("<f4" if self.precision.single else "<f8")
        return np.rint(values * self.precision.steps).astype("u1" if self.precision.steps < 2**8 else "<u2")

    def numbers(self, values: Doubles) -> NDArray[Any]:
        """The unit is a power of two, which may be too large for short floats."""
        single = self.precision.single and self.unit == 1.0
        return (values * self.unit).astype("<f4" if single else "<f8")


@dataclass(frozen=True, eq=False)
class Encoder:
    """The witnesses of a batch, and how they are worded."""

    witness: Witness
    sweep: Sweep
    wording: Wording
    rows: Int[Tensor, " d"] | None = None  # the regions that are meant; None: all

    def encoded(self) -> list[list[Piece]]:
        """All of them."""
        sections = [self._sections(k) for k in range(len(self.sweep.neurons), 0, -1)]
        found = []
        for row in range(self.count):
            said = [section[row] for section in sections if section[row]]
            found.append([ONE + varint(len(said)), *chain.from_iterable(said)])
        return found

    @cached_property
    def _axes(self) -> tuple[int, int]:
        """How many regions there are, and how many objectives."""
        return self.sweep.region.count, max((part.slope.shape[1] for part in self.witness.groups), default=1)

    @property
    def count(self) -> int:
        """How many witnesses there are."""
        return (self._axes[0] if self.rows is None else len(self.rows)) * self._axes[1]

    def flat(self, values: Tensor) -> NDArray[Any]:
        """One row for every witness; either of the first two axes may have the size 1."""
        every = values.detach().expand(*self._axes, *values.shape[2:])
        some = every if self.rows is None else every[self.rows]
        found: NDArray[Any] = some.flatten(0, 1).cpu().numpy()
        return found

    def _sections(self, k: int) -> list[Words]:
        """What every witness says about group k; nothing where that is so."""
        part, members = self.witness.groups[k - 1], _Members.of(self.sweep, k)
        slopes, deltas = self._slopes(k, part, members), self._deltas(part, _Members.of_entries(self.sweep, k))
        cuts = [self._cuts(k, cut, members) for cut in part.cuts]
        heads = [varint(k) + varint(flags) for flags in range(SLOPES + DELTAS + CUTS + 1)]
        found: list[Words] = []
        for row in range(self.count):
            bent = [said[row] for said in cuts if said[row]]
            flags = SLOPES * bool(slopes[row]) + DELTAS * bool(deltas[row]) + CUTS * bool(bent)
            words = [heads[flags], *slopes[row], *deltas[row]] if flags else []
            found.append([*words, varint(len(bent)), *chain.from_iterable(bent)] if bent else words)
        return found

    def _slopes(self, k: int, part: GroupPart, members: _Members) -> list[Words]:
        """Of all kinks, also slopes that are zero: whoever reads nothing takes others."""
        neurons = self.sweep.neurons[k - 1]
        ambiguous: Bools = self.flat(neurons.ambiguous)
        slopes = self.flat(part.slope)
        values = self.wording.shares(slopes * ambiguous if isinstance(neurons, Kinks) else slopes)
        head = [*sets(members.mask[np.newaxis], keep=True), TYPES[values.dtype.str]]
        rows = zip(values, np.count_nonzero(ambiguous, axis=1), strict=True)
        return [[*head, own.tobytes()] if some else () for own, some in rows]

    def _deltas(self, part: GroupPart, members: _Members) -> list[Words]:
        if part.delta is None:
            return [()] * self.count
        values = self.flat(part.delta)
        used = values != 0
        words = zip(members.sets(used), _chosen(self.wording.numbers(values), used), strict=True)
        return [pair if some else () for pair, some in zip(words, used.any(axis=1), strict=True)]

    def _cuts(self, k: int, part: CutPart, members: _Members) -> list[Words]:
        """One cut at those kinks that use it."""
        if part.shift is None:
            meaning, values = varint(SHARE), self.flat(part.share)
            numbers = self.wording.shares(values)
        else:
            meaning, values = varint(SHIFT), self.flat(part.shift)
            numbers = self.wording.numbers(values)
        used = values != 0
        masks = MASKS[type(part.cut)](self, k, part.cut, used)
        found: list[Words] = []
        for (form, before, after), some, chosen in zip(masks, members.sets(used), _chosen(numbers, used), strict=True):
            found.append([varint(form), *before, some, after, meaning, chosen])
        return [words if some else () for words, some in zip(found, used.any(axis=1), strict=True)]

    def by_input(self, k: int, masks: Sequence[Sequence[Bool[Tensor, "D #S _"]]], used: Bools) -> Iterable[Masks]:
        """One mask of the inputs of group k, or two of them: for positive and for negative weights.

        Whoever checks it need not know the signs of a sum, so there they become masks of single weights.
        """
        layer = self.sweep.net.layers[k - 1]
        order = [source for source, _ in layer.terms]
        sides = [_ascending([self.flat(part) for part in parts], order) for parts in masks]
        if not any(has_sum(term) for _, term in layer.terms):
            words = zip(*(sets(side, keep=True) for side in sides), strict=True)
            return [(len(sides) - 1, said, b"") for said in words]
        positive, negative = sides if len(sides) > 1 else (sides[0], ~sides[0])
        rows = self._weights(k)
        kept = (((rows > 0) & positive[d]) | ((rows < 0) & negative[d]) for d in range(self.count))
        return [(ROWS, (), _packed(each[some])) for each, some in zip(kept, used, strict=True)]

    def _weights(self, k: int) -> Doubles:
        """Those of all kinks of a group, sources in ascending order."""
        layer, index = self.sweep.net.layers[k - 1], self.sweep.kinks[k - 1].index
        units = torch.zeros(len(index), layer.size, dtype=torch.float64, device=layer.bias.device)
        units[torch.arange(len(index), device=index.device), index] = 1.0
        parts = [term.transpose(units).cpu().numpy() for _, term in layer.terms]
        return _ascending(parts, [source for source, _ in layer.terms])


@dataclass(frozen=True, eq=False)
class _Members:
    """The kinks of a group among its neurons."""

    index: Ints
    mask: Bools

    @classmethod
    def of(cls, sweep: Sweep, k: int) -> _Members:
        kinks = sweep.neurons[k - 1]
        if not isinstance(kinks, Kinks):
            return cls.every(kinks.count)
        index, mask = kinks.index.cpu().numpy(), np.zeros(len(kinks.passing), dtype=bool)
        mask[index] = True
        return cls(index, mask)

    @classmethod
    def of_entries(cls, sweep: Sweep, k: int) -> _Members:
        """The same among the entries of x_hat, of which a product has two."""
        kinks = sweep.neurons[k - 1]
        return cls.of(sweep, k) if isinstance(kinks, Kinks) else cls.every(kinks.entries)

    @classmethod
    def every(cls, count: int) -> _Members:
        return cls(np.arange(count), np.ones(count, dtype=bool))

    def sets(self, used: Bools) -> list[Piece]:
        """Some of the kinks of each row as a set of neurons."""
        found = np.zeros((len(used), len(self.mask)), dtype=bool)
        found[:, self.index] = used
        return sets(found)


def _chosen(values: NDArray[Any], used: Bools) -> list[bytes]:
    """The values of each row that are used, and what they are."""
    data, size = values[used].tobytes(), values.itemsize
    edges = size * np.cumsum([0, *used.sum(axis=1)])
    kind = TYPES[values.dtype.str]
    return [kind + data[start:stop] for start, stop in pairwise(edges)]


def has_sum(term: LinearMap) -> bool:
    """Whether a map adds others up: their entries may cancel."""
    parts: Sequence[LinearMap] = getattr(term, "maps", ())
    return isinstance(term, Sum) or any(has_sum(part) for part in parts)


# ---------------------------------------------------------------- masks: which weights a cut keeps


def _balanced(encoder: Encoder, k: int, cut: BalancedCut, used: Bools) -> Iterable[Masks]:
    return encoder.by_input(k, [[sign > 0 for sign in cut.signs]], used)


def _shared(encoder: Encoder, k: int, cut: SharedCut, used: Bools) -> Iterable[Masks]:
    halves = [(kept > 0).chunk(2, dim=-1) for kept in cut.kept]
    return encoder.by_input(k, [[half[side] for half in halves] for side in (0, 1)], used)


def _rows(encoder: Encoder, k: int, cut: RowMaskCut, used: Bools) -> Iterable[Masks]:
    geometry = cut.geometry
    kept = encoder.flat(cut.mask & (geometry.weights != 0))
    columns, ends = geometry.columns.cpu().numpy(), np.cumsum(geometry.sizes)[:-1]
    for row, some in zip(kept, used, strict=True):
        whole = np.zeros((int(some.sum()), sum(geometry.sizes)), dtype=bool)
        neurons, places = np.nonzero(row[some])
        whole[neurons, columns[some][neurons, places]] = True
        yield ROWS, (), _packed(_ascending(np.split(whole, ends, axis=1), geometry.sources))


MASKS: dict[type, Callable[[Encoder, int, Any, Bools], Iterable[Masks]]] = {
    BalancedCut: _balanced,
    SharedCut: _shared,
    RowMaskCut: _rows,
}
"""By the kind of a cut: its masks at group k, for every witness."""


def _packed(masks: Bools) -> bytes:
    """Bits row by row, each row from a new byte on."""
    return np.packbits(masks, axis=1, bitorder="little").tobytes()


def _ascending(parts: Sequence[NDArray[Any]], order: Sequence[int]) -> NDArray[Any]:
    """The parts of all sources side by side, sources in ascending order."""
    return np.concatenate([parts[place] for place in np.argsort(order, kind="stable")], axis=-1)
