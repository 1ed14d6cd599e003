"""Tiny networks of one input with weights of any size, and their exact minima in rational arithmetic."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from falsify import instances

from verifier.network.network import Network
from verifier.property.problem import Problem

Layer = tuple[list[list[float]], list[float]]
"""Weights and biases."""


@dataclass(frozen=True)
class Extreme:
    """A chain of layers with ReLUs between them, from one input to one output, on the box [low, high]."""

    layers: tuple[Layer, ...]
    low: float
    high: float

    @property
    def network(self) -> Network:
        made = [instances.layer(f"layer{k}", k, *layer) for k, layer in enumerate(self.layers)]
        return Network((1,), tuple(made[:-1]), made[-1])

    def ends(self) -> tuple[Fraction, Fraction]:
        """The exact minimum and maximum of the output."""
        values = [self.value(x) for x in self._corners()]
        return min(values), max(values)

    def value(self, x: Fraction) -> Fraction:
        return self._hidden(x)[-1][0]

    def problem(self, sign: int, bound: Fraction) -> Problem:
        """Is there a point with sign * y <= bound?"""
        row = instances.row({0: sign}, bound)
        return instances.problem(self.network, instances.boxes([[self.low]], [[self.high]]), [(0, [row])])

    def _hidden(self, x: Fraction) -> list[list[Fraction]]:
        """The values of all layers before their ReLUs."""
        values, found = [x], []
        for weights, biases in self.layers:
            found.append([_dot(row, values) + Fraction(b) for row, b in zip(weights, biases, strict=True)])
            values = [max(value, Fraction(0)) for value in found[-1]]
        return found

    def _corners(self) -> list[Fraction]:
        """All points at which the output may bend: between two of them it is affine."""
        corners = [Fraction(self.low), Fraction(self.high)]
        for k in range(len(self.layers) - 1):
            hidden = [self._hidden(x)[k] for x in corners]
            more = list(corners)
            for (left, at_left), (right, at_right) in _pairs(corners, hidden):
                for a, b in zip(at_left, at_right, strict=True):
                    if (a < 0) != (b < 0) and a != b:
                        more.append(left + (right - left) * a / (a - b))
            corners = sorted(set(more))
        return corners


Place = tuple[Fraction, list[Fraction]]
"""A point, and the values of a layer there."""


def _pairs(corners: Sequence[Fraction], values: Sequence[list[Fraction]]) -> list[tuple[Place, Place]]:
    return list(itertools.pairwise(zip(corners, values, strict=True)))


def _dot(row: Sequence[float], values: Sequence[Fraction]) -> Fraction:
    return sum((Fraction(w) * v for w, v in zip(row, values, strict=True)), Fraction(0))


def random_extreme(seed: int, most: float = 308.0) -> Extreme:
    """Layers of one or two neurons; in half of them all weights are far from 1, often so that a later layer undoes it.

    No weight is larger than 10^most.
    """
    rng = random.Random(seed)
    widths = [1, *(rng.randint(1, 2) for _ in range(rng.randint(1, 3))), 1]
    layers: list[Layer] = []
    debt = 0.0  # the exponent that is to be undone
    for rows, columns in zip(widths[1:], widths, strict=False):
        kind = rng.random()
        exponent = 0.0 if kind < 0.4 else -debt if kind < 0.7 else rng.uniform(-320.0, 308.0)
        exponent = max(-320.0, min(exponent, most))
        debt += exponent
        weights = [[_number(rng, exponent) for _ in range(columns)] for _ in range(rows)]
        scale = max(-320.0, min(debt, 300.0)) if rng.random() < 0.7 else 0.0
        biases = [0.0 if rng.random() < 0.5 else _number(rng, scale) for _ in range(rows)]
        layers.append((weights, biases))
    low = rng.uniform(-1.0, 1.0)
    return Extreme(tuple(layers), low, low + rng.choice([0.0, 1e-3, 1.0, 2.0]))


def _number(rng: random.Random, exponent: float) -> float:
    size = rng.uniform(0.3, 1.0) * 10.0**exponent
    return rng.choice([-1.0, 1.0]) * size


KNOWN = {
    "chord": Extreme((([[1.5e308]], [0.0]), ([[1e-308]], [0.0])), -1.0, 1.0),
    "underflow": Extreme((([[1e300]], [0.0]), ([[1e-200]], [0.0]), ([[1e-200]], [0.0])), 1.0, 2.0),
    "vanishing": Extreme((([[1e-200]], [0.0]), ([[1e-200]], [0.0]), ([[1e118]], [0.0]), ([[1.0]], [0.0])), 1.0, 2.0),
    "vanishing twice": Extreme((([[1e-300]], [0.0]), ([[1e-24]], [0.0]), ([[1e200]], [0.0]), ([[1e124]], [0.0])), 1, 2),
    "bias": Extreme((([[1.0]], [1e-320]), ([[1e160]], [0.0]), ([[1e160]], [0.0])), -1.0, 0.0),
    "overflow and back": Extreme((([[1e200], [1e200]], [0.0, 0.0]), ([[1e200, -1e200]], [1.0])), 0.5, 1.0),
}
