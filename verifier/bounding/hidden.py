"""Pre-activation bounds of all groups, from the input box up.

Each group first gets its interval image; neurons that stay ambiguous are then bounded by a linear sweep, and the
better of both is kept.  Neurons that pass may follow: their relaxation is exact, but cuts of later groups read the
boxes of all their inputs.  A group that only reads the input needs no sweep: its interval image is exact.  What is
still ambiguous after that may be bounded once more, by any bounder.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar, runtime_checkable

import torch

from verifier.bounding import HIDDEN
from verifier.bounding.core.base import (
    MEMORY,
    Bound,
    Bounder,
    Objective,
    Region,
    Until,
    together,
    unit_objectives,
    widest,
)
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.relaxation.interval import interval_image
from verifier.bounding.solvers.crown import Linear, Slope
from verifier.network.network import Affine, Network
from verifier.shapes import Float, Int, Tensor

WORTH_SHARING = 64 * 2**20
"""Bytes that a group's bounds move, before several workers are faster than one."""

PASSING = 2**32
"""Bytes that the bounds of a group's passing neurons may move: some 5000 of them in a layer of 8192 neurons."""

Ends = tuple[Float[Tensor, "D n"], Float[Tensor, "D n"]]

Told = Callable[[Ends, Objective, Bound], None]
"""Hears the bounds of a group so far, rows +e_i and -e_i of it, and what was found for these."""

T = TypeVar("T")
R = TypeVar("R")


@runtime_checkable
class Workers(Protocol):
    """Whoever shares the neurons of a group: `count` of them work at the same time."""

    @property
    def count(self) -> int: ...

    def map(self, work: Callable[[T], R], items: Sequence[T], stop: Callable[[], bool]) -> list[R | None]:
        """The result of every item; None for items that were not reached before `stop`."""


class InTurn:
    """One item after the other."""

    count = 1

    def map(self, work: Callable[[T], R], items: Sequence[T], stop: Callable[[], bool]) -> list[R | None]:
        found: list[R | None] = []
        for item in items:
            if stop():
                break
            found.append(work(item))
        return found + [None] * (len(items) - len(found))


IN_TURN = InTurn()


@dataclass(frozen=True)
class GroupBounds(ABC):
    """Bounds every group of a network over a batch of boxes, one after the other.

    Guarantee: valid bounds.  When the deadline passes, the remaining groups get looser ones, which are valid too.
    """

    memory_bytes: int = field(default=MEMORY, kw_only=True)

    @property
    def any_function(self) -> bool:
        """Whether it bounds networks with other functions than ReLUs."""
        return True

    def within(self, memory_bytes: int) -> GroupBounds:
        """The same, holding no more than so many bytes at once."""
        return replace(self, memory_bytes=min(self.memory_bytes, memory_bytes))

    def region(
        self,
        net: Network,
        lower: Float[Tensor, "D n0"],
        upper: Float[Tensor, "D n0"],
        until: Until,
        workers: Workers = IN_TURN,
    ) -> Region:
        """The boxes with the bounds of all groups."""
        region = Region(lower, upper)
        for k in range(1, len(net.groups) + 1):
            region = region.extended(net.groups[k - 1], *self.group(net, region, k, until, workers))
        return region

    @abstractmethod
    def group(self, net: Network, region: Region, k: int, until: Until, workers: Workers = IN_TURN) -> Ends:
        """The bounds of group k, given those of all groups before it."""

    @property
    def first(self) -> GroupBounds:
        """What comes before bounders sharpen it."""
        return self

    def told_of(self, told: Told, change: Callable[[Bounder], Bounder]) -> GroupBounds:
        """The same with other bounders, if it has some; somebody hears what they find."""
        return self

    def _narrowed(self, ends: Ends, neurons: Int[Tensor, " c"], probe: Probe, until: Until, workers: Workers) -> Ends:
        """Tightened at the given neurons, as far as time suffices; the workers share them."""
        low, high = ends
        if len(neurons) * probe.bytes_each <= WORTH_SHARING:
            workers = IN_TURN
        rounds = math.ceil(len(neurons) / (workers.count * together(probe.bytes_each, self.memory_bytes)))
        chunks = neurons.split(math.ceil(len(neurons) / (workers.count * rounds))) if rounds else ()  # equal shares

        def bounded(some: Int[Tensor, " c"]) -> Float[Tensor, "D S"]:
            return probe.bounds(Objective(probe.layer, unit_objectives(low.shape[1], some, low)))

        for some, found in zip(chunks, workers.map(bounded, chunks, until.expired), strict=True):
            if found is not None:
                intersect(low, high, some, found)
        return low, high


@dataclass(frozen=True, eq=False)
class Probe:
    """Gives lower bounds of objectives at a layer, and needs so many bytes for each neuron."""

    layer: int
    bounds: Callable[[Objective], Float[Tensor, "D S"]]
    bytes_each: int


