"""Linear programs in rational arithmetic, each answer proved by its dual.

The dual simplex method in integers: every variable has bounds, so each can start at the bound that its cost prefers,
and no first phase is needed.  Bland's rule ends it; Edmonds' division keeps all entries integers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

Vector = Sequence[Fraction]


@dataclass(frozen=True, slots=True)
class HalfSpace:
    """The points with `normal . x <= bound`."""

    normal: tuple[Fraction, ...]
    bound: Fraction

    def slack(self, x: Vector) -> Fraction:
        return self.bound - dot(self.normal, x)


@dataclass(frozen=True, slots=True)
class Optimum:
    """The least value of a linear function, and a point that has it."""

    value: Fraction
    x: tuple[Fraction, ...]


class OracleError(Exception):
    """The oracle contradicts itself: nothing that it says may be used."""


def dot(a: Vector, b: Vector) -> Fraction:
    return sum((p * q for p, q in zip(a, b, strict=True) if p and q), Fraction(0))


def minimise(cost: Vector, lower: Vector, upper: Vector, spaces: Sequence[HalfSpace]) -> Optimum | None:
    """The minimum of `cost . x` over the box and the half-spaces, or None if they have no common point.

    Requires: lower <= upper.  Guarantees: the point lies in all of them, and the multipliers of the last dictionary
    prove that no other has a smaller value; both are checked in rational arithmetic, else OracleError is raised.
    """
    table = _Dictionary(cost, lower, upper, spaces)
    if not table.solve():
        return None
    x = table.point()
    value = dot(cost, x)
    _check(table, cost, x, value)
    return Optimum(value, x)


def _check(table: _Dictionary, cost: Vector, x: Vector, value: Fraction) -> None:
    """cost . y - value is a sum of non-negative multiples of slacks that are zero at x, hence nowhere negative."""
    total, constant = [Fraction(0)] * len(cost), Fraction(0)
    for space, price in table.prices():
        if price < 0 or space.slack(x):
            raise OracleError("a multiplier of a linear program proves nothing")
        total = [t - price * a for t, a in zip(total, space.normal, strict=True)]
        constant += price * space.bound
    if total != list(cost) or constant != -value or any(space.slack(x) < 0 for space in table.spaces):
        raise OracleError("the answer of a linear program is not proved by its multipliers")


class _Dictionary:
    """basic = b - A nonbasic, with integer entries over one common denominator; `entries` has b in its last column
    and the costs in its last row.  Names 0..n-1 are the half-spaces that the start is on, the rest follow.
    """

    def __init__(self, cost: Vector, lower: Vector, upper: Vector, given: Sequence[HalfSpace]) -> None:
        n = len(cost)
        at_lower = [c >= 0 for c in cost]
        self.start = tuple(low if a else up for a, low, up in zip(at_lower, lower, upper, strict=True))
        self.signs = [1 if a else -1 for a in at_lower]
        near, far = [], []
        for j, (low, up, a) in enumerate(zip(lower, upper, at_lower, strict=True)):
            below, above = HalfSpace(_unit(n, j, -1), -low), HalfSpace(_unit(n, j, 1), up)
            near.append(below if a else above)
            far.append(above if a else below)
        self.spaces = [*near, *far, *given]
        self.scales: list[Fraction] = [Fraction(1)] * n
        self.entries: list[list[int]] = []
        for space in self.spaces[n:]:
            row = [s * a for s, a in zip(self.signs, space.normal, strict=True)]
            self._append([*row, space.slack(self.start)])
        self._append([abs(c) for c in cost] + [Fraction(0)])
        self.denominator = 1
        self.nonbasic = list(range(n))
        self.basic = list(range(n, len(self.spaces)))

    def _append(self, row: list[Fraction]) -> None:
        scale = math.lcm(*(entry.denominator for entry in row))
        self.scales.append(Fraction(scale))
        self.entries.append([int(entry * scale) for entry in row])

    def solve(self) -> bool:
        """Pivots to an optimal dictionary; False if the half-spaces have no common point."""
        while True:
            wrong = [(self.basic[i], i) for i in range(len(self.basic)) if self.entries[i][-1] < 0]
            if not wrong:
                return True
            r = min(wrong)[1]
            row, costs = self.entries[r], self.entries[-1]
            able = [j for j in range(len(self.nonbasic)) if row[j] < 0]
            if not able:
                return False
            self._pivot(r, min(able, key=lambda j: (Fraction(costs[j], -row[j]), self.nonbasic[j])))

    def _pivot(self, r: int, k: int) -> None:
        pivot_row, p, d = self.entries[r], self.entries[r][k], self.denominator
        for i, row in enumerate(self.entries):
            if i == r:
                continue
            f = row[k]
            changed = [(a * p - f * b) // d for a, b in zip(row, pivot_row, strict=True)]
            changed[k] = -f
            self.entries[i] = changed
        pivot_row[k] = d
        self.denominator = p
        if p < 0:
            self.denominator = -p
            self.entries = [[-a for a in row] for row in self.entries]
        self.basic[r], self.nonbasic[k] = self.nonbasic[k], self.basic[r]

    def point(self) -> tuple[Fraction, ...]:
        moves = [Fraction(0)] * len(self.start)
        for i, name in enumerate(self.basic):
            if name < len(moves):
                moves[name] = Fraction(self.entries[i][-1], self.denominator)
        return tuple(s + g * m for s, g, m in zip(self.start, self.signs, moves, strict=True))

    def prices(self) -> list[tuple[HalfSpace, Fraction]]:
        """The half-spaces that the solution is on, with their multipliers."""
        costs, whole = self.entries[-1], self.scales[-1]
        return [
            (self.spaces[name], Fraction(costs[j], self.denominator) * self.scales[name] / whole)
            for j, name in enumerate(self.nonbasic)
        ]


def _unit(n: int, j: int, sign: int) -> tuple[Fraction, ...]:
    return tuple(Fraction(sign if i == j else 0) for i in range(n))
