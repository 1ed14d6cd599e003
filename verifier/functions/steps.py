"""Sign, Floor, Ceil and Round: functions that are constant but for jumps.

On a step f(t) - a t is linear, so its extrema are at ends of steps, taken from either side of the jump.  Of a staircase
the first and the last jump suffice: the value at the jumps between them is linear in their number.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch

from verifier.errors import InputError
from verifier.functions.base import Minimum, Scalar, Slopes, moderate, slack
from verifier.functions.names import FUNCTIONS, stands_for
from verifier.shapes import Bool, Float, Tensor

Point = tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"]]
"""t, and a value that f takes there or near by."""

NEAR = 8.0
"""A neuron is near its jump if it is this many times nearer than the mean of its group."""

STEEP = 64.0
"""Slopes are tried up to this times the rise over the whole interval."""


@dataclass(frozen=True)
class Step(Scalar):
    """Constant but for jumps, all of them upward.

    `slope` is not the derivative, which says nothing: it is that of a smooth function which rises alike, so that
    gradients find the jumps.
    """

    @abstractmethod
    def jumps(
        self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]
    ) -> tuple[tuple[Point, Point], tuple[Point, Point]]:
        """The first and the last jump on an interval that has some, each before it and after it."""

    def corners(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]) -> tuple[Point, ...]:
        """Both ends, and the jumps in between; where there are none, an end again."""
        first, last = self.value(low), self.value(high)
        flat = first == last
        inner = (point for jump in self.jumps(low, high) for point in jump)
        held = [(torch.where(flat, low, t), torch.where(flat, first, value)) for t, value in inner]
        return (low, first), *held, (high, last)

    def minima(
        self,
        a: Float[Tensor, "*axes"],
        low: Float[Tensor, "*axes"],
        high: Float[Tensor, "*axes"],
        side: Float[Tensor, "*axes"] | float,
    ) -> Iterator[Minimum]:
        for t, value in self.corners(low, high):
            sloped = torch.where(a == 0, 0.0, a * t)
            yield side * (value - sloped) - slack(sloped, value, ulps=4) * (a != 0), t

    def steepness(
        self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]
    ) -> tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"]]:
        rise = (self.value(high) - self.value(low)) / (high - low)
        return torch.zeros_like(low), torch.where(self.bends(low, high), STEEP * rise, 0.0)

    def fan(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"], side: float) -> Slopes:
        """From the level line to the one through the last jump and the far end, if that is not too steep."""
        least, most = self.steepness(low, high)
        corners = self.corners(low, high)
        (t, value), (end, last) = (corners[3], corners[5]) if side > 0 else (corners[0], corners[2])
        most = torch.minimum(most, ((last - value) / (end - t)).nan_to_num(torch.inf, torch.inf, torch.inf))
        return moderate(least, self.middle(low, high, side, (least, most)), most)

    def bends(self, low: Float[Tensor, "*batch n"], high: Float[Tensor, "*batch n"]) -> Bool[Tensor, "*batch n"]:
        return self.value(low) != self.value(high)


@FUNCTIONS.register("Sign")
@stands_for("sign", "sgn")
@dataclass(frozen=True)
class Sign(Step):
    """-1, 0 or 1: 0 at 0 only."""

    name = "Sign"
    reach = (-1.0, 1.0)

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return torch.sign(t)

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return 1 / (1 + t * t)

    def pull(self, t: Float[Tensor, "*batch n"], cotangent: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        """Who is near its jump, compared with the rest of the group, counts most: no other can be moved over it."""
        scale = t.abs().mean(dim=-1, keepdim=True) / NEAR
        share = (t / torch.where(scale > 0, scale, 1.0)).nan_to_num(torch.inf)
        return cotangent / (1 + share * share)

    def jumps(
        self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]
    ) -> tuple[tuple[Point, Point], tuple[Point, Point]]:
        zero = torch.zeros_like(low)
        jump = (zero, torch.sign(low)), (zero, torch.sign(high))
        return jump, jump


@dataclass(frozen=True)
class Staircase(Step):
    """Rises by 1 at a time: the value n ends at n + `edge`.

    Which of the two values it has at a jump does not matter: both count as taken.  Beyond 2^52 the rounding of the
    jumps is less than the errors that are subtracted.
    """

    edge: ClassVar[float]

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return torch.ones_like(t)

    def jumps(
        self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]
    ) -> tuple[tuple[Point, Point], tuple[Point, Point]]:
        first, last = self.value(low), self.value(high)
        begin, end = first + self.edge, last - 1 + self.edge
        return ((begin, first), (begin, first + 1)), ((end, last - 1), (end, last))


@FUNCTIONS.register("Floor")
@stands_for("floor")
@dataclass(frozen=True)
class Floor(Staircase):
    """The largest whole number that is not above t."""

    name = "Floor"
    edge = 1.0

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return torch.floor(t)


@FUNCTIONS.register("Ceil")
@stands_for("ceil")
@dataclass(frozen=True)
class Ceil(Staircase):
    """The smallest whole number that is not below t."""

    name = "Ceil"
    edge = 0.0

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return torch.ceil(t)


@FUNCTIONS.register("Round")
@dataclass(frozen=True)
class Round(Staircase):
    """The nearest whole number, halves to the even one."""

    name = "Round"
    edge = 0.5

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return torch.round(t)


@stands_for("round")
def round_of_torch(decimals: int = 0) -> Round:
    if decimals != 0:
        raise InputError("Round is known to whole numbers only")
    return Round()
