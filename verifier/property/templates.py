"""Questions about two copies of a network, as VNN-LIB 2.0: what people ask most, written so that files can be kept.

Both copies, f and g, read inputs of one box that agree but for some entries.

    Monotone      the larger entry must not lead to a smaller output
    Irrelevant    other values of the entries must not change the class, or no output by much

The decimals of the box are rounded outward at the 17th significant digit.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np

from verifier.errors import InputError
from verifier.property.property import Doubles
from verifier.property.robustness import Number, decimal_text, exact_number


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """Two copies of a network on one box: the shapes of input and output as the file has them, and their type."""

    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]
    lower: Doubles
    upper: Doubles
    dtype: str = "float32"

    def head(self, moving: Sequence[int]) -> Iterator[str]:
        """Declarations, the box of both, and the inputs that are equal: all but the moving ones."""
        yield "(vnnlib-version <2.0>)"
        for name, relation in (("f", ""), ("g", " (equal-to f)")):
            tensors = (("input", f"X_{name}", self.input_shape), ("output", f"Y_{name}", self.output_shape))
            declared = " ".join(
                f"(declare-{kind} {tensor} {self.dtype} {_shape(shape)})" for kind, tensor, shape in tensors
            )
            yield f"(declare-network {name}{relation} {declared})"
        free = set(moving)
        for i, (low, high) in enumerate(zip(self.lower.reshape(-1), self.upper.reshape(-1), strict=True)):
            below, above = decimal_text(Fraction(low), down=True), decimal_text(Fraction(high), down=False)
            for name in ("f", "g") if i in free else ("f",):
                yield f"(assert (and (>= {self.x(name, i)} {below}) (<= {self.x(name, i)} {above})))"
            if i not in free:
                yield f"(assert (== {self.x('f', i)} {self.x('g', i)}))"

    def x(self, name: str, i: int) -> str:
        return f"X_{name}{_index(self.input_shape, i)}"

    def y(self, name: str, j: int) -> str:
        return f"Y_{name}{_index(self.output_shape, j)}"

    @property
    def outputs(self) -> int:
        return int(np.prod(self.output_shape, dtype=np.int64))

    def checked(self, number: int, count: int, what: str) -> int:
        """Raises InputError unless there is an entry of that number."""
        if not 0 <= number < count:
            raise InputError(f"{what} {number} does not exist: the network has {count}, counted from 0")
        return number


@dataclass(frozen=True, slots=True, eq=False)
class Template(ABC):
    """A question about a pair."""

    pair: Pair

    @abstractmethod
    def vnnlib(self) -> str:
        """The property's text.  Raises InputError if some value makes no sense."""


@dataclass(frozen=True, slots=True, eq=False)
class Monotone(Template):
    """Where `entry` is larger by at least `step`, all else being equal, `output` is larger too, but for a `margin`.

    Unsafe is Y_f <= Y_g - margin although X_f >= X_g + step; for a decreasing output Y_f >= Y_g + margin.  One of both
    numbers must be positive: else equal inputs lie on the border of the unsafe set, and nothing could be proved.
    """

    entry: int
    output: int
    step: Number = 0
    margin: Number = 0
    decreasing: bool = False

    def vnnlib(self) -> str:
        pair = self.pair
        i = pair.checked(self.entry, pair.lower.size, "input")
        j = pair.checked(self.output, pair.outputs, "output")
        step, margin = exact_number(self.step, "step"), exact_number(self.margin, "margin")
        if min(step, margin) < 0 or not step + margin:
            raise InputError("step and margin must not be negative, and one of them must be positive")
        word = "decreases" if self.decreasing else "increases"
        above, below = ("g", "f") if self.decreasing else ("f", "g")
        lines = [
            f"; monotone: output {j} {word} with input {i} (step {self.step}, margin {self.margin})",
            *pair.head([i]),
            f"(assert (>= {pair.x('f', i)} (+ {pair.x('g', i)} {decimal_text(step, down=True)})))",
            f"(assert (<= {pair.y(above, j)} (- {pair.y(below, j)} {decimal_text(margin, down=True)})))",
        ]
        return "\n".join([*lines, ""])


@dataclass(frozen=True, slots=True, eq=False)
class Irrelevant(Template):
    """Other values of some `entries`, all else being equal, change no output by `tolerance`, or not the class.

    The class: unsafe is that f prefers one class to all others by at least `margin`, and g another one.  Without a
    margin every point where two classes are equal would be unsafe.  One of `tolerance` and `margin` is given.
    """

    entries: tuple[int, ...]
    tolerance: Number | None = None
    margin: Number | None = None

    def vnnlib(self) -> str:
        pair = self.pair
        if not self.entries:
            raise InputError("no input is named that must not matter")
        entries = [pair.checked(i, pair.lower.size, "input") for i in self.entries]
        if (self.tolerance is None) == (self.margin is None):
            raise InputError("give either a tolerance of the outputs or a margin of the class")
        lines = [f"; irrelevant: inputs {', '.join(map(str, entries))}", *pair.head(entries)]
        return "\n".join([*lines, "(assert (or", *self._clauses(), "))", ""])

    def _clauses(self) -> Iterator[str]:
        pair = self.pair
        if self.tolerance is not None:
            limit = decimal_text(_positive(self.tolerance, "tolerance"), down=True)
            for j in range(pair.outputs):  # f and g may change places, so one side is enough
                yield f"    (and (>= {pair.y('f', j)} (+ {pair.y('g', j)} {limit})))"
            return
        assert self.margin is not None
        if pair.outputs < 2:
            raise InputError("a network with one output has no classes: give a tolerance")
        limit = decimal_text(_positive(self.margin, "margin"), down=True)
        for first, second in combinations(range(pair.outputs), 2):  # f and g may change places
            wins = [
                f"(>= {pair.y(name, k)} (+ {pair.y(name, other)} {limit}))"
                for name, k in (("f", first), ("g", second))
                for other in range(pair.outputs)
                if other != k
            ]
            yield f"    (and {' '.join(wins)})"


def _positive(value: Number, what: str) -> Fraction:
    found = exact_number(value, what)
    if found <= 0:
        raise InputError(f"{what} is {value}, it must be positive")
    return found


def _shape(shape: tuple[int, ...]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _index(shape: tuple[int, ...], flat: int) -> str:
    return _shape(tuple(int(k) for k in np.unravel_index(flat, shape)))
