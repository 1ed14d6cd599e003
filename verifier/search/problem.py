"""A whole problem: what the root bounds left open, searched as one tree, by signs of ReLUs or by boxes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any

import torch

from verifier.bounding.clauses import ClauseBounds, inputs_of
from verifier.bounding.core.ball import InputBall
from verifier.bounding.core.base import Region, Until
from verifier.bounding.core.closing import closes
from verifier.bounding.forward import FEW_MOVING, inputs_that_move
from verifier.bounding.frugal import Frugal, is_large
from verifier.bounding.hidden import GroupBounds, RootBounds
from verifier.bounding.lp.integer import MixedInteger
from verifier.clock import Clock
from verifier.errors import InputError
from verifier.falsify.base import Falsifier
from verifier.falsify.target import Target
from verifier.network.network import Network
from verifier.processes import Forks
from verifier.property.problem import Problem
from verifier.result.verdict import Reason
from verifier.search.boxes.boxes import moves
from verifier.search.boxes.space import InputOptions, InputSpace, contraction_of
from verifier.search.domains import DomainsT, Offer, Outcome, Progress, outweighed
from verifier.search.integer import ClausePrograms, IntegerSearch
from verifier.search.journal import Journal, Merged, Settled
from verifier.search.loop import BranchAndBound, Limits, Report, Search, run
from verifier.search.offers import Offers
from verifier.search.parallel import Cores, SharedSearch
from verifier.search.prepared import Prepared
from verifier.search.race import Race
from verifier.search.sharpen import Blunt, SharpenedSearch, Sharpener, Sharpening
from verifier.search.signs.root import Root
from verifier.search.signs.space import Policy, SignDomains, SignSpace
from verifier.search.slices import Slice, SlicedSearch, Slicing
from verifier.search.space import Space
from verifier.shapes import Float, Tensor

FEW_INPUTS = 16
"""Where more of them move, halving each input once already makes more boxes than any search can bound."""

FEW_OF_LARGE = 8
"""The same in networks of which a box takes about a second."""

MANY_BOXES = 16
"""With more boxes of few moving inputs, the bounds that a search by signs begins with take longer than all the rest."""

DOMAIN = 8 * 48
"""Bytes for each neuron of a domain while it is bounded: numbers in float64, and how many of them there are."""

Members = tuple[int, tuple[int, ...]]
"""A box and those of its clauses that are open."""


class Splitting(Enum):
    """What domains are."""

    AUTO = "auto"  # boxes where few inputs move or rows contract boxes, in a race with signs; else signs
    RELUS = "relus"
    INPUTS = "inputs"
    MIP = "mip"  # mixed-integer programs: HiGHS splits, and proves nothing


@dataclass(frozen=True)
class ProblemSearch:
    """Branch and bound on all open boxes, with intermediate bounds by `intermediate` where none are known yet.

    One frontier holds all clauses of all boxes.  Only where the bounds of very many boxes do not fit into
    `root_bytes`, they are searched in groups.
    """

    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)
    intermediate: GroupBounds = field(default_factory=RootBounds)
    falsifier: Falsifier | None = None
    seed: int = 0  # of its restarts
    sharpening: Sharpening | None = None
    splitting: Splitting = Splitting.AUTO
    inputs: InputOptions = field(default_factory=InputOptions)
    integer: MixedInteger = field(default_factory=MixedInteger)
    root_bytes: int = 2**28
    cores: int = 1  # processes that share the work
    domain_bytes: int = 4 * 2**30  # of the domains that a search by signs bounds together
    journal: Journal = field(default_factory=Journal)

    def within(self, memory_bytes: int) -> ProblemSearch:
        """The same, holding no more than so many bytes: fewer domains at a time, zonotopes with fewer symbols."""
        each = memory_bytes // self.cores
        return replace(
            self,
            limits=replace(self.limits, memory_bytes=min(self.limits.memory_bytes, memory_bytes // 4)),
            inputs=replace(self.inputs, memory_bytes=min(self.inputs.memory_bytes, each // 4)),
            root_bytes=min(self.root_bytes, each // 8),
            domain_bytes=each // 4,
        )

    def by_inputs(self, problem: Problem) -> bool:
        """Whether boxes of the input are cut, at least at first."""
        if self.splitting is Splitting.AUTO:
            moving = moves(problem.lower, problem.upper).sum(dim=1)
            few = FEW_OF_LARGE if is_large(problem.network, 1) else FEW_INPUTS
            return bool((moving <= few).all()) or contraction_of(problem, self.inputs) is not None
        return self.splitting is Splitting.INPUTS

    def by_many_boxes(self, problem: Problem) -> bool:
        """Whether boxes of the input are cut from the first to the last, because there are so many of them."""
        if len(problem.lower) <= MANY_BOXES or not self.by_inputs(problem):
            return False
        return bool((moves(problem.lower, problem.upper).sum(dim=1) <= FEW_INPUTS).all())

    def by_slices(self, problem: Problem) -> bool:
        """Whether boxes are cut into slices before their signs are searched: a large network, and few inputs move."""
        net, box = problem.network, (problem.lower, problem.upper)
        if self.splitting is not Splitting.AUTO or not isinstance(self.intermediate, Frugal) or self.by_inputs(problem):
            return False
        few = len(problem.lower) <= MANY_BOXES and len(inputs_that_move(box)) <= FEW_MOVING
        return few and net.piecewise_linear and is_large(net, 1)

    def check(self, network: Network) -> None:
        """Raises InputError, in one sentence, if some method that was asked for knows ReLUs only and others exist."""
        found = network.bent
        if found is None:
            return
        tiers = ((f"the tier '{tier.name}'", tier.solver.any_function) for tier in self.policy.ladder.tiers)
        rule = f"the branching rule {type(self.policy.brancher).__name__}", self.policy.brancher.any_function
        hidden = "the bounder of hidden neurons", self.intermediate.any_function
        programs = "a mixed-integer program", self.splitting is not Splitting.MIP
        for what, suits in (*tiers, rule, hidden, programs):
            if not suits:
                raise InputError(f"{what} knows ReLUs only, but {found}")

    def run(self, problem: Problem, found: ClauseBounds, target: Target, clock: Clock, report: Report) -> Outcome:
        """Decide all clauses that `found` has not closed.  `report` hears the totals after each step."""
        if problem.merged:
            self.journal.hear(Merged(sum(layer.superfluous for layer in problem.merged)))
        closed = torch.nonzero(closes(found.lower)).flatten().tolist()
        self.journal.hear(Settled(tuple(closed), lambda: found))
        until = Until(clock)
        search = self.begun(problem, found, target.dtype, until, Offers(self.falsifier, target, clock, self.seed))
        return Outcome(None, None, Progress()) if search is None else run(search, until, report)

    def begun(
        self, problem: Problem, found: ClauseBounds, dtype: torch.dtype, until: Until, offer: Offer
    ) -> Search | None:
        """The search of all clauses that `found` has not closed; None if there are none.

        `dtype` is the precision of the network; `offer` gets points, and ends the search if one is a counterexample.
        """
        waiting = open_clauses(problem, found)
        if not waiting:
            return None
        options = replace(self, inputs=replace(self.inputs, double=dtype is torch.float64))
        return self._search(_Task(options, problem, found, until, offer), waiting)

    def _search(self, task: _Task, waiting: list[Members]) -> Search:
        """The search of some boxes: by their signs, group after group, or by smaller boxes, or a race of both."""
        if self.splitting is Splitting.MIP:
            return task.integer(waiting)
        together = self._together(task.problem)
        groups = [waiting[i : i + together] for i in range(0, len(waiting), together)]
        if self.by_slices(task.problem):
            return task.sliced(waiting)
        if not self.by_inputs(task.problem):
            makers = [(task.worst(group), partial(task.signs, group)) for group in groups]
            return OneAfterAnother(makers, self.limits, task.until)
        if self.splitting is Splitting.INPUTS or len(groups) > 1 or len(waiting) > MANY_BOXES:
            return task.boxes(waiting)
        return Race([partial(task.boxes, waiting), partial(task.bounded_signs, waiting)])

    def _together(self, problem: Problem) -> int:
        """How many boxes are searched together."""
        return max(1, self.root_bytes // (24 * (problem.network.neurons + problem.network.n_in)))


class OneAfterAnother(Search):
    """Searches of groups of boxes, each given by what is known of it and by how to make its search.

    When time is up, none of them begins.
    """

    def __init__(
        self, groups: Sequence[tuple[float, Callable[[Limits], Search]]], limits: Limits, until: Until
    ) -> None:
        self._groups, self._limits, self._until = list(groups), limits, until
        self._now: Search | None = None
        self._done = Progress()
        self._doubt: Reason | None = None
        self.progress = self._with_waiting()
        self.outcome = None

    def _with_waiting(self) -> Progress:
        """What is done, and what is known of the groups that wait."""
        return self._done.waiting(min((worst for worst, _ in self._groups), default=float("inf")))

    def step(self) -> None:
        if self._now is None:
            if self._until.expired():
                self.outcome = Outcome(None, Reason.TIMEOUT, self.progress)
                return
            _, make = self._groups.pop(0)
            self._now = make(self._limits.after(self._done.counts))
        self._now.step()
        self.progress = self._with_waiting() + self._now.progress
        if self._now.outcome is not None:
            self._heed(self._now.outcome)

    def _heed(self, outcome: Outcome) -> None:
        """The search of one group has ended."""
        self.close()
        self._now = None
        self._done = self._done + outcome.progress
        self._doubt = outweighed(self._doubt, outcome.reason)
        if outcome.witness is not None:
            self.outcome = Outcome(outcome.witness, None, self._done)
        elif outcome.reason in (Reason.TIMEOUT, Reason.LIMIT):
            self.outcome = Outcome(None, outcome.reason, self.progress)
        elif not self._groups:
            self.outcome = Outcome(None, self._doubt, self._done)
        else:
            self.progress = self._with_waiting()
            if self._limits.reached(self._done.counts):
                self.outcome = Outcome(None, Reason.LIMIT, self.progress)

    def close(self) -> None:
        if self._now is not None:
            self._now.close()


@dataclass(frozen=True, eq=False)
class _Task:
    """A search at work on one problem."""

    options: ProblemSearch
    problem: Problem
    found: ClauseBounds
    until: Until
    offer: Offer

    def signs(self, boxes: list[Members], limits: Limits) -> Search:
        """By the signs of ReLUs; a long search gets sharper bounds of hidden neurons and goes on with them."""
        options = self.options
        policy, sharpening = options.policy, options.sharpening
        if sharpening is not None and not self.problem.network.piecewise_linear:
            sharpening = sharpening.at_once()
        regions = [self._region(box) for box, _ in boxes]
        journal = Journal(above=options.journal)
        if sharpening is None:
            return self._shared(self._signs(boxes, regions, policy, journal), limits)
        lowest = replace(policy, ladder=policy.ladder.lowest())
        each = self._each(limits)
        first = BranchAndBound(self._signs(boxes, regions, lowest, journal), each)

        def sharper(regions: list[Region], before: BranchAndBound[SignDomains]) -> BranchAndBound[SignDomains]:
            tree = BranchAndBound(self._signs(boxes, regions, policy, journal), each)
            tree.adopt(before)
            return tree

        known = {box: region for (box, _), region in zip(boxes, regions, strict=True)}
        blunt = Blunt(self.problem.network, known, journal)
        sharpener = Sharpener(sharpening, blunt, self.until, options.cores)
        return SharpenedSearch(first, sharpener, sharper, partial(self._by_all, limits))

    def bounded_signs(self, boxes: list[Members]) -> Search:
        """The same; in large networks without bounds of hidden neurons yet these come first, bit by bit."""
        options, net = self.options, self.problem.network
        missing = [box for box, _ in boxes if box not in self.found.regions]
        if not missing or not isinstance(options.intermediate, Frugal) or not is_large(net, len(missing)):
            return self.signs(boxes, options.limits)
        at = torch.tensor(missing, device=self.problem.lower.device)
        parts = options.intermediate.steps(net, inputs_of(self.problem, at), self.until)

        def make(region: Region) -> Search:
            each = {box: region.select(torch.tensor([i], device=at.device)) for i, box in enumerate(missing)}
            known = replace(self.found, regions=self.found.regions | each)
            return replace(self, found=known).signs(boxes, options.limits)

        return Prepared(parts, make, self.worst(boxes))

    def sliced(self, boxes: list[Members]) -> Search:
        """By signs as well, of slices of the boxes; these have bounds of their own from the beginning."""
        options, problem = self.options, self.problem
        assert isinstance(options.intermediate, Frugal)
        slicing = Slicing(problem, options.intermediate, self.until, Forks(options.cores))

        def make(slices: Sequence[Slice]) -> Search:
            parts = (Region(s.lower, s.upper, ball=InputBall.of(problem.property.ball, s.lower)) for s in slices)
            regions = [self._bounded(s.region, part) for s, part in zip(slices, parts, strict=True)]
            members = [(number, s.clauses) for number, s in enumerate(slices)]
            policy = replace(options.policy, ladder=options.policy.ladder.plain())  # cuts take 20 times as long here
            space = self._signs(members, regions, policy, Journal(above=options.journal))
            return self._shared(space, options.limits)

        sides = [(problem.lower[box : box + 1], problem.upper[box : box + 1]) for box, _ in boxes]
        whole = [Slice(*s, m[1], self.worst([m])) for s, m in zip(sides, boxes, strict=True)]
        return SlicedSearch(slicing, whole, make)

    def boxes(self, boxes: list[Members]) -> Search:
        """By boxes of the input."""
        options = self.options
        clauses = [clause for _, some in boxes for clause in some]
        journal = Journal(above=options.journal)
        finish = partial(self._finish, journal) if self.problem.network.piecewise_linear else None
        space = InputSpace(self.problem, clauses, self.offer, self.until, finish, options.inputs, journal)
        return self._shared(space, options.limits)

    def integer(self, boxes: list[Members]) -> Search:
        """By HiGHS, clause by clause."""
        members = [(box, clause) for box, some in boxes for clause in some]
        programs = ClausePrograms(self.problem, members, self._region, self.worst(boxes))
        return IntegerSearch(self.options.integer, programs, self.until, self.offer)

    def _signs(self, boxes: list[Members], regions: list[Region], policy: Policy, journal: Journal) -> SignSpace:
        if not self.problem.network.piecewise_linear:
            policy = replace(policy, tightening=policy.tightening.after_points())
        together = max(1, self.options.domain_bytes // (DOMAIN * self.problem.network.neurons + 1))
        policy = replace(policy, batch=min(policy.batch, together), fill=min(policy.fill, together))
        root = Root.of(self.problem, regions, [clauses for _, clauses in boxes]).knowing(self.found.lower)
        return SignSpace(root, policy, self.until, self.offer, journal)

    def _shared(self, space: Space[DomainsT, Any, Any, Any], limits: Limits) -> Search:
        """A search by as many processes as there may be."""
        return self._by_all(limits, BranchAndBound(space, self._each(limits)))

    def _by_all(self, limits: Limits, tree: BranchAndBound[DomainsT]) -> Search:
        """The search of a tree, which may have begun, by as many processes as there may be."""
        cores = self.options.cores
        if cores == 1:
            return tree
        tree.limits = Limits(tree.limits.memory_bytes)  # the others are those of all processes together
        return SharedSearch(tree, limits, Cores(cores))

    def _each(self, limits: Limits) -> Limits:
        """Every process has its share of the memory."""
        return replace(limits, memory_bytes=limits.memory_bytes // self.options.cores)

    def _finish(
        self, journal: Journal, lower: Float[Tensor, " n0"], upper: Float[Tensor, " n0"], clauses: tuple[int, ...]
    ) -> Outcome:
        """Decide a small box by the signs of its few ambiguous ReLUs."""
        ball = InputBall.of(self.problem.property.ball, lower)
        part = Region(lower.unsqueeze(0), upper.unsqueeze(0), ball=ball)
        region = self.options.intermediate.completed(self.problem.network, part, self.until)
        root = Root.of(self.problem, [region], [clauses])
        space = SignSpace(root, self.options.policy, self.until, self.offer, Journal(above=journal))
        outcome = run(BranchAndBound(space, self.options.limits), self.until)
        if self.options.policy.certain:
            return outcome
        return replace(outcome, progress=replace(outcome.progress, lower=-float("inf")))  # bounds of boxes are rigorous

    def worst(self, boxes: list[Members]) -> float:
        """What is known of boxes whose search has not begun."""
        return min(float(self.found.lower[k]) for _, clauses in boxes for k in clauses)

    def _region(self, box: int) -> Region:
        """The bounds of a box, unless they are known already."""
        inputs = inputs_of(self.problem, torch.tensor([box], device=self.problem.lower.device))
        return self._bounded(self.found.regions.get(box), inputs)

    def _bounded(self, known: Region | None, inputs: Region) -> Region:
        """What is known of a box or a slice, or else its bounds."""
        return self.options.intermediate.completed(self.problem.network, inputs, self.until) if known is None else known


def open_clauses(problem: Problem, found: ClauseBounds) -> list[Members]:
    """Boxes with their clauses that are not closed."""
    closed = closes(found.lower).tolist()
    members = ((box, tuple(k for k in clauses if not closed[k])) for box, clauses in enumerate(problem.clauses_of))
    return [(box, clauses) for box, clauses in members if clauses]
