"""Functions that are convex below zero and concave above it: Sigmoid and Tanh."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch

from verifier.functions.curve import Curve, Piece
from verifier.functions.names import FUNCTIONS, stands_for
from verifier.shapes import Float, Tensor

LOWER, UPPER = Piece(-torch.inf, 0.0, convex=True), Piece(0.0, torch.inf, convex=False)


@dataclass(frozen=True)
class SShaped(Curve):
    """Convex up to 0, then concave; the derivative is even."""

    def pieces(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]) -> tuple[Piece, ...]:
        return LOWER, UPPER

    def stationary(self, a: Float[Tensor, "*axes"], piece: Piece) -> Float[Tensor, "*axes"]:
        return self.left(a) if piece.convex else -self.left(a)

    @abstractmethod
    def left(self, a: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """About the point below 0 at which f' = a."""


@FUNCTIONS.register("Sigmoid")
@stands_for("sigmoid", "special_expit")
@dataclass(frozen=True)
class Sigmoid(SShaped):
    """1 / (1 + exp(-t)), whose derivative is f(t) f(-t)."""

    name = "Sigmoid"
    reach = (0.0, 1.0)

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

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return torch.tanh(t)

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return 4 * torch.sigmoid(2 * t) * torch.sigmoid(-2 * t)

    def left(self, a: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return Sigmoid().left(a / 4) / 2
