"""From exact atoms to a Property: bounds become boxes, the rest becomes rows, equal boxes are stored once."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from verifier.errors import InputError
from verifier.property.numbers import enclosure
from verifier.property.property import Boxes, Clause, Doubles, ExactRow, Property, RoundedRows, Variable

MAX_CLAUSES = 200_000  # that multiplying out may create
MAX_ATOMS = 20_000_000  # of all those clauses together

ZERO, ONE, MINUS_ONE = Fraction(0), Fraction(1), Fraction(-1)


@dataclass(slots=True)
class LinearTerm:
    """A sum of variables with coefficients, plus a constant."""

    terms: dict[int, Fraction] = field(default_factory=dict)
    constant: Fraction = ZERO

    def scaled(self, factor: Fraction) -> LinearTerm:
        """The term times a constant."""
        return LinearTerm({v: a * factor for v, a in self.terms.items()}, self.constant * factor)

    def add(self, other: LinearTerm) -> LinearTerm:
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
    def between(left: LinearTerm, right: LinearTerm, strict: bool) -> Atom:
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


MAX_BOX_NUMBERS = 50_000_000  # different boxes times inputs
MAX_ROW_NUMBERS = 200_000_000  # rows times outputs

LOWER, UPPER = 0, 1
Limit = tuple[Fraction, bool]  # a bound and whether it is strict
Limits = dict[tuple[int, int], Limit]  # by input and side


@dataclass(frozen=True, slots=True)
class Context:
    """What the file declares: counts, tensors of version 2.0, and how to name and find an input in messages."""

    n_x: int
    n_y: int
    variables: tuple[Variable, ...] | None
    input_name: Callable[[int], str]
    input_line: Callable[[int], int | None]


@dataclass(frozen=True, slots=True)
class Case:
    """A conjunction, sorted: does its constant part hold, its bounds on single inputs, its other rows."""

    possible: bool
    limits: Limits
    rows: tuple[ExactRow, ...]

    @staticmethod
    def of(atoms: Iterable[Atom]) -> Case:
        possible, limits, rows = True, Limits(), []
        for atom in atoms:
            if not atom.terms:
                possible &= atom.bound > 0 or (atom.bound == 0 and not atom.strict)
            elif len(atom.terms) == 1 and atom.terms[0][0] % 2 == 0:
                code, a = atom.terms[0]
                value = atom.bound if a == 1 else atom.bound / a
                _tighten(limits, (code // 2, UPPER if a > 0 else LOWER), (value, atom.strict))
            else:
                y = tuple((code // 2, a) for code, a in atom.terms if code % 2 == 1)
                x = tuple((code // 2, a) for code, a in atom.terms if code % 2 == 0)
                rows.append(ExactRow(y, x, atom.bound, atom.strict))
        return Case(possible, limits, tuple(rows))

    def merged(self, other: Case) -> Case:
        """Both hold."""
        limits = dict(self.limits)
        for key, limit in other.limits.items():
            _tighten(limits, key, limit)
        return Case(self.possible and other.possible, limits, self.rows + other.rows)


def _tighten(limits: Limits, key: tuple[int, int], limit: Limit) -> None:
    old = limits.get(key)
    if old is None or limit == old:
        limits[key] = limit
    elif limit[0] == old[0]:
        limits[key] = (limit[0], True)
    elif (limit[0] < old[0]) == (key[1] == UPPER):
        limits[key] = limit


def empty_box_warning(dropped: int, total: int, name: str) -> str:
    """What a user is told about clauses whose box has no point."""
    which = "the only clause" if total == 1 else f"{dropped} of {total} clauses"
    return f"{which} dropped: the input box is empty (lower bound above upper bound, first at {name})"


def assemble(facts: Sequence[Atom], alternatives: Sequence[Formula], context: Context) -> Property:
    """The property that says: all facts, and of each of the alternatives at least one conjunction.

    Raises InputError if an input of some clause lacks a bound, or if the result would not fit into memory.
    """
    total = 1
    atoms = 0
    for alternative in alternatives:
        atoms = atoms * len(alternative) + total * sum(map(len, alternative))
        total *= len(alternative)
        if len(alternatives) > 1:
            check_size(total, atoms)
    builder = _Builder(Case.of(facts), context, total)
    choices = [[Case.of(conjunction) for conjunction in alternative] for alternative in alternatives]
    for number, combination in enumerate(_combinations(choices)):
        builder.add(combination, number + 1)
    return builder.finish()


def _combinations(choices: Sequence[Sequence[Case]]) -> Iterator[Case]:
    nothing = Case(True, {}, ())
    if len(choices) == 1:
        yield from choices[0]
        return
    for combination in itertools.product(*choices):
        merged = nothing
        for part in combination:
            merged = merged.merged(part)
        yield merged


class _Builder:
    """Collects clauses; the box that the facts alone give is computed once."""

    def __init__(self, base: Case, context: Context, total: int) -> None:
        self.base, self.context, self.total = base, context, total
        self.base_box = np.full((4, context.n_x), np.nan)  # lower: below, above; upper: below, above
        for (i, side), limit in base.limits.items():
            self.base_box[2 * side : 2 * side + 2, i] = self._pair(i, side, limit)
        self.base_missing = np.isnan(self.base_box[::2])  # [2, n_x]
        self.base_empty = _first_empty(base.limits, (i for i, _ in base.limits))
        self.boxes: list[Doubles] = []
        self.numbers: dict[bytes, int] = {}
        self.clauses: list[Clause] = []
        self.impossible = self.empty = self.row_numbers = 0
        self.first_empty: int | None = None

    def add(self, part: Case, number: int) -> None:
        """Adds the clause of the facts and one choice, unless it is empty."""
        if not (self.base.possible and part.possible):
            self.impossible += 1
            return
        box, empty = self._box(part, number)
        if empty is not None:
            self.empty += 1
            self.first_empty = empty if self.first_empty is None else self.first_empty
            return
        key = box.tobytes()
        index = self.numbers.setdefault(key, len(self.boxes))
        if index == len(self.boxes):
            self.boxes.append(box)
        rows = self.base.rows + part.rows
        self.row_numbers += len(rows) * self.context.n_y
        if len(self.boxes) * self.context.n_x > MAX_BOX_NUMBERS or self.row_numbers > MAX_ROW_NUMBERS:
            raise InputError("the property is too large: its boxes and rows would not fit into memory")
        self.clauses.append(Clause(index, RoundedRows.of(rows, self.context.n_x, self.context.n_y, (box[0], box[3]))))

    def _box(self, part: Case, number: int) -> tuple[Doubles, int | None]:
        """The four roundings [4, n_x] of the clause's box, and an input with an empty interval if there is one."""
        box, limits, missing = self.base_box, self.base.limits, self.base_missing
        empty = self.base_empty
        if part.limits:
            box, missing = box.copy(), missing.copy()
            limits = dict(limits)
            for key, limit in part.limits.items():
                _tighten(limits, key, limit)
                i, side = key
                box[2 * side : 2 * side + 2, i] = self._pair(i, side, limits[key])
                missing[side, i] = False
            changed = _first_empty(limits, (i for i, _ in part.limits))
            empty = changed if empty is None or (changed is not None and changed < empty) else empty
        if missing.any() and self._imply(part, limits := dict(limits)):
            box, missing = box.copy(), missing.copy()
            for key, limit in limits.items():
                box[2 * key[1] : 2 * key[1] + 2, key[0]] = self._pair(key[0], key[1], limit)
                missing[key[1], key[0]] = False
            empty = _first_empty(limits, (i for i, _ in limits))
        if missing.any():
            i = int(np.flatnonzero(missing.any(axis=0))[0])
            word = "lower" if missing[LOWER, i] else "upper"
            which = f" in disjunct {number} of {self.total}" if self.total > 1 else ""
            raise InputError(
                f"the input {self.context.input_name(i)} has no {word} bound{which}", line=self.context.input_line(i)
            )
        return box, empty

    def _imply(self, part: Case, limits: Limits) -> bool:
        """Adds bounds that conditions between inputs imply for inputs without; whether there were any."""
        rows = [row for row in self.base.rows + part.rows if not row.y]
        before = len(limits)
        for _ in rows:  # each time one more of them may be of use
            found = {key: limit for row in rows for key, limit in _implied(row, limits) if key not in limits}
            if not found:
                break
            limits.update(found)
        return len(limits) > before

    def _pair(self, i: int, side: int, limit: Limit) -> tuple[float, float]:
        """The float64 values around a bound of input i."""
        try:
            return _pair(side, limit)
        except InputError:
            which = f"a bound of the input {self.context.input_name(i)}"
            raise InputError(
                f"{which} is outside of the range of 64-bit floats", line=self.context.input_line(i)
            ) from None

    def finish(self) -> Property:
        stacked = np.stack(self.boxes, axis=1) if self.boxes else np.zeros((4, 0, self.context.n_x))
        warnings = []
        if self.first_empty is not None:
            warnings.append(empty_box_warning(self.empty, self.total, self.context.input_name(self.first_empty)))
        if self.impossible:
            which = "the only clause" if self.total == 1 else f"{self.impossible} of {self.total} clauses"
            warnings.append(f"{which} dropped: a condition without variables does not hold")
        if self.total == 0:
            warnings.append("the property has no clause: a disjunction without any case can never hold")
        return Property(
            self.context.n_x,
            self.context.n_y,
            Boxes.enclosed((stacked[0], stacked[1]), (stacked[2], stacked[3])),
            tuple(self.clauses),
            self.context.variables,
            tuple(warnings),
        )


