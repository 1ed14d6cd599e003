"""Clipping: a box shrinks to the part in which rows can still be violated.

A clause needs all of its rows at or below zero, and each row lies above a plane.  So an unsafe point of the box
satisfies slope . x + offset <= 0, and for every input i

    slope_i x_i <= -offset - (least value of the other terms over the box).

requires:   planes that include all rounding errors (`planes`)
guarantees: what is cut off holds no unsafe point; limits are rounded outward
source:     linear constraint-driven contraction of boxes, as in "Clip-and-Verify" (2025) and older interval methods
"""

from __future__ import annotations

import torch

from verifier.operators import gamma
from verifier.shapes import Bool, Float, Tensor


def clipped(
    box: tuple[Float[Tensor, "D n0"], Float[Tensor, "D n0"]],
    slope: Float[Tensor, "D S n0"],
    offset: Float[Tensor, "D S"],
    owner: Bool[Tensor, "D C S"],
) -> tuple[Float[Tensor, "D n0"], Float[Tensor, "D n0"]]:
    """The hull of what the clauses leave of each box; a clause leaves what all planes that it owns leave.

    A clause that owns nothing is decided and leaves nothing.  Where nothing at all is left, some upper end lies below
    its lower one.
    """
    low, high = (side.unsqueeze(1) for side in box)
    least = torch.minimum(slope * low, slope * high)
    total = least.sum(dim=-1, keepdim=True) + offset.unsqueeze(-1)
    size = least.abs().sum(dim=-1, keepdim=True) + offset.abs().unsqueeze(-1)
    room = least - total + gamma(slope.shape[-1] + 16) * size
    # The quotient is one more rounding; where the slope is zero or tiny it may overflow, and then cuts nothing.
    limit = room / slope
    limit = limit + 4 * torch.finfo(limit.dtype).eps * limit.abs() * slope.sign()
    below = torch.where(slope < 0, torch.fmax(limit, low), low)
    above = torch.where(slope > 0, torch.fmin(limit, high), high)
    new_low, new_high = torch.full_like(box[0], torch.inf), torch.full_like(box[1], -torch.inf)
    for own in owner.unbind(dim=1):
        mine = own.unsqueeze(-1)
        start = below.masked_fill(~mine, -torch.inf).amax(dim=1)
        stop = above.masked_fill(~mine, torch.inf).amin(dim=1)
        left = own.any(dim=1, keepdim=True) & (start <= stop).all(dim=1, keepdim=True)
        new_low = torch.where(left, torch.minimum(new_low, start), new_low)
        new_high = torch.where(left, torch.maximum(new_high, stop), new_high)
    return new_low, new_high
