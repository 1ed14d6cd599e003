"""Instances by number: a network, and queries whose exact margin is known.

The same seed and number give the same instance.  A margin is the exact minimum over all clauses and boxes of the
largest row: what is unsafe has a margin of at most zero (below zero, where all atoms are strict).
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import onnx

from fuzzing.networks import random_network
from fuzzing.pieces import ExactNetwork, Piece, Row, minimum
from fuzzing.queries import DIALECTS, MAX_DIGITS, Clause, Query
from fuzzing.simplex import Optimum, OracleError

GAPS = (Fraction(0), *(sign * Fraction(1, 10**k) for k in (3, 6, 9, 12) for sign in (1, -1)))
CHOICES = ("ordinary",) * 5 + ("grid", "grid", "ties", "ties", "double", "extreme", "extreme", "huge")
Box = tuple[tuple[Fraction, ...], tuple[Fraction, ...]]


@dataclass(frozen=True, slots=True)
class Truth:
    """The exact margin of a query and a point that has it."""

    margin: Fraction
    x: tuple[Fraction, ...]
    strict: bool

    @property
    def unsafe(self) -> bool:
        return self.margin < 0 or (self.margin == 0 and not self.strict)


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """A network and a query, with their truth.  `gap` is the margin that was aimed at."""

    model: onnx.ModelProto
    query: Query
    truth: Truth
    style: str
    gap: Fraction
    ordinary: bool  # such that a verifier ought to decide it

    @property
    def style_is_ordinary(self) -> bool:
        return self.style not in {"extreme", "huge"}

    @property
    def shape(self) -> tuple[int, ...]:
        return ExactNetwork.of(self.model).shape


def truth_of(network: ExactNetwork, query: Query) -> Truth:
    """The margin by enumeration of all pieces."""
    known: dict[Box, list[Piece]] = {}
    found: list[tuple[Optimum, bool]] = []
    for clause in query.clauses:
        box = clause.lower, clause.upper
        if box not in known:
            known[box] = network.pieces(*box)
        found.append((minimum(known[box], clause.rows), all(row.strict for row in clause.rows)))
    best = min(optimum.value for optimum, _ in found)
    reached = [(optimum, strict) for optimum, strict in found if optimum.value == best]
    optimum, strict = min(reached, key=lambda pair: pair[1])
    return Truth(best, optimum.x, strict)


def cases(seed: int, number: int, count: int = 4) -> list[Case]:
    """Some queries about one random network.

    Raises TooManyPieces, and OracleError if a second method disagrees with the minimum.
    """
    rng = random.Random(f"{seed}/{number}")
    style = rng.choice(CHOICES)
    model = random_network(rng, style)
    network = ExactNetwork.of(model)
    boxes = [_box(rng, network.n_in, style) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    n_out = len(network.at(boxes[0][0]))
    base = [Clause(*rng.choice(boxes), _rows(rng, network.n_in, n_out)) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    known = {box: network.pieces(*box) for box in {(c.lower, c.upper) for c in base}}
    minima = [minimum(known[c.lower, c.upper], c.rows) for c in base]
    for clause, optimum in zip(base, minima, strict=True):
        cross_check(network, clause, optimum, rng)
    return [_case(rng, model, (base, minima), style) for _ in range(count)]


def _case(
    rng: random.Random, model: onnx.ModelProto, known: tuple[Sequence[Clause], Sequence[Optimum]], style: str
) -> Case:
    """The same clauses with thresholds close to their minima: one of them by a chosen gap, the others not closer."""
    gap = rng.choice(GAPS)
    near, strict = rng.randrange(len(known[0])), rng.random() < 0.1
    clauses, margins = [], []
    for i, (clause, optimum) in enumerate(zip(*known, strict=True)):
        size = max(abs(optimum.value), Fraction(1)) if rng.random() < 0.7 else abs(optimum.value) or Fraction(1)
        wanted = gap * size if i == near else abs(gap) * size + size * rng.choice((Fraction(1, 100), Fraction(1)))
        threshold = _rounded(optimum.value - wanted, wanted)
        rows = tuple(replace(row, bound=row.bound + threshold, strict=strict) for row in clause.rows)
        clauses.append(replace(clause, rows=rows))
        margins.append(optimum.value - threshold)
    best = min(margins)
    truth = Truth(best, known[1][margins.index(best)].x, strict)
    plain = style in {"ordinary", "grid", "ties"} and abs(gap) >= Fraction(1, 10**6)
    return Case(model, Query(tuple(clauses), rng.choice(DIALECTS)), truth, style, gap, plain)


def _rounded(value: Fraction, gap: Fraction) -> Fraction:
    """A short decimal that is closer to the value than a thousandth of the gap; without a gap, the value itself.

    Values that would be too long to write lose digits that are far below float64.
    """
    if not gap and value.denominator.bit_length() + value.numerator.bit_length() < MAX_DIGITS:
        return value
    gap = gap or value / 10**30
    places = 0
    while Fraction(1, 10**places) > abs(gap) / 1000:
        places += 1
    return Fraction(round(value * 10**places), 10**places)


def _box(rng: random.Random, n: int, style: str) -> Box:
    """Intervals of all kinds: wide, narrow, points, and such that hold no float32."""
    kind = rng.choice(("wide",) * 6 + ("mixed", "mixed", "point"))
    pairs = []
    for _ in range(n):
        one = kind if kind != "mixed" else rng.choice(("wide", "point", "hollow", "narrow", "grid"))
        pairs.append(_interval(rng, "grid" if one == "wide" and style in {"grid", "ties"} else one))
    return tuple(p[0] for p in pairs), tuple(p[1] for p in pairs)


def _interval(rng: random.Random, kind: str) -> tuple[Fraction, Fraction]:
    centre = Fraction(round(rng.gauss(0, 1), 2)).limit_denominator(100)
    if kind == "grid":
        width = Fraction(rng.choice((1, 2, 4, 8)), 4)
        return Fraction(round(centre * 4), 4) - width, Fraction(round(centre * 4), 4) + width
    if kind == "point":
        at = rng.choice((Fraction(float(np.float32(centre))), Fraction(rng.randint(-2, 2)), centre))
        return at, at
    if kind == "hollow":
        at = Fraction(rng.choice((1, 3, 7, -9)), 10)
        return at, at + rng.choice((Fraction(0), Fraction(1, 10**12)))
    radius = Fraction(rng.randint(3, 30), 10) if kind == "wide" else Fraction(1, 10 ** rng.randint(2, 7))
    return centre - radius, centre + radius


def _rows(rng: random.Random, n_in: int, n_out: int) -> tuple[Row, ...]:
    return tuple(_row(rng, n_in, n_out) for _ in range(rng.choice((1, 1, 2, 3))))


def _row(rng: random.Random, n_in: int, n_out: int) -> Row:
    y = [Fraction(0)] * n_out
    kind = rng.random()
    if kind < 0.4 and n_out > 1:
        i, j = rng.sample(range(n_out), 2)
        y[i], y[j] = Fraction(1), Fraction(-1)
    elif kind < 0.7:
        y[rng.randrange(n_out)] = Fraction(rng.choice((1, -1)))
    else:
        y = [Fraction(rng.randint(-30, 30), 10) for _ in range(n_out)]
    x = [Fraction(0)] * n_in
    if rng.random() < 0.2:
        x = [Fraction(rng.randint(-20, 20), 10) for _ in range(n_in)]
    if not any(y):
        y[0] = Fraction(1)
    return Row(tuple(y), tuple(x), Fraction(0))


def cross_check(network: ExactNetwork, clause: Clause, optimum: Optimum, rng: random.Random) -> None:
    """The minimum against values at points, and against the second method on segments through its point."""

    def anywhere() -> list[Fraction]:
        return [a + (b - a) * Fraction(rng.randint(0, 64), 64) for a, b in zip(clause.lower, clause.upper, strict=True)]

    def largest(x: Sequence[Fraction]) -> Fraction:
        y = network.at(x)
        return max(row.value(x, y) for row in clause.rows)

    if not clause.contains(optimum.x) or largest(optimum.x) != optimum.value:
        raise OracleError("the minimum is not the value at its point")
    if any(largest(anywhere()) < optimum.value for _ in range(4)):
        raise OracleError("a point lies below the minimum")
    if network.along(anywhere(), anywhere(), clause.rows) < optimum.value:
        raise OracleError("a segment goes below the minimum")
    through = network.along(clause.lower, clause.upper, clause.rows) if network.n_in == 1 else None
    if optimum.value != (network.along(anywhere(), optimum.x, clause.rows) if through is None else through):
        raise OracleError("the second method finds another minimum")
