"""What every function of a neuron offers, and the unit in which its errors are counted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import torch

from verifier.operators import UNIT_ROUNDOFF
from verifier.shapes import Bool, Float, Tensor

BEYOND = 2.0**64
"""What functions other than ReLUs give beyond it counts as unbounded, so that no number of a bound can be larger."""

Minimum: TypeAlias = tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"]]
"""A value, and the point that it belongs to."""

ULPS = 8
"""Units in the last place by which a library's function may err in float64; tests compare it with mpmath."""


@dataclass(frozen=True)
class Function(ABC):
    """x = f(t): one entry of x for every `arity` entries of t, which lie one after the other: t = (s_1..s_n, t_1..t_n).

    Guarantees of every subclass, for bounds in float64:

    - `image` encloses f on the box, and is infinite or no number where f is not defined on all of it;
    - `value` errs by rounding only.
    """

    name: ClassVar[str]

    @property
    def arity(self) -> int:
        """Entries of t for each entry of x."""
        return 1

    @abstractmethod
    def value(self, t: Float[Tensor, "*batch n_hat"]) -> Float[Tensor, "*batch n"]:
        """f(t), in any precision."""

    @abstractmethod
    def pull(
        self, t: Float[Tensor, "*batch n_hat"], cotangent: Float[Tensor, "*batch n"]
    ) -> Float[Tensor, "*batch n_hat"]:
        """The cotangent times f'(t): what gradients become on their way back.  Where there is no slope, any serves."""

    @abstractmethod
    def image(
        self, low: Float[Tensor, "*batch n_hat"], high: Float[Tensor, "*batch n_hat"]
    ) -> tuple[Float[Tensor, "*batch n"], Float[Tensor, "*batch n"]]:
        """Bounds of f(t) for low <= t <= high, rounded outward in float64."""

    def bends(
        self, low: Float[Tensor, "*batch n_hat"], high: Float[Tensor, "*batch n_hat"]
    ) -> Bool[Tensor, "*batch n_hat"]:
        """Where tighter bounds of t would tighten the relaxation of f."""
        return low < high

    @property
    def is_relu(self) -> bool:
        """Whether it has kinks, signs and cuts."""
        return False

    @property
    def is_product(self) -> bool:
        """Whether it multiplies two numbers."""
        return False

    @property
    def nonnegative(self) -> bool:
        """Whether no value is below 0."""
        return False

    @property
    def partial(self) -> bool:
        """Whether there are numbers at which it is not defined."""
        return False

    def defined(
        self, low: Float[Tensor, "*batch n_hat"], high: Float[Tensor, "*batch n_hat"]
    ) -> Bool[Tensor, "*batch n_hat"]:
        """Where f is defined on all of the interval."""
        return low <= high

    def parts(self, t: Float[Tensor, "*batch n_hat"]) -> tuple[Float[Tensor, "*batch n"], ...]:
        """The arguments, one tensor for each."""
        return t.chunk(self.arity, dim=-1)


@dataclass(frozen=True, eq=False)
class Line:
    """Affine functions below f on given intervals: f(t) >= slope t + offset, as near as `touch` to where they meet.

    `slope` are the numbers that were asked for; in float64 `offset` includes all errors.
    """

    slope: Float[Tensor, "*axes"]
    offset: Float[Tensor, "*axes"]
    touch: Float[Tensor, "*axes"]


BISECTIONS = 6
"""Steps by which the slope of a good line is found; a line is valid whatever its slope."""

Slopes: TypeAlias = tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"], Float[Tensor, "*axes"]]
"""Of the lines on one side of a function: the least that is worth trying, the one that cuts off least, the largest."""


