"""Sparse matrices with exact arithmetic: a product or a sum is made only if no entry is rounded.

Floats are integers times a power of two.  If all terms of a sum are multiples of some unit, and their magnitudes add
up to at most 2^53 units, then no order of summation rounds.  The sum of magnitudes is rounded itself, so 2^52 is asked
for.  Weights of networks are short enough for that: those that choose, compare or average, and float32 weights of
similar size.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import torch

from verifier.operators import Chain, Conv, Dense, Diagonal, LinearMap, Select, Sparse, WindowAxis
from verifier.operators.base import flat_size
from verifier.operators.matrix import taken_rows, worth_it
from verifier.shapes import Bool, Float64, Int, Tensor

FLOAT = torch.finfo(torch.float64)

MOST_ENTRIES = 4_000_000
"""Larger matrices are not written out."""


@dataclass(frozen=True, eq=False)
class Entries:
    """The entries of a matrix that are not zero, sorted by rows and then by columns."""

    rows: Int[Tensor, " e"]
    columns: Int[Tensor, " e"]
    values: Float64[Tensor, " e"]
    shape: tuple[int, int]

    @classmethod
    def identity(cls, n: int) -> Entries:
        index = torch.arange(n)
        return cls(index, index, torch.ones(n, dtype=torch.float64), (n, n))

    @classmethod
    def of(cls, weight: Float64[Tensor, "m k"]) -> Entries:
        """The entries of a matrix."""
        rows, columns = torch.nonzero(weight, as_tuple=True)
        return cls(rows, columns, weight[rows, columns], (weight.shape[0], weight.shape[1]))

    @classmethod
    def column(cls, values: Float64[Tensor, " n"]) -> Entries:
        """A matrix of one column."""
        return cls.of(values.unsqueeze(1))

    def dense(self) -> Float64[Tensor, "m k"]:
        """The whole matrix."""
        return self.values.new_zeros(self.shape).index_put_((self.rows, self.columns), self.values)

    def negated(self) -> Entries:
        return replace(self, values=-self.values)

    def nonzero(self) -> Entries:
        """Without the values that are zero."""
        some = self.values != 0
        return Entries(self.rows[some], self.columns[some], self.values[some], self.shape)

    def equals(self, other: Entries) -> bool:
        """Whether both are the same matrix."""
        if self.shape != other.shape or len(self.values) != len(other.values):
            return False
        return (
            torch.equal(self.rows, other.rows)
            and torch.equal(self.columns, other.columns)
            and torch.equal(self.values, other.values)
        )

    def taken(self, index: Int[Tensor, " r"]) -> Entries:
        """Some rows, in any order, also repeatedly; -1 stands for a row of zeros."""
        rows, entries = taken_rows(self.rows, self.shape[0], index)
        return Entries(rows, self.columns[entries], self.values[entries], (len(index), self.shape[1]))

    def places(self, kept: Bool[Tensor, " n_in"]) -> Entries:
        """Some columns.  Require: all others are zero."""
        place = kept.cumsum(0) - 1
        return Entries(self.rows, place[self.columns], self.values, (self.shape[0], int(kept.sum())))


def product(first: Entries, second: Entries) -> Entries | None:
    """`first` times `second`, or None if an entry of it would be rounded or there are too many."""
    counts = torch.bincount(second.rows, minlength=second.shape[0])
    lengths = counts[first.columns]
    size = int(lengths.sum())
    if size > MOST_ENTRIES:
        return None
    mine = torch.arange(len(first.values)).repeat_interleave(lengths)
    start = (counts.cumsum(0) - counts)[first.columns] - (lengths.cumsum(0) - lengths)
    theirs = start.repeat_interleave(lengths) + torch.arange(size)
    terms = first.values[mine] * second.values[theirs]
    units = unit(first.values)[mine] * unit(second.values)[theirs]
    return _summed(first.rows[mine], second.columns[theirs], (terms, units), (first.shape[0], second.shape[1]))


def total(parts: Sequence[Entries]) -> Entries | None:
    """The sum, or None if an entry of it would be rounded.  Require: at least one, all of the same shape."""
    if len(parts) == 1:
        return parts[0]
    rows, columns = torch.cat([p.rows for p in parts]), torch.cat([p.columns for p in parts])
    values = torch.cat([p.values for p in parts])
    return _summed(rows, columns, (values, unit(values)), parts[0].shape)


def unit(values: Float64[Tensor, " e"]) -> Float64[Tensor, " e"]:
    """The largest power of two that each number is a multiple of."""
    mantissa, exponent = torch.frexp(values)
    whole = torch.ldexp(mantissa, torch.tensor(53)).to(torch.int64)
    # Older versions of torch compute powers of two in float32 if their exponents are integers.
    return torch.ldexp((whole & -whole).to(torch.float64), (exponent - 53).to(torch.float64))


def _summed(rows: Tensor, columns: Tensor, terms: tuple[Tensor, Tensor], shape: tuple[int, int]) -> Entries | None:
    """Sums over terms of the same place, given as values and units."""
    values, units = terms
    keys, place = torch.unique(rows * shape[1] + columns, return_inverse=True)
    zeros = torch.zeros(len(keys), dtype=torch.float64)
    found, size = zeros.index_add(0, place, values), zeros.index_add(0, place, values.abs())
    least = torch.full_like(zeros, torch.inf).scatter_reduce(0, place, units, "amin")
    alone = torch.bincount(place, minlength=len(keys)) == 1
    exact = torch.where(alone, size < 2.0**53 * least, size <= 2.0**52 * least) & (least >= FLOAT.tiny)
    exact &= torch.isfinite(size)
    if not bool(exact.all()):
        return None
    return Entries(keys // shape[1], keys % shape[1], found, shape).nonzero()


def rounds_nothing(linear: LinearMap, x: Float64[Tensor, " n_in"]) -> bool:
    """Whether `linear.forward(x)` is exact, told from the units and magnitudes of all numbers together."""
    if isinstance(linear, Select):
        return linear.depth == 0
    if not isinstance(linear, Dense | Sparse | Diagonal) or linear.roundings or linear.parameters > MOST_ENTRIES:
        return False
    least = least_unit(linear.weights) * least_unit(x)
    return bool(linear.magnitude(x.abs()).max() <= 2.0**52 * least) and least >= FLOAT.tiny


def least_unit(values: Tensor) -> float:
    """The largest power of two that all numbers are multiples of; 1 if all are 0."""
    some = values[values != 0]
    return float(unit(some).min()) if len(some) else 1.0


def entries_of(linear: LinearMap) -> Entries | None:
    """The entries of a map; None if it holds rounded weights, has too many entries, or is of another kind."""
    if isinstance(linear, Chain):
        return _chained(linear)
    if isinstance(linear, Select):
        rows = torch.nonzero(linear.index >= 0).flatten()
        ones = torch.ones(len(rows), dtype=torch.float64)
        return Entries(rows, linear.index[rows], ones, (linear.n_out, linear.n_in))
    if not isinstance(linear, Dense | Sparse | Diagonal | Conv) or linear.roundings:
        return None
    if linear.parameters > MOST_ENTRIES:
        return None
    if isinstance(linear, Conv):
        return _unrolled(linear)
    if isinstance(linear, Dense):
        return None if linear.repeats > 1 else Entries.of(linear.weight)
    if isinstance(linear, Diagonal):
        index = torch.arange(linear.n_in)
        return Entries(index, index, linear.scale, (linear.n_out, linear.n_in)).nonzero()
    return Entries(linear.rows, linear.columns, linear.values, linear.shape).nonzero()


def map_of(entries: Entries, templates: Iterable[Conv] = ()) -> LinearMap:
    """A convolution like one of the templates if it has exactly these entries, else a sparse or a dense matrix.

    Any matrix is a convolution with a single window; so only those that share their weights count.
    """
    found = [conv for template in templates if (conv := _recognised(entries, template)) is not None]
    best = min(found, key=lambda conv: conv.parameters, default=None)
    if best is not None and best.parameters < len(entries.values):
        return best
    if worth_it(len(entries.values), entries.shape):
        return Sparse(entries.rows, entries.columns, entries.values, entries.shape)
    return Dense(entries.dense())


def _chained(chain: Chain) -> Entries | None:
    found = entries_of(chain.maps[0])
    for linear in chain.maps[1:]:
        outer = entries_of(linear)
        if found is None or outer is None:
            return None
        found = product(outer, found)
    return found


def _unrolled(conv: Conv) -> Entries | None:
    """A convolution written out, without any arithmetic on its weights."""
    if conv.groups > 1 or conv.parameters * flat_size(conv.out_shape[1:]) > MOST_ENTRIES:
        return None
    place = _windows(conv)  # P T
    channels = torch.arange(conv.in_shape[0]).unsqueeze(1) * flat_size(conv.in_shape[1:])
    columns = channels + place.unsqueeze(1)  # P c_in T
    inside = (place >= 0).unsqueeze(1).expand_as(columns)
    values = conv.weight.reshape(conv.weight.shape[0], 1, *columns.shape[1:]) * inside
    rows = torch.arange(conv.n_out).reshape(-1, len(place), 1, 1)
    at, columns, values = (part.reshape(-1) for part in torch.broadcast_tensors(rows, columns, values))
    return Entries(at, columns, values, (conv.n_out, conv.n_in)).nonzero()


def _windows(conv: Conv) -> Int[Tensor, "P T"]:
    """Where each tap of the kernel lies for each position of the output, in one channel; -1 in the padding."""
    place = torch.zeros(1, 1, dtype=torch.long)
    settings = zip(conv.in_shape[1:], conv.weight.shape[2:], conv.stride, conv.dilation, conv.padding, strict=True)
    for n, kernel, stride, dilation, sides in settings:
        at = WindowAxis(n, kernel, stride, dilation, *sides).spots()
        here, outer = at[None, :, None, :], place[:, None, :, None]
        known = (here >= 0) & (here < n) & (outer >= 0)
        place = torch.where(known, outer * n + here, -1).reshape(len(place) * len(at), -1)
    return place


def _recognised(entries: Entries, template: Conv) -> Conv | None:
    """The convolution with these entries that has the template's geometry, with as many channels as fit."""
    inside, outside = flat_size(template.in_shape[1:]), flat_size(template.out_shape[1:])
    (n_out, n_in), taps = entries.shape, template.weight.shape[2:]
    if n_in % inside or n_out % outside or template.groups > 1:
        return None
    place = _windows(template)
    whole = torch.nonzero((place >= 0).all(dim=1)).flatten()
    if not len(whole):
        return None
    c_in, c_out = n_in // inside, n_out // outside
    rows = torch.arange(c_out) * outside + whole[0]
    columns = torch.arange(c_in).unsqueeze(1) * inside + place[whole[0]]
    weight = entries.taken(rows).dense()[:, columns.reshape(-1)]
    in_shape = (c_in, *template.in_shape[1:])
    found = replace(template, weight=weight.reshape(c_out, c_in, *taps), in_shape=in_shape, roundings=0)
    unrolled = _unrolled(found)
    return found if unrolled is not None and unrolled.equals(entries) else None


def convolutions(maps: Iterable[LinearMap]) -> list[Conv]:
    """The convolutions among maps and the factors of products."""
    factors = itertools.chain.from_iterable(m.maps if isinstance(m, Chain) else (m,) for m in maps)
    return [m for m in factors if isinstance(m, Conv)]
