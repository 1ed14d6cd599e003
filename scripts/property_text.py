"""Formulas over network inputs and outputs: written as VNN-LIB text, and taken apart into clauses.

One tree serves both ends, so the text and the exactly confirmed problem cannot drift apart. Numbers are floats
with a short decimal form; that decimal is what the text says and what `holds` compares with, as a fraction.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache

import numpy as np
from exact_network import Box, Rows

Variable = tuple[str, int]  # ("X" or "Y", flat index)


@dataclass(frozen=True, slots=True)
class Atom:
    """sum of coefficient * variable, compared with a number or a variable."""

    left: tuple[tuple[float, Variable], ...]
    op: str  # <= >= < >
    right: float | Variable

    def normal(self) -> tuple[dict[Variable, Fraction], Fraction]:
        """Coefficients a and constant c of the same atom as a . v <= c (closed)."""
        return _normal(self)

    def holds(self, x: np.ndarray, y: np.ndarray) -> bool:
        """Decided in rational arithmetic for the given float values."""
        coefficients, c = self.normal()
        total = sum(a * Fraction(float((x if name == "X" else y)[i])) for (name, i), a in coefficients.items())
        return total < c if self.op in ("<", ">") else total <= c


@cache
def _normal(atom: Atom) -> tuple[dict[Variable, Fraction], Fraction]:
    sign = -1 if atom.op.startswith(">") else 1
    coefficients: dict[Variable, Fraction] = {}
    terms = list(atom.left) + ([(-1.0, atom.right)] if isinstance(atom.right, tuple) else [])
    for coefficient, variable in terms:
        coefficients[variable] = coefficients.get(variable, Fraction(0)) + sign * exact_number(coefficient)
    return coefficients, Fraction(0) if isinstance(atom.right, tuple) else sign * exact_number(atom.right)


@dataclass(frozen=True, slots=True)
class Or:
    """Disjunction; each child is a conjunction."""

    children: tuple[tuple[Atom, ...], ...]


Formula = Sequence[Atom | Or]  # one assert each, all must hold


def exact_number(value: float) -> Fraction:
    return Fraction(Decimal(repr(float(value))))


def decimal_text(value: float) -> str:
    """Plain decimal notation with a point and no exponent, as VNN-LIB 2.0 wants it."""
    text = format(Decimal(repr(float(value))), "f")
    return text if "." in text else text + ".0"


def less(left: Variable, right: float | Variable) -> Atom:
    return Atom(((1.0, left),), "<=", right)


def more(left: Variable, right: float | Variable) -> Atom:
    return Atom(((1.0, left),), ">=", right)


def box(lower: np.ndarray, upper: np.ndarray) -> list[Atom]:
    """Two atoms per input; the bounds are taken to 9 decimals."""
    atoms: list[Atom] = []
    for i, (low, high) in enumerate(zip(lower, upper, strict=True)):
        atoms += [more(("X", i), round(float(low), 9)), less(("X", i), round(float(high), 9))]
    return atoms


# ---------------------------------------------------------------- clauses


@dataclass(frozen=True, slots=True, eq=False)
class Clause:
    """A box and rows that must all be <= 0 for a violation, with the atoms they come from."""

    lower: np.ndarray
    upper: np.ndarray
    rows: Rows
    atoms: tuple[Atom, ...]

    @property
    def box(self) -> Box:
        return self.lower, self.upper

    def holds(self, x: np.ndarray, y: np.ndarray) -> bool:
        """Every atom, exactly."""
        return all(atom.holds(x, y) for atom in self.atoms)


def clauses(formula: Formula, n_x: int, n_y: int) -> list[Clause]:
    """Disjunctive normal form; every input must be bounded on both sides in every clause."""
    choices = [item.children if isinstance(item, Or) else ((item,),) for item in formula]
    return [_clause(tuple(itertools.chain(*pick)), n_x, n_y) for pick in itertools.product(*choices)]


def _clause(atoms: tuple[Atom, ...], n_x: int, n_y: int) -> Clause:
    lower, upper = np.full(n_x, -np.inf), np.full(n_x, np.inf)
    A, B, c = [], [], []
    for atom in atoms:
        coefficients, constant = atom.normal()
        if len(coefficients) == 1 and next(iter(coefficients))[0] == "X":
            ((_, i), a) = next(iter(coefficients.items()))
            if a > 0:
                upper[i] = min(upper[i], float(constant / a))
            else:
                lower[i] = max(lower[i], float(constant / a))
            continue
        slopes = {"Y": np.zeros(n_y), "X": np.zeros(n_x)}
        for (name, i), a in coefficients.items():
            slopes[name][i] = float(a)
        A.append(slopes["Y"])
        B.append(slopes["X"])
        c.append(float(constant))
    if not (np.isfinite(lower).all() and np.isfinite(upper).all()):
        raise ValueError("an input has no bound")
    return Clause(lower, upper, Rows(np.array(A), np.array(c), np.array(B) if np.any(B) else None), atoms)


# ---------------------------------------------------------------- text


@dataclass(frozen=True, slots=True)
class Dialect:
    """VNN-LIB 1.0 or 2.0; 2.0 names elements by their index in the declared shape."""

    version: int
    shapes: dict[str, tuple[int, ...]]

    def name(self, variable: Variable) -> str:
        tensor, index = variable
        if self.version == 1:
            return f"{tensor}_{index}"
        return f"{tensor}[{','.join(str(int(i)) for i in np.unravel_index(index, self.shapes[tensor]))}]"

    def header(self) -> list[str]:
        if self.version == 1:
            sizes = {tensor: int(np.prod(shape)) for tensor, shape in self.shapes.items()}
            return [f"(declare-const {tensor}_{i} Real)" for tensor, size in sizes.items() for i in range(size)]
        kinds = {"X": "declare-input", "Y": "declare-output"}
        lines = [f"    ({kinds[t]} {t} float32 [{','.join(map(str, shape))}])" for t, shape in self.shapes.items()]
        return ["(vnnlib-version <2.0>)", "(declare-network f", *lines, ")"]

    def atom(self, atom: Atom) -> str:
        terms = [self.name(v) if a == 1.0 else f"(* {decimal_text(a)} {self.name(v)})" for a, v in atom.left]
        left = terms[0] if len(terms) == 1 else f"(+ {' '.join(terms)})"
        right = self.name(atom.right) if isinstance(atom.right, tuple) else decimal_text(atom.right)
        return f"({atom.op} {left} {right})"

    def item(self, item: Atom | Or) -> str:
        if isinstance(item, Atom):
            return f"(assert {self.atom(item)})"
        children = "".join(f"\n    (and {' '.join(map(self.atom, child))})" for child in item.children)
        return f"(assert (or{children}\n))"


def vnnlib(formula: Formula, dialect: Dialect, title: str) -> str:
    """The whole file; `title` becomes the first comment. It describes the unsafe set."""
    lines = [f"; {title}", *dialect.header(), *(dialect.item(item) for item in formula)]
    return "\n".join(lines) + "\n"
