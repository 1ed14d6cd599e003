"""The ends of ranges as minima: what is asked of each, and what is known."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from verifier.errors import InputError
from verifier.property.property import FAR, Clause, Doubles, ExactRow, Property, RoundedRows
from verifier.result.ranges import End, allowed
from verifier.result.verdict import Reason

ALMOST = 0.99
"""The share of the gap that the threshold leaves: rounding must not make it one too many."""


@dataclass(eq=False)
class Side:
    """One end as a minimum: what is proved and what is reached so far, and why no more will be, if that is so."""

    row: int
    sign: int  # 1: the lower end; -1: the upper one, the minimum of the negative
    coefficients: tuple[tuple[int, Fraction], ...]
    proved: float = -math.inf
    reached: float = math.inf
    point: NDArray[np.floating] | None = None
    given_up: Reason | None = None
    domains: int = 0  # that its search has bounded

    def value(self, y: NDArray[np.floating]) -> float:
        """The function at outputs, rounded once."""
        return float(sum((a * Fraction(y[j].item()) for j, a in self.coefficients), Fraction(0)))

    def reach(self, x: NDArray[np.floating], y: NDArray[np.floating]) -> None:
        """Hear of a point."""
        if np.isfinite(y).all() and (value := self.value(y)) < self.reached:
            self.reached, self.point = value, x

    def open(self, gap: float) -> bool:
        """Whether a search may still help."""
        return self.given_up is None and self.reached - self.proved > allowed(gap, self.reached)

    def threshold(self, gap: float) -> float:
        """What is to be proved.  Requires: a point is known."""
        return self.reached - ALMOST * allowed(gap, self.reached)

    def end(self) -> End:
        reached = None if self.point is None else self.sign * self.reached
        return End(self.sign * self.proved, reached, self.point)


def asking(prop: Property, side: Side, threshold: float) -> tuple[Clause, ...]:
    """A clause on every box: the function is at or below the threshold."""
    row = ExactRow(side.coefficients, (), Fraction(threshold), strict=False)
    ends = ((prop.boxes.lower[b], prop.boxes.upper[b]) for b in range(len(prop.boxes)))
    return tuple(Clause(b, RoundedRows.of([row], prop.n_x, prop.n_y, box)) for b, box in enumerate(ends))


def sides_of(rows: Doubles | None, outputs: int) -> list[Side]:
    """Both ends of every function, the lower one first."""
    matrix = np.eye(outputs) if rows is None else rows
    if matrix.ndim != 2 or matrix.shape[1] != outputs or not len(matrix):
        raise InputError(f"rows have the shape {matrix.shape}; a matrix with {outputs} columns is expected")
    sides = []
    for number, row in enumerate(matrix.tolist()):
        largest = max(map(abs, row))
        if not (largest == 0 or 1 / FAR <= largest <= FAR):  # the search would scale it, and bounds with it
            raise InputError(f"row {number} has the largest coefficient {largest:g}: scale it to something nearer to 1")
        for sign in (1, -1):
            terms = tuple((j, sign * Fraction(a)) for j, a in enumerate(row) if a)
            sides.append(Side(number, sign, terms))
    return sides
