"""Stored matrices: dense ones, and those with few entries that are not zero.

Products of sparse ones run in compressed rows (CSR), one copy for each direction.  For 512 vectors in float32 on one
core, in milliseconds; `gather` takes one entry per row at a time, `scatter` is an `index_add_` over all entries:

| matrix | entries per row | dense | CSR | gather | scatter |
|---|---|---|---|---|---|
| 288 x 1152 | 4 | 3.7 | 0.6 | 0.4 | 0.9 |
| 4096 x 2048 | 2 | 98 | 3.3 | 5.0 | 27 |
| 1000 x 1000 | 20 | 11.2 | 1.9 | 6.2 | 78 |
| 1000 x 1000 | 100 | 11.2 | 7.7 | 28 | 448 |

In float64, CSR is at least twice as fast as `gather` everywhere.  It also takes vectors that lie side by side in memory
as they are, which is how it returns them: between two such maps nothing is moved, and the first line takes 0.13.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace

import torch

from verifier.operators.base import LinearMap
from verifier.shapes import Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class Dense(LinearMap):
    """`weight` applied to each of `repeats` consecutive blocks of the vector.

    `repeats > 1` is a matrix product along the last axis of a tensor of higher rank: the block-diagonal matrix
    with `repeats` copies of `weight`.
    """

    weight: Float[Tensor, "m k"]
    repeats: int = 1
    roundings: int = 0

    @property
    def n_in(self) -> int:  # type: ignore[override]
        return self.repeats * self.weight.shape[1]

    @property
    def n_out(self) -> int:  # type: ignore[override]
        return self.repeats * self.weight.shape[0]

    @property
    def depth(self) -> int:  # type: ignore[override]
        return max(self.weight.shape) + 1 + self.roundings

    @property
    def weights(self) -> Tensor:
        return self.weight

    def reweighted(self, weights: Tensor, roundings: int = 0) -> Dense:
        return replace(self, weight=weights, roundings=self.roundings + roundings)

    def _apply(self, x: Tensor, matrix: Tensor) -> Tensor:
        if self.repeats == 1:
            return x @ matrix
        blocks = x.reshape(*x.shape[:-1], self.repeats, matrix.shape[0])
        return (blocks @ matrix).flatten(-2)

    def forward(self, x: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        return self._apply(x, self.weight.T)

    def transpose(self, y: Float[Tensor, "*batch n_out"]) -> Float[Tensor, "*batch n_in"]:
        return self._apply(y, self.weight)

    def magnitude(self, r: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        return self._apply(r, self.weight.abs().T)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Dense:
        return replace(self, weight=self.weight.to(device=device, dtype=dtype))

    def describe(self) -> str:
        blocks = "" if self.repeats == 1 else f" x{self.repeats}"
        return f"dense {self.weight.shape[1]}->{self.weight.shape[0]}{blocks}"


MOST_DENSE = 0.05
"""Share of nonzero entries up to which a sparse matrix is kept: products are then at least twice as fast."""

LEAST_ENTRIES = 8192
"""Smaller matrices stay dense: the calls cost more than the multiplications."""


@dataclass(frozen=True, eq=False)
class Sparse(LinearMap):
    """`values[e]` at row `rows[e]` and column `columns[e]`, zero elsewhere.

    Require: entries sorted by rows and then by columns, no place named twice.
    """

    rows: Int[Tensor, " e"]
    columns: Int[Tensor, " e"]
    values: Float[Tensor, " e"]
    shape: tuple[int, int]
    roundings: int = 0
    _longest: int = field(init=False, repr=False)
    _matrix: Tensor = field(init=False, repr=False)
    _transposed: Tensor = field(init=False, repr=False)
    _absolute: Tensor = field(init=False, repr=False)

    def __post_init__(self) -> None:
        n_out, n_in = self.shape
        if len(self.rows) and (int(self.rows.max()) >= n_out or int(self.columns.max()) >= n_in):
            raise ValueError(f"entries outside of a matrix of {n_out} x {n_in}")
        per_row = torch.bincount(self.rows, minlength=n_out)
        per_column = torch.bincount(self.columns, minlength=n_in)
        order = self.columns.argsort(stable=True)
        values = self.values
        longest = max((int(counts.max()) for counts in (per_row, per_column) if len(counts)), default=0)
        object.__setattr__(self, "_longest", longest)
        object.__setattr__(self, "_matrix", _compressed(per_row, self.columns, values, (n_out, n_in)))
        object.__setattr__(self, "_absolute", _compressed(per_row, self.columns, values.abs(), (n_out, n_in)))
        transposed = _compressed(per_column, self.rows[order], values[order], (n_in, n_out))
        object.__setattr__(self, "_transposed", transposed)

    @classmethod
    def of(cls, weight: Float[Tensor, "m k"], roundings: int = 0) -> Sparse:
        """The entries of a matrix that are not zero."""
        rows, columns = torch.nonzero(weight, as_tuple=True)
        return cls(rows, columns, weight[rows, columns], (weight.shape[0], weight.shape[1]), roundings)

    @property
    def n_in(self) -> int:  # type: ignore[override]
        return self.shape[1]

    @property
    def n_out(self) -> int:  # type: ignore[override]
        return self.shape[0]

    @property
    def depth(self) -> int:  # type: ignore[override]
        return self._longest + 1 + self.roundings

    @property
    def weights(self) -> Tensor:
        return self.values

    def reweighted(self, weights: Tensor, roundings: int = 0) -> Sparse:
        return replace(self, values=weights, roundings=self.roundings + roundings)

    def forward(self, x: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        return _product(self._matrix, x)

    def transpose(self, y: Float[Tensor, "*batch n_out"]) -> Float[Tensor, "*batch n_in"]:
        return _product(self._transposed, y)

    def magnitude(self, r: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        return _product(self._absolute, r)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Sparse:
        values = self.values.to(device=device, dtype=dtype)
        return replace(self, rows=self.rows.to(values.device), columns=self.columns.to(values.device), values=values)

    def where(self, kept: Tensor) -> Sparse:
        """Only the entries that a mask names."""
        return replace(self, rows=self.rows[kept], columns=self.columns[kept], values=self.values[kept])

    def moved(self, rows: Int[Tensor, " e"], columns: Int[Tensor, " e"], shape: tuple[int, int]) -> Sparse:
        """The same entries at other places, in a matrix of another shape.  Require: no place is named twice."""
        order = (rows * shape[1] + columns).argsort()
        return Sparse(rows[order], columns[order], self.values[order], shape, self.roundings)

    def taken(self, index: Int[Tensor, " r"]) -> Sparse:
        """Some rows, in any order, also repeatedly; -1 stands for a row of zeros."""
        rows, entries = taken_rows(self.rows, self.n_out, index)
        return Sparse(rows, self.columns[entries], self.values[entries], (len(index), self.n_in), self.roundings)

    def dense(self) -> Float[Tensor, "m k"]:
        """The whole matrix."""
        return self.values.new_zeros(self.shape).index_put_((self.rows, self.columns), self.values)

    def describe(self) -> str:
        share = self.parameters / max(1, self.n_in * self.n_out)
        return f"sparse {self.n_in}->{self.n_out} ({100 * share:.2g} %)"


def taken_rows(
    rows: Int[Tensor, " e"], n_out: int, index: Int[Tensor, " r"]
) -> tuple[Int[Tensor, " f"], Int[Tensor, " f"]]:
    """Which entries the rows of `index` have, given the sorted rows of all entries, and in which of them each lies.

    Rows may come in any order, also repeatedly; -1 stands for a row of zeros.
    """
    counts = torch.bincount(rows, minlength=n_out)
    starts = counts.cumsum(0) - counts
    lengths = torch.where(index >= 0, counts[index.clamp(min=0)], 0)
    places = torch.arange(len(index), device=index.device).repeat_interleave(lengths)
    first = (lengths.cumsum(0) - lengths).repeat_interleave(lengths)
    entries = starts[index.clamp(min=0)].repeat_interleave(lengths)
    return places, entries + torch.arange(len(places), device=index.device) - first


def worth_it(nonzero: int, shape: tuple[int, int]) -> bool:
    """Whether products with a matrix of that many nonzero entries are much faster in its sparse form."""
    entries = shape[0] * shape[1]
    return entries >= LEAST_ENTRIES and nonzero <= MOST_DENSE * entries


def _compressed(counts: Tensor, columns: Tensor, values: Tensor, shape: tuple[int, int]) -> Tensor:
    starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta")
        return torch.sparse_csr_tensor(starts, columns, values, shape, check_invariants=False)


def _product(matrix: Tensor, x: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch m"]:
    """The matrix times each vector; a batch of vectors comes out side by side in memory."""
    batch, (m, k) = x.shape[:-1], matrix.shape
    vectors = x.reshape(-1, k)
    if not len(vectors) or not matrix.values().numel():
        return x.new_zeros(*batch, m)
    return (matrix @ vectors.T).T.reshape(*batch, m)


def stored(weight: Float[Tensor, "m k"], repeats: int = 1, roundings: int = 0) -> Dense | Sparse:
    """The matrix in the form whose products are faster."""
    if repeats == 1 and worth_it(int(weight.count_nonzero()), (weight.shape[0], weight.shape[1])):
        return Sparse.of(weight, roundings)
    return Dense(weight.contiguous(), repeats, roundings)


def stored_rows(linear: LinearMap, index: Int[Tensor, " r"]) -> Float[Tensor, "r n_in"] | None:
    """Some rows as they are stored, without any arithmetic; None if the map does not store its rows."""
    if isinstance(linear, Sparse):
        return linear.taken(index).dense()
    if isinstance(linear, Dense) and linear.repeats == 1:
        return linear.weight[index]
    return None
