"""Parts of convolutions as dense blocks: only the rows and columns that anybody needs, place by place.

Where half of the neurons before and behind a convolution block, a quarter of its products is left.  Convolutions have
no use for that, products of matrices do: places that lie side by side make one block, over the columns that they read.

For 256 images on one core, in milliseconds, with half of the rows and columns; transposed, blocks of 2 x 2 places:

| convolution | float64 | as blocks | float32 | as blocks |
|---|---|---|---|---|
| 32 -> 32, 3 x 3, on 8 x 8 | 34.3 | 3.1 | 2.7 | 1.7 |
| 16 -> 32, 3 x 3, stride 2 to 8 x 8 | 11.0 | 2.3 | 3.8 | 1.2 |
| 64 -> 64, 3 x 3, on 4 x 4 | 22.5 | 1.8 | 2.1 | 0.8 |

requires:   convolutions without groups
guarantees: the numbers of the map; sums of the same products without those that are left out, so `depth` holds
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch

from verifier.operators.base import LinearMap, flat_size, places_of
from verifier.operators.conv import Conv, Transposed
from verifier.operators.patch import windows
from verifier.shapes import Float, Int, Tensor

NARROW = 16
"""Rows that a product of matrices takes for nothing: blocks of fewer rows are not much faster."""

GATHERED = 16
"""What fetching a column costs, in multiplications."""

CALLED = 1000
"""What a block costs besides, in multiplications for each vector."""


def arranged(neurons: Int[Tensor, " r"], image: tuple[int, ...]) -> Int[Tensor, " r"]:
    """Entries of an image in an order in which those of any square of 2^i places, from multiples of 2^i on, follow each
    other (Z-order); place by place.
    """
    channel, *places = places_of(neurons, image)
    bits = max(image[1:]).bit_length()
    code = torch.zeros_like(neurons)
    for bit in reversed(range(bits)):
        for place in places:
            code = 2 * code + ((place >> bit) & 1)
    return neurons[(code * image[0] + channel).argsort()]


class Block(NamedTuple):
    """Consecutive rows of a matrix, over the columns at which they are not zero."""

    rows: slice
    columns: Int[Tensor, " c"]
    matrix: Float[Tensor, "r c"]


@dataclass(frozen=True, eq=False)
class Blocks(LinearMap):
    """A matrix in blocks of rows, and its transpose in blocks of its own."""

    blocks: tuple[Block, ...]
    transposed: tuple[Block, ...]
    shape: tuple[int, int]
    longest: int  # terms of a sum, in either direction, and one

    @classmethod
    def of(cls, conv: Conv, rows: Int[Tensor, " r"], columns: Int[Tensor, " c"]) -> Blocks:
        """Some rows and columns of a convolution without groups.  Require: both are `arranged`."""
        writer = _Writer.of(conv, rows, columns)
        return cls(writer.forward(), writer.backward(), (len(rows), len(columns)), conv.depth)

    @staticmethod
    def backward(conv: Conv, rows: Int[Tensor, " r"], columns: Int[Tensor, " c"]) -> tuple[Block, ...]:
        """The blocks of the transpose alone."""
        return _Writer.of(conv, rows, columns).backward()

    @property
    def n_in(self) -> int:  # type: ignore[override]
        return self.shape[1]

    @property
    def n_out(self) -> int:  # type: ignore[override]
        return self.shape[0]

    @property
    def depth(self) -> int:  # type: ignore[override]
        return self.longest

    @property
    def weights(self) -> Tensor:
        """Each number twice: for both directions."""
        return torch.cat([block.matrix.flatten() for block in (*self.blocks, *self.transposed)])

    def reweighted(self, weights: Tensor, roundings: int = 0) -> Blocks:
        parts = iter(weights.split([block.matrix.numel() for block in (*self.blocks, *self.transposed)]))
        forward, backward = (
            tuple(block._replace(matrix=next(parts).reshape(block.matrix.shape)) for block in side)
            for side in (self.blocks, self.transposed)
        )
        return replace(self, blocks=forward, transposed=backward, longest=self.longest + roundings)

    def forward(self, x: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        return _applied(self.blocks, self.n_out, x)

    def transpose(self, y: Float[Tensor, "*batch n_out"]) -> Float[Tensor, "*batch n_in"]:
        return _applied(self.transposed, self.n_in, y)

    def magnitude(self, r: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        return _applied([block._replace(matrix=block.matrix.abs()) for block in self.blocks], self.n_out, r)

    def taken(self, index: Int[Tensor, " r"]) -> Blocks:
        """Some of the rows.  Require: ascending."""
        position = torch.full((self.n_out,), -1, device=index.device)
        position[index] = torch.arange(len(index), device=index.device)
        forward, backward, start = [], [], 0
        for block in self.blocks:
            own = position[block.rows] >= 0
            count = int(own.sum())
            forward.append(Block(slice(start, start + count), block.columns, block.matrix[own]))
            start += count
        for block in self.transposed:
            places = position[block.columns]
            left = places >= 0
            backward.append(Block(block.rows, places[left], block.matrix[:, left].contiguous()))
        return replace(self, blocks=tuple(forward), transposed=tuple(backward), shape=(len(index), self.n_in))

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Blocks:
        forward, backward = (
            tuple(Block(b.rows, b.columns.to(device), b.matrix.to(device=device, dtype=dtype)) for b in side)
            for side in (self.blocks, self.transposed)
        )
        return replace(self, blocks=forward, transposed=backward)

    def describe(self) -> str:
        return f"{len(self.blocks)} blocks {self.n_in}->{self.n_out}"


def product(blocks: Sequence[Block], n_out: int, vectors: Float[Tensor, "n_in R"]) -> Float[Tensor, "n_out R"]:
    """A matrix times vectors that lie side by side."""
    found = vectors.new_empty(n_out, vectors.shape[1])
    for block in blocks:
        torch.mm(block.matrix, vectors.index_select(0, block.columns), out=found[block.rows])
    return found


def _applied(blocks: Sequence[Block], n_out: int, x: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
    """The same for vectors in any order, which come out side by side: between two such maps nothing is moved."""
    vectors = x.reshape(math.prod(x.shape[:-1]), x.shape[-1]).T.contiguous()
    return product(blocks, n_out, vectors).T.reshape(*x.shape[:-1], n_out)


# -- where to cut ----------------------------------------------------------------------------------------------

Entries = tuple[Int[Tensor, " _"], tuple[int, ...]]
"""Arranged entries of an image, and its shape."""


@dataclass(frozen=True, eq=False)
class _Writer:
    """The entries of some rows and columns of a convolution, one by one."""

    conv: Conv
    outer: Entries
    inner: Entries
    at: tuple[Int[Tensor, " e"], Int[Tensor, " e"]]  # row and column of each
    values: Float[Tensor, " e"]

    @classmethod
    def of(cls, conv: Conv, rows: Int[Tensor, " r"], columns: Int[Tensor, " c"]) -> _Writer:
        column, values = windows(conv, rows, columns)
        row, tap = torch.nonzero((column < len(columns)) & (values != 0), as_tuple=True)
        at = (row, column[row, tap])
        return cls(conv, (rows, conv.out_shape), (columns, conv.in_shape), at, values[row, tap])

    def forward(self) -> tuple[Block, ...]:
        return _cut(self.outer, self.inner, _best_side(self.conv, self.outer, self.inner), self.at, self.values)

    def backward(self) -> tuple[Block, ...]:
        side = _best_side(Transposed(self.conv), self.inner, self.outer)
        return _cut(self.inner, self.outer, side, self.at[::-1], self.values)


def _cut(
    rows: Entries,
    columns: Entries,
    side: int,
    at: tuple[Int[Tensor, " e"], Int[Tensor, " e"]],
    values: Float[Tensor, " e"],
) -> tuple[Block, ...]:
    """The matrix of some entries, in blocks of that many places along each axis."""
    image, number = rows[1], torch.zeros_like(rows[0])
    for place, size in zip(places_of(*rows)[1:], image[1:], strict=True):
        number = number * size + place // side
    _, own, counts = number.unique_consecutive(return_inverse=True, return_counts=True)
    block = own[at[0]]
    read = torch.zeros(len(counts), len(columns[0]), dtype=torch.bool, device=values.device)
    read[block, at[1]] = True
    widths = read.sum(dim=1)
    starts, sizes = counts.cumsum(0) - counts, counts * widths
    place = (sizes.cumsum(0) - sizes)[block] + (at[0] - starts[block]) * widths[block]
    place += (read.cumsum(1) - 1)[block, at[1]]
    matrices = values.new_zeros(int(sizes.sum())).index_copy_(0, place, values).split(sizes.tolist())
    found, start = [], 0
    for count, mine, matrix in zip(
        counts.tolist(), torch.nonzero(read)[:, 1].split(widths.tolist()), matrices, strict=True
    ):
        found.append(Block(slice(start, start + count), mine, matrix.view(count, len(mine))))
        start += count
    return tuple(found)


def _best_side(linear: Conv | Transposed, rows: Entries, columns: Entries) -> int:
    """How many places a block should have along each axis, if entries lie evenly."""
    dense, before = (len(some[0]) / max(1, flat_size(some[1])) for some in (rows, columns))
    image, best, least = rows[1], 1, math.inf
    for power in range(max(image[1:]).bit_length() + 1):
        side = 2**power
        blocks = math.prod(-(-size // side) for size in image[1:])
        reach = math.prod(_reads(linear, axis, side) for axis in range(len(image) - 1))
        read, own = before * columns[1][0] * reach, dense * image[0] * min(side, max(image[1:])) ** (len(image) - 1)
        cost = blocks * (read * (max(own, NARROW) + GATHERED) + CALLED)
        if cost < least:
            best, least = side, cost
    return best


def _reads(linear: Conv | Transposed, axis: int, side: int) -> int:
    """How many places along an axis a block of that many places reads, at most."""
    conv = linear.inner if isinstance(linear, Transposed) else linear
    reach, stride = conv.dilation[axis] * (conv.weight.shape[2 + axis] - 1) + 1, conv.stride[axis]
    if isinstance(linear, Transposed):
        return min(-(-(side - 1 + reach) // stride), conv.out_shape[1 + axis])
    return min((side - 1) * stride + reach, conv.in_shape[1 + axis])
