"""When a subtree deserves tighter, dearer bounds: the estimate of tree sizes.

A tree whose bound rises by `rise` per level closes a parent bound p < 0 after about -p / rise levels, so it has
2^(-p / rise + 1) - 1 nodes.  A tighter method starts `gain` higher.  The subtree is hard if the loose tree is larger by
more than what a node costs more in the tight one.  All sizes are logarithms, so nothing overflows.

source: [SCB] sec:stratified; exponents are at least 1, because a tree has at least one node
"""

from __future__ import annotations

import math

import torch

from verifier.shapes import Bool, Float, Tensor

SMOOTHING = 0.5
"""The weight of the newest improvement in the moving average along a path."""

SLOWEST = 1e-6
"""The least rise per level that is believed, relative to the root's bound."""


def log2_size(lower: Float[Tensor, " D"], rise: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
    """log2 of the nodes of a tree whose root has that bound.  Require: rise > 0."""
    exponent = (1 - lower / rise).clamp(min=1.0)
    return exponent + torch.log2(1 - torch.exp2(-exponent))


def hard(
    lower: Float[Tensor, " D"], rise: Float[Tensor, " D"], gain: Float[Tensor, " D"], cost_ratio: float
) -> Bool[Tensor, " D"]:
    """Which subtrees would be searched faster with the tighter method; never where a number is missing (NaN)."""
    saved = log2_size(lower, rise) - log2_size(lower + gain.clamp(min=0.0), rise)
    return saved > math.log2(cost_ratio)


def smoothed(before: Float[Tensor, " D"], improvement: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
    """The moving average along a path; the first improvement replaces what is not known (NaN)."""
    return torch.where(before.isnan(), improvement, SMOOTHING * improvement + (1 - SMOOTHING) * before)
