"""Bounds of all groups of a large network: what is cheap first, and sweeps only where they are asked for and pay.

A sweep for each neuron of a group costs as much as a pass through all that is before it, and there are as many of them
as neurons.  Small networks can afford that.  In large ones

- a zonotope over the inputs that move comes first, where these are few: one pass for each of them;
- neurons that are still ambiguous are swept in tiles, over the part of the network that a tile depends on;
- a sample of them tells whether the rest is worth it.

requires:   what the bounds of the base require
guarantees: valid bounds, rigorous in float64; never looser than intervals.  A deadline leaves what is known
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch

from verifier.bounding import HIDDEN
from verifier.bounding.core.base import Bounder, Objective, Region, Until, together, unit_objectives, widest
from verifier.bounding.forward import FEW_MOVING, Forward, inputs_that_move
from verifier.bounding.hidden import IN_TURN, Ends, GroupBounds, RootBounds, Told, Workers, ambiguous, intersect
from verifier.bounding.local.bounds import LocalBounds
from verifier.bounding.relaxation.interval import interval_image
from verifier.bounding.solvers.crown import Linear, Slope
from verifier.network.network import Affine, Network
from verifier.network.tiles import Tile, located, tiled
from verifier.operators import Conv
from verifier.shapes import Float, Int, Tensor

LARGE = 2e10
"""Multiplications, roughly, from which on sweeps for all neurons are too dear to begin with."""

WORTH_PATCHES = 1e9
"""Multiplications from which on sweeps for single neurons are worth what it takes to prepare them."""

MOST_PATCHES = 3e10
"""Multiplications of a group's sweeps up to which all of them are made, over patches; beyond it a sample decides."""

OVERHEAD = 4e7
"""What making a tile costs, in multiplications."""

WORTH_ASKING = 4e9
"""Multiplications from which on a sample of a group's neurons tells whether sweeps pay."""

SAMPLE = 32
"""Neurons of a sample."""

LEAST_GAIN, LEAST_SETTLED = 0.1, 0.03
"""What sweeps must gain of the widths of a sample, or which share of it they must settle, to be worth it."""


def is_large(net: Network, boxes: int) -> bool:
    """Whether sweeps for all neurons of so many boxes would take long."""
    return _all_sweeps(net, boxes) > LARGE


