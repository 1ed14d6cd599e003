"""Exp, Log and Softplus."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from verifier.errors import InputError
from verifier.functions.base import slack
from verifier.functions.curve import OnePiece, Piece
from verifier.functions.names import FUNCTIONS, stands_for
from verifier.shapes import Bool, Float, Tensor


@FUNCTIONS.register("Exp")
@stands_for("exp")
@dataclass(frozen=True)
class Exp(OnePiece):
    """exp(t).  What overflows is no number above, and still has lines below."""

    name = "Exp"
    reach = (0.0, torch.inf)
    convex = True

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return torch.exp(t)

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return torch.exp(t)

    def stationary(self, a: Float[Tensor, "*axes"], piece: Piece) -> Float[Tensor, "*axes"]:
        return torch.log(a.clamp(min=0))


@FUNCTIONS.register("Log")
@stands_for("log")
@dataclass(frozen=True)
class Log(OnePiece):
    """The natural logarithm, of positive numbers only."""

    name = "Log"
    convex = False
    partial = True

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return torch.log(t)

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return 1 / t

    def stationary(self, a: Float[Tensor, "*axes"], piece: Piece) -> Float[Tensor, "*axes"]:
        return 1 / a.clamp(min=0)

    def defined(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]) -> Bool[Tensor, "*axes"]:
        return low > 0


@FUNCTIONS.register("Softplus")
@dataclass(frozen=True)
class Softplus(OnePiece):
    """log(1 + exp(t)) = max(t, 0) + log(1 + exp(-|t|)), a sum of two numbers of one sign; its derivative is a sigmoid.

    What is meant may differ from it by `margin`.
    """

    margin: float = 0.0

    name = "Softplus"
    reach = (0.0, torch.inf)
    convex = True

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return t.clamp(min=0) + torch.log1p(torch.exp(-t.abs()))

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return torch.sigmoid(t)

    def value_error(self, t: Float[Tensor, "*axes"], value: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return slack(value) + self.margin

    def stationary(self, a: Float[Tensor, "*axes"], piece: Piece) -> Float[Tensor, "*axes"]:
        a = a.clamp(0.0, 1.0)
        return torch.log(a) - torch.log1p(-a)


@stands_for("softplus")
def softplus_of_torch(beta: float = 1.0, threshold: float = 20.0) -> Softplus:
    """That of torch is the identity beyond the threshold."""
    if beta != 1:
        raise InputError(f"Softplus is known with beta = 1, not {beta}")
    return Softplus(math.exp(-threshold) * 1.01)
