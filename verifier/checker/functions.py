"""Functions of neurons: rigorous minima of r f(t) - mu t, for ANY numbers r and mu, over the bounds of t.

Let g(t) = r f(t) - mu t.  A curve says on which pieces f is convex and on which it is concave.  On the part [l, u] of
the bounds that lies in a piece:

- where r f is concave, g is least at l or at u;
- where r f is convex, g(t) >= g(p) + g'(p) (t - p) for any p in [l, u].  The right side is linear in t, so it is least
  at l or at u: g(p) - max(g'(p) (p - l), -g'(p) (u - p), 0).  No equation has to hold for p; the nearer g'(p) is to
  zero, the better.

A function whose values lie in [c, d] has g(t) >= min(r c, r d) - max(mu l, mu u) as well.  A product has
r s t - mu_s s - mu_t t, which is linear in s and in t: it is least at a corner of the box.

Errors.  numpy's exp, log, log1p, tanh, sin, cos, sqrt, products and quotients, and the few operations made with them,
are off by less than ERROR times the result (16 units in the last place; tests compare with a library of many digits),
or by TINIEST where they underflow.  These errors, and those of the sums here, are subtracted: what is returned holds
for the floats r, mu, l and u as they are.  What is not a number, and where f is not defined on all of the bounds, is
minus infinity.

Waves.  Where sin and cos bend is a multiple of pi, which is no float.  For |t| <= FAR it is known up to d = 2^-32, so a
part may hold a strip of width d in which g bends the wrong way, by |g''| <= |r| d at most.  Add a function q with
q'' = |g''| there and 0 elsewhere, q = q' = 0 before the strip: q <= |r| d^3 and q' <= |r| d^2, which spoils an end by
d^3 and a tangent on at most eight units of length by 9 d^2, times |r|.  Two strips spoil less than 2^-59 |r|; twice
that is subtracted.  Beyond FAR, and on more than a period, only the range of values counts.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .rationals import Array

ERROR = 2.0**-48
"""Of a value or a derivative, relatively: 16 units in the last place."""

TINIEST = 2.0**-1020
"""Of what underflows."""

ROUNDED = 2.0**-50
"""Of a sum of two products: eight roundings."""

FAR, PERIOD, STRIP = 2.0**20, 6.28, 2.0**-58
"""Of waves: where they are looked at piece by piece, and what strips may cost."""

Sides = tuple[Any, Any]
Piece = tuple[Any, Any, bool]
"""From, to, and whether f is convex there."""


class Function(ABC):
    """x = f(t); x has one entry for every `arity` entries of t, which are t = (s_1..s_n, t_1..t_n)."""

    name: ClassVar[str]
    arity: ClassVar[int] = 1
    bends_at_zero: ClassVar[bool] = False
    """Whether it is max(t, 0): what is passed, blocked, cut, merged and known exactly is that only."""

    nonnegative: bool = False
    partial: bool = False
    """Whether there are numbers at which it is not defined."""

    def image(self, low: Any, high: Any) -> Sides:
        """Bounds of x where low <= t <= high."""
        raise NotImplementedError

    def least(self, r: Array, mu: Array, bounds: tuple[Array, Array]) -> Array:
        """At most min r x - mu t, for r [m, n], mu [m, arity n] and bounds [1 or m, arity n]."""
        raise NotImplementedError

    def fan(self, bounds: tuple[Array, Array], side: Array) -> tuple[Array, Array, Array]:
        """Slopes [m, arity n] of good faces below (`side` > 0) or above f: one end, the middle, the other end."""
        raise NotImplementedError

    def value(self, t: Array) -> Array:
        """About f(t)."""
        raise NotImplementedError


@dataclass(frozen=True)
class Relu(Function):
    """max(t, 0), for floats and for rationals; its part in the inequality is in `inequality`."""

    name = "Relu"
    bends_at_zero = True
    nonnegative = True

    def image(self, low: Any, high: Any) -> Sides:
        return np.maximum(low, 0), np.maximum(high, 0)

    def value(self, t: Array) -> Array:
        return np.maximum(t, 0.0)


RELU = Relu()


# -- products ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Product(Function):
    """s t."""

    name = "Product"
    arity = 2

    def value(self, t: Array) -> Array:
        left, right = np.split(t, 2, axis=-1)
        found: Array = left * right
        return found

    def image(self, low: Any, high: Any) -> Sides:
        n = low.shape[-1] // 2
        one, none = np.ones((1, n)), np.zeros((1, 2 * n))
        return self.least(one, none, (low, high)), -self.least(-one, none, (low, high))

    def least(self, r: Array, mu: Array, bounds: tuple[Array, Array]) -> Array:
        (l_s, l_t), (u_s, u_t) = (np.split(side, 2, axis=-1) for side in bounds)
        mu_s, mu_t = np.split(mu, 2, axis=-1)
        found = np.inf
        for s in (l_s, u_s):
            for t in (l_t, u_t):
                found = np.minimum(found, r * (s * t) - mu_s * s - mu_t * t)
        s, t = np.maximum(np.abs(l_s), np.abs(u_s)), np.maximum(np.abs(l_t), np.abs(u_t))
        size = np.abs(r) * (s * t) + np.abs(mu_s) * s + np.abs(mu_t) * t
        found = found - (ROUNDED * size + TINIEST * (np.abs(r) + 1.0))
        return _known(found, (l_s <= u_s) & (l_t <= u_t))

    def fan(self, bounds: tuple[Array, Array], side: Array) -> tuple[Array, Array, Array]:
        """McCormick's two faces, and what is between them."""
        (l_s, l_t), (u_s, u_t) = (np.split(end, 2, axis=-1) for end in bounds)
        first, last = np.where(side > 0, l_s, u_s), np.where(side > 0, u_s, l_s)
        wide = np.zeros_like(first)
        ends = np.concatenate([l_t + wide, first], axis=-1), np.concatenate([u_t + wide, last], axis=-1)
        return ends[0], (ends[0] + ends[1]) / 2, ends[1]