@dataclass(frozen=True)
class Frugal(GroupBounds):
    """The base where networks are small; else a zonotope, intervals, and sweeps in tiles as long as they pay."""

    base: RootBounds
    thorough: bool = True  # whether the zonotope takes its time

    @property
    def first(self) -> GroupBounds:
        return self.base

    def told_of(self, told: Told, change: Callable[[Bounder], Bounder]) -> GroupBounds:
        return self.base

    def within(self, memory_bytes: int) -> Frugal:
        most = min(self.memory_bytes, memory_bytes)
        return replace(self, base=replace(self.base, memory_bytes=most), memory_bytes=most)

    def unswept(self) -> Frugal:
        """The same without any sweep."""
        return replace(self, base=replace(self.base, slope=None))

    def cheap(self) -> Frugal:
        """Without any sweep, and with a quick zonotope."""
        return replace(self.unswept(), thorough=False)

    def for_rows(self, net: Network, box: Ends, rows: Objective, until: Until) -> GroupBounds:
        """The base where many inputs move and entries of curves or products repeat: it bounds these once.

        Attention is such a network; nothing in it lies in space, so that there are no tiles.
        """
        repeats = any(not group.function.is_relu and group.alike is not None for group in net.groups)
        if not is_large(net, len(box[0])) or not repeats or len(inputs_that_move(box)) <= FEW_MOVING:
            return self
        return self.base.for_rows(net, box, rows, until)

    def group(self, net: Network, region: Region, k: int, until: Until, workers: Workers = IN_TURN) -> Ends:
        return self.base.group(net, region, k, until, workers)

    def completed(self, net: Network, inputs: Region, until: Until, workers: Workers = IN_TURN) -> Region:
        if is_large(net, inputs.count):
            *_, region = self.steps(net, inputs, until, workers)
            return region
        local, region = self._local(net, inputs), inputs
        for k, group in enumerate(net.groups, start=1):
            if local is None or not local.serves(region, k):
                ends = self.base.group(net, region, k, until, workers)
            else:
                ends = interval_image(group, region)
                for _ in local.narrow(region, k, ends, until, workers):
                    pass
            region = region.extended(group, *ends)
        return region

    def _local(self, net: Network, inputs: Region) -> LocalBounds | None:
        """Sweeps over patches, if there are some and enough is to be done; they know boxes only."""
        images = any(isinstance(term, Conv) for group in net.groups for _, term in group.terms)
        if self.base.slope is None or not images or inputs.ball is not None:
            return None
        if _all_sweeps(net, inputs.count) < WORTH_PATCHES:
            return None
        return LocalBounds.of(net, self.base.slope, self.memory_bytes)

    def steps(self, net: Network, inputs: Region, until: Until, workers: Workers = IN_TURN) -> Iterator[Region]:
        """The region of all groups that are done, again and again; the last one has them all.

        With workers, a step is a whole group; without, a part of one.
        """
        region = inputs
        forward = Forward.begin(net, (inputs.lower, inputs.upper), self.memory_bytes, self.thorough)
        last, local = net.last_use, self._local(net, inputs)
        for k, group in enumerate(net.groups, start=1):
            ends = interval_image(group, region)
            if forward is not None:
                ends = forward.narrowed(k, ends)
            exact = region.tight(group) or (region.ball is None and forward is not None and forward.exact(k))
            if exact or self.base.slope is None:
                pass
            elif local is not None and local.serves(region, k) and _whole_of(net, k, ends) <= MOST_PATCHES:
                for _ in self._over_patches(local, region, k, (ends, until, workers)):
                    yield region
            else:
                for _ in self._swept(net, region, k, (ends, until, workers)):
                    yield region
            region = region.extended(group, *ends)
            if forward is not None:
                forward.enter(k, ends, [j for j in range(k) if last[j] == k])
            yield region

    def _over_patches(
        self, local: LocalBounds, region: Region, k: int, task: tuple[Ends, Until, Workers]
    ) -> Iterator[None]:
        """Tightens the ends by sweeps over patches for neurons that are ambiguous, if they pay."""
        ends, until, workers = task
        if _whole_of(local.net, k, ends) > WORTH_ASKING:
            group = local.net.groups[k - 1]
            sample = Sample.of(ends, ambiguous(group, ends))
            local.look(region, k, ends, sample.neurons)
            yield
            if not sample.pays(group, ends):
                return
        yield from local.narrow(region, k, ends, until, workers)

    def _swept(self, net: Network, region: Region, k: int, task: tuple[Ends, Until, Workers]) -> Iterator[None]:
        """Tightens the ends by sweeps for neurons that are ambiguous, if they pay."""
        assert self.base.slope is not None
        ends, until, workers = task
        group, neurons = net.groups[k - 1], ambiguous(net.groups[k - 1], ends)
        if not len(neurons):
            return
        tiling = Tiling.best(net, k, neurons)
        tiles = TileBounds(net, region, k, self.base.slope, self.memory_bytes)
        if tiling.work > WORTH_ASKING:
            sample = Sample.of(ends, neurons)
            for _ in self._share(tiles, ends, tiling.pieces(sample.neurons, self.memory_bytes), (until, IN_TURN)):
                yield
            if not sample.pays(group, ends):
                return
            left = ambiguous(group, ends)
            neurons = left[~torch.isin(left, sample.neurons)]
        yield from self._share(tiles, ends, tiling.pieces(neurons, self.memory_bytes), (until, workers))

    def _share(
        self, tiles: TileBounds, ends: Ends, pieces: list[Int[Tensor, " _"]], how: tuple[Until, Workers]
    ) -> Iterator[None]:
        """Bounds of all pieces; the workers share them."""
        until, workers = how
        together = 1 if workers.count == 1 else max(1, len(pieces))
        for start in range(0, len(pieces), together):
            some = pieces[start : start + together]
            for piece, found in zip(some, workers.map(tiles.bounds, some, until.expired), strict=True):
                if found is not None:
                    intersect(*ends, piece, found)
            yield


