"""Powers with a constant exponent: squares, cubes, roots, reciprocals and all others."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import torch

from verifier.errors import InputError
from verifier.functions.base import ULPS, Slopes, slack
from verifier.functions.curve import Curve, Piece
from verifier.functions.names import FUNCTIONS, stands_for
from verifier.registry import Options
from verifier.shapes import Bool, Float, Tensor

LOGARITHMS = 1024
"""No natural logarithm of a float64 is as large."""


class PowerOptions(Options, frozen=True):
    """The exponent, neither 0 nor 1."""

    exponent: float


@FUNCTIONS.register("Pow", PowerOptions)
@dataclass(frozen=True)
class Power(Curve):
    """t ** exponent.

    Whole exponents take all numbers (negative ones: all but 0), others only positive ones (positive ones: 0 too).
    torch knows 2, 3, 1/2, -1/2, -1 and -2 by name, and computes them with a few roundings.
    """

    options: PowerOptions

    name = "Pow"

    def __post_init__(self) -> None:
        if self.exponent in (0.0, 1.0) or not abs(self.exponent) < torch.inf:
            raise InputError(f"a power with the exponent {self.exponent} is no function of this kind")

    @property
    def exponent(self) -> float:
        return float(self.options.exponent)

    @property
    def whole(self) -> bool:
        return self.exponent.is_integer()

    @property
    def even(self) -> bool:
        return self.exponent % 2 == 0

    @property
    def nonnegative(self) -> bool:
        return self.even or not self.whole

    @property
    def partial(self) -> bool:
        return self.exponent < 0 or not self.whole

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return torch.pow(t, self.exponent)

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return self.exponent * torch.pow(t, self.exponent - 1)

    def slope_error(self, t: Float[Tensor, "*axes"], slope: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """Where exponent - 1 is rounded, t ** (exponent - 1) errs by that times the logarithm of t, relatively."""
        less = self.exponent - 1
        exact = Fraction(self.exponent) - 1 == Fraction(less)
        return slack(slope, ulps=ULPS if exact else ULPS + int(LOGARITHMS * (1 + abs(less))))

    def defined(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]) -> Bool[Tensor, "*axes"]:
        if self.exponent > 0:
            return low <= high if self.whole else low >= 0
        return (low > 0) | (high < 0) if self.whole else low > 0

    def pieces(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]) -> tuple[Piece, ...]:
        right = Piece(0.0, torch.inf, convex=not 0 < self.exponent < 1)
        if not self.whole:
            return (right,)
        if self.even and self.exponent > 0:
            return (Piece(-torch.inf, torch.inf, convex=True),)
        return Piece(-torch.inf, 0.0, convex=self.even), right

    def stationary(self, a: Float[Tensor, "*axes"], piece: Piece) -> Float[Tensor, "*axes"]:
        """p t^(p - 1) = a.  Left of 0 the derivative is that on the right, with the other sign if p is even."""
        ratio, root = a / self.exponent, 1 / (self.exponent - 1)
        if piece.low == -torch.inf and piece.high == torch.inf:
            return ratio.sign() * ratio.abs() ** root
        if piece.high == 0:
            return -((-ratio if self.even else ratio).clamp(min=0).abs() ** root)
        found = ratio.clamp(min=0).abs() ** root  # without the sign of a zero
        return found if self.exponent > 1 else found.clamp(min=torch.finfo(a.dtype).tiny)  # no slope at 0

    def fan(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"], side: float) -> Slopes:
        if self.whole and self.exponent > 0 and not self.even:
            return super().fan(low, high, side)  # it may be concave and convex
        concave = (high < 0) & (not self.even) if self.whole else torch.full_like(low, 0 < self.exponent < 1) > 0
        return self.fan_within(low, high, concave if side < 0 else ~concave)


@FUNCTIONS.register("Sqrt")
@stands_for("sqrt")
def square_root() -> Power:
    return Power(PowerOptions(0.5))


@FUNCTIONS.register("Reciprocal")
@stands_for("reciprocal")
def reciprocal() -> Power:
    return Power(PowerOptions(-1.0))


@stands_for("rsqrt")
def reciprocal_root() -> Power:
    return Power(PowerOptions(-0.5))


@stands_for("square")
def square() -> Power:
    return Power(PowerOptions(2.0))