def _known(found: Array, usable: Array) -> Array:
    return np.where(usable & (np.abs(found) < np.inf), found, -np.inf)


# -- curves ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve(Function):
    """A function of one number that is convex or concave on each of its pieces, and smooth inside of them."""

    reach: ClassVar[tuple[float, float]] = (-math.inf, math.inf)
    strip: ClassVar[float] = 0.0

    @abstractmethod
    def slope(self, t: Array) -> Array:
        """About f'(t)."""

    @abstractmethod
    def pieces(self, low: Array, high: Array) -> Iterator[Piece]:
        """They cover the bounds where these are usable."""

    @abstractmethod
    def stationary(self, a: Array, piece: Piece) -> Array:
        """About where f' = a in a piece.  Any number serves."""

    def usable(self, low: Array, high: Array) -> Array:
        """Where f is defined on all of the bounds."""
        return low <= high

    def covered(self, low: Array, high: Array) -> Array:
        """Where the pieces cover the bounds."""
        return self.usable(low, high)

    # -- what follows --------------------------------------------------------------------------------------------------

    def image(self, low: Any, high: Any) -> Sides:
        one, none = np.ones((1, 1)), np.zeros((1, 1))
        below, above = self.least(one, none, (low, high)), -self.least(-one, none, (low, high))
        return np.maximum(below, self.reach[0]), np.minimum(above, self.reach[1])

    def least(self, r: Array, mu: Array, bounds: tuple[Array, Array]) -> Array:
        low, high = bounds
        found = np.full(np.broadcast_shapes(r.shape, low.shape), np.inf)
        for piece in self.pieces(low, high):
            found = np.minimum(found, self._part(r, mu, bounds, piece))
        usable = self.usable(low, high)
        by_pieces = _known(found, self.covered(low, high))
        if not math.isfinite(self.reach[0] + self.reach[1]):
            return by_pieces
        values = np.minimum(r * self.reach[0], r * self.reach[1])
        sloped = np.maximum(mu * low, mu * high)
        size = np.abs(r) * max(map(abs, self.reach)) + np.maximum(np.abs(mu * low), np.abs(mu * high))
        by_reach = _known(values - sloped - (ROUNDED * size + TINIEST), usable)
        return np.maximum(by_pieces, by_reach)

    def _part(self, r: Array, mu: Array, bounds: tuple[Array, Array], piece: Piece) -> Array:
        """Over those bounds that lie in a piece; infinite where none do."""
        low, high = bounds
        left, right = np.maximum(low, piece[0]), np.minimum(high, piece[1])
        none = ~(left <= right)
        left, right = np.where(none, low, left), np.where(none, low, right)  # any point that is defined
        p = self.stationary(mu / r, piece)
        p = np.minimum(np.maximum(np.where(np.isnan(p), left, p), left), right)
        ends = np.minimum(self._at(r, mu, left), self._at(r, mu, right))
        bent = self._at(r, mu, p) - self._loss(r, mu, p, (left, right))
        found = np.where((r >= 0) == piece[2], bent, ends)
        found = np.where(r == 0, ends, found)
        return np.where(none, np.inf, found)

    def _at(self, r: Array, mu: Array, t: Array) -> Array:
        """r f(t) - mu t, or less."""
        value = self.value(t)
        error = np.abs(r) * (ERROR * np.abs(value) + self.strip + TINIEST)
        error = error + ROUNDED * (np.abs(r * value) + np.abs(mu * t)) + TINIEST
        found: Array = r * value - mu * t - error
        return found

    def _loss(self, r: Array, mu: Array, p: Array, ends: tuple[Array, Array]) -> Array:
        """At least what a tangent at p falls from there on."""
        slope = self.slope(p)
        error = np.abs(r) * (ERROR * np.abs(slope) + self.strip + TINIEST)
        error = error + ROUNDED * (np.abs(r * slope) + np.abs(mu)) + TINIEST
        rise = r * slope - mu
        loss = np.maximum((rise + error) * (p - ends[0]), (error - rise) * (ends[1] - p))
        return np.where(ends[0] < ends[1], np.maximum(loss, 0.0) * (1.0 + ROUNDED), 0.0)

    # -- good faces, of which nothing needs trust ----------------------------------------------------------------------

    def fan(self, bounds: tuple[Array, Array], side: Array) -> tuple[Array, Array, Array]:
        low, high = bounds
        found = [self._one_sided(low, high, sign) for sign in (1.0, -1.0)]
        least, middle, most = (moderate(np.where(side > 0, *pair)) for pair in zip(*found, strict=True))
        return least, middle, most

    def _one_sided(self, low: Array, high: Array, side: float) -> tuple[Array, Array, Array]:
        least, most = self._steepness(low, high)
        return least, self._middle(low, high, side, (least, most)), most

    def _steepness(self, low: Array, high: Array) -> tuple[Array, Array]:
        """The slopes at ends of pieces, within the bounds."""
        every = []
        for left, right, _ in self.pieces(low, high):
            every += [self.slope(np.minimum(np.maximum(end, low), high)) for end in (left, right)]
        found = np.nan_to_num(np.stack(every), nan=0.0, posinf=STEEPEST, neginf=-STEEPEST)
        return found.min(axis=0), found.max(axis=0)

    def _middle(self, low: Array, high: Array, side: float, between: tuple[Array, Array]) -> Array:
        """About the slope of the line that is nearest to f in the middle of the bounds."""
        m, (least, most) = low / 2 + high / 2, between
        best, reached = (least + most) / 2, np.full(m.shape, -np.inf)
        probes = [self.slope(m), self.chord(low, high)]
        for step in range(len(probes) + _BISECTIONS):
            a = (least + most) / 2
            if step < len(probes):
                a = np.minimum(np.maximum(np.where(np.isfinite(probes[step]), probes[step], a), least), most)
            offset, touch = self._line(a, low, high, side)
            at_middle = side * (offset + a * m)
            better = at_middle > reached
            best, reached = np.where(better, a, best), np.where(better, at_middle, reached)
            more = side * (m - touch) > 0
            least, most = np.where(more, a, least), np.where(more, most, a)
        return best

    def chord(self, low: Array, high: Array) -> Array:
        found: Array = (self.value(high) - self.value(low)) / (high - low)
        return found

    def _line(self, a: Array, low: Array, high: Array, side: float) -> tuple[Array, Array]:
        """About the offset of the best line with a slope, and where it touches."""
        least, touch = np.full(a.shape, np.inf), low + 0.0 * a
        for piece in self.pieces(low, high):
            left, right = np.maximum(low, piece[0]), np.minimum(high, piece[1])
            p = np.minimum(np.maximum(self.stationary(a, piece), left), right)
            for t in (p,) if (side > 0) == piece[2] else (left, right):
                found = np.where(left <= right, side * (self.value(t) - a * t), np.inf)
                better = found < least
                least, touch = np.where(better, found, least), np.where(better, t, touch)
        return side * least, touch

    def _within(self, low: Array, high: Array, convex: Array) -> tuple[Array, Array, Array]:
        """Of bounds in one piece: tangents where side f is convex, else the chord."""
        at_low, at_high = self.slope(low), self.slope(high)
        least, most = np.minimum(at_low, at_high), np.maximum(at_low, at_high)
        chord = np.minimum(np.maximum(self.chord(low, high), least), most)
        chord = np.where(low < high, chord, at_low)
        middle = np.where(convex, self.slope(low / 2 + high / 2), chord)
        return np.where(convex, least, chord), middle, np.where(convex, most, chord)