def _pair(side: int, limit: Limit) -> tuple[float, float]:
    """The float64 values around a bound; a strict bound that is a float64 has its inner value moved off."""
    low, high = enclosure(limit[0])
    if limit[1] and low == high:
        if side == UPPER:
            low = math.nextafter(low, -math.inf)
        else:
            high = math.nextafter(high, math.inf)
    return low, high


def _implied(row: ExactRow, limits: Limits) -> Iterator[tuple[tuple[int, int], Limit]]:
    """What a condition on inputs says of each of them, given the least that the others can contribute."""
    least = [(i, a, limits.get((i, LOWER if a > 0 else UPPER))) for i, a in row.x]
    for i, a, _ in least:
        others = [(b * limit[0], limit[1]) for j, b, limit in least if j != i and limit is not None]
        if len(others) == len(least) - 1:
            value = (row.bound - sum((part for part, _ in others), ZERO)) / a
            yield (i, UPPER if a > 0 else LOWER), (value, row.strict or any(strict for _, strict in others))


def _first_empty(limits: Limits, inputs: Iterable[int]) -> int | None:
    """The first of the inputs whose interval has no point, decided exactly."""
    found: int | None = None
    for i in inputs:
        low, high = limits.get((i, LOWER)), limits.get((i, UPPER))
        if low is None or high is None or (found is not None and i >= found):
            continue
        if low[0] > high[0] or (low[0] == high[0] and (low[1] or high[1])):
            found = i
    return found
