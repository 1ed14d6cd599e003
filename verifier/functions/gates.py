"""SiLU (Swish), Mish and HardSwish: the argument times a gate."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.errors import InputError
from verifier.functions.base import slack, underflow
from verifier.functions.bumps import Bump
from verifier.functions.curve import Curve, Piece
from verifier.functions.names import FUNCTIONS, stands_for
from verifier.registry import Options
from verifier.shapes import Bool, Float, Tensor


class SwishOptions(Options, frozen=True):
    """t sigmoid(alpha t)."""

    alpha: float = 1.0


@FUNCTIONS.register("Swish", SwishOptions)
def swish(options: SwishOptions) -> SiLU:
    if options.alpha != 1:
        raise InputError(f"Swish is known with alpha = 1, not {options.alpha}")
    return SiLU()


@stands_for("silu")
@dataclass(frozen=True)
class SiLU(Bump):
    """t sigmoid(t).  f'' has the sign of 2 - t tanh(t / 2)."""

    name = "SiLU"
    reach = (-0.279, torch.inf)
    inflections = (-2.3993572805154675, 2.3993572805154675)

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return t * torch.sigmoid(t)

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        gate = torch.sigmoid(t)
        return gate + t * gate * torch.sigmoid(-t)

    def value_error(self, t: Float[Tensor, "*axes"], value: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """What underflows in the gate is multiplied with t."""
        return slack(value) + underflow(t)

    def slope_error(self, t: Float[Tensor, "*axes"], slope: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        gate = torch.sigmoid(t)
        return slack(gate, t * gate * torch.sigmoid(-t)) + underflow(t)


@FUNCTIONS.register("Mish")
@stands_for("mish")
@dataclass(frozen=True)
class Mish(Bump):
    """t tanh(log(1 + exp(t))): with w = exp(-|t|), the gate is a quotient of polynomials in w that do not cancel."""

    name = "Mish"
    reach = (-0.309, torch.inf)
    inflections = (-2.256376396360793, 1.4905711794854284)

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return t * self._gate(t)

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return self._gate(t) + t * self._opening(t)

    def value_error(self, t: Float[Tensor, "*axes"], value: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return slack(value, ulps=16) + underflow(t)

    def slope_error(self, t: Float[Tensor, "*axes"], slope: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return slack(self._gate(t), t * self._opening(t), ulps=16) + underflow(t)

    def _gate(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        w = torch.exp(-t.abs())
        return torch.where(t > 0, (1 + 2 * w) / (1 + 2 * w * (1 + w)), w * (w + 2) / (w * (w + 2) + 2))

    def _opening(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """The derivative of the gate."""
        w = torch.exp(-t.abs())
        above, below = 1 + 2 * w * (1 + w), w * (w + 2) + 2
        return 4 * w * (1 + w) * torch.where(t > 0, w / (above * above), 1 / (below * below))


EDGE = 3.0


@FUNCTIONS.register("HardSwish")
@stands_for("hardswish")
@dataclass(frozen=True)
class HardSwish(Curve):
    """t min(max(t + 3, 0), 6) / 6: zero, a parabola, the identity.

    Its kinks at -3 and 3 lie between pieces; the slope there is that of the parabola.
    """

    name = "HardSwish"
    reach = (-0.375, torch.inf)

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return torch.where(t > EDGE, t, t * (t.clamp(min=-EDGE) + EDGE) / 6)

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        outside = (t > EDGE).to(t.dtype)
        return torch.where(t.abs() <= EDGE, (2 * t + EDGE) / 6, outside)

    def pieces(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]) -> tuple[Piece, ...]:
        return Piece(-torch.inf, -EDGE, None), Piece(-EDGE, EDGE, True), Piece(EDGE, torch.inf, None)

    def stationary(self, a: Float[Tensor, "*axes"], piece: Piece) -> Float[Tensor, "*axes"]:
        return (6 * a - EDGE) / 2

    def bends(self, low: Float[Tensor, "*batch n"], high: Float[Tensor, "*batch n"]) -> Bool[Tensor, "*batch n"]:
        return (low < high) & (low < EDGE) & (high > -EDGE)
