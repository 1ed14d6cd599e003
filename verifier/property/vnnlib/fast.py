"""The fast reader: the common form of VNN-LIB 1.0, by array operations.

Handled: declarations, then asserts of single comparisons (an input with a number, an output with a number or another
output) and at most one `or` of comparisons and flat `and`s of them, possibly with whole input boxes in its cases.
Anything else, and every error, is left to the general reader, which gives the same property.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from verifier.property.numbers import Bools, Doubles, Ints, rational
from verifier.property.property import Boxes, Clause, ExactRow, Property, RoundedRows
from verifier.property.vnnlib.clauses import (
    LOWER,
    MAX_BOX_NUMBERS,
    MAX_ROW_NUMBERS,
    MINUS_ONE,
    ONE,
    UPPER,
    empty_box_warning,
)
from verifier.property.vnnlib.scan import INPUT, NUMBER, OUTPUT, Indices, Scan, SmallInts, Triples, scan

_CASE = re.compile(rb"\(&t+\)|t")


def parse_fast(data: bytes) -> Property | None:
    """The property, or None if the text is not of the common form."""
    if b"\0" in data:  # words are compared as numbers, in which a character 0 at the end does not count
        return None
    found = scan(data)
    if found is None:
        return None
    layout = _layout(found.letters)
    counts = _counts(*found.declared)
    if layout is None or counts is None:
        return None
    return _build(found, layout, counts)


@dataclass(frozen=True, slots=True, eq=False)
class _Layout:
    """How the comparisons hang together: `case` is -1 for a fact, else the number of its case."""

    case: Indices  # [n]
    cases: int  # 0 if the file has no `or`


def _layout(letters: bytes) -> _Layout | None:
    body = letters.lstrip(b"d")
    body = body.replace(b"(st)", b"f")
    start = body.find(b"(s(|")
    if start < 0:
        return _Layout(np.full(len(body), -1, np.int32), 0) if body and not body.strip(b"f") else None
    stop = body.rfind(b"))")
    before, middle, after = body[:start], body[start + 4 : stop], body[stop + 2 :]
    if before.strip(b"f") or after.strip(b"f") or stop < start:
        return None
    lengths, position = [], 0
    for match in _CASE.finditer(middle):
        if match.start() != position:
            return None
        position = match.end()
        lengths.append(max(1, position - match.start() - 3))
    if position != len(middle) or not lengths:
        return None
    if len(lengths) == 1:  # an `or` of one case is no choice: its conditions are facts, in the order of the file
        return _Layout(np.full(len(before) + lengths[0] + len(after), -1, np.int32), 0)
    cases = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    fact = np.int32(-1)
    return _Layout(np.concatenate([np.full(len(before), fact), cases, np.full(len(after), fact)]), len(lengths))


def _counts(side: SmallInts, index: Indices) -> tuple[int, int] | None:
    """The numbers of inputs and outputs, if each is declared once and none is left out."""
    found = []
    for kind in (INPUT, OUTPUT):
        chosen = np.sort(index[side == kind])
        if not len(chosen) or (chosen != np.arange(len(chosen))).any():
            return None
        found.append(len(chosen))
    return found[0], found[1]


def _build(found: Scan, layout: _Layout, counts: tuple[int, int]) -> Property | None:
    triples, (n_x, n_y) = found.triples, counts
    left_x, right_x = triples.left == INPUT, triples.right == INPUT
    inputs = left_x | right_x
    mixed = inputs & (triples.left != NUMBER) & (triples.right != NUMBER)
    sizes = np.array([1, n_x, n_y])  # by kind: NUMBER, INPUT, OUTPUT
    unknown = (triples.left_index >= sizes[triples.left]) | (triples.right_index >= sizes[triples.right])
    if (mixed | unknown).any():
        return None
    cases = max(layout.cases, 1)
    rows = _rows(triples, np.flatnonzero(~inputs), layout.case)
    if sum(map(len, rows.values())) + cases * len(rows.get(-1, ())) > MAX_ROW_NUMBERS // n_y:
        return None
    intervals = _intervals(triples, np.flatnonzero(inputs), layout, n_x)
    if intervals is None:
        return None
    which, empty = _empty_inputs(triples, intervals)
    dropped = int(empty.sum()) * (cases // len(empty))  # one box may stand for all cases
    warnings = (empty_box_warning(dropped, cases, f"X_{which}"),) if dropped else ()
    box_of, boxes = _unique(intervals, empty, cases)
    clauses = []
    for case in range(cases):
        box = int(box_of[case])
        if box >= 0:
            exact = rows.get(-1, []) + (rows.get(case, []) if layout.cases else [])
            clauses.append(Clause(box, RoundedRows.of(exact, n_x, n_y, (boxes.lower[box], boxes.upper[box]))))
    return Property(n_x, n_y, boxes, tuple(clauses), None, warnings)


def _rows(triples: Triples, chosen: Ints, case: Indices) -> dict[int, list[ExactRow]]:
    """The exact rows of the comparisons without inputs, by case."""
    found: dict[int, list[ExactRow]] = {}
    sides = zip(triples.left[chosen].tolist(), triples.right[chosen].tolist(), strict=True)
    indices = zip(triples.left_index[chosen].tolist(), triples.right_index[chosen].tolist(), strict=True)
    numbers = zip(triples.mantissa[chosen].tolist(), triples.places[chosen].tolist(), strict=True)
    data = zip(case[chosen].tolist(), triples.upper[chosen].tolist(), sides, indices, numbers, strict=True)
    for number, upper, side, index, value in data:
        terms: dict[int, Fraction] = {}
        bound = Fraction(0)
        for k, sign in ((0, ONE), (1, MINUS_ONE)):  # left - right <= 0, or the negative of that for >=
            if side[k] == OUTPUT:
                terms[index[k]] = terms.get(index[k], 0) + (sign if upper else -sign)
            else:
                constant = rational(*value)
                bound = constant if upper == (k == 1) else -constant
        y = tuple((j, a) for j, a in sorted(terms.items()) if a)
        if not y:
            continue  # an output compared with itself always holds
        found.setdefault(number, []).append(ExactRow(y, (), bound, False))
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Intervals:
    """Per box, side and input: the float64 values around the bound, and the comparison that it comes from."""

    low: Doubles  # [2, N, n_x] LOWER and UPPER
    high: Doubles  # [2, N, n_x]
    source: NDArray[np.int32]  # [2, N, n_x]


def _intervals(triples: Triples, chosen: Ints, layout: _Layout, n_x: int) -> _Intervals | None:
    """The bounds of all boxes (one if no case has bounds); None if a bound is missing or given twice."""
    left = triples.left[chosen] == INPUT
    index = np.where(left, triples.left_index[chosen], triples.right_index[chosen])
    side = (triples.upper[chosen] == left).astype(np.int8)  # LOWER or UPPER
    case = layout.case[chosen]
    own = bool((case >= 0).any())
    N = layout.cases if own else 1
    if N * n_x > MAX_BOX_NUMBERS or len(chosen) > np.iinfo(np.int32).max:
        return None
    source = np.full((2, N, n_x), -1, np.int32)
    facts = np.flatnonzero(case < 0)
    source[side[facts], :, index[facts]] = chosen[facts, None]
    if (source[:, 0] >= 0).sum() != len(facts):
        return None
    if own:
        cells = (side.astype(np.int64) * N + case) * n_x + index
        if len(facts):
            cells, chosen = cells[case >= 0], chosen[case >= 0]
            if (source.reshape(-1)[cells] >= 0).any():
                return None
        source.reshape(-1)[cells] = chosen
    if (source < 0).any() or source.size != len(facts) * N + (len(chosen) if own else 0):
        return None
    return _Intervals(triples.low[source], triples.high[source], source)


def _empty_inputs(triples: Triples, intervals: _Intervals) -> tuple[int, Bools]:
    """Which boxes [N] are empty, and the first empty input of the first of them (0 if there is none)."""
    low, high = intervals.low, intervals.high
    empty = low[LOWER] > low[UPPER]
    # Equal float64 values below both bounds: only the decimals themselves can tell, unless both are float64 values.
    close = (low[LOWER] == low[UPPER]) & ((high[LOWER] > low[LOWER]) | (high[UPPER] > low[UPPER]))
    box, i = np.nonzero(close)
    lower, upper = intervals.source[LOWER, box, i], intervals.source[UPPER, box, i]
    same = triples.places[lower] == triples.places[upper]
    above = triples.mantissa[lower] > triples.mantissa[upper]
    for k in np.flatnonzero(~same).tolist():
        pair = [rational(int(triples.mantissa[s[k]]), int(triples.places[s[k]])) for s in (lower, upper)]
        above[k] = pair[0] > pair[1]
    empty[box, i] = above
    boxes = empty.any(axis=1)
    return int(np.flatnonzero(empty[np.argmax(boxes)])[0]) if boxes.any() else 0, boxes


def _unique(intervals: _Intervals, empty: Bools, cases: int) -> tuple[Ints, Boxes]:
    """The box of each case (-1 if it is empty), and every different box once, in the order of first use."""
    numbers: dict[bytes, int] = {}
    box_of = np.full(len(empty), -1)
    first: list[int] = []
    for k in np.flatnonzero(~empty).tolist():
        key = intervals.low[:, k].tobytes() + intervals.high[:, k].tobytes()
        box_of[k] = numbers.setdefault(key, len(first))
        if box_of[k] == len(first):
            first.append(k)
    low, high = intervals.low, intervals.high
    if len(first) < len(empty):
        low, high = low[:, first], high[:, first]
    boxes = Boxes.enclosed((low[LOWER], high[LOWER]), (low[UPPER], high[UPPER]))
    return (box_of if len(box_of) == cases else np.repeat(box_of, cases)), boxes
