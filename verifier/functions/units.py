"""Exponential linear units: Elu, Selu and Celu."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.errors import InputError
from verifier.functions.base import slack
from verifier.functions.curve import Curve, Piece
from verifier.functions.names import FUNCTIONS, stands_for
from verifier.registry import Options
from verifier.shapes import Bool, Float, Tensor

LEFT, RIGHT = Piece(-torch.inf, 0.0, convex=True), Piece(0.0, torch.inf, convex=None)


@dataclass(frozen=True)
class Unit(Curve):
    """gain t from 0 on, and height (exp(t / width) - 1) below it.

    The slope at 0 is that of the left piece; the right one is straight.
    """

    gain: float
    height: float
    width: float

    name = "Unit"

    def __post_init__(self) -> None:
        if not all(0 < number < 2.0**64 for number in (self.gain, self.height, self.width)):
            raise InputError("an exponential linear unit needs positive parameters")

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return torch.where(t > 0, self.gain * t, self.height * torch.expm1(t.clamp(max=0) / self.width))

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return torch.where(t > 0, self.gain, self.height / self.width * torch.exp(t.clamp(max=0) / self.width))

    def slope_error(self, t: Float[Tensor, "*axes"], slope: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """exp magnifies the rounding of its argument by that; beyond 800 nothing is left of it."""
        return slack(slope) * (1 - (t / self.width).clamp(-800, 0))

    def pieces(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]) -> tuple[Piece, ...]:
        return LEFT, RIGHT

    def stationary(self, a: Float[Tensor, "*axes"], piece: Piece) -> Float[Tensor, "*axes"]:
        return self.width * torch.log(a.clamp(min=0) * self.width / self.height)

    def bends(self, low: Float[Tensor, "*batch n"], high: Float[Tensor, "*batch n"]) -> Bool[Tensor, "*batch n"]:
        return (low < high) & (low < 0)


class EluOptions(Options, frozen=True):
    """alpha (exp(t) - 1) below 0."""

    alpha: float = 1.0


class SeluOptions(Options, frozen=True):
    """gamma times Elu."""

    alpha: float = 1.67326319217681884765625
    gamma: float = 1.05070102214813232421875


class CeluOptions(Options, frozen=True):
    """alpha (exp(t / alpha) - 1) below 0."""

    alpha: float = 1.0


@FUNCTIONS.register("Elu", EluOptions)
def elu(options: EluOptions) -> Unit:
    return Unit(1.0, options.alpha, 1.0)


@FUNCTIONS.register("Selu", SeluOptions)
def selu(options: SeluOptions) -> Unit:
    return Unit(options.gamma, options.gamma * options.alpha, 1.0)


@FUNCTIONS.register("Celu", CeluOptions)
def celu(options: CeluOptions) -> Unit:
    return Unit(1.0, options.alpha, options.alpha)


@stands_for("elu")
def elu_of_torch(alpha: float = 1.0) -> Unit:
    return elu(EluOptions(alpha))


@stands_for("selu")
def selu_of_torch() -> Unit:
    """With more digits than ONNX has."""
    return selu(SeluOptions(1.6732632423543772848170429916717, 1.0507009873554804934193349852946))


@stands_for("celu")
def celu_of_torch(alpha: float = 1.0) -> Unit:
    return celu(CeluOptions(alpha))
