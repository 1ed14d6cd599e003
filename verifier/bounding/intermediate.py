"""Pre-activation bounds of all groups, from the input box up.

Each group first gets its interval image; neurons that stay ambiguous are then bounded by a linear sweep, and the
better of both is kept.  A group that only reads the input needs no sweep: its interval image is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch

from verifier.bounding.base import Objective, Region, Until, unit_objectives, widest
from verifier.bounding.interval import interval_image
from verifier.bounding.linear import Linear, Slope
from verifier.bounding.sweep import Choice, Sweep
from verifier.network.network import Network
from verifier.shapes import Float, Int, Tensor


class Intermediate(Enum):
    """Which bounds the groups get."""

    INTERVAL = "interval"
    CROWN = "crown"
    WONG_KOLTER = "wong_kolter"
    BEST = "best"
    PAPER = "paper"

    @property
    def slope(self) -> Slope | None:
        if self is Intermediate.INTERVAL:
            return None
        return Slope.PARALLEL if self in (Intermediate.WONG_KOLTER, Intermediate.PAPER) else Slope.ADAPTIVE


@dataclass(frozen=True)
class RootBounds:
    """Bounds every group of a network over a batch of boxes.

    Guarantee: valid bounds, rigorous in float64.  When the deadline passes, the remaining groups keep their interval
    image, which is valid too.
    """

    method: Intermediate = Intermediate.BEST

    def region(self, net: Network, lower: Float[Tensor, "D n0"], upper: Float[Tensor, "D n0"], until: Until) -> Region:
        region = Region(lower, upper)
        slope = self.method.slope
        for k, group in enumerate(net.groups, start=1):
            low, high = interval_image(group, region)
            reads_input_only = all(source == 0 for source, _ in group.terms)
            if slope is not None and not reads_input_only and not until.expired():
                low, high = _sharpen(net, region, k, (low, high), Linear(slope), until)
            region = region.extended(low, high)
        return region


def _sharpen(
    net: Network, region: Region, k: int, interval: tuple[Tensor, Tensor], linear: Linear, until: Until
) -> tuple[Tensor, Tensor]:
    """The better of the interval image and a linear sweep, for neurons that are ambiguous in some box."""
    low, high = interval
    neurons = torch.nonzero(((low < 0) & (high > 0)).any(dim=0)).flatten()
    if not len(neurons):
        return interval
    low, high = low.clone(), high.clone()
    sweep = Sweep.prepare(net, region, k)
    choices = linear.choices(sweep)
    chunk = until.chunk(12 * widest(net, k) * low.element_size() * region.count)
    for start in range(0, len(neurons), chunk):
        if until.expired():
            break
        _intersect(sweep, choices, neurons[start : start + chunk], low, high)
    return low, high


def _intersect(
    sweep: Sweep, choices: tuple[Choice, ...], neurons: Int[Tensor, " c"], low: Tensor, high: Tensor
) -> None:
    """Tighten `low` and `high` in place at the given neurons."""
    rows = unit_objectives(low.shape[1], neurons, low)
    bound = sweep.backward(Objective(sweep.layer, rows), choices).lower
    low[:, neurons] = torch.maximum(low[:, neurons], bound[:, : len(neurons)])
    high[:, neurons] = torch.minimum(high[:, neurons], -bound[:, len(neurons) :])
