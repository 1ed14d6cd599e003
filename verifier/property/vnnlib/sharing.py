"""Inputs that a property asserts to be equal become one input.

Only what holds in every clause counts: an equality inside of a disjunction stays a pair of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from verifier.property.joint import LinearSum
from verifier.property.vnnlib.clauses import Atom, Formula, LinearTerm


@dataclass(frozen=True, slots=True)
class Sharing:
    """Which input stands for each of the declared ones; they are numbered anew, in the order of the file."""

    shared: tuple[int, ...]

    @staticmethod
    def of(facts: Sequence[Atom], n_x: int) -> Sharing:
        """The sharing that the facts ask for: x_i <= x_j and x_j <= x_i."""
        below = {_pair(atom) for atom in facts} - {None}
        root = list(range(n_x))

        def top(i: int) -> int:
            while root[i] != i:
                root[i] = root[root[i]]
                i = root[i]
            return i

        for pair in below:
            if pair is not None and pair[::-1] in below:
                i, j = sorted((top(pair[0]), top(pair[1])))
                root[j] = i
        number: dict[int, int] = {}
        return Sharing(tuple(number.setdefault(top(i), len(number)) for i in range(n_x)))

    @property
    def count(self) -> int:
        return max(self.shared, default=-1) + 1

    def declared(self, i: int) -> int:
        """The first declared input that input i stands for."""
        return self.shared.index(i)

    def renamed(self, formulas: Sequence[Formula]) -> list[Formula]:
        """The same conditions on the inputs that are left."""
        if self.count == len(self.shared):
            return list(formulas)
        return [[[self._atom(atom) for atom in clause] for clause in formula] for formula in formulas]

    def linear_sum(self, term: LinearTerm) -> LinearSum:
        """A factor of a product, with inputs and outputs apart."""
        terms = self._terms(tuple(term.terms.items()))
        y = tuple((code // 2, a) for code, a in terms if code % 2 == 1)
        return LinearSum(y, tuple((code // 2, a) for code, a in terms if code % 2 == 0), term.constant)

    def _atom(self, atom: Atom) -> Atom:
        return Atom(self._terms(atom.terms), atom.bound, atom.strict)

    def _terms(self, terms: tuple[tuple[int, Fraction], ...]) -> tuple[tuple[int, Fraction], ...]:
        found: dict[int, Fraction] = {}
        for code, a in terms:
            mine = code if code % 2 else 2 * self.shared[code // 2]
            found[mine] = found.get(mine, Fraction(0)) + a
        return tuple((code, a) for code, a in sorted(found.items()) if a)


def _pair(atom: Atom) -> tuple[int, int] | None:
    """(i, j) if the atom says x_i <= x_j."""
    if atom.strict or atom.bound or len(atom.terms) != 2 or atom.terms[0][1] != -atom.terms[1][1]:
        return None
    (first, a), (second, _) = atom.terms
    if first % 2 or second % 2:
        return None
    return (first // 2, second // 2) if a > 0 else (second // 2, first // 2)
