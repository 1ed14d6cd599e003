"""When a bound proves something: the only place that says so.

A rigorous bound is a finite number or -inf, which says nothing.  `settled` makes it one: whatever overflowed on the way
has left an infinity or a NaN behind, because sums and products never turn these into numbers again.
"""

from __future__ import annotations

import torch

from verifier.bounding.core.rounding import MARGIN, UNDERFLOW, round_up
from verifier.shapes import Bool, Float, Tensor


def settled(value: Float[Tensor, "*axes"], error: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """The lower bound that is left of a value whose rounding can have added up to `error`; -inf where that is none.

    Requires: numbers inside of the error model's range (`network.magnitudes`).  What underflows is subtracted here.
    """
    lower = value - round_up(error, MARGIN) - UNDERFLOW
    return torch.where(torch.isfinite(lower), lower, -torch.inf)


def closes(lower: Float[Tensor, "*axes"]) -> Bool[Tensor, "*axes"]:
    """Which rigorous lower bounds show that nothing is unsafe: numbers above zero.  Exactly zero proves nothing."""
    return torch.isfinite(lower) & (lower > 0)


def crossed(low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]) -> Bool[Tensor, "*axes"]:
    """Where rigorous bounds contradict each other, so that nothing lies between them."""
    return torch.isfinite(low) & torch.isfinite(high) & (low > high)
