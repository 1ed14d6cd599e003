"""Clipping: a box shrinks to the part in which rows can still be violated.

A clause needs all of its rows at or below zero, and each row lies above a plane.  So an unsafe point of the box
satisfies slope . x + offset <= 0, and for every input i

    slope_i x_i <= -offset - (least value of the other terms over the box).

requires:   planes that include all rounding errors
guarantees: what is cut off holds no unsafe point; limits are rounded outward, and what is not finite cuts nothing
source:     contraction of boxes by linear constraints, as in "Clip-and-Verify" (2025) and older interval methods
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.bounding.core.closing import crossed
from verifier.bounding.core.rounding import TINY
from verifier.operators import gamma
from verifier.shapes import Bool, Float, Int, Tensor

Box = tuple[Float[Tensor, "P n0"], Float[Tensor, "P n0"]]
Parents = tuple[Float[Tensor, "D n0"], Float[Tensor, "D n0"]]


PASSES = 3
"""How often several planes clip a box: what one of them leaves, the others may clip further."""


def clipped(box: Box, slope: Float[Tensor, "P S n0"], offset: Float[Tensor, "P S"], slack: float = 0.0) -> Box:
    """What all planes of a box leave of it.  Where nothing is left, some upper end lies below its lower one.

    What is cut off is above zero by at least `slack` times the magnitude of the plane's terms.  One plane alone never
    finds more in a second pass, because its least corner stays.
    """
    for _ in range(PASSES if slope.shape[1] > 1 else 1):
        box = _clipped_once(box, slope, offset, slack)
    return box


@dataclass(frozen=True, eq=False)
class Clipping:
    """What was left of some boxes after each pass, and which planes of their parts it took."""

    boxes: tuple[Parents, ...]
    used: Bool[Tensor, "P S"]


def clipped_in_steps(
    box: Parents,
    planes: tuple[Float[Tensor, "P S n0"], Float[Tensor, "P S"]],
    of: Int[Tensor, " P"],
    slack: float,
) -> Clipping:
    """The same for whoever wants to see every step: planes (slope, offset) of part i clip box of[i].

    Each pass begins with the hull that the one before it has left, so that whatever an end cuts off lies above one used
    plane of every part.  A part of which its planes together leave nothing stays whole: none of them shows it alone.
    """
    slope, offset = planes
    left, used = list[Parents](), torch.zeros_like(offset, dtype=torch.bool)
    for _ in range(PASSES if slope.shape[1] > 1 else 1):
        start, stop = (side[of] for side in box)
        below, above = _limits((start, stop), slope, offset, slack)
        low, high = below.amax(dim=1), above.amin(dim=1)
        whole = crossed(low, high).any(dim=1, keepdim=True)
        low, high = torch.where(whole, start, low), torch.where(whole, stop, high)
        box, _ = hull(box, (low, high), of)
        first, last = ((end.unsqueeze(1), side.unsqueeze(1)) for end, side in ((low, start), (high, stop)))
        cuts = ((below == first[0]) & (below > first[1])) | ((above == last[0]) & (above < last[1]))
        used |= cuts.any(dim=-1)
        left.append(box)
    return Clipping(tuple(left), used)


def _clipped_once(box: Box, slope: Float[Tensor, "P S n0"], offset: Float[Tensor, "P S"], slack: float) -> Box:
    below, above = _limits(box, slope, offset, slack)
    return below.amax(dim=1), above.amin(dim=1)


def _limits(
    box: Box, slope: Float[Tensor, "P S n0"], offset: Float[Tensor, "P S"], slack: float
) -> tuple[Float[Tensor, "P S n0"], Float[Tensor, "P S n0"]]:
    """The ends that each plane leaves."""
    low, high = (side.unsqueeze(1) for side in box)
    least = torch.minimum(slope * low, slope * high)
    total = least.sum(dim=-1, keepdim=True) + offset.unsqueeze(-1)
    size = least.abs().sum(dim=-1, keepdim=True) + offset.abs().unsqueeze(-1)
    room = least - total + (gamma(slope.shape[-1] + 16) + slack) * size + TINY
    # The quotient is one more rounding, which the slack covers: |room| is at most `size`.  Where the slope is zero or
    # tiny the quotient overflows or is NaN, and cuts nothing; so does whatever overflowed before, because then `size`
    # is infinite.  A quotient that underflows has lost up to `least_float`.
    limit, least_float = room / slope, torch.finfo(slope.dtype).tiny
    cuts = torch.isfinite(limit)
    below = torch.where(cuts & (slope < 0), torch.maximum(limit - least_float, low), low)
    above = torch.where(cuts & (slope > 0), torch.minimum(limit + least_float, high), high)
    return below, above


def hull(box: Parents, parts: Box, of: Int[Tensor, " P"]) -> tuple[Parents, Bool[Tensor, " D"]]:
    """The smallest boxes around parts, and which boxes have any; the others stay as they are.

    Part i belongs to box of[i].  Parts without a point do not count.
    """
    low, high = parts
    left = ~crossed(low, high).any(dim=1, keepdim=True)
    place = of.unsqueeze(1).expand_as(low)
    start = torch.full_like(box[0], torch.inf).scatter_reduce(0, place, low.where(left, torch.inf), "amin")
    stop = torch.full_like(box[1], -torch.inf).scatter_reduce(0, place, high.where(left, -torch.inf), "amax")
    some = torch.zeros(len(start), dtype=torch.bool, device=low.device).index_put((of[left[:, 0]],), left.new_ones(()))
    return (start.where(some[:, None], box[0]), stop.where(some[:, None], box[1])), some