_BISECTIONS, _HALVINGS = 6, 20
STEEPEST = 2.0**64


def moderate(slope: Array) -> Array:
    """A slope as a number."""
    found: Array = np.clip(np.nan_to_num(slope, nan=0.0), -STEEPEST, STEEPEST)
    return found


@dataclass(frozen=True)
class SShaped(Curve):
    """Convex below 0, concave above it; the derivative is even, and f(-t) is -f(t) but for a constant."""

    steepest: ClassVar[float]

    def pieces(self, low: Array, high: Array) -> Iterator[Piece]:
        yield -np.inf, 0.0, True
        yield 0.0, np.inf, False

    def stationary(self, a: Array, piece: Piece) -> Array:
        return self._left(a) if piece[2] else -self._left(a)

    @abstractmethod
    def _left(self, a: Array) -> Array:
        """About the point below 0 at which f' = a."""

    def _one_sided(self, low: Array, high: Array, side: float) -> tuple[Array, Array, Array]:
        """Tangents up to the one that meets the other end of the curve; the chord where that is below the curve."""
        if side < 0:
            low, high = -high, -low
        least, middle = self.slope(low), low / 2 + high / 2
        chord = np.minimum(np.where(low < high, self.chord(low, high), least), self.steepest)
        p = np.where(high <= 0, high, self._meeting(np.minimum(low, 0.0), high))
        most = self.slope(p)
        tangents = (low < 0) & (most > least)
        found = (least, self.slope(np.minimum(middle, p)), most)
        first, second, third = (np.where(tangents, slope, chord) for slope in found)
        return first, second, third

    def _meeting(self, low: Array, high: Array) -> Array:
        """About the point between low and 0 whose tangent meets the curve again at `high`."""
        left, right, value = low, np.zeros_like(low), self.value(high)
        for _ in range(_HALVINGS):
            p = (left + right) / 2
            below = value - self.value(p) > self.slope(p) * (high - p)
            left, right = np.where(below, p, left), np.where(below, right, p)
        return left


