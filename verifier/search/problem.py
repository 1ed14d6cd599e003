"""A whole problem: what the root bounds left open, searched as one tree, by signs of ReLUs or by boxes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial

from verifier.bounding.clauses import ClauseBounds
from verifier.bounding.core.base import Region, Until
from verifier.bounding.core.closing import closes
from verifier.bounding.hidden import GroupBounds, RootBounds
from verifier.clock import Clock
from verifier.falsify.base import Falsifier
from verifier.falsify.target import Target
from verifier.property.problem import Problem
from verifier.result.verdict import Reason
from verifier.search.boxes.choice import prefers_inputs
from verifier.search.boxes.space import InputOptions, InputSpace
from verifier.search.domains import Offer, Outcome, Progress, outweighed
from verifier.search.journal import Journal
from verifier.search.loop import Hunt, Limits, Part, Report, advance, hunt, pursue, search
from verifier.search.offers import Offers
from verifier.search.race import race
from verifier.search.sharpen import Sharpener, Sharpening
from verifier.search.signs.root import Root
from verifier.search.signs.space import Policy, SignSpace
from verifier.shapes import Float, Tensor

Members = tuple[int, tuple[int, ...]]
"""A box and those of its clauses that are open."""


class Splitting(Enum):
    """What domains are."""

    AUTO = "auto"  # boxes where few inputs move, in a race with signs; else signs
    RELUS = "relus"
    INPUTS = "inputs"


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
    sharpening: Sharpening | None = None
    splitting: Splitting = Splitting.AUTO
    inputs: InputOptions = field(default_factory=InputOptions)
    root_bytes: int = 2**28
    cores: int = 1  # processes that share the work
    journal: Journal = field(default_factory=Journal)

    def by_inputs(self, problem: Problem) -> bool:
        """Whether boxes of the input are cut, at least at first."""
        if self.splitting is Splitting.AUTO:
            return prefers_inputs(problem)
        return self.splitting is Splitting.INPUTS

    def run(self, problem: Problem, found: ClauseBounds, target: Target, clock: Clock, report: Report) -> Outcome:
        """Decide all clauses that `found` has not closed.  `report` hears the totals after each batch."""
        waiting = open_clauses(problem, found)
        if not waiting:
            return Outcome(None, None, Progress())
        task = _Task(self, problem, found, Until(clock), Offers(self.falsifier, target, clock))
        groups = [waiting[i : i + self._together(problem)] for i in range(0, len(waiting), self._together(problem))]
        if not self.by_inputs(problem):
            return self._one_after_the_other(task, groups, report)
        cut = partial(task.boxes, waiting)
        if self.splitting is Splitting.INPUTS or len(groups) > 1:
            return race([cut], task.until, report)
        return race([cut, partial(task.signs, waiting, self.limits)], task.until, report)

    def _one_after_the_other(self, task: _Task, groups: list[list[Members]], report: Report) -> Outcome:
        """Groups of boxes by the signs of their ReLUs."""
        done, doubt = Progress(), None
        for i, group in enumerate(groups):
            later = done.waiting(_worst(task.found, groups[i + 1 :]))
            if task.until.expired() or self.limits.reached(done.counts):
                reason = Reason.TIMEOUT if task.until.expired() else Reason.LIMIT
                return Outcome(None, reason, later.waiting(_worst(task.found, [group])))
            progress, outcome = advance(task.signs(group, self._rest(done)), task.until, _after(later, report))
            done = done + progress
            if outcome is not None and outcome.witness is not None:
                return Outcome(outcome.witness, None, done)
            why = Reason.TIMEOUT if outcome is None else outcome.reason
            if why in (Reason.TIMEOUT, Reason.LIMIT):
                return Outcome(None, why, later + progress)
            doubt = outweighed(doubt, why)
        return Outcome(None, doubt, done)

    def _together(self, problem: Problem) -> int:
        """How many boxes are searched together."""
        return max(1, self.root_bytes // (24 * (problem.network.relus + problem.network.n_in)))

    def _rest(self, done: Progress) -> Limits:
        """What is left of the limits."""
        domains, batches = self.limits.max_domains, self.limits.max_batches
        return replace(
            self.limits,
            max_domains=None if domains is None else domains - done.domains,
            max_batches=None if batches is None else batches - done.counts.batches,
        )


@dataclass(frozen=True, eq=False)
class _Task:
    """A search at work on one problem."""

    options: ProblemSearch
    problem: Problem
    found: ClauseBounds
    until: Until
    offer: Offer

    def signs(self, boxes: list[Members], limits: Limits) -> Hunt:
        """By the signs of ReLUs; a long search gets sharper bounds of hidden neurons and goes on with them."""
        regions, policy, cores = [self._region(box) for box, _ in boxes], self.options.policy, self.options.cores
        if self.options.sharpening is None:
            return (yield from hunt(self._signs(boxes, regions, policy), limits, cores))
        space = self._signs(boxes, regions, replace(policy, ladder=policy.ladder.lowest()))
        part = Part.whole(space, limits.memory_bytes // cores)
        net, machine = self.problem.network, (self.until, cores)
        with Sharpener(self.options.sharpening, net, regions, machine) as sharpener:
            running = pursue(part, limits)
            while True:
                try:
                    progress = next(running)
                except StopIteration as end:
                    outcome: Outcome = end.value
                    return outcome
                yield progress
                if sharpener.ready(progress):
                    break
            sharp = sharpener.regions()
        sharper = self._signs(boxes, sharp, policy)
        return (yield from pursue(part.moved(sharper, partial(sharper.adopted, before=space)), limits, cores))

    def _signs(self, boxes: list[Members], regions: list[Region], policy: Policy) -> SignSpace:
        root = Root.of(self.problem, regions, [clauses for _, clauses in boxes]).knowing(self.found.lower)
        return SignSpace(root, policy, self.until, self.offer, self.options.journal)

    def boxes(self, boxes: list[Members]) -> Hunt:
        """By boxes of the input."""
        clauses = [clause for _, some in boxes for clause in some]
        space = InputSpace(self.problem, clauses, self.offer, self.until, self._finish, self.options.inputs)
        return hunt(space, self.options.limits, self.options.cores)

    def _finish(self, lower: Float[Tensor, " n0"], upper: Float[Tensor, " n0"], clauses: tuple[int, ...]) -> Outcome:
        """Decide a small box by the signs of its few ambiguous ReLUs."""
        region = self.options.intermediate.region(
            self.problem.network, lower.unsqueeze(0), upper.unsqueeze(0), self.until
        )
        root = Root.of(self.problem, [region], [clauses])
        space = SignSpace(root, self.options.policy, self.until, self.offer)
        return search(space, self.options.limits, self.until)

    def _region(self, box: int) -> Region:
        """The bounds of a box, unless they are known already."""
        region = self.found.regions.get(box)
        if region is not None:
            return region
        sides = self.problem.lower[box : box + 1], self.problem.upper[box : box + 1]
        return self.options.intermediate.region(self.problem.network, *sides, self.until)


def open_clauses(problem: Problem, found: ClauseBounds) -> list[Members]:
    """Boxes with their clauses that are not closed."""
    closed = closes(found.lower).tolist()
    members = ((box, tuple(k for k in clauses if not closed[k])) for box, clauses in enumerate(problem.clauses_of))
    return [(box, clauses) for box, clauses in members if clauses]


def _worst(found: ClauseBounds, groups: list[list[Members]]) -> float:
    """What is known of boxes whose search has not begun."""
    clauses = [k for group in groups for _, some in group for k in some]
    return min((float(found.lower[k]) for k in clauses), default=float("inf"))


def _after(done: Progress, report: Callable[[Progress], None]) -> Callable[[Progress], None]:
    """Reports a search on top of those that are done."""
    return lambda progress: report(done + progress)
