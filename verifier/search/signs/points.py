"""Splits at points: how the children of domains differ where a neuron is no ReLU.

A ReLU is split by its sign, once.  Any other neuron is split at a point c of its range, as often as it pays: one child
has t <= c, the other one t >= c.  Both are bounds of the domain and no signs; points are numbers of float32, in which
bounds of domains are kept, so that siblings meet at the same number.

requires:   bounds of the parents in float32, valid on them
guarantees: the two children of a split cover their parent
"""

from __future__ import annotations

import torch

from verifier.shapes import Bool, Float, Int8, Tensor

NARROWEST = 2.0**-18
"""Intervals that are narrower than this share of their ends are not split: float32 hardly has a number inside."""

RANGE = 2.0**-100, 2.0**100
"""Widths of intervals that may be split."""

MIDDLE = 0.7
"""How much a point is drawn from where the relaxation has its minimiser to the middle of the interval."""

BORDER = 0.15
"""The least share of an interval that each child gets."""


def wide(low: Float[Tensor, "D A"], high: Float[Tensor, "D A"]) -> Bool[Tensor, "D A"]:
    """Which intervals have a point to be split at."""
    width = high - low
    size = torch.maximum(low.abs(), high.abs())
    return (width > NARROWEST * size) & (width > RANGE[0]) & (width < RANGE[1])


def shares(low: Float[Tensor, "D A"], high: Float[Tensor, "D A"], x_hat: Float[Tensor, "D A"]) -> Float[Tensor, "D A"]:
    """Where to split each interval, as a share of its width, given the values that the minimiser has."""
    share = ((x_hat - low) / (high - low)).nan_to_num(0.5, 0.5, 0.5).clamp(0.0, 1.0)
    return torch.lerp(share, torch.full_like(share, 0.5), MIDDLE).clamp(BORDER, 1.0 - BORDER)


def points(bounds: Float[Tensor, "D B"], share: Float[Tensor, "D A"]) -> Float[Tensor, "D A"]:
    """The points that such shares mean; in the precision of the bounds."""
    low, high = bounds.chunk(2, dim=1)
    return torch.minimum(torch.maximum(low + share.to(low.dtype) * (high - low), low), high)


def halves(bounds: Float[Tensor, "D B"], side: Int8[Tensor, "D A"], at: Float[Tensor, "D A"]) -> Float[Tensor, "D B"]:
    """The bounds of children: below the points where the side is -1, above them where it is 1."""
    low, high = bounds.chunk(2, dim=1)
    return torch.cat([torch.where(side > 0, at, low), torch.where(side < 0, at, high)], dim=1)
