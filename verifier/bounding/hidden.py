"""Pre-activation bounds of all groups, from the input box up.

Each group first gets its interval image; neurons that stay ambiguous are then bounded by a linear sweep, and the
better of both is kept.  Neurons that pass may follow: their relaxation is exact, but cuts of later groups read the
boxes of all their inputs.  A group that reads only the input, and by a map that is not composed, needs no
sweep: its interval image is exact.  What is still ambiguous after that may be bounded once more, by any bounder.
Entries of x_hat that are the same, as the factors of products of matrices are, are bounded once.
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
from verifier.bounding.rations import Rations
from verifier.bounding.relaxation.interval import interval_image
from verifier.bounding.relaxation.smooth import Smooth
from verifier.bounding.solvers.crown import Linear, Slope
from verifier.network.network import Affine, Network
from verifier.operators.alike import Alike
from verifier.shapes import Float, Int, Tensor

WORTH_SHARING = 64 * 2**20
"""Bytes that a group's bounds move, before several workers are faster than one."""

PASSING = 2**32
"""Bytes that the bounds of a group's passing neurons may move: some 5000 of them in a layer of 8192 neurons."""

LITTLE_WORK = 2**25
"""Entries that the sweeps of a group may touch, before somebody asks what they are good for: some seconds."""

LITTLE_LOSS = 0.2
"""The part of the whole loss up to which better bounds of a group are not worth their sweeps."""

