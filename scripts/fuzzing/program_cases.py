"""Random networks of functions and products, boxes for them, and points at which their outputs are about least."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np

from fuzzing.pieces import Row
from fuzzing.programs import DIGITS, UNARY, Array, Program
from fuzzing.queries import Clause, Query

SAMPLES = 10_000
ROUNDS = 16
NEAR = 160
SMALLEST = -1200
POSITIVE = {"Log", "Reciprocal", "Sqrt"}
EXPONENTS = (2.0, 3.0, -1.0, -2.0, 0.5, 1.5, -0.5, 4.0)
GAPS = (0.1, 1e-2, 1e-3, 1e-6, 1e-9, -1e-9, -1e-6, -1e-3, -1e-2, -0.1)
STYLES = ("ordinary",) * 5 + ("grid", "grid", "steep", "faint", "extreme")
BOXES = ("wide",) * 5 + ("narrow", "narrow", "tiny", "point", "mixed", "huge", "grid", "grid")
HEADS = (None,) * 5 + ("Softmax", "LogSoftmax", "Sigmoid", "Tanh")


@dataclass(frozen=True, slots=True)
class Maker:
    """Adds random steps to a program."""

    rng: random.Random
    style: str
    program: Program

    def weights(self, shape: Sequence[int]) -> Array:
        rng, scale = self.rng, {"steep": 5.0, "faint": 1e-3}.get(self.style, 1.0)
        found = np.array([rng.gauss(0, scale) for _ in range(int(np.prod(shape)))])
        if self.style == "grid":
            found = np.round(found * 2) / 2
        if self.style == "extreme":
            found *= np.array([10.0 ** rng.choice((0, 0, 0, -30, -12, -6, 4, 8)) for _ in found])
        return found.astype(np.float32).reshape(shape)

    def dense(self, read: int, size: int) -> int:
        arrays = self.weights((size, self.program.size(read))), self.weights((size,))
        return self.program.add("Gemm", read, size=size, arrays=arrays)

    def positive(self, read: int) -> int:
        """Something above zero, mostly."""
        size = self.program.size(read)
        op = self.rng.choice(("Abs", "Softplus", "Exp", "Pow", None))
        if op is None:
            return read
        made = self.program.add(op, read, numbers=(2.0,) if op == "Pow" else ())
        shift = np.full((size,), self.rng.choice((0.5, 0.1, 1e-3, 0.0)), np.float32)
        return self.program.add("Gemm", made, size=size, arrays=(np.eye(size, dtype=np.float32), shift))

    def function(self, read: int) -> int:
        op = self.rng.choice((*UNARY, "Pow", "Relu"))
        if op == "Pow":
            exponent = self.rng.choice(EXPONENTS)
            base = read if exponent in {2.0, 3.0, 4.0} else self.positive(read)
            return self.program.add("Pow", base, numbers=(exponent,))
        return self.program.add(op, self.positive(read) if op in POSITIVE else read)

    def pair(self, read: int) -> int:
        """A product, a quotient or a sum of two values."""
        size = self.rng.randint(1, 3)
        first = self.dense(read, size)
        kind = self.rng.choice(("same", "function", "other", "complement"))
        if kind == "function":
            second = self.function(first)
        elif kind == "complement":  # x (1 - x)
            minus, one = -np.eye(size, dtype=np.float32), np.ones((size,), np.float32)
            second = self.program.add("Gemm", first, size=size, arrays=(minus, one))
        else:
            second = first if kind == "same" else self.dense(self.rng.choice((read, 0)), size)
        op = self.rng.choice(("Mul", "Mul", "Mul", "Div", "Sub"))
        return self.program.add(op, first, self.positive(second) if op == "Div" else second)

    def matrices(self, read: int) -> int:
        m, k, n = (self.rng.randint(1, 2) for _ in range(3))
        first, second = self.dense(read, m * k), self.dense(self.rng.choice((read, 0)), k * n)
        if self.rng.random() < 0.5:
            second = self.function(second)
        return self.program.add("MatMul", first, second, size=m * n, numbers=(m, k, n))

    def composed(self, read: int) -> int:
        size = self.rng.randint(2, 4)
        t = self.dense(read, size)
        op = self.rng.choice(("Softmax", "LayerNormalization", "MaxPool"))
        if op == "MaxPool":
            return self.program.add(op, t, size=size - 1)
        if op == "Softmax":
            return self.program.add(op, t)
        arrays = self.weights((size,)), self.weights((size,))
        return self.program.add(op, t, arrays=arrays, numbers=(self.rng.choice((1e-5, 1e-2, 1.0)),))

    def layer(self, read: int) -> int:
        kind = self.rng.random()
        if kind < 0.55:
            return self.function(self.dense(read, self.rng.randint(1, 4)) if self.rng.random() < 0.85 else read)
        return self.pair(read) if kind < 0.75 else self.matrices(read) if kind < 0.85 else self.composed(read)


def random_program(rng: random.Random) -> tuple[Program, str]:
    """One to four inputs, one to three layers, one to three outputs."""
    style = rng.choice(STYLES)
    program = Program(rng.choice((1, 1, 2, 2, 3, 4)))
    maker, last = Maker(rng, style, program), 0
    for _ in range(rng.choice((1, 1, 2, 2, 3))):
        last = maker.layer(last)
    head = rng.choice(HEADS)
    if rng.random() < 0.7 or head is not None:
        last = maker.dense(last, rng.randint(2 if head else 1, 3))
    if head is not None:
        program.add(head, last)
    return program, style


Box = tuple[Array, Array]


def random_box(rng: random.Random, n: int) -> Box:
    """Ends are floats."""
    kind = rng.choice(BOXES)
    pairs = [_interval(rng, rng.choice(BOXES) if kind == "mixed" else kind) for _ in range(n)]
    return np.array([p[0] for p in pairs]), np.array([p[1] for p in pairs])


def _interval(rng: random.Random, kind: str) -> tuple[float, float]:
    centre = round(rng.gauss(0, 1), 2)
    if kind == "grid":
        centre, radius = round(centre), rng.choice((0.5, 1.0, 2.0))
    elif kind == "point":
        radius = 0.0
    else:
        least, most = {"narrow": (-3, -1), "tiny": (-12, -6), "huge": (1, 6)}.get(kind, (-0.5, 0.5))
        radius = 10.0 ** rng.uniform(least, most)
    return float(np.float32(centre - radius)), float(np.float32(centre + radius))


Value = Callable[[Array], Array]


def points(box: Box, seed: int) -> Array:
    """Random ones, corners, and a grid."""
    rng, (low, high) = np.random.default_rng(seed), box
    n = len(low)
    steps = {1: 2001, 2: 45, 3: 13}.get(n, 6)
    grid = np.array(list(itertools.product(np.linspace(0, 1, steps), repeat=n)))
    share = np.concatenate([grid, rng.random((SAMPLES - len(grid), n))])
    return np.clip(low + share * (high - low), low, high)


def least(value: Value, box: Box, start: Array, seed: int) -> Array:
    """About where a function is least, from the best of some points: smaller and smaller boxes around it."""
    rng, (low, high) = np.random.default_rng(seed), box
    known = value(start)
    if np.isnan(known).all():
        return start[0]
    best = start[np.nanargmin(known)]
    reached, radius = np.nanmin(known), (high - low) / 8
    for _ in range(ROUNDS):
        near = np.clip(best + radius * rng.uniform(-1, 1, (NEAR, len(low))), low, high)
        found = value(near)
        if not np.isnan(found).all() and np.nanmin(found) < reached:
            best, reached = near[np.nanargmin(found)], np.nanmin(found)
        else:
            radius = radius / 4
    return best


def exact(value: Any) -> Fraction | None:
    """A number of many digits as a fraction; None if it is none, or larger than any float."""
    if not mpmath.isfinite(value) or mpmath.mag(value) > 1024:
        return None
    if value == 0:
        return Fraction(0)
    sign, mantissa, exponent, bits = value._mpf_  # as it is: a copy would be rounded to the digits of the context
    least = SMALLEST - bits  # smaller numbers have too many digits; all of them are below any float
    found = Fraction(int(mantissa)) * Fraction(2) ** max(int(exponent), least)
    return -found if sign else found


@dataclass(frozen=True, slots=True)
class Asked:
    """A query, with a point at which the largest row of some clause is `margin`, up to DIGITS digits."""

    query: Query
    margin: Fraction
    x: tuple[float, ...]
    gap: float


def random_rows(rng: random.Random, outputs: int, inputs: int) -> tuple[Row, ...]:
    """Comparisons of two outputs, single outputs, and combinations."""
    rows = []
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        y = [Fraction(0)] * outputs
        kind = rng.random()
        if kind < 0.4 and outputs > 1:
            i, j = rng.sample(range(outputs), 2)
            y[i], y[j] = Fraction(1), Fraction(-1)
        elif kind < 0.8:
            y[rng.randrange(outputs)] = Fraction(rng.choice((1, -1)))
        else:
            y = [Fraction(rng.randint(-20, 20), 10) for _ in range(outputs)]
            y[0] = y[0] or Fraction(1)
        rows.append(Row(tuple(y), (Fraction(0),) * inputs, Fraction(0)))
    return tuple(rows)


def asked(rng: random.Random, program: Program, box: Box, start: Array) -> Asked | None:
    """Clauses whose thresholds are close to what can be reached; None if there are no numbers."""
    gap, clauses, best = rng.choice(GAPS), [], None
    for number in range(rng.choice((1, 1, 1, 2))):
        rows = random_rows(rng, program.outputs, program.inputs)
        weights = np.array([[float(w) for w in row.y] for row in rows])
        with np.errstate(all="ignore"):
            x = least(lambda t, w=weights: (program.run(t) @ w.T).max(axis=1), box, start, number)  # type: ignore[misc]
        reached = largest(program, rows, x)
        if reached is None or abs(reached) > 10**12:
            return None
        own = gap if not number else abs(gap) * 2
        wanted = Fraction(own) * max(abs(reached), Fraction(1, 1000))
        unit = abs(wanted) / 1000
        bound = round((reached - wanted) / unit) * unit
        bound = bound.limit_denominator(10**24)
        if rng.random() < 0.25 and len(rows) == 1 and sum(map(bool, rows[0].y)) == 2:
            bound = Fraction(0)  # so that only the order of two outputs matters
        lower, upper = (tuple(Fraction(float(v)) for v in side) for side in box)
        clauses.append(Clause(lower, upper, tuple(replace(row, bound=bound) for row in rows)))
        margin = reached - bound
        if best is None or margin < best[0]:
            best = margin, tuple(map(float, x))
    assert best is not None
    return Asked(Query(tuple(clauses), rng.choice(("plain", "mirrored", "nested"))), *best, gap)


def largest(program: Program, rows: Sequence[Row], x: Sequence[float] | Array, digits: int = DIGITS) -> Fraction | None:
    """The largest row at a point; None where an output is no number."""
    y = [exact(v) for v in program.exactly(list(x), digits)]
    if any(v is None for v in y):
        return None
    inputs = [Fraction(float(v)) for v in x]
    return max(row.value(inputs, y) for row in rows)  # type: ignore[arg-type]


__all__ = ["DIGITS", "Asked", "asked", "exact", "largest", "least", "points", "random_box", "random_program"]
