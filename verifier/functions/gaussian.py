"""Erf, and Gelu in both of its forms."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from verifier.functions.base import Function, slack, underflow
from verifier.functions.bumps import Bump
from verifier.functions.names import FUNCTIONS, stands_for
from verifier.functions.sigmoids import SShaped
from verifier.registry import Literal, Options
from verifier.shapes import Float, Tensor

PEAK = 2 / math.sqrt(math.pi)
"""The derivative of Erf at 0."""


@FUNCTIONS.register("Erf")
@stands_for("erf", "special_erf")
@dataclass(frozen=True)
class Erf(SShaped):
    """The error function."""

    name = "Erf"
    reach = (-1.0, 1.0)
    steepest = PEAK

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return torch.erf(t)

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return PEAK * torch.exp(-t * t)

    def slope_error(self, t: Float[Tensor, "*axes"], slope: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """The rounding of t^2 is magnified by exp; beyond 30 nothing is left of either."""
        return slack(slope) * (1 + t.clamp(-30, 30) ** 2)

    def left(self, a: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return -(-torch.log((a / PEAK).clamp(0.0, 1.0))).sqrt()


class GeluOptions(Options, frozen=True):
    """Exact, or the form with tanh."""

    approximate: Literal["none", "tanh"] = "none"


@FUNCTIONS.register("Gelu", GeluOptions)
def gelu(options: GeluOptions) -> Function:
    return Gelu() if options.approximate == "none" else GeluTanh()


@stands_for("gelu")
def gelu_of_torch(approximate: Literal["none", "tanh"] = "none") -> Function:
    return gelu(GeluOptions(approximate))


@dataclass(frozen=True)
class Gelu(Bump):
    """t F(t), with F the distribution of a standard normal variable.

    Below 0 the usual formula with 1 + erf cancels; erfc does not.  f'' is (2 - t^2) times the density of F.
    """

    name = "Gelu"
    reach = (-0.17, torch.inf)
    inflections = (-math.sqrt(2), math.sqrt(2))

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return t * self._share(t)

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return self._share(t) + t * self._density(t)

    def value_error(self, t: Float[Tensor, "*axes"], value: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """Below 0, erfc magnifies the rounding of its argument by t^2; beyond 60 nothing is left of it."""
        return slack(value) * (1 + t.clamp(-60, 0) ** 2)

    def slope_error(self, t: Float[Tensor, "*axes"], slope: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        share = self._share(t) * (1 + t.clamp(-60, 0) ** 2)
        return slack(share, t * self._density(t) * (1 + t.clamp(-60, 60) ** 2))

    def _share(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return torch.erfc(t * -math.sqrt(0.5)) / 2

    def _density(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return torch.exp(t * t / -2) / math.sqrt(2 * math.pi)


@dataclass(frozen=True)
class GeluTanh(Bump):
    """t (1 + tanh(g(t))) / 2 = t sigmoid(2 g(t)) with g(t) = sqrt(2 / pi) (t + 0.044715 t^3)."""

    name = "GeluTanh"
    reach = (-0.18, torch.inf)
    inflections = (-1.4185040087908283, 1.4185040087908283)

    def value(self, t: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
        return t * torch.sigmoid(self._argument(t))

    def slope(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        first, second = self._parts(t)
        return first + second

    def value_error(self, t: Float[Tensor, "*axes"], value: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        """Below 0, the sigmoid magnifies the rounding of its argument by that; what underflows is multiplied by t."""
        return slack(value, ulps=16) * (1 - self._argument(t).clamp(-800, 0)) + underflow(t)

    def slope_error(self, t: Float[Tensor, "*axes"], slope: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        gate, rest = self._parts(t)
        argument = self._argument(t).clamp(-800, 800)
        return slack(gate * (1 - argument.clamp(max=0)), rest * (1 + argument.abs()), ulps=16) + underflow(t**3)

    def _argument(self, t: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
        return 2 * math.sqrt(2 / math.pi) * (t + 0.044715 * t * t * t)

    def _parts(self, t: Float[Tensor, "*axes"]) -> tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"]]:
        """Of the derivative."""
        gate = torch.sigmoid(self._argument(t))
        steepness = 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * t * t)
        return gate, t * gate * torch.sigmoid(-self._argument(t)) * steepness
