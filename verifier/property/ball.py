"""Balls: the points whose weighted distance from a centre is at most a radius, in the Euclidean or in the sum norm.

An input set of a property is a box, and may be the part of a box that lies in a ball.  Balls in the maximum norm are
boxes, so there are none of them here.

requires:   numbers of any kind; a float stands for itself
guarantees: membership is decided in rational arithmetic; the floats for proofs describe a ball that contains this one
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifier.errors import InputError
from verifier.property.numbers import enclosure, upward

NORMS = {"1": 1, "2": 2}
"""The norms that are no boxes, by the names that users give them."""

STEPS_BACK = (0.0, *(2.0**-k for k in (40, 24, 20, 16, 12, 9, 6)))
"""Shares of the way to the centre by which a point is moved until it lies inside for certain."""


def norm_number(norm: object) -> int | None:
    """1 or 2, or None for the maximum norm; given as a number or as text.  Raises InputError for other norms."""
    name = str(norm).removesuffix(".0") if isinstance(norm, str | int | float) and not isinstance(norm, bool) else ""
    if name in ("inf", "infinity", "linf"):
        return None
    if name.removeprefix("l") not in NORMS:
        raise InputError(f"norm is {norm!r}; there are 'inf', 2 and 1")
    return NORMS[name.removeprefix("l")]


@dataclass(frozen=True)
class Ball:
    """All x with norm(weight (x - centre)) <= radius, entry by entry weighted, in norm 1 or 2."""

    norm: int
    centre: tuple[Fraction, ...]
    weight: tuple[Fraction, ...]
    radius: Fraction

    def __post_init__(self) -> None:
        if self.norm not in NORMS.values():
            raise ValueError(f"norm {self.norm} is none of {sorted(NORMS.values())}")
        if len(self.centre) != len(self.weight):
            raise ValueError(f"{len(self.centre)} centres and {len(self.weight)} weights")
        if self.radius < 0 or any(w <= 0 for w in self.weight):
            raise InputError("a ball needs a radius that is not negative, and positive weights")

    def holds(self, x: Sequence[Fraction]) -> bool:
        """Whether a point lies inside, without any rounding."""
        parts = (abs(w * (v - c)) for v, c, w in zip(x, self.centre, self.weight, strict=True))
        if self.norm == 1:
            return sum(parts, Fraction(0)) <= self.radius
        return sum((part * part for part in parts), Fraction(0)) <= self.radius**2

    def inside(self, x: NDArray[np.floating], ends: tuple[NDArray[np.floating], NDArray[np.floating]]) -> Any:
        """The point itself if it lies inside, else one of the same precision that does and is a little nearer to the
        centre, between both ends; the point itself if none is found.
        """
        if self.holds([Fraction(v) for v in x.tolist()]):
            return x
        centre, weight, radius = self.enclosing
        away = x.astype(np.float64) - centre
        length = float(np.linalg.norm(weight * away, self.norm))
        for back in STEPS_BACK:
            share = (1.0 - back) * min(1.0, radius / length)
            point = np.clip(_towards(centre, centre + share * away, x.dtype), *ends)
            if self.holds([Fraction(v) for v in point.tolist()]):
                return point
        return x

    @cached_property
    def enclosing(self) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
        """Centre, weights and radius in float64 of a ball that contains this one.

        Weights are rounded down.  The radius grows by the distance of the two centres, which is at most the sum of the
        distances of their entries in either norm.
        """
        centre, weight = [float(c) for c in self.centre], [enclosure(w)[0] for w in self.weight]
        moved = (abs(Fraction(w) * (Fraction(a) - c)) for a, c, w in zip(centre, self.centre, weight, strict=True))
        return np.array(centre), np.array(weight), upward(self.radius + sum(moved, Fraction(0)))


def _towards(centre: NDArray[np.float64], point: NDArray[np.float64], dtype: np.dtype[Any]) -> NDArray[np.floating]:
    """The point in another precision, rounded towards the centre."""
    near: NDArray[np.floating] = point.astype(dtype)
    far = np.abs(near.astype(np.float64) - centre) > np.abs(point - centre)
    return np.where(far, np.nextafter(near, centre.astype(dtype)), near)