def _sigmoid(t: Array) -> Array:
    small = np.exp(-np.abs(t))
    found: Array = np.where(t >= 0, 1.0, small) / (1.0 + small)
    return found


def _logit_of_slope(a: Array) -> Array:
    """f (1 - f) = a is a quadratic equation for f."""
    a = np.clip(a, 2.0**-1022, 0.25)
    f = 2 * a / (1 + np.sqrt(1 - 4 * a))
    found: Array = np.log(f) - np.log1p(-f)
    return found


@dataclass(frozen=True)
class Sigmoid(SShaped):
    """1 / (1 + exp(-t)), with the derivative f(t) f(-t)."""

    name = "Sigmoid"
    reach = (0.0, 1.0)
    nonnegative = True
    steepest = 0.25

    def value(self, t: Array) -> Array:
        return _sigmoid(t)

    def slope(self, t: Array) -> Array:
        return _sigmoid(t) * _sigmoid(-t)

    def _left(self, a: Array) -> Array:
        return _logit_of_slope(a)


@dataclass(frozen=True)
class Tanh(SShaped):
    """With the derivative 1 / cosh^2, which is four times that of a sigmoid at 2 t."""

    name = "Tanh"
    reach = (-1.0, 1.0)
    steepest = 1.0

    def value(self, t: Array) -> Array:
        return np.tanh(t)

    def slope(self, t: Array) -> Array:
        return 4.0 * _sigmoid(2.0 * t) * _sigmoid(-2.0 * t)

    def _left(self, a: Array) -> Array:
        return _logit_of_slope(a / 4) / 2