FAR = 8.0
"""How many times the value of a row its relaxation may lose, before the part of each group in it says nothing."""

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
        return self.completed(net, Region(lower, upper), until, workers)

    def completed(self, net: Network, inputs: Region, until: Until, workers: Workers = IN_TURN) -> Region:
        """Input sets, of which no group is known yet, with the bounds of all groups."""
        region = inputs
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

    def for_rows(
        self, net: Network, box: tuple[Float[Tensor, "D n0"], Float[Tensor, "D n0"]], rows: Objective, until: Until
    ) -> GroupBounds:
        """The same, or something cheaper that serves as well if nothing but these rows is to be bounded."""
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

    Groups whose passing neurons would move more than `passing_bytes` keep the interval image of these, and so do all
    neurons of the `skipped` groups.

    Guarantee: rigorous in float64.  When the deadline passes, the remaining groups keep their interval image.
    """

    slope: Slope | None = Slope.ADAPTIVE
    passing_bytes: int = 0
    skipped: frozenset[int] = frozenset()

    def for_rows(
        self, net: Network, box: tuple[Float[Tensor, "D n0"], Float[Tensor, "D n0"]], rows: Objective, until: Until
    ) -> RootBounds:
        """Skips large groups of curves and products that cost the rows next to nothing, even by intervals."""
        if self.slope is None:
            return self
        large = laborious(net)
        if not large:
            return self
        look = replace(self, slope=None).region(net, *box, until)
        shares = shares_of_loss(Sweep.prepare(net, look, rows.layer), rows)
        return replace(self, skipped=frozenset(k for k in large if shares[k - 1] < LITTLE_LOSS))

    def group(self, net: Network, region: Region, k: int, until: Until, workers: Workers = IN_TURN) -> Ends:
        ends = interval_image(net.groups[k - 1], region)
        if self.slope is None or k in self.skipped or region.tight(net.groups[k - 1]):
            return ends
        sweep = Sweep.prepare(net, region, k)
        choices = Linear(self.slope).choices(sweep)

        def bounds(rows: Objective) -> Float[Tensor, "D S"]:
            return sweep.plane(rows, choices).lower

        probe = Probe(k, bounds, 12 * widest(net, k) * ends[0].element_size() * region.count)
        passing = _passing(ends)  # in the order that a deadline may cut short: ambiguous neurons first
        alike = _alike(net.groups[k - 1])
        some = ambiguous(net.groups[k - 1], ends, alike)
        if net.groups[k - 1].exact:  # but for the ball: each neuron costs as little as its row of weights
            some = torch.arange(ends[0].shape[1], device=ends[0].device)
        ends = _shared(alike, self._narrowed(ends, some, probe, until, workers))
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
    skipped: frozenset[int] = frozenset()  # groups for which `base` must do
    rations: Rations | None = None  # says which neurons are worth the time, in one pass; None: all are

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
        if k in self.skipped or region.tight(net.groups[k - 1]):
            return ends
        alone = until.alone()

        def bounds(rows: Objective) -> Float[Tensor, "D S"]:
            found = self.bounder.bound(net, region, rows, alone)
            if self.told is not None:
                self.told(ends, rows, found)
            return found.lower

        each = 96 * widest(net, k) * ends[0].element_size() * region.count
        mine = workers if self.told is None else IN_TURN
        alike = None if self.bounder.separately else _alike(net.groups[k - 1])
        some = ambiguous(net.groups[k - 1], ends, alike)

        def narrow(neurons: Int[Tensor, " c"], until: Until) -> None:
            self._narrowed(ends, neurons, Probe(k, bounds, each), until, mine)  # in place

        if self.rations is None:
            narrow(some, until)
        else:
            self.rations.spend(k, some, until, narrow)
        return _shared(alike, ends)


def work(net: Network, k: int) -> int:
    """Entries that sweeps from all neurons of group k touch."""
    group = net.groups[k - 1]
    rows = group.size if group.alike is None else int(group.alike.alone.sum())
    return 2 * rows * sum(before.size for before in net.groups[: k - 1])


def laborious(net: Network) -> frozenset[int]:
    """Groups of curves and products whose sweeps must be worth their time."""
    curved = (k for k, group in enumerate(net.groups, 1) if not group.function.is_relu)
    return frozenset(k for k in curved if work(net, k) > LITTLE_WORK)


def shares_of_loss(sweep: Sweep, rows: Objective) -> list[float]:
    """What part of all that CROWN's faces cost the rows, in the middle of the box, each group's faces cost.

    Rows that are positive already do not count.  Where the whole is more than `FAR` times what is there to lose, bounds
    are so wide that nobody can tell: it is 1 then, as it is for groups of ReLUs and for what is no number.
    """
    middle = (sweep.region.lower / 2 + sweep.region.upper / 2).unsqueeze(1)
    values: list[Tensor | None] = [middle]
    x_hat = []
    for group in sweep.net.groups[: sweep.layer - 1]:
        x_hat.append(group.forward(values))
        values.append(group.function.value(x_hat[-1]))
    there = (rows.coefficients * sweep.net.layers[sweep.layer - 1].forward(values)).sum(dim=-1)
    if rows.constant is not None:
        there = there + rows.constant
    if rows.inputs is not None:
        there = there + (rows.inputs * middle).sum(dim=-1)
    trace = sweep.backward(rows, Linear().choices(sweep))
    lost = there - (trace.plane.slope * middle).sum(dim=-1) - trace.plane.offset
    unclear = ~(trace.lower > 0) & (rows.coefficients != 0).any(dim=-1)  # rows of zeros only fill up
    near = (lost <= FAR * there.abs()) | ~unclear
    shares = []
    for k, neurons in enumerate(sweep.neurons, 1):
        lam, faces = trace.coefficients[k - 1], trace.lines[k - 1]
        if lam is None or faces is None or not isinstance(neurons, Smooth) or not bool(near.all()):
            shares.append(0.0 if lam is None else 1.0)
            continue
        cost = neurons.cost(lam, faces, x_hat[k - 1])
        shares.append(float(torch.where(unclear & (lost > 0), cost / lost, 0.0).nan_to_num(1.0).max()))
    return shares


def _alike(group: Affine) -> Alike | None:
    """Entries that are alike; those of ReLUs were merged when the network was loaded."""
    return None if group.function.is_relu else group.alike


def ambiguous(group: Affine, ends: Ends, alike: Alike | None = None) -> Int[Tensor, " c"]:
    """The entries that are not linear within their bounds in some box; of those that are alike, the first one."""
    bent = group.function.bends(*ends).any(dim=0)
    if alike is not None:
        bent = alike.alone & torch.zeros_like(bent).index_add_(0, alike.first, bent)
    return torch.nonzero(bent).flatten()


def all_ambiguous(net: Network, region: Region, without: frozenset[int]) -> list[Int[Tensor, " c"]]:
    """The same of every group of known bounds; of the groups `without` none."""
    found = []
    for k, group in enumerate(net.groups, 1):
        some = ambiguous(group, (region.l_hat[k - 1], region.u_hat[k - 1]), _alike(group))
        found.append(some[:0] if k in without else some)
    return found


def _shared(alike: Alike | None, ends: Ends) -> Ends:
    """What is known of one entry, known of all that are like it."""
    return ends if alike is None else alike.shared(*ends)


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
