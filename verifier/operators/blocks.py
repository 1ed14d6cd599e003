"""Transposed convolutions as dense blocks: only the rows and columns that anybody needs, place by place.

Where half of the neurons before and behind a convolution block, a quarter of its products is left.  Convolutions have
no use for that, products of matrices do: places that lie side by side make one block, over the entries that they read.
Vectors lie side by side, so that an entry is a row of memory.

256 transposed images on one core, in milliseconds, with half of the rows and columns:

| convolution | float64 | as blocks | float32 | as blocks |
|---|---|---|---|---|
| 32 -> 32, 3 x 3, on 8 x 8 | 35.9 | 3.0 | 2.6 | 1.3 |
| 16 -> 32, 3 x 3, stride 2 to 8 x 8 | 11.0 | 2.6 | 4.1 | 1.2 |
| 64 -> 64, 3 x 3, on 4 x 4 | 23.0 | 1.9 | 2.1 | 0.8 |
| 128 -> 128, 3 x 3, on 2 x 2 | 48.7 | 0.8 | 2.5 | 0.4 |

With 64 images or fewer the libraries' float32 is as fast, and with 16 faster: many small products are many calls.

requires:   convolutions without groups
guarantees: the numbers of the map; its sums of products without those that are left out, so their rounding is covered
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch

from verifier.operators.base import flat_size, places_of
from verifier.operators.conv import Conv
from verifier.operators.patch import windows
from verifier.shapes import Float, Int, Tensor

NARROW = 16
"""Rows that a product of matrices takes for nothing: blocks of fewer rows are not much faster."""

GATHERED = 16
"""What fetching an entry costs, in multiplications."""

CALLED = 1000
"""What a block costs besides, in multiplications for each vector."""


def arranged(neurons: Int[Tensor, " r"], image: tuple[int, ...]) -> Int[Tensor, " r"]:
    """Entries of an image in an order in which those of any square of 2^i places, from multiples of 2^i on, follow each
    other (Z-order); place by place.
    """
    channel, *places = places_of(neurons, image)
    code = torch.zeros_like(neurons)
    for bit in reversed(range(max(image[1:]).bit_length())):
        for place in places:
            code = 2 * code + ((place >> bit) & 1)
    return neurons[(code * image[0] + channel).argsort()]


class DenseBlock(NamedTuple):
    """Consecutive rows of a matrix, over the columns at which they are not zero."""

    rows: slice
    columns: Int[Tensor, " c"]
    matrix: Float[Tensor, "r c"]


@dataclass(frozen=True, eq=False)
class DenseBlocks:
    """A matrix in blocks of rows."""

    blocks: tuple[DenseBlock, ...]
    n_out: int

    @classmethod
    def whole(cls, matrix: Float[Tensor, "r c"]) -> DenseBlocks:
        """All of a matrix as one block."""
        every = torch.arange(matrix.shape[1], device=matrix.device)
        return cls((DenseBlock(slice(0, len(matrix)), every, matrix),), len(matrix))

    @classmethod
    def transposed(cls, conv: Conv, rows: Int[Tensor, " r"], columns: Int[Tensor, " c"]) -> DenseBlocks:
        """The transpose of some rows and columns of a convolution.  Require: both are `arranged`."""
        at, values = windows(conv, rows, columns)
        row, tap = torch.nonzero((at < len(columns)) & (values != 0), as_tuple=True)
        side = _best_side(conv, len(rows), len(columns))
        number = torch.zeros_like(columns)
        for place, size in zip(places_of(columns, conv.in_shape)[1:], conv.in_shape[1:], strict=True):
            number = number * size + place // side
        return _cut(number, len(rows), (at[row, tap], row), values[row, tap])

    def product(self, vectors: Float[Tensor, "c R"]) -> Float[Tensor, "r R"]:
        """The matrix times each vector."""
        found = vectors.new_empty(self.n_out, vectors.shape[1])
        for block in self.blocks:
            torch.mm(block.matrix, vectors.index_select(0, block.columns), out=found[block.rows])
        return found

    def to(self, dtype: torch.dtype) -> DenseBlocks:
        return DenseBlocks(tuple(block._replace(matrix=block.matrix.to(dtype)) for block in self.blocks), self.n_out)


def _cut(
    number: Int[Tensor, " r"], n_in: int, at: tuple[Int[Tensor, " e"], Int[Tensor, " e"]], values: Float[Tensor, " e"]
) -> DenseBlocks:
    """The matrix of some entries, each at a row and a column; rows of one block follow each other, with one number."""
    _, own, counts = number.unique_consecutive(return_inverse=True, return_counts=True)
    (row, column), block = at, own[at[0]]
    read = torch.zeros(len(counts), n_in, dtype=torch.bool, device=values.device)
    read[block, column] = True
    widths = read.sum(dim=1)
    starts, sizes = counts.cumsum(0) - counts, counts * widths
    place = (sizes.cumsum(0) - sizes)[block] + (row - starts[block]) * widths[block]
    place += (read.cumsum(1) - 1)[block, column]
    matrices = values.new_zeros(int(sizes.sum())).index_copy_(0, place, values).split(sizes.tolist())
    columns = torch.nonzero(read)[:, 1].split(widths.tolist())
    found = []
    for start, count, mine, matrix in zip(starts.tolist(), counts.tolist(), columns, matrices, strict=True):
        found.append(DenseBlock(slice(start, start + count), mine, matrix.view(count, len(mine))))
    return DenseBlocks(tuple(found), len(number))


def _best_side(conv: Conv, rows: int, columns: int) -> int:
    """How many places a block of the transpose should have along each axis, if entries lie evenly."""
    behind, before = rows / flat_size(conv.out_shape[1:]), columns / flat_size(conv.in_shape[1:])  # for each place
    best, least = 1, math.inf
    for power in range(max(conv.in_shape[1:]).bit_length() + 1):
        sides = [min(2**power, size) for size in conv.in_shape[1:]]
        blocks = math.prod(-(-size // side) for size, side in zip(conv.in_shape[1:], sides, strict=True))
        reach = math.prod(_reads(conv, axis, side) for axis, side in enumerate(sides))
        cost = blocks * (behind * reach * (max(before * math.prod(sides), NARROW) + GATHERED) + CALLED)
        if cost < least:
            best, least = 2**power, cost
    return best


def _reads(conv: Conv, axis: int, side: int) -> int:
    """How many places behind the convolution so many before it take part in, along an axis; at most."""
    reach = conv.dilation[axis] * (conv.weight.shape[2 + axis] - 1) + 1
    return min(-(-(side - 1 + reach) // conv.stride[axis]), conv.out_shape[1 + axis])