@dataclass(frozen=True)
class RootBounds(GroupBounds):
    """Interval images and, with a slope, linear sweeps; the better of both is kept.

    Groups whose passing neurons would move more than `passing_bytes` keep the interval image of these.

    Guarantee: rigorous in float64.  When the deadline passes, the remaining groups keep their interval image.
    """

    slope: Slope | None = Slope.ADAPTIVE
    passing_bytes: int = 0

    def group(self, net: Network, region: Region, k: int, until: Until, workers: Workers = IN_TURN) -> Ends:
        ends = interval_image(net.groups[k - 1], region)
        if self.slope is None or _reads_input_only(net.groups[k - 1]):
            return ends
        sweep = Sweep.prepare(net, region, k)
        choices = Linear(self.slope).choices(sweep)

        def bounds(rows: Objective) -> Float[Tensor, "D S"]:
            return sweep.backward(rows, choices).lower

        probe = Probe(k, bounds, 12 * widest(net, k) * ends[0].element_size() * region.count)
        passing = _passing(ends)  # in the order that a deadline may cut short: ambiguous neurons first
        ends = self._narrowed(ends, ambiguous(net.groups[k - 1], ends), probe, until, workers)
        if not net.groups[k - 1].function.is_relu or len(passing) * probe.bytes_each > self.passing_bytes:
            return ends
        return self._narrowed(ends, passing, probe, until, workers)


@dataclass(frozen=True, eq=False)
class Known(GroupBounds):
    """Bounds that somebody has computed already, of the same boxes."""

    known: Region

    def group(self, net: Network, region: Region, k: int, until: Until, workers: Workers = IN_TURN) -> Ends:
        return self.known.l_hat[k - 1].clone(), self.known.u_hat[k - 1].clone()


@dataclass(frozen=True)
class Sharpened(GroupBounds):
    """Other bounds first; then every neuron that is still ambiguous in some box is bounded from both sides.

    Bounds wrap bounds, so several bounders can follow each other, the dearer ones with less left to do.

    requires:   a bounder that is `rigorous`; an iterative one is faster inside of `Certified`.  If somebody is `told`
                what is found, the process itself does all the work
    guarantees: never looser than `base`, given the same bounds of earlier groups; rigorous in float64.  When the
                deadline passes, what `base` found stays
    """

    base: GroupBounds
    bounder: Bounder
    told: Told | None = None

    @property
    def any_function(self) -> bool:
        return self.base.any_function and self.bounder.any_function

    @property
    def first(self) -> GroupBounds:
        return self.base.first

    def told_of(self, told: Told, change: Callable[[Bounder], Bounder]) -> GroupBounds:
        return replace(self, base=self.base.told_of(told, change), bounder=change(self.bounder), told=told)

    def group(self, net: Network, region: Region, k: int, until: Until, workers: Workers = IN_TURN) -> Ends:
        ends = self.base.group(net, region, k, until, workers)
        if _reads_input_only(net.groups[k - 1]):
            return ends
        alone = until.alone()

        def bounds(rows: Objective) -> Float[Tensor, "D S"]:
            found = self.bounder.bound(net, region, rows, alone)
            if self.told is not None:
                self.told(ends, rows, found)
            return found.lower

        each = 96 * widest(net, k) * ends[0].element_size() * region.count
        alike = workers if self.told is None else IN_TURN
        return self._narrowed(ends, ambiguous(net.groups[k - 1], ends), Probe(k, bounds, each), until, alike)


def _reads_input_only(group: Affine) -> bool:
    """Then the interval image is exact."""
    return all(source == 0 for source, _ in group.terms)


def ambiguous(group: Affine, ends: Ends) -> Int[Tensor, " c"]:
    """The neurons that are not linear within their bounds in some box."""
    return torch.nonzero(group.function.bends(*ends).any(dim=0)).flatten()


def _passing(ends: Ends) -> Int[Tensor, " c"]:
    """The neurons that are ambiguous in no box, and pass in some."""
    low, high = ends
    return torch.nonzero(((low >= 0) & (high > 0)).any(dim=0) & ~((low < 0) & (high > 0)).any(dim=0)).flatten()


def intersect(
    low: Float[Tensor, "D n"], high: Float[Tensor, "D n"], neurons: Int[Tensor, " c"], bound: Float[Tensor, "D S"]
) -> None:
    """Tighten in place by bounds of +e_i and -e_i at the given neurons; NaN tightens nothing."""
    below, above = bound[:, : len(neurons)], -bound[:, len(neurons) :]
    low[:, neurons] = torch.where(below > low[:, neurons], below, low[:, neurons])
    high[:, neurons] = torch.where(above < high[:, neurons], above, high[:, neurons])


@HIDDEN.register("best_all")
def with_crown_everywhere() -> GroupBounds:
    """Also of neurons that pass: two to six times the sweeps, see docs/measured/search.md."""
    return RootBounds(Slope.ADAPTIVE, PASSING)


@HIDDEN.register("wong_kolter")
def with_wong_kolter() -> GroupBounds:
    return RootBounds(Slope.PARALLEL)


@HIDDEN.register("paper")
def with_wong_kolter_everywhere() -> GroupBounds:
    """Also of neurons that pass ([SCB] sec:intermediate)."""
    return RootBounds(Slope.PARALLEL, PASSING)


@HIDDEN.register("interval")
def intervals() -> GroupBounds:
    return RootBounds(None)
