"""Pre-activation bounds of all groups, from the input box up.

Each group first gets its interval image; neurons that stay ambiguous are then bounded by a linear sweep, and the
better of both is kept.  A group that only reads the input needs no sweep: its interval image is exact.  What is still
ambiguous after that may be bounded once more, by any bounder.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

import torch

from verifier.bounding import HIDDEN
from verifier.bounding.core.base import Bounder, Objective, Region, Until, unit_objectives, widest
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.relaxation.interval import interval_image
from verifier.bounding.solvers.crown import Linear, Slope
from verifier.network.network import Affine, Network
from verifier.processes import spread
from verifier.shapes import Float, Int, Tensor

WORTH_A_FORK = 64 * 2**20
"""Bytes that a group's bounds move, before several processes are faster than one."""

Ends = tuple[Float[Tensor, "D n"], Float[Tensor, "D n"]]


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


class GroupBounds(ABC):
    """Bounds every group of a network over a batch of boxes, one after the other.

    Guarantee: valid bounds.  When the deadline passes, the remaining groups get looser ones, which are valid too.
    """

    def region(self, net: Network, lower: Float[Tensor, "D n0"], upper: Float[Tensor, "D n0"], until: Until) -> Region:
        """The boxes with the bounds of all groups."""
        region = Region(lower, upper)
        for k in range(1, len(net.groups) + 1):
            region = region.extended(*self.group(net, region, k, until))
        return region

    @abstractmethod
    def group(self, net: Network, region: Region, k: int, until: Until) -> Ends:
        """The bounds of group k, given those of all groups before it."""


@dataclass(frozen=True)
class RootBounds(GroupBounds):
    """Interval images and linear sweeps.

    Guarantee: rigorous in float64.  When the deadline passes, the remaining groups keep their interval image.
    """

    method: Intermediate = Intermediate.BEST

    def group(self, net: Network, region: Region, k: int, until: Until) -> Ends:
        low, high = interval_image(net.groups[k - 1], region)
        slope = self.method.slope
        if slope is None or _reads_input_only(net.groups[k - 1]):
            return low, high
        sweep = Sweep.prepare(net, region, k)
        choices = Linear(slope).choices(sweep)

        def bounds(rows: Objective) -> Float[Tensor, "D S"]:
            return sweep.backward(rows, choices).lower

        return _narrowed(k, (low, high), bounds, until, 12 * widest(net, k) * low.element_size() * region.count)


@dataclass(frozen=True, eq=False)
class Known(GroupBounds):
    """Bounds that somebody has computed already, of the same boxes."""

    known: Region

    def group(self, net: Network, region: Region, k: int, until: Until) -> Ends:
        return self.known.l_hat[k - 1].clone(), self.known.u_hat[k - 1].clone()


@dataclass(frozen=True)
class Sharpened(GroupBounds):
    """Other bounds first; then every neuron that is still ambiguous in some box is bounded from both sides.

    Bounds wrap bounds, so several bounders can follow each other, the dearer ones with less left to do.

    requires:   a bounder that is `rigorous`; an iterative one is faster inside of `Certified`
    guarantees: never looser than `base`, given the same bounds of earlier groups; rigorous in float64.  When the
                deadline passes, what `base` found stays
    """

    base: GroupBounds
    bounder: Bounder

    def group(self, net: Network, region: Region, k: int, until: Until) -> Ends:
        low, high = self.base.group(net, region, k, until)
        if _reads_input_only(net.groups[k - 1]):
            return low, high
        alone = until.alone()

        def bounds(rows: Objective) -> Float[Tensor, "D S"]:
            return self.bounder.bound(net, region, rows, alone).lower

        return _narrowed(k, (low, high), bounds, until, 96 * widest(net, k) * low.element_size() * region.count)


def _reads_input_only(group: Affine) -> bool:
    """Then the interval image is exact."""
    return all(source == 0 for source, _ in group.terms)


def _narrowed(
    k: int, ends: Ends, bounds: Callable[[Objective], Float[Tensor, "D S"]], until: Until, bytes_each: int
) -> Ends:
    """The bounds of group k, tightened at the neurons that are ambiguous in some box, as far as time suffices.

    `bounds` gives lower bounds of objectives and needs that many bytes for each neuron.  The neurons are shared by as
    many processes as there may be.
    """
    low, high = ends
    neurons = torch.nonzero(((low < 0) & (high > 0)).any(dim=0)).flatten()
    processes = until.processes if len(neurons) * bytes_each > WORTH_A_FORK else 1
    rounds = math.ceil(len(neurons) / (processes * until.chunk(bytes_each)))
    chunks = neurons.split(math.ceil(len(neurons) / (processes * rounds))) if rounds else ()  # as many for everybody

    def bounded(some: Int[Tensor, " c"]) -> Float[Tensor, "D S"]:
        return bounds(Objective(k, unit_objectives(low.shape[1], some, low)))

    for some, found in zip(chunks, spread(bounded, chunks, processes, until.expired), strict=True):
        if found is not None:
            _intersect(low, high, some, found)
    return low, high


def _intersect(
    low: Float[Tensor, "D n"], high: Float[Tensor, "D n"], neurons: Int[Tensor, " c"], bound: Float[Tensor, "D S"]
) -> None:
    """Tighten in place by bounds of +e_i and -e_i at the given neurons; NaN tightens nothing."""
    below, above = bound[:, : len(neurons)], -bound[:, len(neurons) :]
    low[:, neurons] = torch.where(below > low[:, neurons], below, low[:, neurons])
    high[:, neurons] = torch.where(above < high[:, neurons], above, high[:, neurons])


@HIDDEN.register("best")
def best() -> GroupBounds:
    return RootBounds(Intermediate.BEST)


@HIDDEN.register("crown")
def crown() -> GroupBounds:
    return RootBounds(Intermediate.CROWN)


@HIDDEN.register("interval")
def interval() -> GroupBounds:
    return RootBounds(Intermediate.INTERVAL)


@HIDDEN.register("wong_kolter")
def wong_kolter() -> GroupBounds:
    return RootBounds(Intermediate.WONG_KOLTER)


@HIDDEN.register("paper")
def paper() -> GroupBounds:
    return RootBounds(Intermediate.PAPER)