@dataclass(frozen=True, eq=False)
class Sample:
    """Some neurons of a group, and how wide their bounds were."""

    neurons: Int[Tensor, " s"]
    width: Float[Tensor, "D s"]

    @classmethod
    def of(cls, ends: Ends, neurons: Int[Tensor, " c"]) -> Sample:
        some = neurons[:: -(-len(neurons) // SAMPLE)]
        return cls(some, (ends[1] - ends[0])[:, some])

    def pays(self, group: Affine, ends: Ends) -> bool:
        """Whether sweeps that led to these ends have gained enough for the others to be swept as well."""
        width = (ends[1] - ends[0])[:, self.neurons]
        gain = 1.0 - float((width / self.width.clamp(min=torch.finfo(width.dtype).tiny)).nan_to_num(1.0).mean())
        settled = 1.0 - float(torch.isin(self.neurons, ambiguous(group, ends)).double().mean())
        return gain >= LEAST_GAIN or settled >= LEAST_SETTLED


@dataclass(frozen=True, eq=False)
class Tiling:
    """The neurons of a group in tiles of that side; None is the whole group."""

    net: Network
    k: int
    places: Int[Tensor, "a n"] | None
    side: int | None
    work: float

    @classmethod
    def best(cls, net: Network, k: int, neurons: Int[Tensor, " c"]) -> Tiling:
        """With the side that costs least, for the given neurons."""
        places = located(net.groups[k - 1])
        found = cls(net, k, places, None, _whole(net, k, len(neurons)))
        side = 1
        while places is not None and side <= int(places.max()):
            pieces = tiled(places, neurons, side)
            middle = Tile.of(net, k, pieces[len(pieces) // 2])
            work = len(pieces) * OVERHEAD + 2.0 * len(neurons) * _work(middle.net)
            if work < found.work:
                found = cls(net, k, places, side, work)
            side *= 2
        return found

    def pieces(self, neurons: Int[Tensor, " c"], memory_bytes: int) -> list[Int[Tensor, " _"]]:
        """The neurons in pieces that are bounded together."""
        if not len(neurons):
            return []
        if self.side is None or self.places is None:
            each = 24 * widest(self.net, self.k) * 8
            return list(neurons.split(together(each, memory_bytes)))
        return tiled(self.places, neurons, self.side)


@dataclass(frozen=True, eq=False)
class TileBounds:
    """Sweeps for some neurons of a group over what they depend on."""

    net: Network
    region: Region
    k: int
    slope: Slope
    memory_bytes: int

    def bounds(self, neurons: Int[Tensor, " c"]) -> Float[Tensor, "D S"]:
        """Of +e_i and then of -e_i."""
        tile = Tile.of(self.net, self.k, neurons)
        ball = None if self.region.ball is None else self.region.ball.on(tile.inputs)
        region = Region(self.region.lower[:, tile.inputs], self.region.upper[:, tile.inputs], ball=ball)
        for number, (j, entries) in enumerate(zip(tile.groups, tile.entries, strict=True)):
            ends = self.region.l_hat[j - 1][:, entries], self.region.u_hat[j - 1][:, entries]
            region = region.extended(tile.net.groups[number], *ends)
        every = torch.arange(len(neurons), device=neurons.device)
        layer = len(tile.net.layers)
        rows = unit_objectives(len(neurons), every, region.lower)
        sweeps = Linear(self.slope, memory_bytes=self.memory_bytes)
        return sweeps.bound(tile.net, region, Objective(layer, rows), Until()).lower


def _whole(net: Network, k: int, neurons: int) -> float:
    """Multiplications of sweeps for so many neurons of a group over all that is before it."""
    return 2.0 * neurons * _work(replace(net, groups=net.groups[: k - 1], output=net.groups[k - 1]))


def _whole_of(net: Network, k: int, ends: Ends) -> float:
    """The same for all that are ambiguous."""
    return _whole(net, k, len(ambiguous(net.groups[k - 1], ends)))


def _all_sweeps(net: Network, boxes: int) -> float:
    """Multiplications of sweeps for all neurons, if each goes through the whole network."""
    return 2.0 * net.work * net.neurons * boxes


def _work(net: Network) -> float:
    """Multiplications of a sweep over a network, and what is done at its neurons."""
    return net.work + 8.0 * net.neurons


@HIDDEN.register("best")
@HIDDEN.register("crown")
def with_crown() -> GroupBounds:
    return Frugal(RootBounds(Slope.ADAPTIVE))
