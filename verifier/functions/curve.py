"""Functions of one number by their convex and concave pieces: rigorous lines with any slope.

For any slope a, the line a t + h with h = min over [l, u] of f(t) - a t is below f on [l, u], and it is the best one
with that slope.  On a concave piece the minimum is at an end.  On a convex piece, and for any p in it,

    f(t) - a t >= f(p) - a p + (f'(p) - a) (t - p),

which is linear in t: so p need not be a stationary point exactly, the closer the better.  No equation has to hold in
floats; what is left are errors of the library's values, which are subtracted.  Lines above f are lines below -f.

An end of a piece may be off by a rounding error d, as an inflection point need not be a float.  In between, f has the
other curvature, of at most C d with C a bound of the third derivative.  That spoils a tangent by at most C d^2 per unit
of length and an extremum by C d^3: less than the errors of slopes and values, which are subtracted anyway.

h is concave in a, and falls by t* per unit of a, where t* is its minimiser: what an ascent over slopes needs to know.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import torch

from verifier.functions.base import BEYOND, Minimum, Scalar, Slopes, moderate, slack
from verifier.shapes import Bool, Float, Tensor


@dataclass(frozen=True, eq=False)
class Piece:
    """An interval on which a function is convex, concave or straight (None); its ends may be infinite."""

    low: Float[Tensor, "*axes"] | float
    high: Float[Tensor, "*axes"] | float
    convex: bool | None


@dataclass(frozen=True)
class Curve(Scalar):
    """A function of one number, differentiable inside of its pieces.

    A family says what its pieces are and where its derivative takes a value; everything else follows.  At an end of a
    piece that is not straight, `slope` is that of the piece.
    """

    @abstractmethod
    def pieces(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]) -> tuple[Piece, ...]:
        """Pieces that cover [low, high]; they may reach beyond it, and overlap at their ends."""

    @abstractmethod
    def stationary(self, a: Float[Tensor, "*axes"], piece: Piece) -> Float[Tensor, "*axes"]:
        """About where f' = a in a piece; where there is no such point, something beyond the end that comes nearest.

        Any number gives a valid line.
        """

    def value_error(self, t: Float[Tensor, "*axes"], value: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """How far the library's value can be from f(t) in float64."""
        return slack(value)

    def slope_error(self, t: Float[Tensor, "*axes"], slope: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """How far the computed slope can be from f'(t) in float64."""
        return slack(slope)

    # ------------------------------------------------------------ what follows

    def minima(
        self,
        a: Float[Tensor, "*axes"],
        low: Float[Tensor, "*axes"],
        high: Float[Tensor, "*axes"],
        side: Float[Tensor, "*axes"] | float,
    ) -> Iterable[Minimum]:
        return (self._least(a, low, high, side, piece) for piece in self.pieces(low, high))

    def _least(self, a: Tensor, low: Tensor, high: Tensor, side: Tensor | float, piece: Piece) -> Minimum:
        """At most the least value of side (f(t) - a t) on a part of the interval, infinite if that is empty."""
        left, right = torch.clamp(low, min=piece.low), torch.clamp(high, max=piece.high)
        empty = left > right
        left = torch.where(empty, low, left)  # any point at which f is defined
        right = torch.where(empty, low, right)
        curved = -1.0 if piece.convex is None else side if piece.convex else -side  # side f is convex where this is 1
        if isinstance(curved, float):
            find = self._inner if curved > 0 else self._ends
            least, touch = find(a, (left, right), side, piece)
        else:
            inner, ends = self._inner(a, (left, right), side, piece), self._ends(a, (left, right), side, piece)
            least, touch = (torch.where(curved > 0, *pair) for pair in zip(inner, ends, strict=True))
        return torch.where(empty, torch.inf, least), touch

    def _ends(
        self, a: Tensor, ends: tuple[Tensor, Tensor], side: Tensor | float, piece: Piece
    ) -> tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"]]:
        """The least of side (f(t) - a t) between the ends, where side f is concave or straight, and where it is."""
        left, right = ends
        at_left, at_right = self._along(a, left, side), self._along(a, right, side)
        return torch.minimum(at_left, at_right), torch.where(at_left <= at_right, left, right)

    def _inner(
        self, a: Tensor, ends: tuple[Tensor, Tensor], side: Tensor | float, piece: Piece
    ) -> tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"]]:
        """The same where side f is convex, by the tangent at a point between the ends."""
        p = torch.minimum(torch.maximum(self.stationary(a, piece), ends[0]), ends[1])
        return self._tangent(a, p, ends, side), p

    def _along(self, a: Tensor, t: Tensor, side: Tensor | float) -> Float[Tensor, "*axes"]:
        """side (f(t) - a t), or less."""
        value = self.value(t)
        return side * (value - a * t) - self.value_error(t, value) - slack(value, a * t, ulps=4)

    def _tangent(self, a: Tensor, p: Tensor, ends: tuple[Tensor, Tensor], side: Tensor | float) -> Tensor:
        """At most the least value of side (f(t) - a t) between the ends, where side f is convex; p is between them."""
        slope = self.slope(p)
        rise, error = side * (slope - a), self.slope_error(p, slope) + slack(slope, a, ulps=2)
        to_left, to_right = p - ends[0], ends[1] - p
        loss = torch.maximum((rise + error) * to_left, (error - rise) * to_right).clamp(min=0)
        loss = torch.where(ends[0] < ends[1], loss, 0.0)  # at one point there need be no slope
        return self._along(a, p, side) - loss * (1 + 2.0**-50)

    def steepness(
        self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]
    ) -> tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"]]:
        """About the least and the largest slope on an interval: they are those at ends of pieces."""
        found = []
        for piece in self.pieces(low, high):
            for end in (piece.low, piece.high):
                at = torch.minimum(torch.maximum(torch.as_tensor(end, dtype=low.dtype, device=low.device), low), high)
                found.append(self.slope(at))
        every = torch.stack(found).nan_to_num(0.0, BEYOND, -BEYOND)
        return every.amin(dim=0), every.amax(dim=0)

    def fan_within(
        self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"], convex: Bool[Tensor, "*axes"] | bool
    ) -> Slopes:
        """Slopes of good lines on intervals within one piece, where side f is convex or not.

        Tangents where it is convex, the best one that in the middle; else only the chord.
        """
        convex = torch.as_tensor(convex, device=low.device)
        at_low, at_high, m = self.slope(low), self.slope(high), low / 2 + high / 2
        least, most = torch.minimum(at_low, at_high), torch.maximum(at_low, at_high)
        chord = (self.value(high) - self.value(low)) / (high - low)
        chord = torch.where(low < high, torch.minimum(torch.maximum(chord, least), most), at_low)
        middle = torch.where(convex, self.slope(m), chord)
        return moderate(torch.where(convex, least, chord), middle, torch.where(convex, most, chord))


@dataclass(frozen=True)
class OnePiece(Curve):
    """Convex, or concave, wherever it is defined."""

    convex: ClassVar[bool]

    def pieces(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]) -> tuple[Piece, ...]:
        return (Piece(-torch.inf, torch.inf, self.convex),)

    def fan(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"], side: float) -> Slopes:
        return self.fan_within(low, high, self.convex == (side > 0))
