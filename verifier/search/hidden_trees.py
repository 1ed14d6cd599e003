"""Hidden neurons with a search of their own: each bound of one is that of a small tree over the signs before it.

requires:   bounds of hidden neurons to begin with, groups of ReLUs
guarantees: never looser than these; rigorous, because every leaf of a tree is evaluated in float64
source:     docs/search.md, "Trees for hidden neurons"

Others refine bounds of hidden neurons with integer programs, neuron by neuron.  Here many such trees grow side
by side: in each round every tree splits its worst leaf once, and all new leaves are bounded as one batch, with the
solver and the warm starts of the main tree.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from verifier.bounding.core.ascent import Ascent
from verifier.bounding.core.base import Objective, Region, Until, together, widest
from verifier.bounding.core.state import State, StateT, cat, repeated, tree_map
from verifier.bounding.core.sweep import Sweep, Trace
from verifier.bounding.hidden import IN_TURN, Ends, GroupBounds, Probe, Workers, ambiguous
from verifier.bounding.solvers.propagated import Propagated
from verifier.bounding.solvers.solver import Task, Variables, variables_of
from verifier.branching.base import View, nothing_tried
from verifier.branching.intercept import Intercept
from verifier.clock import Clock
from verifier.network.network import Network
from verifier.shapes import Bool, Float, Int, Int8, Tensor

LITTLE = 0.001
"""The part of a neuron's width by which its bound has to rise whenever the leaves of a tree have doubled."""

SAMPLE = 16
"""Neurons of a group whose trees tell whether those of the others are worth their time."""

ENOUGH = 0.1
"""The part of their widths that trees of a sample have to gain, or of its neurons that have to become stable."""

MARGIN = 1e-5
"""The part of the largest width by which float32 has to be above zero: float64 is then above it as well."""


