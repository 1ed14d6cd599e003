"""Sin and Cos."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import torch

from verifier.functions.base import Line, Slopes, slack
from verifier.functions.curve import Curve, Piece
from verifier.functions.names import FUNCTIONS, stands_for
from verifier.shapes import Bool, Float, Tensor

PERIOD = 6.28
"""Longer intervals, on which lines gain little over the level ones, are not cut into pieces."""

FAR = 2.0**20
"""Nor are those that reach beyond this: the multiples of pi are known up to 2^-32 until there."""


@dataclass(frozen=True)
class Wave(Curve):
    """Between -1 and 1, concave and convex in turns; a piece is half a period.

    The pieces that an interval needs, four at most, are counted from the inflection point before it.  Multiples of pi
    are no floats: d = 2^-32 and C = 1 in the terms of `verifier.functions.curve`, so the errors of slopes exceed d^2,
    and `value_error` is at least d^3.

    `start` is an inflection point, and whether f is convex after it.
    """

    reach = (-1.0, 1.0)
    start: ClassVar[tuple[float, bool]]

    def value_error(self, t: Float[Tensor, "*axes"], value: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return slack(value) + 2.0**-60

    def slope_error(self, t: Float[Tensor, "*axes"], slope: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return slack(slope) + 2.0**-60

    def pieces(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]) -> tuple[Piece, ...]:
        start, convex = self.start
        before = torch.floor((low - start) / (2 * math.pi)) * 2
        ends = [start + (before + i) * math.pi for i in range(5)]
        ends[0], ends[-1] = torch.minimum(ends[0], low), torch.maximum(ends[-1], high)  # whatever was rounded
        return tuple(Piece(ends[i], ends[i + 1], convex == (i % 2 == 0)) for i in range(4))

    def stationary(self, a: Float[Tensor, "*axes"], piece: Piece) -> Float[Tensor, "*axes"]:
        """In a concave piece the derivative falls from 1 to -1 as a cosine does."""
        return piece.low + torch.acos((-a if piece.convex else a).clamp(-1.0, 1.0))

    def wide(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]) -> Bool[Tensor, "*axes"]:
        """Where only the reach is used."""
        return ~((high - low <= PERIOD) & (low >= -FAR) & (high <= FAR))

    def line(
        self,
        a: Float[Tensor, "*axes"],
        low: Float[Tensor, "*axes"],
        high: Float[Tensor, "*axes"],
        side: Float[Tensor, "*axes"] | float,
    ) -> Line:
        """As for all curves, but side (f(t) - a t) is also at least -1 - side a t at one of the ends."""
        found = super().line(a, low, high, side)
        wide = self.wide(low, high)
        by_pieces = torch.where(wide, -torch.inf, side * found.offset)
        at_low, at_high = (torch.where(a == 0, 0.0, side * a * end) for end in (low, high))
        by_reach = -1 - torch.maximum(at_low, at_high) - slack(torch.ones_like(at_low), at_low, at_high, ulps=4)
        least = torch.where(self.defined(low, high), torch.maximum(by_pieces, by_reach), -torch.inf)
        touch = torch.where(at_low > at_high, low, high)
        return Line(a, side * least, torch.where(wide, touch, found.touch))

    def fan(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"], side: float) -> Slopes:
        level = self.wide(low, high)
        least, middle, most = (torch.where(level, 0.0, slope) for slope in super().fan(low, high, side))
        return least, middle, most


@FUNCTIONS.register("Sin")
@stands_for("sin")
@dataclass(frozen=True)
class Sin(Wave):
    """Concave on [0, pi]."""

    name = "Sin"
    start = (0.0, False)

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return torch.sin(t)

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return torch.cos(t)


@FUNCTIONS.register("Cos")
@stands_for("cos")
@dataclass(frozen=True)
class Cos(Wave):
    """Convex on [pi / 2, 3 pi / 2]."""

    name = "Cos"
    start = (math.pi / 2, True)

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return torch.cos(t)

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return -torch.sin(t)
