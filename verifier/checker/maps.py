"""Linear maps between flat vectors, applied to batches [m, n] of rows.

Each map holds the numbers of the file.  `forward` and `transpose` are sums of products, in whatever order numpy takes;
`depth` bounds how many roundings lie between an entry of a result and what it was made from, in both directions.
With integers as entries (`Chain.integers`) the same code makes no rounding.
`triples` are the entries of the matrix that are not zero: rows, columns, and numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from .rationals import Array, Ints, Rationals, product

Triples = tuple[Ints, Ints, Array]


@dataclass(frozen=True, eq=False)
class Select:
    """Entry i of the result is entry index[i] of the vector, or zero where that is -1."""

    index: Ints
    n_in: int
    roundings = 0

    @property
    def n_out(self) -> int:
        return len(self.index)

    @property
    def room(self) -> int:
        return max(self.n_in, self.n_out)

    @property
    def depth(self) -> int:
        kept = self.index[self.index >= 0]
        return int(np.bincount(kept).max()) if len(kept) else 0

    @property
    def entries(self) -> Array:
        return np.ones(1) if (self.index >= 0).any() else np.zeros(1)

    def forward(self, x: Array) -> Array:
        return _padded(x)[:, self.index]

    @cached_property
    def _back(self) -> _Sum:
        return _Sum.into(self.index, self.n_in)

    def transpose(self, y: Array) -> Array:
        return self._back(y)

    def triples(self) -> Triples:
        rows = np.flatnonzero(self.index >= 0)
        return rows, self.index[rows], np.ones(len(rows))

    def mapped(self, change: Callable[[Array], Array]) -> Select:
        return self

    @property
    def integers(self) -> tuple[Select, int]:
        return self, 1


@dataclass(frozen=True, eq=False)
class Scale:
    """Entry by entry times `factor` / `divisor`, where each factor is off by so many `roundings` of the true one.

    The quotient comes first: a product that underflows would be magnified by a small divisor.
    """

    factor: Array
    divisor: Array
    roundings: int = 0

    @cached_property
    def ratio(self) -> Array:
        with np.errstate(all="ignore"):
            found: Array = self.factor / self.divisor
        return found

    @property
    def n_in(self) -> int:
        return len(self.factor)

    n_out = room = n_in

    @property
    def depth(self) -> int:
        return 2 + self.roundings

    @property
    def entries(self) -> Array:
        return self.factor

    def forward(self, x: Array) -> Array:
        found: Array = x * self.ratio
        return found

    transpose = forward

    def triples(self) -> Triples:
        rows = np.flatnonzero(self.factor)
        factor, divisor = (Rationals.of(part[rows]).fractions for part in (self.factor, self.divisor))
        return rows, rows, factor / divisor

    def mapped(self, change: Callable[[Array], Array]) -> Scale:
        return replace(self, factor=change(self.factor), divisor=change(self.divisor))

    @property
    def integers(self) -> tuple[Scale, int]:
        factor, divisor = (Rationals.of(part).fractions for part in (self.factor, self.divisor))
        found = Rationals.of(factor / divisor)
        whole = replace(self)
        whole.__dict__["ratio"] = found.above
        return whole, found.below


@dataclass(frozen=True, eq=False)
class Dense:
    """The matrix [n, k], applied to each of `count` blocks of k entries."""

    matrix: Array
    count: int = 1
    roundings = 0

    @property
    def n_in(self) -> int:
        return self.count * int(self.matrix.shape[1])

    @property
    def n_out(self) -> int:
        return self.count * int(self.matrix.shape[0])

    @property
    def room(self) -> int:
        return max(self.n_in, self.n_out)

    @property
    def depth(self) -> int:
        return int(max(self.matrix.shape)) + 1

    @property
    def entries(self) -> Array:
        return self.matrix

    def forward(self, x: Array) -> Array:
        return self._blocks(x, self.matrix.T)

    def transpose(self, y: Array) -> Array:
        return self._blocks(y, self.matrix)

    def _blocks(self, x: Array, matrix: Array) -> Array:
        found = product(x.reshape(len(x) * self.count, matrix.shape[0]), matrix)
        return found.reshape(len(x), self.count * int(matrix.shape[1]))

    def triples(self) -> Triples:
        rows, columns = np.nonzero(self.matrix)
        block = np.arange(self.count)[:, None]
        at = (block * self.matrix.shape[0] + rows).reshape(-1), (block * self.matrix.shape[1] + columns).reshape(-1)
        return *at, np.tile(self.matrix[rows, columns], self.count)

    def mapped(self, change: Callable[[Array], Array]) -> Dense:
        return replace(self, matrix=change(self.matrix))

    @property
    def integers(self) -> tuple[Dense, int]:
        found = Rationals.of(self.matrix)
        return replace(self, matrix=found.above), found.below


@dataclass(frozen=True, eq=False)
class Sparse:
    """A matrix by the places of those entries that are not zero, all different."""

    shape: tuple[int, int]
    rows: Ints
    columns: Ints
    values: Array
    roundings = 0

    @property
    def n_in(self) -> int:
        return self.shape[1]

    @property
    def n_out(self) -> int:
        return self.shape[0]

    @property
    def room(self) -> int:
        return max(*self.shape, len(self.values))

    @property
    def depth(self) -> int:
        return max(int(np.bincount(places).max(initial=0)) for places in (self.rows, self.columns)) + 1

    @property
    def entries(self) -> Array:
        return self.values

    @cached_property
    def _sums(self) -> tuple[_Sum, _Sum]:
        return _Sum.into(self.rows, self.n_out), _Sum.into(self.columns, self.n_in)

    def forward(self, x: Array) -> Array:
        return self._sums[0](x[:, self.columns] * self.values)

    def transpose(self, y: Array) -> Array:
        return self._sums[1](y[:, self.rows] * self.values)

    def triples(self) -> Triples:
        return self.rows, self.columns, self.values

    def mapped(self, change: Callable[[Array], Array]) -> Sparse:
        return replace(self, values=change(self.values))

    @property
    def integers(self) -> tuple[Sparse, int]:
        found = Rationals.of(self.values)
        return replace(self, values=found.above), found.below


@dataclass(frozen=True, eq=False)
class Windows:
    """A convolution: `gather` [p, w] names for every window the entries of one channel's image that it covers.

    The kernel [groups, out, in * w] is applied to the same windows of the channels of each group.  `gather` is -1 where
    a window covers padding; `back` [image, l] names for every entry of the image the places of `gather` that name it.
    """

    kernel: Array
    gather: Ints
    image: int
    back: Ints = field(init=False)
    roundings = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "back", _inverse(self.gather.reshape(-1), self.image))

    @property
    def channels(self) -> int:
        """Of the input, in one group."""
        return int(self.kernel.shape[2]) // int(self.gather.shape[1])

    @property
    def n_in(self) -> int:
        return int(self.kernel.shape[0]) * self.channels * self.image

    @property
    def n_out(self) -> int:
        return int(self.kernel.shape[0] * self.kernel.shape[1]) * len(self.gather)

    @property
    def room(self) -> int:
        """As windows."""
        return max(int(self.kernel.shape[0]) * self.channels * self.gather.size, self.n_in, self.n_out)

    @property
    def depth(self) -> int:
        return max(int(self.kernel.shape[2]), int(self.kernel.shape[1]) + int(self.back.shape[1])) + 1

    @property
    def entries(self) -> Array:
        return self.kernel

    def forward(self, x: Array) -> Array:
        groups, (p, w) = len(self.kernel), self.gather.shape
        images = _padded(x.reshape(-1, self.image))[:, self.gather]  # [m * groups * channels, p, w]
        windows = images.reshape(len(x), groups, self.channels, p, w).transpose(0, 1, 3, 2, 4)
        given = product(windows.reshape(len(x), groups, p, self.channels * w), self.kernel.transpose(0, 2, 1))
        found: Array = given.transpose(0, 1, 3, 2).reshape(len(x), self.n_out)
        return found

    def transpose(self, y: Array) -> Array:
        groups, (p, w) = len(self.kernel), self.gather.shape
        windows = product(y.reshape(len(y), groups, self.kernel.shape[1], p).transpose(0, 1, 3, 2), self.kernel)
        spread = windows.reshape(len(y), groups, p, self.channels, w).transpose(0, 1, 3, 2, 4)
        images = _padded(spread.reshape(-1, p * w))[:, self.back].sum(axis=2)
        found: Array = images.reshape(len(y), self.n_in)
        return found

    def triples(self) -> Triples:
        group, out, entry = np.nonzero(self.kernel)
        channel, tap = np.divmod(entry, self.gather.shape[1])
        place = self.gather[:, tap]  # [p, entries]
        rows = (group * self.kernel.shape[1] + out) * len(self.gather) + np.arange(len(self.gather))[:, None]
        columns = (group * self.channels + channel) * self.image + place
        inside = place >= 0
        return rows[inside], columns[inside], np.broadcast_to(self.kernel[group, out, entry], place.shape)[inside]

    def mapped(self, change: Callable[[Array], Array]) -> Windows:
        return replace(self, kernel=change(self.kernel))

    @property
    def integers(self) -> tuple[Windows, int]:
        found = Rationals.of(self.kernel)
        return replace(self, kernel=found.above), found.below


Map = Select | Scale | Dense | Sparse | Windows


@dataclass(frozen=True, eq=False)
class _Sum:
    """Adds up the entries of rows [m, e] in n places: those in the order `order`, for `places`, from `starts` on."""

    n: int
    order: Ints
    places: Ints
    starts: Ints

    @classmethod
    def into(cls, index: Ints, n: int) -> _Sum:
        """Entry i goes to place index[i], or nowhere if that is -1."""
        kept = np.flatnonzero(index >= 0)
        order = kept[np.argsort(index[kept], kind="stable")]
        return cls(n, order, *np.unique(index[order], return_index=True))

    def __call__(self, terms: Array) -> Array:
        found = np.zeros((len(terms), self.n), terms.dtype)
        if len(self.order):
            found[:, self.places] = np.add.reduceat(terms[:, self.order], self.starts, axis=1)
        return found


def _padded(x: Array) -> Array:
    """With a zero behind the last entry, which is what -1 names."""
    return np.concatenate([x, np.zeros((len(x), 1), x.dtype)], axis=1)


def _inverse(index: Ints, n: int) -> Ints:
    """For each of the numbers 0..n-1 the places where it stands, filled up with -1."""
    kept = np.flatnonzero(index >= 0)
    order = kept[np.argsort(index[kept], kind="stable")]
    values = index[order]
    counts = np.bincount(values, minlength=n)
    found = np.full((n, max(int(counts.max()), 1) if n else 1), -1, np.int64)
    starts = np.cumsum(counts) - counts
    found[values, np.arange(len(values)) - starts[values]] = order
    return found


@dataclass(frozen=True, eq=False)
class Chain:
    """Maps applied one after the other, the first of them first."""

    maps: tuple[Map, ...]
    n_in: int

    @property
    def n_out(self) -> int:
        return self.maps[-1].n_out if self.maps else self.n_in

    @property
    def depth(self) -> int:
        return sum(m.depth for m in self.maps)

    @property
    def roundings(self) -> int:
        """By how many roundings an entry of the product is off before anything is computed."""
        return sum(m.roundings for m in self.maps)

    @property
    def is_zero(self) -> bool:
        return any(not m.entries.any() for m in self.maps)

    @property
    def gain(self) -> float:
        """A bound of how much the map, or a part of it, magnifies the largest entry of a vector, in both directions."""
        gain = 1.0
        for m in self.maps:
            ahead, back = np.ones((1, m.n_in)), np.ones((1, m.n_out))
            size = m.mapped(np.abs)
            gain *= max(1.0, size.forward(ahead).max(initial=0.0), size.transpose(back).max(initial=0.0))
        return float(gain)

    @cached_property
    def integers(self) -> tuple[Chain, int]:
        """The same maps times a number, such that all entries are integers; and that number."""
        parts = [m.integers for m in self.maps]
        return Chain(tuple(whole for whole, _ in parts), self.n_in), math.prod(below for _, below in parts)

    def forward(self, x: Any) -> Any:
        """Of rows [m, n_in]: floats, integers or rationals."""
        if isinstance(x, Rationals):
            whole, below = self.integers
            return Rationals(whole.forward(x.above), x.below * below)
        for m in self.maps:
            x = m.forward(x)
        return x

    def transpose(self, y: Any) -> Any:
        """Of rows [m, n_out]."""
        if isinstance(y, Rationals):
            whole, below = self.integers
            return Rationals(whole.transpose(y.above), y.below * below)
        for m in reversed(self.maps):
            y = m.transpose(y)
        return y

    def mapped(self, change: Callable[[Array], Array]) -> Chain:
        return replace(self, maps=tuple(m.mapped(change) for m in self.maps))

    def then(self, outer: Map) -> Chain:
        """Followed by one more map.  Two selections become one, which is exact."""
        last = self.maps[-1] if self.maps else None
        if isinstance(last, Select) and isinstance(outer, Select):
            index = np.append(last.index, -1)[outer.index]
            return replace(self, maps=(*self.maps[:-1], Select(index, last.n_in)))
        return replace(self, maps=(*self.maps, outer))
