"""Linear terms and formulas while a property is read: exact, and already in disjunctive normal form.

A variable is a number: input i is 2 i, output j is 2 j + 1.  A formula is a list of conjunctions, a conjunction a
list of atoms.  Both belong to one parent only, so that combining may reuse the lists of the children.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from verifier.errors import InputError

MAX_CLAUSES = 200_000  # that multiplying out may create
MAX_ATOMS = 20_000_000  # of all those clauses together

ZERO, ONE, MINUS_ONE = Fraction(0), Fraction(1), Fraction(-1)


@dataclass(slots=True)
class Linear:
    """A sum of variables with coefficients, plus a constant."""

    terms: dict[int, Fraction] = field(default_factory=dict)
    constant: Fraction = ZERO

    def scaled(self, factor: Fraction) -> Linear:
        """The term times a constant."""
        return Linear({v: a * factor for v, a in self.terms.items()}, self.constant * factor)

    def add(self, other: Linear) -> Linear:
        """The sum.  Reuses the larger of both: neither may be used afterwards."""
        large, small = (self, other) if len(self.terms) >= len(other.terms) else (other, self)
        for variable, a in small.terms.items():
            large.terms[variable] = large.terms.get(variable, ZERO) + a
        large.constant += small.constant
        return large


@dataclass(frozen=True, slots=True, eq=False)
class Atom:
    """sum of coefficients times variables `<= bound`, or `<` if strict.  No coefficient is zero."""

    terms: tuple[tuple[int, Fraction], ...]
    bound: Fraction
    strict: bool

    @staticmethod
    def between(left: Linear, right: Linear, strict: bool) -> Atom:
        """left <= right.  Neither may be used afterwards."""
        bound = right.constant - left.constant
        left.constant = right.constant = ZERO
        difference = left.add(right.scaled(MINUS_ONE))
        return Atom(tuple((v, a) for v, a in sorted(difference.terms.items()) if a), bound, strict)


Formula = list[list[Atom]]


def conjunction(parts: Sequence[Formula]) -> Formula:
    """All parts hold.  Raises InputError if multiplying out gets too large."""
    result: Formula = [[]]
    for part in parts:
        if len(part) == 1 and len(result) == 1:
            if not result[0]:
                result = part
            else:
                result[0].extend(part[0])
            continue
        clauses = len(result) * len(part)
        check_size(clauses, sum(map(len, result)) * len(part) + sum(map(len, part)) * len(result))
        result = [left + right for left in result for right in part]
    return result


def disjunction(parts: Sequence[Formula]) -> Formula:
    """At least one part holds."""
    result = parts[0]
    for part in parts[1:]:
        result.extend(part)
    return result


def check_size(clauses: int, atoms: int) -> None:
    """Raises InputError before a normal form is built that would not fit."""
    if clauses > MAX_CLAUSES or atoms > MAX_ATOMS:
        raise InputError(
            f"multiplying the disjunctions out gives {clauses} clauses with {atoms} conditions,"
            f" more than the {MAX_CLAUSES} and {MAX_ATOMS} that are allowed"
        )