@dataclass(frozen=True)
class Scalar(Function):
    """A function of one number, below and above which there are lines with any slope.

    `reach` encloses all values.
    """

    reach: ClassVar[tuple[float, float]] = (-torch.inf, torch.inf)

    @abstractmethod
    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """f'(t); where there is none, any number."""

    @abstractmethod
    def minima(
        self,
        a: Float[Tensor, "*axes"],
        low: Float[Tensor, "*axes"],
        high: Float[Tensor, "*axes"],
        side: Float[Tensor, "*axes"] | float,
    ) -> Iterable[Minimum]:
        """Of side (f(t) - a t) on parts that cover [low, high]: at most the least value, and about where it is taken.

        Guarantee: in float64 with all errors.  Infinite where a part is empty.
        """

    def line(
        self,
        a: Float[Tensor, "*axes"],
        low: Float[Tensor, "*axes"],
        high: Float[Tensor, "*axes"],
        side: Float[Tensor, "*axes"] | float,
    ) -> Line:
        """A line with slope a that is below f on [low, high] where `side` is 1, and above f where it is -1.

        Guarantee: in float64 with all errors; the offset is infinite or no number where f is not defined everywhere.
        """
        least = torch.full_like(a * low, torch.inf)
        touch = low.expand_as(least)
        for found, where in self.minima(a, low, high, side):
            better = found < least
            least, touch = torch.where(better, found, least), torch.where(better, where, touch)
            least = torch.where(torch.isnan(found), found, least)  # what is no number must not get lost
        known = self.defined(low, high) & (least < torch.inf)  # infinite: no part of the interval is covered
        return Line(a, side * torch.where(known, least, -torch.inf), touch)

    @abstractmethod
    def steepness(
        self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]
    ) -> tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"]]:
        """About the least and the largest slope that a line is worth trying on an interval."""

    @property
    def nonnegative(self) -> bool:
        return self.reach[0] >= 0

    def pull(self, t: Float[Tensor, "*batch n"], cotangent: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return cotangent * self.slope(t).nan_to_num(0.0).clamp(-BEYOND, BEYOND)

    def image(
        self, low: Float[Tensor, "*batch n"], high: Float[Tensor, "*batch n"]
    ) -> tuple[Float[Tensor, "*batch n"], Float[Tensor, "*batch n"]]:
        """Between the level lines."""
        level = torch.zeros_like(low)
        below, above = self.line(level, low, high, 1.0), self.line(level, low, high, -1.0)
        least, most = self.reach
        defined = self.defined(low, high)
        return limited(
            torch.where(defined, below.offset.clamp(min=least), -torch.inf),
            torch.where(defined, above.offset.clamp(max=most), torch.inf),
        )

    def fan(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"], side: float) -> Slopes:
        """Slopes of good lines below f (`side` 1) or above it (-1), numbers in any case."""
        between = self.steepness(low, high)
        return moderate(between[0], self.middle(low, high, side, between), between[1])

    def middle(
        self,
        low: Float[Tensor, "*axes"],
        high: Float[Tensor, "*axes"],
        side: float,
        between: tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"]],
    ) -> Float[Tensor, "*axes"]:
        """The slope of the line that is nearest to f in the middle of the interval: the one that cuts off least.

        With h(a) the offset of a line, h(a) + a m is concave in a, with the slope m - t*(a).  Where f is convex or
        concave it is greatest for the tangent in the middle or for the chord, elsewhere a bisection comes near.
        """
        m = low / 2 + high / 2
        least, most = between
        best, reached = (least + most) / 2, torch.full_like(m, -torch.inf)
        probes = [self.slope(m), (self.value(high) - self.value(low)) / (high - low)]
        for step in range(len(probes) + BISECTIONS):
            a = (least + most) / 2
            if step < len(probes):
                a = torch.where(torch.isfinite(probes[step]), probes[step], a)
                a = torch.minimum(torch.maximum(a, least), most)
            line = self.line(a, low, high, side)
            at_middle = side * (line.offset + a * m)
            better = at_middle > reached
            best, reached = torch.where(better, a, best), torch.where(better, at_middle, reached)
            more = side * (m - line.touch) > 0
            least, most = torch.where(more, a, least), torch.where(more, most, a)
        return best


def moderate(least: Tensor, middle: Tensor, most: Tensor) -> Slopes:
    """Slopes as numbers within the error model."""

    def number(slope: Tensor) -> Tensor:
        return slope.nan_to_num(0.0).clamp(-BEYOND, BEYOND)

    return number(least), number(middle), number(most)


def limited(
    low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]
) -> tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"]]:
    """Ends of an image; what is no number, or too large for the error model, is infinite."""
    return (
        torch.where(low >= -BEYOND, low.clamp(max=BEYOND), -torch.inf),
        torch.where(high <= BEYOND, high.clamp(min=-BEYOND), torch.inf),
    )


def slack(*sizes: Float[Tensor, "*axes"], ulps: int = ULPS) -> Float[Tensor, "*axes"]:
    """What so many roundings of numbers of these sizes can cost, underflow included."""
    total = sizes[0].abs()
    for size in sizes[1:]:
        total = total + size.abs()
    return total * (2.0 * ulps * UNIT_ROUNDOFF) + torch.finfo(torch.float64).tiny


def underflow(factor: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """What a few numbers that underflowed can cost when they are multiplied with a factor."""
    return factor.abs() * (8 * torch.finfo(torch.float64).tiny)
