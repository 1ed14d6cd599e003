"""A network as the list of its affine pieces over a box, exact minima over them, and a second way to find them.

network = ExactNetwork.load("net.onnx")
pieces = network.pieces(lower, upper)
minimum(pieces, rows)                        # min over the box of max_i (A y + B x - c)_i
network.along(start, end, rows)              # the same on a segment, without any linear program
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx

from fuzzing import affine_rules, kink_rules, moving_rules  # noqa: F401  (they register what operators mean)
from fuzzing.interpreter import Expression, Signs, Tensor, Value, initial, inlined, run, run_node, stacked
from fuzzing.simplex import HalfSpace, Optimum, OracleError, Vector, dot, minimise

MAX_PIECES = 3000


class TooManyPieces(Exception):
    """The network has more pieces than the oracle wants to look at."""


@dataclass(frozen=True, slots=True)
class Row:
    """`y . outputs + x . inputs <= bound`, or `<` if strict: one atom of an unsafe set."""

    y: tuple[Fraction, ...]
    x: tuple[Fraction, ...]
    bound: Fraction
    strict: bool = False

    def value(self, x: Vector, y: Vector) -> Fraction:
        """What must not be positive."""
        return dot(self.x, x) + dot(self.y, y) - self.bound

    def holds(self, x: Vector, y: Vector) -> bool:
        value = self.value(x, y)
        return value < 0 if self.strict else value <= 0

    def on(self, outputs: Sequence[Expression]) -> Expression:
        """The row as an expression of the inputs on a piece."""
        total = [-self.bound, *self.x]
        for weight, output in zip(self.y, outputs, strict=True):
            if weight:
                total = [t + weight * o for t, o in zip(total, output, strict=True)]
        return tuple(total)


@dataclass(frozen=True, slots=True)
class Piece:
    """A polytope (box and half-spaces) on which the outputs are affine."""

    lower: tuple[Fraction, ...]
    upper: tuple[Fraction, ...]
    spaces: tuple[HalfSpace, ...]
    outputs: tuple[Expression, ...] = ()

    def least(self, expression: Expression) -> Fraction:
        found = minimise(expression[1:], self.lower, self.upper, self.spaces)
        if found is None:
            raise OracleError("a piece is empty")
        return expression[0] + found.value

    def greatest(self, expression: Expression) -> Fraction:
        return -self.least(tuple(-e for e in expression))

    def range(self, expression: Expression) -> tuple[Fraction, Fraction]:
        """Its least and greatest value on the box alone."""
        ends = [sorted((w * a, w * b)) for w, a, b in zip(expression[1:], self.lower, self.upper, strict=True)]
        return (
            expression[0] + sum((e[0] for e in ends), Fraction(0)),
            expression[0] + sum((e[1] for e in ends), Fraction(0)),
        )

    def cut(self, expression: Expression, positive: bool) -> Piece:
        """The part where the expression is >= 0, or <= 0."""
        sign = -1 if positive else 1
        space = HalfSpace(tuple(sign * e for e in expression[1:]), -sign * expression[0])
        return Piece(self.lower, self.upper, (*self.spaces, space))


@dataclass(slots=True)
class _Script(Signs):
    """Signs on a piece: the first ones as told, the next ones by linear programs; forks are kept for later.

    A side on which the expression only touches zero is no side: there both answers give the same values.
    """

    piece: Piece
    told: list[bool]
    taken: list[bool] = field(default_factory=list)
    forks: list[tuple[Piece, list[bool]]] = field(default_factory=list)

    def positive(self, expression: Expression) -> bool:
        known = len(self.taken)
        answer = self.told[known] if known < len(self.told) else self._decide(expression)
        self.taken.append(answer)
        return answer

    def _decide(self, expression: Expression) -> bool:
        low, high = self.piece.range(expression)
        if low >= 0 or high <= 0:
            return low >= 0
        if self.piece.greatest(expression) <= 0:
            return False
        if self.piece.least(expression) >= 0:
            return True
        self.forks.append((self.piece.cut(expression, False), [*self.taken, False]))
        self.piece = self.piece.cut(expression, True)
        return True


@dataclass(slots=True)
class _Point(Signs):
    """Signs of constants; remembers the expressions it was asked about."""

    at: Fraction = Fraction(0)
    asked: list[Expression] = field(default_factory=list)

    def positive(self, expression: Expression) -> bool:
        self.asked.append(expression)
        value = expression[0] + (expression[1] * self.at if len(expression) > 1 else 0)
        return value >= 0


@dataclass(frozen=True, slots=True, eq=False)
class ExactNetwork:
    """An ONNX file in real arithmetic."""

    nodes: tuple[onnx.NodeProto, ...]
    constants: dict[str, Value]
    input: str
    output: str
    shape: tuple[int, ...]
    opset: int

    @classmethod
    def load(cls, path: Path) -> ExactNetwork:
        return cls.of(onnx.load(path))

    @classmethod
    def of(cls, model: onnx.ModelProto) -> ExactNetwork:
        """Requires: one input and one output; an open first axis counts as 1."""
        constants = initial(model)
        source = next(value for value in model.graph.input if value.name not in constants)
        shape = tuple(d.dim_value or 1 for d in source.type.tensor_type.shape.dim)
        opset = next(entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"})
        output = model.graph.output[0].name
        return cls(tuple(inlined(model)), constants, source.name, output, shape, opset)

    @property
    def n_in(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))

    def at(self, x: Vector) -> tuple[Fraction, ...]:
        """The outputs at a point."""
        value = Tensor(np.array(x, dtype=object).reshape(1, *self.shape))
        known = run(self.nodes, {**self.constants, self.input: value}, _Point(), self.opset)
        return tuple(output[0] for output in self._outputs(known))

    def pieces(self, lower: Vector, upper: Vector) -> list[Piece]:
        """Pieces that cover the box.  Raises TooManyPieces beyond MAX_PIECES."""
        n = self.n_in
        unit = np.array([[Fraction(int(i == j)) for i in range(n)] for j in range(n)], dtype=object)
        parts = [np.full(self.shape, Fraction(0), dtype=object), *(row.reshape(self.shape) for row in unit)]
        start = Piece(tuple(lower), tuple(upper), ())
        waiting = [(0, {**self.constants, self.input: Tensor(stacked(parts))}, start)]
        done: list[Piece] = []
        while waiting:
            position, known, piece = waiting.pop()
            if position == len(self.nodes):
                done.append(Piece(piece.lower, piece.upper, piece.spaces, self._outputs(known)))
            else:
                waiting += [(position + 1, k, p) for k, p in self._step(position, known, piece)]
            if len(done) + len(waiting) > MAX_PIECES:
                raise TooManyPieces
        return done

    def _step(self, position: int, known: dict[str, Value], piece: Piece) -> list[tuple[dict[str, Value], Piece]]:
        """One node on a piece: what is known afterwards, for each of the pieces that it falls into."""
        results, open_ends = [], [(piece, list[bool]())]
        while open_ends:
            script = _Script(*open_ends.pop())
            outputs = run_node(self.nodes[position], known, script, self.opset)
            results.append(({**known, **outputs}, script.piece))
            open_ends += script.forks
            if len(results) + len(open_ends) > MAX_PIECES:
                raise TooManyPieces
        return results

    def _outputs(self, known: dict[str, Value]) -> tuple[Expression, ...]:
        value = known[self.output]
        assert isinstance(value, Tensor)
        return tuple(value.entry(index) for index in np.ndindex(value.shape))

    def along(self, start: Vector, end: Vector, rows: Sequence[Row]) -> Fraction:
        """The minimum of the largest row on a segment: pieces are found by their end points, one after the other."""
        steps = [b - a for a, b in zip(start, end, strict=True)]
        parts = stacked([np.array(v, dtype=object).reshape(self.shape) for v in (start, steps)])
        best: Fraction | None = None
        waiting = [(Fraction(0), Fraction(1))]
        while waiting:
            low, high = waiting.pop()
            signs = _Point(at=(low + high) / 2)
            known = run(self.nodes, {**self.constants, self.input: Tensor(parts)}, signs, self.opset)
            left, right = _valid(signs, low, high)
            outputs = self._outputs(known)
            lines = [_line(row, outputs, start, steps) for row in rows]
            value = _lowest(lines, left, right)
            best = value if best is None else min(best, value)
            waiting += [(low, left)] * (low < left) + [(right, high)] * (right < high)
        assert best is not None
        return best


def _valid(signs: _Point, low: Fraction, high: Fraction) -> tuple[Fraction, Fraction]:
    """The part of a segment around the middle on which every sign stays as it is there.

    Where the middle itself is a kink, the part reaches to one side only.
    """
    for constant, slope in signs.asked:
        if not slope:
            continue
        zero, side = -constant / slope, (constant + slope * signs.at >= 0) == (slope > 0)
        if side:  # the sign holds to the right of the zero
            low = max(low, zero)
        else:
            high = min(high, zero)
    return low, high


def _line(row: Row, outputs: Sequence[Expression], start: Vector, steps: Vector) -> tuple[Fraction, Fraction]:
    constant = dot(row.x, start) - row.bound + dot(row.y, [o[0] for o in outputs])
    return constant, dot(row.x, steps) + dot(row.y, [o[1] for o in outputs])


def _lowest(lines: Sequence[tuple[Fraction, Fraction]], low: Fraction, high: Fraction) -> Fraction:
    """The minimum of the largest of some lines on an interval: at its ends, or where two of them meet."""
    ends = [low, high]
    for i, (a, s) in enumerate(lines):
        ends += [(b - a) / (s - t) for b, t in lines[:i] if s != t and low <= (b - a) / (s - t) <= high]
    return min(max(a + s * t for a, s in lines) for t in ends)


def minimum(pieces: Sequence[Piece], rows: Sequence[Row]) -> Optimum:
    """The minimum over the pieces of the largest row, and a point that has it."""
    found = [least_largest(piece, [row.on(piece.outputs) for row in rows]) for piece in pieces]
    return min(found, key=lambda optimum: optimum.value)


def least_largest(piece: Piece, lines: Sequence[Expression]) -> Optimum:
    """min t with all expressions <= t on a piece."""
    ranges = [piece.range(line) for line in lines]
    low, high = max(r[0] for r in ranges), max(r[1] for r in ranges)
    n = len(piece.lower)
    spaces = [HalfSpace((*s.normal, Fraction(0)), s.bound) for s in piece.spaces]
    spaces += [HalfSpace((*line[1:], Fraction(-1)), -line[0]) for line in lines]
    cost = [Fraction(0)] * n + [Fraction(1)]
    found = minimise(cost, [*piece.lower, low], [*piece.upper, high], spaces)
    if found is None:
        raise OracleError("a piece is empty")
    return Optimum(found.value, found.x[:n])