@dataclass(frozen=True)
class Exp(Curve):
    """Convex, and its own derivative."""

    name = "Exp"
    nonnegative = True
    reach = (0.0, math.inf)

    def value(self, t: Array) -> Array:
        return np.exp(t)

    def slope(self, t: Array) -> Array:
        return np.exp(t)

    def pieces(self, low: Array, high: Array) -> Iterator[Piece]:
        yield -np.inf, np.inf, True

    def stationary(self, a: Array, piece: Piece) -> Array:
        return np.log(np.maximum(a, 0.0))

    def _one_sided(self, low: Array, high: Array, side: float) -> tuple[Array, Array, Array]:
        return self._within(low, high, np.asarray(side > 0))


@dataclass(frozen=True)
class Log(Curve):
    """Concave, of positive numbers only."""

    name = "Log"
    partial = True

    def value(self, t: Array) -> Array:
        return np.log(t)

    def slope(self, t: Array) -> Array:
        return 1.0 / t

    def usable(self, low: Array, high: Array) -> Array:
        return (low <= high) & (low > 0)

    def pieces(self, low: Array, high: Array) -> Iterator[Piece]:
        yield -np.inf, np.inf, False

    def stationary(self, a: Array, piece: Piece) -> Array:
        return 1.0 / np.maximum(a, 0.0)

    def _one_sided(self, low: Array, high: Array, side: float) -> tuple[Array, Array, Array]:
        return self._within(low, high, np.asarray(side < 0))


@dataclass(frozen=True)
class Softplus(Curve):
    """log(1 + exp(t)) as a sum of two numbers of one sign; convex, and its derivative is a sigmoid."""

    name = "Softplus"
    nonnegative = True
    reach = (0.0, math.inf)

    def value(self, t: Array) -> Array:
        found: Array = np.maximum(t, 0.0) + np.log1p(np.exp(-np.abs(t)))
        return found

    def slope(self, t: Array) -> Array:
        return _sigmoid(t)

    def pieces(self, low: Array, high: Array) -> Iterator[Piece]:
        yield -np.inf, np.inf, True

    def stationary(self, a: Array, piece: Piece) -> Array:
        a = np.clip(a, 0.0, 1.0)
        found: Array = np.log(a) - np.log1p(-a)
        return found

    def _one_sided(self, low: Array, high: Array, side: float) -> tuple[Array, Array, Array]:
        return self._within(low, high, np.asarray(side > 0))