@dataclass(frozen=True)
class HiddenTrees(GroupBounds):
    """Other bounds first; then every neuron that is still ambiguous is bounded from both sides, by a tree each.

    `solver` bounds the whole box, `ascent` says how long the nodes of a tree climb, `leaves` how far it may grow.  A
    tree ends before that where its bound rises too slowly, or where the neuron is stable.  In each group trees of some
    neurons come first, with at most `trial` leaves: where they gain too little, there are no others.

    The groups that are left have equal parts of the time that is left.  When it has passed, trees stop growing, and
    neurons that have none keep what `base` found.
    """

    base: GroupBounds
    solver: Propagated
    ascent: Ascent
    leaves: int = 16
    trial: int | None = None  # None: as many

    @property
    def first(self) -> GroupBounds:
        return self.base.first

    def group(self, net: Network, region: Region, k: int, until: Until, workers: Workers = IN_TURN) -> Ends:
        ends = self.base.group(net, region, k, until, workers)
        some = ambiguous(net.groups[k - 1], ends)
        only_relus = all(function.is_relu for function in region.functions)
        if net.groups[k - 1].exact or not len(some) or not only_relus:
            return ends
        ground = Ground.of(net, region, k)
        if not ground.kinks:
            return ends
        turns = Turns(until.clock.remaining() / (1 + len(net.groups) - k))
        sample = some[:: max(1, len(some) // SAMPLE)][:SAMPLE]
        before = (ends[1] - ends[0])[0, sample]
        trial = self if self.trial is None else replace(self, leaves=self.trial)
        ends = trial._by_trees(ground, ends, sample, (until, turns), workers)
        if not _worthwhile(before, ends, sample):
            return ends
        rest = some[~torch.isin(some, sample)] if self.trial is None else some
        return self._by_trees(ground, ends, rest, (until, turns), workers)

    def _by_trees(
        self, ground: Ground, ends: Ends, some: Int[Tensor, " c"], time: tuple[Until, Turns], workers: Workers
    ) -> Ends:
        """Some neurons bounded by trees, part after part as memory allows."""
        (until, turns), each, width = time, self._bytes_each(ground), (ends[1] - ends[0])[0]
        turns.parts(math.ceil(len(some) / (workers.count * together(each, self.memory_bytes))))

        def bounds(rows: Objective) -> Float[Tensor, "1 S"]:
            widths = (rows.coefficients[0].abs() @ width).float()
            return Grove(self, ground, rows, widths, turns.next(until)).lower()

        return self._narrowed(ends, some, Probe(ground.layer, bounds, each), until, workers)

    def _bytes_each(self, ground: Ground) -> int:
        """What both trees of a neuron need while two nodes of each are bounded."""
        task = ground.task(ground.start, Objective(ground.layer, ground.rough.lower.new_zeros(1, 1, 1)))
        return 6 * (self.solver.bytes_each(task) + 16 * sum(low.shape[1] for low in ground.rough.l_hat))


@dataclass(frozen=True, eq=False)
class Ground:
    """One box with all groups before a layer, in both precisions."""

    net: Network
    single: Network  # the same in float32
    region: Region
    rough: Region  # the same in float32
    layer: int
    slacks: tuple[Float[Tensor, "1 _"], ...]

    @classmethod
    def of(cls, net: Network, region: Region, layer: int) -> Ground:
        """Require: one box (D = 1) whose bounds are rigorous."""
        sweep = Sweep.prepare(net, region, layer)
        assert sweep.slacks is not None
        region = replace(region, kinks=tuple(neurons.index for neurons in sweep.neurons))
        return cls(net, net.to(dtype=torch.float32), region, region.to(torch.float32), layer, sweep.slacks)

    @cached_property
    def kinks(self) -> int:
        assert self.region.kinks is not None
        return sum(len(index) for index in self.region.kinks)

    @property
    def start(self) -> Int8[Tensor, "1 A"]:
        """No signs at all: the whole box."""
        return torch.zeros(1, self.kinks, dtype=torch.int8, device=self.region.lower.device)

    def task(self, signs: Int8[Tensor, "D A"], objective: Objective) -> Task:
        """Objectives in the parts of the box with these signs."""
        return Task(Sweep.prepare(self.single, _part(self.rough, signs), self.layer), objective.to(torch.float32))

    def exact_task(self, signs: Int8[Tensor, "D A"], objective: Objective) -> Task:
        """The same in float64, where bounds are rigorous."""
        slacks = tuple(slack.expand(len(signs), -1) for slack in self.slacks)
        return Task(Sweep.prepare(self.net, _part(self.region, signs), self.layer, slacks), objective)


def _part(region: Region, signs: Int8[Tensor, "D A"]) -> Region:
    """The parts of one box in which kinks have these signs; 0 says nothing."""
    region = repeated(region, len(signs))
    low, high = region.at_kinks()
    return region.with_kinks(
        torch.where(signs > 0, low.clamp(min=0), low), torch.where(signs < 0, high.clamp(max=0), high), signs
    )


@dataclass(frozen=True, eq=False)
class TreeLeaves(State):
    """The leaves of R trees, in no order."""

    tree: Int[Tensor, " L"]
    lower: Float[Tensor, " L"]
    signs: Int8[Tensor, "L A"]
    points: Float[Tensor, "L V"]  # the variables that gave the bound
    kinks: Int[Tensor, " L"]  # where to split next; -1: nowhere

    def worst(self, trees: int) -> tuple[Float[Tensor, " R"], Int[Tensor, " R"]]:
        """What each tree proves, and the leaf that keeps it from proving more."""
        bound = self.lower.new_full((trees,), torch.inf).scatter_reduce(0, self.tree, self.lower, "amin")
        here = torch.nonzero(self.lower == bound[self.tree]).flatten()
        leaf = torch.full((trees,), len(self.tree), device=here.device)
        return bound, leaf.scatter_reduce(0, self.tree[here], here, "amin")

    def children(self) -> Int8[Tensor, "d A"]:
        """The signs of both children of every leaf: first all that block, then all that pass."""
        sides = (torch.full_like(self.kinks, side, dtype=torch.int8) for side in (-1, 1))
        return torch.cat([self.signs.scatter(1, self.kinks.unsqueeze(1), side.unsqueeze(1)) for side in sides])

    def without(self, leaves: Int[Tensor, " d"]) -> TreeLeaves:
        return self.select(torch.ones_like(self.tree, dtype=torch.bool).index_fill_(0, leaves, False))

    @property
    def bytes_each(self) -> int:
        return self.points[:1].nbytes + self.signs[:1].nbytes


@dataclass(frozen=True, eq=False)
class Grove:
    """Trees side by side, one for each of the rows +e_i and then -e_i of some neurons."""

    options: HiddenTrees
    ground: Ground
    rows: Objective
    width: Float[Tensor, " R"]  # of each row's neuron
    until: Until

    def lower(self) -> Float[Tensor, "1 R"]:
        """Rigorous bounds of all rows."""
        task = self.ground.task(self.ground.start, self.rows)
        found = self.options.solver.begin(task, self.until)
        first = self.options.solver.lean(task, variables_of(found))
        sure = first.lower(self.ground.exact_task(self.ground.start, self.rows))
        if self.until.expired():
            return sure
        assert found.retrace is not None
        count, each = self.rows.count, _by_row(first, self.rows.count)
        kinks = _where_to_split(task.sweep, self.rows, _by_row(found.retrace(slice(None)), count))
        tree = torch.arange(count, device=kinks.device)
        leaves = TreeLeaves(tree, found.lower[0], self.ground.start.expand(count, -1), each.point[:, 0], kinks)
        leaves = self._grown(leaves, each, self._settled(sure[0]))
        return torch.maximum(sure, self._proved(leaves, each))

    def _settled(self, bound: Float[Tensor, " R"]) -> Bool[Tensor, " R"]:
        """Rows whose neuron is stable: its other row does not matter either."""
        return (bound > 0).view(2, -1).any(dim=0).repeat(2)

    def _grown(self, leaves: TreeLeaves, first: Variables, done: Bool[Tensor, " R"]) -> TreeLeaves:
        """Split the worst leaf of each tree, again and again."""
        margin = MARGIN * float(self.width.amax())
        solver = replace(self.options.solver, ascent=self.options.ascent)
        most = together(leaves.bytes_each, self.options.memory_bytes)
        before = leaves.lower
        for count in range(1, self.options.leaves):
            bound, worst = leaves.worst(self.rows.count)
            if count & (count - 1) == 0 and count > 1:  # the trees have doubled
                done = done | (bound - before < LITTLE * self.width)
                before = bound
            done = done | self._settled(bound - margin) | (leaves.kinks[worst] < 0)
            trees = torch.nonzero(~done).flatten()
            if not len(trees) or len(leaves.tree) + len(trees) > most or self.until.expired():
                break
            parents = leaves.select(worst[trees])
            signs, twice = parents.children(), trees.repeat(2)
            task = self.ground.task(signs, self._objective(twice))
            start = replace(first.select(twice), point=parents.points.repeat(2, 1).unsqueeze(1))
            found = solver.resume(task, replace(self.until, threshold=margin), start)
            assert found.retrace is not None
            lower, kinks = found.lower[:, 0], _where_to_split(task.sweep, task.objective, found.retrace(slice(None)))
            made = TreeLeaves(twice, lower.nan_to_num(nan=-torch.inf), signs, variables_of(found).point[:, 0], kinks)
            leaves = cat([leaves.without(worst[trees]), made])
        return leaves

    def _objective(self, rows: Int[Tensor, " d"]) -> Objective:
        """Some of the rows, each for a region of its own."""
        return Objective(self.rows.layer, self.rows.coefficients[0, rows].unsqueeze(1))

    def _proved(self, leaves: TreeLeaves, first: Variables) -> Float[Tensor, "1 R"]:
        """What the leaves of each tree prove in float64; -inf for trees that have not grown."""
        grown = torch.bincount(leaves.tree, minlength=self.rows.count) > 1
        leaves = leaves.select(grown[leaves.tree])
        lower = torch.where(grown, torch.inf, -torch.inf).double()
        ground = self.ground
        each = 24 * widest(ground.net, ground.layer) * ground.region.lower.element_size()
        for some in torch.arange(len(leaves.tree), device=lower.device).split(
            together(each, self.options.memory_bytes)
        ):
            part = leaves.select(some)
            task = ground.exact_task(part.signs, self._objective(part.tree))
            proof = replace(first.select(part.tree), point=part.points.unsqueeze(1))
            found = proof.lower(task)[:, 0].nan_to_num(nan=-torch.inf)
            lower = lower.scatter_reduce(0, part.tree, found, "amin")
        return lower.unsqueeze(0)


class Turns:
    """Parts of a time, one after the other: each has an equal part of what is left."""

    def __init__(self, seconds: float) -> None:
        self._clock, self._left = Clock.begin(seconds), 1

    def parts(self, count: int) -> None:
        """So many follow."""
        self._left = count

    def next(self, until: Until) -> Until:
        """The part that begins now."""
        allowed = self._clock.remaining() / max(1, self._left)
        self._left -= 1
        return replace(until, clock=until.clock.within(allowed))


def _worthwhile(before: Float[Tensor, " c"], ends: Ends, neurons: Int[Tensor, " c"]) -> bool:
    """Whether trees have narrowed neurons of these widths enough, or made enough of them stable."""
    low, high = (side[0, neurons] for side in ends)
    stable = ((low >= 0) | (high <= 0)).double().mean()
    return bool((1 - ((high - low) / before).mean() >= ENOUGH) | (stable >= ENOUGH))


def _by_row(state: StateT, rows: int) -> StateT:
    """What belongs to the objectives of one region, with a region for each of them."""
    return tree_map(lambda t: t.transpose(0, 1).expand(rows, *(t.shape[:1]), *t.shape[2:]), state)


def _where_to_split(sweep: Sweep, objective: Objective, trace: Trace) -> Int[Tensor, " D"]:
    """The kink that costs each bound most; -1 where none is left."""
    scores = Intercept().scores(View(sweep, objective, trace, nothing_tried))
    best, kink = scores.max(dim=1)
    return torch.where(best >= 0, kink, -1)
