"""What local sweeps count from, and what they pay.

Values are counted from a reference: x[j] = r[j] + d[j], where r[j] is what the middle of the box gives, in floats.
Then biases are gone, and a bound is one number minus sums of terms that are not negative:

    s x_hat_i  >=  s r_hat_i - sum |lam| . cost(sign of lam) - |lam[0]| . radius - rounding

with r_hat = W r + b up to the error of one layer, whose price is |mu| times that.  The rounding of a transposed pass is
paired with |d|, which is small where boxes are, and so float32 tells most neurons that are stable from those that are
not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verifier.bounding.core.base import Region
from verifier.bounding.core.rounding import TINY
from verifier.bounding.relaxation.form import growth, unit_roundoff
from verifier.bounding.relaxation.relu import Kinks
from verifier.bounding.solvers.crown import Slope
from verifier.network.network import Affine, Network
from verifier.operators import gamma
from verifier.shapes import Float, Tensor

FEW = 16
"""Roundings around a long sum."""


@dataclass(frozen=True, eq=False)
class Reference:
    """A value of every source, how far from it the source can be, and what a layer makes of that; in float64."""

    x: tuple[Float[Tensor, " _"], ...]
    reach: tuple[Float[Tensor, " _"], ...]  # |x[j] - r[j]| at most
    x_hat: tuple[Float[Tensor, " _"], ...]
    slack: tuple[Float[Tensor, " _"], ...]  # the error of x_hat as a function of x
    spread: tuple[Float[Tensor, " _"], ...]  # sum_j |W_j| reach[j]

    @classmethod
    def of(cls, net: Network, region: Region, layer: int, known: Reference | None = None) -> Reference:
        """Up to that layer; `known` is that of an earlier one.  Require: the groups before it had these bounds."""
        found = cls._begun(net, region) if known is None else known
        for k in range(len(found.x_hat), layer):
            found = found._after(net, k, region.l_hat[k - 1][0], region.u_hat[k - 1][0])
        return found

    @classmethod
    def _begun(cls, net: Network, region: Region) -> Reference:
        middle = region.lower[0] / 2 + region.upper[0] / 2
        reach = _departure(middle, region.lower[0], region.upper[0])
        return cls((), (), (), (), ())._with(net.layers[0], middle, reach)

    def _after(self, net: Network, k: int, low: Float[Tensor, " n"], high: Float[Tensor, " n"]) -> Reference:
        """With group k, whose bounds these are, and the layer behind it."""
        x_hat = self.x_hat[-1]
        x = torch.where(low >= 0, x_hat, x_hat.clamp(min=0) * (high > 0))
        return self._with(net.layers[k], x, _departure(x, low.clamp(min=0), high.clamp(min=0)))

    def _with(self, layer: Affine, value: Float[Tensor, " n"], departure: Float[Tensor, " n"]) -> Reference:
        """With one more source, and the layer that comes next."""
        x, reach = (*self.x, value), (*self.reach, departure)
        error = gamma(layer.depth + FEW)
        slack = error * (_size(layer, x) + layer.bias.abs()) + (2 * layer.bias_error + TINY)
        spread = _size(layer, reach) * (1 + error)
        return Reference(x, reach, (*self.x_hat, layer.forward(x)), (*self.slack, slack), (*self.spread, spread))

    def price(self, layer: Affine, k: int, dtype: torch.dtype, more: int) -> Float[Tensor, " n"]:
        """What rounding can cost per unit of the layer's multiplier, if passes are made in that precision."""
        return growth(layer.depth + more + FEW, dtype) * self.spread[k - 1] + self.slack[k - 1]


@dataclass(frozen=True, eq=False)
class Toll:
    """What a sweep pays at a group, per unit of the coefficient lam of x, and what it goes on with.

    mu = middle lam + half |lam|, for both |lam| + side lam; `both` covers the rounding of mu, and what its pass costs.
    """

    tables: Float[Tensor, "4 n"]  # middle, half, both, side

    @classmethod
    def of(
        cls, kinks: Kinks, x_hat: Float[Tensor, " n"], slope: Slope, price: Float[Tensor, " n"], dtype: torch.dtype
    ) -> Toll:
        """At the given reference, where a unit of mu costs `price`."""
        u, at = unit_roundoff(dtype), x_hat[kinks.index]
        low, high = kinks.l_hat[0, 0], kinks.u_hat[0, 0]
        # The slopes as the floats that are used: any lower one in [0, 1] and any upper one that is large enough.
        lower = slope.choice(kinks).slope[0, 0].to(dtype).double()
        upper = rounded_up(kinks.upper[0, 0], dtype).double()
        below = at.clamp(min=0) - lower * at
        above = upper * (at - low) - at.clamp(min=0)
        error = gamma(FEW) * (at.abs() + low.abs() + high.abs()) + TINY
        below, above = below.clamp(min=0) + error, above.clamp(min=0) + error
        steepest = torch.maximum(lower, upper) + FEW * u
        both = (below + above) / 2 + FEW * u * _departure(at, low, high) + steepest * price[kinks.index]
        tables = torch.stack(
            [
                kinks.passing.index_copy(0, kinks.index, (lower + upper) / 2),
                torch.zeros_like(price).index_copy_(0, kinks.index, (lower - upper) / 2),
                (kinks.passing * price).index_copy(0, kinks.index, both) * (1 + FEW * u),
                torch.zeros_like(price).index_copy_(0, kinks.index, (below - above) / 2),
            ]
        ).to(dtype)
        tables[2] += torch.finfo(dtype).tiny
        return cls(tables)


def rounded_up(values: Float[Tensor, " n"], dtype: torch.dtype) -> Float[Tensor, " n"]:
    """No smaller, in another precision."""
    found = values.to(dtype)
    return torch.where(found.double() < values, torch.nextafter(found, torch.full_like(found, torch.inf)), found)


def _departure(value: Float[Tensor, " n"], low: Float[Tensor, " n"], high: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
    """How far an interval reaches from a value; rounded up."""
    return torch.maximum(high - value, value - low).clamp(min=0) * (1 + 2 * gamma(1))


def _size(layer: Affine, x: Sequence[Tensor]) -> Float[Tensor, " n"]:
    """sum_j |W_j| |x[j]|."""
    total = torch.zeros_like(layer.bias)
    for source, term in layer.terms:
        total = total + term.magnitude(x[source].abs())
    return total
