"""What a property is: input boxes and, per clause, linear rows that together describe the unsafe set.

The unsafe set is a union of clauses.  A clause is a box of inputs and rows `A y + B x <= c` that must all hold
(`<` where the row is strict).  An instance is `sat` if some clause has a point, else `unsat`.

Every number of the file is a decimal, hence a rational.  A box keeps its roundings: outward to float64 for proofs,
inward to float32 and to float64 for witnesses.  Rows keep floats for proofs and the exact rationals for witnesses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifier.property.ball import Ball
from verifier.property.joint import Joint
from verifier.property.numbers import absorb, at_least, float32_down, float32_up, nearest, upward

Doubles = NDArray[np.float64]
Singles = NDArray[np.float32]
Floats = NDArray[np.floating]
Bools = NDArray[np.bool_]

FAR = 2**64
"""Rows with larger coefficients, or only smaller ones than its inverse, are scaled: float32 would not hold them."""


@dataclass(frozen=True, slots=True, eq=False)
class Boxes:
    """The N different input boxes of a property, of n_x inputs each.

    Guarantees: `lower <= every point of the decimal box <= upper`, and both are the tightest such float64 values.  A
    float32 point lies in the decimal box if and only if it lies in `[lower_in, upper_in]`, wherever `exact` holds.
    `exact` is False for a box in which some input has no float32 value inside: there `lower_in` and `upper_in` are
    both the float32 value nearest to the interval, and a witness is a witness up to that rounding only.

    `lower_within` and `upper_within` are the same for float64: a float64 point lies in the decimal box if and only if
    it lies between them.  Where some input has no float64 value inside either, they cross.
    """

    lower: Doubles  # [N, n_x]
    upper: Doubles  # [N, n_x]
    lower_in: Singles  # [N, n_x]
    upper_in: Singles  # [N, n_x]
    exact: Bools  # [N]
    lower_within: Doubles  # [N, n_x]
    upper_within: Doubles  # [N, n_x]

    def __len__(self) -> int:
        return int(self.lower.shape[0])

    @staticmethod
    def enclosed(low: tuple[Doubles, Doubles], high: tuple[Doubles, Doubles]) -> Boxes:
        """Boxes from pairs [N, n_x] of float64 values that enclose the decimal lower and upper bounds.

        Requires: no empty interval; each pair is (largest float64 below or at, smallest float64 above or at) the
        decimal.  For a strict bound the inner value of its pair is moved off the bound by one float64.
        """
        lower_in, upper_in = float32_up(low[1]), float32_down(high[0])
        hollow = lower_in > upper_in
        if hollow.any():
            # The interval lies between two neighbours: upper_in is the one below it, lower_in the one above it.
            middle = nearest(upper_in[hollow], lower_in[hollow], low[0][hollow], high[1][hollow])
            lower_in[hollow] = middle
            upper_in[hollow] = middle
        exact = np.logical_not(hollow.any(axis=1))
        return Boxes(low[0], high[1], lower_in, upper_in, exact, low[1], high[0])

    def ends(self, dtype: np.dtype[Any]) -> tuple[Floats, Floats]:
        """Where points of that precision are looked for: [N, n_x] each, the lower and the upper end.

        Both are the same float near to the interval wherever no float of that precision lies inside.
        """
        if dtype != np.float64:
            return self.lower_in, self.upper_in
        hollow = self.lower_within > self.upper_within
        return np.where(hollow, self.lower, self.lower_within), np.where(hollow, self.lower, self.upper_within)

    def holds_floats(self, dtype: np.dtype[Any]) -> Bools:
        """Per box whether every input has a float of that precision inside: then `ends` are ends of the box."""
        if dtype != np.float64:
            return self.exact
        found: Bools = np.all(self.lower_within <= self.upper_within, axis=1)
        return found

    def around(self, box: int, x: Floats) -> tuple[Doubles, Doubles]:
        """The point of one decimal box nearest to x, between two float64 vectors [n_x]: equal where it is a float64.

        Where no float64 lies inside of an interval, they are the neighbours that enclose it.
        """
        low, high = self.lower_within[box], self.upper_within[box]
        hollow, point = low > high, np.clip(x.astype(np.float64), low, high)
        return np.where(hollow, self.lower[box], point), np.where(hollow, self.upper[box], point)


@dataclass(frozen=True, slots=True)
class ExactRow:
    """One row in rationals: sum of y terms plus sum of x terms `<= bound` (`<` if strict); sorted by index."""

    y: tuple[tuple[int, Fraction], ...]
    x: tuple[tuple[int, Fraction], ...]
    bound: Fraction
    strict: bool

    def holds(self, x: Sequence[Fraction], y: Sequence[Fraction]) -> bool:
        """Whether the row holds at a point, without any rounding."""
        value = sum((a * y[j] for j, a in self.y), Fraction(0)) + sum((b * x[i] for i, b in self.x), Fraction(0))
        return value < self.bound if self.strict else value <= self.bound


@dataclass(frozen=True, slots=True, eq=False)
class RoundedRows:
    """The rows of a clause: the unsafe set needs `A y + B x <= c` in every row.

    Guarantees: whatever satisfies the exact rows inside the clause's box satisfies the float rows too, provided that
    `A_error` is None.  Otherwise `|A - exact A| <= A_error`, which the canonical problem moves into `c`.  Rows whose
    largest coefficient is far from 1 are divided by a power of two; the exact ones stay as they are.
    """

    A: Doubles  # [m, n_y]
    B: Doubles | None  # [m, n_x], None if no row looks at the inputs
    c: Doubles  # [m], rounded up
    strict: Bools  # [m]
    exact: tuple[ExactRow, ...]
    A_error: Doubles | None = None  # [m, n_y], None if all entries of A are exact

    def __len__(self) -> int:
        return int(self.A.shape[0])

    def factors(self) -> Doubles:
        """What every exact row was multiplied by: a power of two, infinite if no float is as large."""
        return np.array([_float(_factor(row)) for row in self.exact])

    @staticmethod
    def of(exact: Sequence[ExactRow], n_x: int, n_y: int, box: tuple[Doubles, Doubles]) -> RoundedRows:
        """Float rows of exact ones.  `box`: the outward bounds [n_x] on which inexact entries of B are absorbed."""
        if all(not row.x and all(a in _UNITS for _, a in row.y) for row in exact):
            return RoundedRows._of_units(exact, n_y)
        m = len(exact)
        A, error = np.zeros((m, n_y)), np.zeros((m, n_y))
        B = np.zeros((m, n_x)) if any(row.x for row in exact) else None
        c = np.zeros(m)
        for k, row in enumerate(map(_scaled, exact)):
            for j, value in row.y:
                A[k, j] = float(value)
                if Fraction(A[k, j]) != value:
                    error[k, j] = upward(abs(Fraction(A[k, j]) - value))
            bound = row.bound
            for i, value in row.x:
                assert B is not None
                B[k, i] = float(value)
                bound += absorb(Fraction(B[k, i]) - value, float(box[0][i]), float(box[1][i]))
            c[k] = at_least(bound)
            if np.isinf(c[k]):  # no float is as large: the row that always holds takes its place
                A[k], error[k], c[k] = 0.0, 0.0, 0.0
                if B is not None:
                    B[k] = 0.0
        strict = np.array([row.strict for row in exact], dtype=np.bool_)
        return RoundedRows(A, B, c, strict, tuple(exact), error if error.any() else None)

    @staticmethod
    def _of_units(exact: Sequence[ExactRow], n_y: int) -> RoundedRows:
        """The same for rows of outputs with coefficients 1 and -1: of these a file may have a hundred thousand."""
        A = np.zeros((len(exact), n_y))
        c = np.array([at_least(row.bound) for row in exact], dtype=np.float64)
        for k, row in enumerate(exact):
            for j, value in row.y:
                A[k, j] = value.numerator
            if c[k] == np.inf:  # no float is as large: the row that always holds takes its place
                A[k], c[k] = 0.0, 0.0
        return RoundedRows(A, None, c, np.array([row.strict for row in exact], dtype=np.bool_), tuple(exact))


_UNITS = frozenset((Fraction(1), Fraction(-1)))


def _scaled(row: ExactRow) -> ExactRow:
    """The same row divided by a power of two, so that its largest coefficient is about 1 if it is far from that."""
    factor = _factor(row)
    if factor == 1:
        return row
    y, x = (tuple((i, value * factor) for i, value in terms) for terms in (row.y, row.x))
    return ExactRow(y, x, row.bound * factor, row.strict)


def _factor(row: ExactRow) -> Fraction:
    """What a row is multiplied by."""
    largest = max((abs(value) for _, value in (*row.y, *row.x)), default=Fraction(1))
    if not largest or Fraction(1, FAR) <= largest <= FAR:
        return Fraction(1)
    exponent = largest.numerator.bit_length() - largest.denominator.bit_length()
    return Fraction(1, 2**exponent) if exponent >= 0 else Fraction(2**-exponent)


def _float(power: Fraction) -> float:
    try:
        return float(power)
    except OverflowError:
        return np.inf


@dataclass(frozen=True, slots=True, eq=False)
class Clause:
    """A box (its index in `Property.boxes`) together with the rows that must all hold in it."""

    box: int
    rows: RoundedRows


@dataclass(frozen=True, slots=True)
class Variable:
    """A tensor as declared in VNN-LIB 2.0: witnesses repeat its name, type and shape."""

    name: str
    kind: str  # "input" or "output"
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class Property:
    """The unsafe set of an instance.  Without any clause it is empty and the instance is `unsat`.

    Inputs and outputs are those of the joint network, if there is one.  With a `ball` only the part of each box that
    lies in it counts.
    """

    n_x: int
    n_y: int
    boxes: Boxes
    clauses: tuple[Clause, ...]
    variables: tuple[Variable, ...] | None = None
    warnings: tuple[str, ...] = ()
    joint: Joint | None = None
    ball: Ball | None = None

    @property
    def tensors(self) -> int | tuple[tuple[int, ...], ...]:
        """What is said about the inputs of a single network: the shape of every tensor, or how many numbers."""
        if self.variables is None:
            return self.n_x
        return tuple(variable.shape for variable in self.variables if variable.kind == "input")

    def witnessed(self, x: Floats, y: Floats) -> int | None:
        """The index of a clause that contains the point, decided in rational arithmetic; None if there is none.

        Clauses whose box is exact in the precision of x come first.  If the clause's box is not
        (`boxes.holds_floats`), its rows hold exactly, and x is a float next to the box wherever the box holds none;
        with a ball such points are no witnesses.
        """
        if x.shape != (self.n_x,) or y.shape != (self.n_y,):
            raise ValueError(f"a point needs shapes ({self.n_x},) and ({self.n_y},), not {x.shape} and {y.shape}")
        if not (np.isfinite(x).all() and np.isfinite(y).all()):
            return None
        lower, upper = self.boxes.ends(x.dtype)
        inside: Bools = np.all((lower <= x) & (x <= upper), axis=1)
        exact = self.boxes.holds_floats(x.dtype)
        xs, ys = [Fraction(v) for v in x.tolist()], [Fraction(v) for v in y.tolist()]
        if self.joint is not None:
            ys = self.joint.completed(xs, ys)
        if self.ball is not None and not self.ball.holds(xs):
            return None
        for wanted in (True, False) if self.ball is None else (True,):
            for k, clause in enumerate(self.clauses):
                possible = inside[clause.box] and bool(exact[clause.box]) == wanted
                if possible and all(row.holds(xs, ys) for row in clause.rows.exact):
                    return k
        return None
