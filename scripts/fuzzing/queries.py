"""Unsafe sets with exact numbers, and their VNN-LIB texts in several dialects."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Decimal, localcontext
from fractions import Fraction

from fuzzing.pieces import Row
from fuzzing.simplex import Vector

DIALECTS = ("plain", "mirrored", "nested", "version 2")
MAX_DIGITS = 900  # of a number in a text


@dataclass(frozen=True, slots=True)
class Clause:
    """A box and the rows that must all hold in it."""

    lower: tuple[Fraction, ...]
    upper: tuple[Fraction, ...]
    rows: tuple[Row, ...]

    def contains(self, x: Vector) -> bool:
        return all(a <= v <= b for a, v, b in zip(self.lower, x, self.upper, strict=True))


@dataclass(frozen=True, slots=True)
class Query:
    """Whether a network reaches any of the clauses."""

    clauses: tuple[Clause, ...]
    dialect: str = "plain"


def terminating(value: Fraction) -> bool:
    """Whether a number has a finite decimal form of reasonable length (2^-k has k places)."""
    rest = value.denominator
    for prime in (2, 5):
        while rest % prime == 0:
            rest //= prime
    return rest == 1 and value.denominator.bit_length() < MAX_DIGITS


def approximate(value: Fraction) -> str:
    """A number for people to read, of any size."""
    if len(str(value)) < 20:
        return str(value)
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 6, MAX_EMAX, MIN_EMIN
        return f"{Decimal(value.numerator) / Decimal(value.denominator):.4e}"


def decimal(value: Fraction, scientific: bool = False) -> str:
    """The exact decimal of a number that has one, else a division (which is exact too)."""
    if value < 0:
        return (
            f"-{decimal(-value, scientific)}" if terminating(value) else f"(/ -{-value.numerator} {value.denominator})"
        )
    if not terminating(value):
        return f"(/ {value.numerator} {value.denominator})"
    places = 0
    while (value * 10**places).denominator != 1:
        places += 1
    digits = str(int(value * 10**places))
    if scientific:
        return f"{digits}e{-places}"
    if not places:
        return digits
    padded = digits.zfill(places + 1)
    return f"{padded[:-places]}.{padded[-places:]}"


@dataclass(slots=True)
class Writer:
    """Writes a query's text; the dialect says how, `rng` varies what may vary."""

    query: Query
    shape: tuple[int, ...]
    rng: random.Random

    def text(self) -> str:
        clauses = self.query.clauses
        n, m = len(clauses[0].lower), len(clauses[0].rows[0].y)
        lines = self._declarations(n, m)
        shared = all((c.lower, c.upper) == (clauses[0].lower, clauses[0].upper) for c in clauses)
        if shared and self.query.dialect != "nested":
            lines += [f"(assert {atom})" for atom in self._box(clauses[0])]
            parts = [[self._row(row) for row in clause.rows] for clause in clauses]
        else:
            parts = [[*self._box(clause), *(self._row(row) for row in clause.rows)] for clause in clauses]
        if len(parts) == 1:
            lines += [f"(assert {atom})" for atom in parts[0]]
        else:
            joined = " ".join(f"(and {' '.join(part)})" for part in parts)
            lines.append(f"(assert (or {joined}))")
        return "\n".join(lines) + "\n"

    def _declarations(self, n: int, m: int) -> list[str]:
        if self.query.dialect != "version 2":
            return [f"(declare-const {name}_{i} Real)" for name, count in (("X", n), ("Y", m)) for i in range(count)]
        shape = ",".join(str(s) for s in self.shape)
        return [
            "(vnnlib-version <2.0>)",
            f"(declare-network f\n(declare-input X real [{shape}])\n(declare-output Y real [1,{m}])\n)",
        ]

    def _variable(self, name: str, index: int) -> str:
        if self.query.dialect != "version 2":
            return f"{name}_{index}"
        if name == "Y":
            return f"Y[0,{index}]"
        places, rest = [], index
        for size in reversed(self.shape):
            places.append(rest % size)
            rest //= size
        return f"X[{','.join(str(p) for p in reversed(places))}]"

    def _number(self, value: Fraction) -> str:
        return decimal(value, self.query.dialect == "mirrored" and self.rng.random() < 0.5)

    def _box(self, clause: Clause) -> list[str]:
        atoms = []
        for i, (low, high) in enumerate(zip(clause.lower, clause.upper, strict=True)):
            name, a, b = self._variable("X", i), self._number(low), self._number(high)
            if low == high and self.query.dialect == "nested" and self.rng.random() < 0.5:
                atoms.append(f"(= {name} {a})")
            elif self.query.dialect == "mirrored":
                atoms += [f"(<= {a} {name})", f"(>= {b} {name})"]
            else:
                atoms += [f"(<= {name} {b})", f"(>= {name} {a})"]
        return atoms

    def _row(self, row: Row) -> str:
        terms = [(w, self._variable("Y", j)) for j, w in enumerate(row.y) if w]
        terms += [(w, self._variable("X", i)) for i, w in enumerate(row.x) if w]
        sign = "<" if row.strict else "<="
        if len(terms) == 2 and [terms[0][0], terms[1][0]] == [1, -1] and not row.bound:
            return f"({sign} {terms[0][1]} {terms[1][1]})"
        bound = self._number(row.bound)
        if self.query.dialect == "mirrored":
            return f"({sign.replace('<', '>')} {bound} {self._sum(terms)})"
        if self.query.dialect == "nested" and self.rng.random() < 0.5:
            turned = [(-w, name) for w, name in terms]
            return f"({sign.replace('<', '>')} {self._sum(turned)} {self._number(-row.bound)})"
        return f"({sign} {self._sum(terms)} {bound})"

    def _sum(self, terms: Sequence[tuple[Fraction, str]]) -> str:
        parts = [name if w == 1 else f"(* {self._number(w)} {name})" for w, name in terms]
        if len(parts) == 2 and terms[1][0] == -1:
            return f"(- {parts[0]} {terms[1][1]})"
        return parts[0] if len(parts) == 1 else f"(+ {' '.join(parts)})"
