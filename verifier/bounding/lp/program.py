"""A sparse linear program over boxes, and the bound that any multipliers of its rows prove."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Rows:
    """low <= A v <= high with A stored row by row; an infinite side is absent."""

    indptr: Ints
    columns: Ints
    values: Floats
    low: Floats
    high: Floats

    @classmethod
    def collect(cls, entries: tuple[Ints, Ints, Floats], low: Floats, high: Floats) -> Rows:
        """Rows from (row, column, value) triplets in any order."""
        row, column, value = entries
        order = np.lexsort((column, row))
        indptr = np.concatenate([[0], np.cumsum(np.bincount(row, minlength=len(low)))])
        return cls(indptr.astype(np.int64), column[order], value[order], low, high)

    @classmethod
    def joined(cls, parts: Sequence[Rows]) -> Rows:
        """The rows of all parts.  Require: at least one."""
        return reduce(cls.followed_by, parts)

    @property
    def count(self) -> int:
        return len(self.low)

    def followed_by(self, other: Rows) -> Rows:
        return Rows(
            np.concatenate([self.indptr, self.indptr[-1] + other.indptr[1:]]),
            np.concatenate([self.columns, other.columns]),
            np.concatenate([self.values, other.values]),
            np.concatenate([self.low, other.low]),
            np.concatenate([self.high, other.high]),
        )

    def transposed_times(self, y: Floats, width: int) -> Floats:
        """A^T y for a program of `width` columns."""
        weights = self.values * np.repeat(y, np.diff(self.indptr))
        return np.asarray(np.bincount(self.columns, weights=weights, minlength=width), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Program:
    """min cost . v over low <= v <= high and the rows; all boxes are finite, costs are given per solve."""

    low: Floats
    high: Floats
    rows: Rows

    @property
    def width(self) -> int:
        return len(self.low)

    @property
    def crossed(self) -> bool:
        """Some box is empty, so nothing is feasible."""
        return bool((self.low > self.high).any())

    def with_rows(self, rows: Rows) -> Program:
        return replace(self, rows=self.rows.followed_by(rows))

    def dual_value(self, cost: Floats, y: Floats) -> float:
        """The Lagrangian at row multipliers y: at most the minimum, whatever y is (float64, rounding not priced).

        A multiplier whose sign asks for an absent side of its row is set to zero first.  With zero cost a positive
        value proves that the program is infeasible.
        """
        up = np.where(np.isfinite(self.rows.low), np.maximum(y, 0.0), 0.0)
        down = np.where(np.isfinite(self.rows.high), np.minimum(y, 0.0), 0.0)
        at_rows = up @ np.where(up > 0, self.rows.low, 0.0) + down @ np.where(down < 0, self.rows.high, 0.0)
        reduced = cost - self.rows.transposed_times(up + down, self.width)
        return float(at_rows + np.maximum(reduced, 0.0) @ self.low + np.minimum(reduced, 0.0) @ self.high)
