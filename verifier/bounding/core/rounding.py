"""How far a float64 evaluation can be from the exact one.

A bound that closes a problem is the computed value minus everything that rounding can have added to it.  All of it
is collected in two places: `layer_slack`, which prices one unit of a layer's multiplier, and the magnitude of the
terms that are summed directly.  Both are sums of absolute values times Higham's gamma_n; what underflows is paid for
with the two constants below, which suffice for networks inside of the range of `network.magnitudes`; see
docs/numerics.md.
"""

from __future__ import annotations

import torch

from verifier.bounding.core.base import Region
from verifier.network.network import Affine
from verifier.operators import UNIT_ROUNDOFF, gamma
from verifier.shapes import Float, Tensor

MARGIN = 32
"""Added to every rounding depth: covers the few scalar operations around each long sum."""

TINY = 2.0**-550
"""What underflow can cost one entry of a layer: up to 2^72 results below 2^-1022, magnified by weights up to 2^400."""

UNDERFLOW = 2.0**-500
"""What it can cost a bound besides: 2^122 results below 2^-1022, each against a value of at most 2^400."""


def source_magnitude(region: Region, j: int) -> Float[Tensor, "D _"]:
    """max |x[j]| over the region, entry by entry."""
    low, high = region.source(j)
    return torch.maximum(low.abs(), high.abs())


def layer_magnitude(layer: Affine, region: Region) -> Float[Tensor, "D n"]:
    """sum_j |W_j| max|x[j]| + |b|: no partial sum of the layer can be larger."""
    total = layer.bias.abs().expand(region.count, -1)
    for source, term in layer.terms:
        total = total + term.magnitude(source_magnitude(region, source))
    return total


def layer_slack(layer: Affine, region: Region, length: int) -> Float[Tensor, "D n"]:
    """What rounding can cost per unit of the layer's multiplier mu.

    Covers, for any |x[j]| within the region's boxes: the error of W^T mu against x, of mu . b over `length` terms,
    of mu itself (one rounding, against x_hat), and of the bias that the front end folded.  It is never zero, so that a
    multiplier that is not finite leaves no finite bound.
    """
    depth = layer.depth + length + MARGIN
    return gamma(depth) * layer_magnitude(layer, region) + (2.0 * layer.bias_error + TINY)


def round_up(value: Tensor, roundings: int = 4) -> Tensor:
    """At least the exact value of a non-negative number computed with that many roundings."""
    return value * (1.0 + 2.0 * roundings * UNIT_ROUNDOFF)


def float32_below(lower: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """The largest float32 that is no more than each number; NaN stays NaN."""
    near = lower.to(torch.float32)
    below = torch.nextafter(near, torch.full_like(near, -torch.inf))
    return torch.where(near.to(lower.dtype) > lower, below, near)
