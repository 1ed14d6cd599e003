"""All functions of one number in arithmetic of sixty digits, and intervals on which they may go wrong."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import mpmath
import torch
from mpmath import mpf

from verifier.functions.base import Scalar
from verifier.functions.exponential import Exp, Log, Softplus
from verifier.functions.gates import HardSwish, Mish, SiLU
from verifier.functions.gaussian import Erf, Gelu, GeluTanh
from verifier.functions.periodic import Cos, Sin
from verifier.functions.powers import Power, PowerOptions
from verifier.functions.sigmoids import Atan, Sigmoid, Softsign, Tanh
from verifier.functions.steps import Ceil, Floor, Round, Sign
from verifier.functions.units import Unit

mpmath.mp.prec = 200

Exact = Callable[[Any], Any]


@dataclass(frozen=True)
class Reference:
    """A function, its exact values and derivatives, where it is defined, and which points are special."""

    function: Scalar
    exact: Exact
    slope: Exact
    low: float = -math.inf
    high: float = math.inf
    special: tuple[float, ...] = (0.0,)
    scales: tuple[float, ...] = field(default=(0.01, 1.0, 10.0, 300.0))

    def intervals(self, count: int, seed: int = 0) -> Iterator[tuple[float, float]]:
        """Of all widths, many with an end at a special point or beside one, within the domain."""
        chance = random.Random(seed)
        found = 0
        while found < count:
            ends = sorted(self._ends(chance))
            if self.low <= ends[0] and ends[1] <= self.high:
                found += 1
                yield ends[0], ends[1]

    def _ends(self, chance: random.Random) -> tuple[float, float]:
        first = self.point(chance)
        width = chance.choice([0.0, 1e-300, 1e-14, 1e-6, 0.01, 0.5, 1.0, 3.0, 10.0, 100.0])
        if chance.random() < 0.3:
            return first, self.point(chance)
        return first, first + width * chance.choice([-1, 1])

    def point(self, chance: random.Random) -> float:
        if chance.random() < 0.4:
            t = chance.choice(self.special)
            for _ in range(chance.choice([0, 0, 1, 2])):
                t = math.nextafter(t, chance.choice([-math.inf, math.inf]))
            return t
        t = chance.gauss(0, 1) * chance.choice(self.scales)
        return abs(t) if self.low >= 0 else t

    def points(self, low: float, high: float, count: int, seed: int = 0) -> list[float]:
        """Ends, special points and others of an interval."""
        chance = random.Random(seed)
        found = [low, high, *(t for t in self.special if low <= t <= high)]
        found += [min(max(low + (high - low) * chance.random(), low), high) for _ in range(count)]
        found += [math.nextafter(low, high), math.nextafter(high, low)]
        return found


def power(p: float) -> Scalar:
    return Power(PowerOptions(p))


def sigmoid(t: Any) -> Any:
    return 1 / (1 + mpmath.exp(-t))


def normal(t: Any) -> Any:
    return mpmath.erfc(-t / mpmath.sqrt(2)) / 2


def density(t: Any) -> Any:
    return mpmath.exp(-t * t / 2) / mpmath.sqrt(2 * mpmath.pi)


def tanh_argument(t: Any) -> Any:
    return 2 * mpmath.sqrt(2 / mpmath.pi) * (t + mpf("0.044715") * t**3)


def gelu_tanh_slope(t: Any) -> Any:
    z = tanh_argument(t)
    rate = 2 * mpmath.sqrt(2 / mpmath.pi) * (1 + 3 * mpf("0.044715") * t**2)
    return sigmoid(z) + t * sigmoid(z) * sigmoid(-z) * rate


def silu_slope(t: Any) -> Any:
    return sigmoid(t) + t * sigmoid(t) * sigmoid(-t)


def mish(t: Any) -> Any:
    return t * mpmath.tanh(mpmath.log1p(mpmath.exp(t)))


def mish_slope(t: Any) -> Any:
    soft = mpmath.log1p(mpmath.exp(t))
    return mpmath.tanh(soft) + t * mpmath.sech(soft) ** 2 * sigmoid(t)


def hard_swish(t: Any) -> Any:
    return t * min(max(t + 3, mpf(0)), mpf(6)) / 6


def hard_swish_slope(t: Any) -> Any:
    return (2 * t + 3) / 6 if abs(t) <= 3 else mpf(t > 3)


def unit(gain: float, height: float, width: float) -> Reference:
    def exact(t: Any) -> Any:
        return gain * t if t > 0 else height * mpmath.expm1(t / width)

    def slope(t: Any) -> Any:
        return mpf(gain) if t > 0 else mpf(height) / width * mpmath.exp(t / width)

    return Reference(Unit(gain, height, width), exact, slope)


def powers(p: float) -> Reference:
    def slope(t: Any) -> Any:
        return mpf(p) * t ** (mpf(p) - 1)

    low = -math.inf if p == int(p) else 0.0
    small = (0.01, 1.0, 10.0)
    if p < 0:  # one side of 0; the other one has tests of its own
        return Reference(power(p), lambda t: t ** mpf(p), slope, 1e-3, math.inf, (1e-3, 1.0, 2.0), small)
    return Reference(power(p), lambda t: t ** mpf(p), slope, low, math.inf, (0.0, 1.0), small)


def waves() -> tuple[float, ...]:
    return tuple(k * math.pi / 2 for k in (*range(-9, 10), 200, 2001, 600001))


HALVES = (*(k / 2 for k in range(-9, 10)), 2.0**51 + 0.5, 2.0**52, 2.0**53, -(2.0**54))
ROOT = math.sqrt(2)

CURVES = {
    "sigmoid": Reference(Sigmoid(), sigmoid, lambda t: sigmoid(t) * sigmoid(-t)),
    "tanh": Reference(Tanh(), mpmath.tanh, lambda t: mpmath.sech(t) ** 2),
    "atan": Reference(Atan(), mpmath.atan, lambda t: 1 / (1 + t * t)),
    "softsign": Reference(Softsign(), lambda t: t / (1 + abs(t)), lambda t: 1 / (1 + abs(t)) ** 2),
    "erf": Reference(Erf(), mpmath.erf, lambda t: 2 / mpmath.sqrt(mpmath.pi) * mpmath.exp(-t * t)),
    "exp": Reference(Exp(), mpmath.exp, mpmath.exp, scales=(0.01, 1.0, 10.0)),
    "log": Reference(Log(), mpmath.log, lambda t: 1 / t, low=1e-300, special=(1e-300, 1e-10, 1.0, 2.0)),
    "softplus": Reference(Softplus(), lambda t: mpmath.log1p(mpmath.exp(t)), sigmoid),
    "gelu": Reference(
        Gelu(), lambda t: t * normal(t), lambda t: normal(t) + t * density(t), special=(0.0, ROOT, -ROOT, -0.7517915)
    ),
    "gelu tanh": Reference(
        GeluTanh(), lambda t: t * sigmoid(tanh_argument(t)), gelu_tanh_slope, special=(0.0, *GeluTanh.inflections)
    ),
    "silu": Reference(SiLU(), lambda t: t * sigmoid(t), silu_slope, special=(0.0, *SiLU.inflections, -1.2784645)),
    "mish": Reference(Mish(), mish, mish_slope, special=(0.0, *Mish.inflections, -1.1924312)),
    "hard swish": Reference(HardSwish(), hard_swish, hard_swish_slope, special=(0.0, -3.0, 3.0, -1.5)),
    "elu": unit(1.0, 1.0, 1.0),
    "elu steep": unit(1.0, 2.5, 1.0),
    "selu": unit(1.0507009873554805, 1.7580993408473768, 1.0),
    "celu": unit(1.0, 0.3, 0.3),
    "sin": Reference(Sin(), mpmath.sin, mpmath.cos, special=waves(), scales=(1.0, 10.0, 1e3, 1e6, 1e9)),
    "cos": Reference(Cos(), mpmath.cos, lambda t: -mpmath.sin(t), special=waves(), scales=(1.0, 10.0, 1e3, 1e6, 1e9)),
    **{f"power {p:g}": powers(p) for p in (2, 3, 4, 5, 0.5, 1.5, 0.3, 2.7, -1, -2, -3, -0.5, -1.7)},
}


def sign(t: Any) -> Any:
    return mpf(mpmath.sign(t))


def nearest(t: Any) -> Any:
    low = mpmath.floor(t)
    rest = t - low
    return low + (1 if rest > 0.5 or (rest == 0.5 and low % 2 == 1) else 0)


def flat(t: Any) -> Any:
    return mpf(0)


STEPS = {
    "sign": Reference(Sign(), sign, flat, scales=(1e-9, 1.0, 10.0)),
    "floor": Reference(Floor(), mpmath.floor, flat, special=HALVES, scales=(0.3, 3.0, 100.0)),
    "ceil": Reference(Ceil(), mpmath.ceil, flat, special=HALVES, scales=(0.3, 3.0, 100.0)),
    "round": Reference(Round(), nearest, flat, special=HALVES, scales=(0.3, 3.0, 100.0)),
}

ALL = {**CURVES, **STEPS}


def tensor(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)