@dataclass(frozen=True)
class Power(Curve):
    """t^p for p = 2 .. 8, -1, -2, 1/2 and -1/2, by products, quotients and roots."""

    exponent: float

    name = "Pow"

    @property
    def whole(self) -> bool:
        return self.exponent == int(self.exponent)

    @property
    def even(self) -> bool:
        return self.exponent % 2 == 0

    @property
    def nonnegative(self) -> bool:  # type: ignore[override]
        return self.even or not self.whole

    @property
    def partial(self) -> bool:  # type: ignore[override]
        return self.exponent < 0 or not self.whole

    def value(self, t: Array) -> Array:
        return self._power(t, self.exponent)

    def slope(self, t: Array) -> Array:
        return self.exponent * self._power(t, self.exponent - 1)

    def _power(self, t: Array, exponent: float) -> Array:
        """At most ten roundings, for exponents down to -3."""
        found = np.ones_like(t)
        for _ in range(int(abs(exponent))):
            found = found * t
        if exponent != int(exponent):
            found = found * np.sqrt(t)
        return 1.0 / found if exponent < 0 else found

    def usable(self, low: Array, high: Array) -> Array:
        if self.exponent > 0:
            return (low <= high) & ((low >= 0) | self.whole)
        return (low <= high) & ((low > 0) | ((high < 0) & self.whole))

    def pieces(self, low: Array, high: Array) -> Iterator[Piece]:
        if self.even and self.exponent > 0:
            yield -np.inf, np.inf, True
            return
        if self.whole:
            yield -np.inf, 0.0, self.even
        yield 0.0, np.inf, not 0 < self.exponent < 1

    def stationary(self, a: Array, piece: Piece) -> Array:
        """p t^(p - 1) = a.  Left of 0 the derivative is that on the right, with the other sign if p is even."""
        ratio, root = a / self.exponent, 1.0 / (self.exponent - 1.0)
        if piece[0] == -np.inf and piece[1] == np.inf:
            return np.sign(ratio) * np.abs(ratio) ** root
        if piece[1] == 0:
            return -(np.maximum(-ratio if self.even else ratio, 0.0) ** root)
        found = np.maximum(ratio, 0.0) ** root
        return found if self.exponent > 1 else np.maximum(found, 2.0**-1022)

    def _one_sided(self, low: Array, high: Array, side: float) -> tuple[Array, Array, Array]:
        if self.whole and self.exponent > 0 and not self.even:
            return super()._one_sided(low, high, side)
        concave = (high < 0) & (not self.even) if self.whole else np.full(low.shape, 0 < self.exponent < 1)
        return self._within(low, high, concave if side < 0 else ~concave)


@dataclass(frozen=True)
class Wave(Curve):
    """Between -1 and 1; `start` is where it bends, and whether it is convex from there on."""

    reach = (-1.0, 1.0)
    strip = STRIP
    start: ClassVar[tuple[float, bool]]

    def covered(self, low: Array, high: Array) -> Array:
        return (low <= high) & (high - low <= PERIOD) & (low >= -FAR) & (high <= FAR)

    def pieces(self, low: Array, high: Array) -> Iterator[Piece]:
        start, convex = self.start
        before = 2 * np.floor((low - start) / (2 * math.pi))
        ends = [start + (before + i) * math.pi for i in range(5)]
        ends[0], ends[-1] = np.minimum(ends[0], low), np.maximum(ends[-1], high)  # whatever was rounded
        for i in range(4):
            yield ends[i], ends[i + 1], convex == (i % 2 == 0)

    def stationary(self, a: Array, piece: Piece) -> Array:
        found: Array = piece[0] + np.arccos(np.clip(-a if piece[2] else a, -1.0, 1.0))
        return found

    def fan(self, bounds: tuple[Array, Array], side: Array) -> tuple[Array, Array, Array]:
        narrow = self.covered(*bounds)
        first, second, third = (np.where(narrow, slope, 0.0) for slope in super().fan(bounds, side))
        return first, second, third


@dataclass(frozen=True)
class Sin(Wave):
    """Concave on [0, pi]."""

    name = "Sin"
    start = (0.0, False)

    def value(self, t: Array) -> Array:
        return np.sin(t)

    def slope(self, t: Array) -> Array:
        return np.cos(t)


@dataclass(frozen=True)
class Cos(Wave):
    """Convex on [pi / 2, 3 pi / 2]."""

    name = "Cos"
    start = (math.pi / 2, True)

    def value(self, t: Array) -> Array:
        return np.cos(t)

    def slope(self, t: Array) -> Array:
        return -np.sin(t)


PRODUCT = Product()
BY_NAME: dict[str, Function] = {f.name: f for f in (Sigmoid(), Tanh(), Exp(), Log(), Softplus(), Sin(), Cos())}
EXPONENTS = (2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, -1.0, -2.0, 0.5, -0.5)
"""Of powers that are known."""
