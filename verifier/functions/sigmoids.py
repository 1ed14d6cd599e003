"""Functions that are convex below zero and concave above it: Sigmoid, Tanh, Atan, Softsign."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch

from verifier.functions.base import Slopes, moderate
from verifier.functions.curve import Curve, Piece
from verifier.functions.names import FUNCTIONS, stands_for
from verifier.shapes import Float, Tensor

HALVINGS = 20
"""Steps by which a tangent point is found."""

LOWER, UPPER = Piece(-torch.inf, 0.0, convex=True), Piece(0.0, torch.inf, convex=False)


@dataclass(frozen=True)
class SShaped(Curve):
    """Convex up to 0, then concave; the derivative is even, and at 0 it is `steepest`."""

    steepest: ClassVar[float]

    def pieces(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]) -> tuple[Piece, ...]:
        return LOWER, UPPER

    def stationary(self, a: Float[Tensor, "*axes"], piece: Piece) -> Float[Tensor, "*axes"]:
        return self.left(a) if piece.convex else -self.left(a)

    @abstractmethod
    def left(self, a: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """About the point below 0 at which f' = a."""

    def fan(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"], side: float) -> Slopes:
        """Lines below are tangents, up to the one that meets the other end of the curve, or the chord.

        f(-t) is -f(t) but for a constant, so the lines above are those below on the mirrored interval.
        """
        if side < 0:
            low, high = -high, -low
        least, middle, chord = self.slope(low), low / 2 + high / 2, self._chord(low, high)
        p = self._meeting(low.clamp(max=0), high)
        p = torch.where(high <= 0, high, p)
        most = self.slope(p)
        tangents = (low < 0) & (most > least)  # else the chord is below the curve
        found = (least, self.slope(torch.minimum(middle, p)), most)
        return moderate(*(torch.where(tangents, slope, chord) for slope in found))

    def _chord(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        chord = (self.value(high) - self.value(low)) / (high - low)
        return torch.where(low < high, chord, self.slope(low)).clamp(max=self.steepest)

    def _meeting(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """About the point between low and 0 whose tangent meets the curve again at `high`; `low` if there is none.

        What a tangent lies below the curve at `high` falls as its point goes to the right.
        """
        left, right, value = low, torch.zeros_like(low), self.value(high)
        for _ in range(HALVINGS):
            p = (left + right) / 2
            below = value - self.value(p) > self.slope(p) * (high - p)
            left, right = torch.where(below, p, left), torch.where(below, right, p)
        return left


@FUNCTIONS.register("Sigmoid")
@stands_for("sigmoid", "special_expit")
@dataclass(frozen=True)
class Sigmoid(SShaped):
    """1 / (1 + exp(-t)), whose derivative is f(t) f(-t)."""

    name = "Sigmoid"
    reach = (0.0, 1.0)
    steepest = 0.25

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return torch.sigmoid(t)

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return torch.sigmoid(t) * torch.sigmoid(-t)

    def left(self, a: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """f (1 - f) = a is a quadratic equation for f."""
        a = a.clamp(torch.finfo(a.dtype).tiny, 0.25)
        f = 2 * a / (1 + (1 - 4 * a).sqrt())
        return torch.log(f) - torch.log1p(-f)


@FUNCTIONS.register("Tanh")
@stands_for("tanh")
@dataclass(frozen=True)
class Tanh(SShaped):
    """tanh(t), whose derivative 1 / cosh(t)^2 is four times that of a sigmoid at 2 t."""

    name = "Tanh"
    reach = (-1.0, 1.0)
    steepest = 1.0

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return torch.tanh(t)

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return 4 * torch.sigmoid(2 * t) * torch.sigmoid(-2 * t)

    def left(self, a: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return Sigmoid().left(a / 4) / 2


@FUNCTIONS.register("Atan")
@stands_for("atan", "arctan")
@dataclass(frozen=True)
class Atan(SShaped):
    """The arc tangent, whose derivative is 1 / (1 + t^2)."""

    name = "Atan"
    reach = (-1.5708, 1.5708)
    steepest = 1.0

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return torch.atan(t)

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return 1 / (1 + t * t)

    def left(self, a: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return -(1 / a.clamp(0.0, 1.0) - 1).sqrt()


@FUNCTIONS.register("Softsign")
@stands_for("softsign")
@dataclass(frozen=True)
class Softsign(SShaped):
    """t / (1 + |t|), whose derivative is 1 / (1 + |t|)^2."""

    name = "Softsign"
    reach = (-1.0, 1.0)
    steepest = 1.0

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return t / (1 + t.abs())

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return 1 / (1 + t.abs()) ** 2

    def left(self, a: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return 1 - 1 / a.clamp(0.0, 1.0).sqrt()
