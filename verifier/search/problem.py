"""A whole problem: the boxes that the root bounds left open, searched together as one tree."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from verifier.bounding.base import Region, Until
from verifier.bounding.clauses import ClauseBounds
from verifier.bounding.intermediate import GroupBounds, RootBounds
from verifier.clock import Clock
from verifier.falsify.arena import Arena
from verifier.falsify.base import Falsifier
from verifier.property.canonical import Problem
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.domains import Offer, Outcome, Progress, outweighed
from verifier.search.engine import Limits, Report, search
from verifier.search.journal import Journal
from verifier.search.relus import Policy, SignSpace
from verifier.search.root import Root
from verifier.shapes import Float, Int, Tensor

OFFER_SECONDS = 0.5
"""The most that the falsifier may spend on the minimisers of one batch."""

Members = tuple[int, tuple[int, ...]]
"""A box and those of its clauses that are open."""


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
    root_bytes: int = 2**28
    journal: Journal = field(default_factory=Journal)

    def run(self, problem: Problem, found: ClauseBounds, arena: Arena, clock: Clock, report: Report) -> Outcome:
        """Decide all clauses that `found` has not closed.  `report` hears the totals after each batch."""
        done, doubt, until = Progress(), None, Until(clock)
        offer = offering(self.falsifier, arena, clock)
        waiting = open_clauses(problem, found)
        together = max(1, self.root_bytes // (24 * (problem.network.relus + problem.network.n_in)))
        while waiting:
            now, waiting = waiting[:together], waiting[together:]
            later = done.waiting(_worst(found, waiting))
            if clock.expired() or self.limits.reached(done.counts):
                reason = Reason.TIMEOUT if clock.expired() else Reason.LIMIT
                return Outcome(None, reason, later.waiting(_worst(found, now)))
            regions = [self._region(problem, found, box, until) for box, _ in now]
            root = Root.of(problem, regions, [clauses for _, clauses in now]).knowing(found.lower)
            space = SignSpace(root, self.policy, until, offer, self.journal)
            outcome = search(space, self._rest(done), until, _after(later, report))
            done = done + outcome.progress
            if outcome.witness is not None:
                return Outcome(outcome.witness, None, done)
            if outcome.reason in (Reason.TIMEOUT, Reason.LIMIT):
                return Outcome(None, outcome.reason, later + outcome.progress)
            doubt = outweighed(doubt, outcome.reason)
        return Outcome(None, doubt, done)

    def _region(self, problem: Problem, found: ClauseBounds, box: int, until: Until) -> Region:
        """The bounds of a box, unless they are known already."""
        region = found.regions.get(box)
        if region is not None:
            return region
        sides = problem.lower[box : box + 1], problem.upper[box : box + 1]
        return self.intermediate.region(problem.network, *sides, until)

    def _rest(self, done: Progress) -> Limits:
        """What is left of the limits."""
        domains, batches = self.limits.max_domains, self.limits.max_batches
        return replace(
            self.limits,
            max_domains=None if domains is None else domains - done.domains,
            max_batches=None if batches is None else batches - done.counts.batches,
        )


def offering(falsifier: Falsifier | None, arena: Arena, clock: Clock) -> Offer:
    """Points go through a few descents of the falsifier, or are replayed as they are if there is none."""

    def offer(x: Float[Tensor, "P n0"], clauses: Int[Tensor, " P"]) -> Counterexample | None:
        x, clauses = x.to(arena.device, torch.float32), clauses.to(arena.device)
        if falsifier is None:
            return as_they_are(arena, x, clauses)
        return falsifier.improve(arena, x, clauses, clock.within(OFFER_SECONDS))

    return offer


def open_clauses(problem: Problem, found: ClauseBounds) -> list[Members]:
    """Boxes with their clauses that are not closed; a bound that is NaN closes nothing."""
    closed = (found.lower > 0).tolist()
    members = ((box, tuple(k for k in clauses if not closed[k])) for box, clauses in enumerate(problem.clauses_of))
    return [(box, clauses) for box, clauses in members if clauses]


def _worst(found: ClauseBounds, boxes: list[Members]) -> float:
    """What is known of boxes whose search has not begun."""
    return min((float(found.lower[k]) for _, clauses in boxes for k in clauses), default=float("inf"))


def _after(done: Progress, report: Callable[[Progress], None]) -> Callable[[Progress], None]:
    """Reports a search on top of those that are done."""
    return lambda progress: report(done + progress)


def as_they_are(arena: Arena, x: Float[Tensor, "P n0"], clauses: Int[Tensor, " P"]) -> Counterexample | None:
    """Replays points without any descent."""
    lower, upper = arena.bounds(clauses)
    x = x.clamp(lower, upper)
    y = arena.network.forward(x)
    worst = arena.rows.margins(x, y, clauses).amax(-1)
    return arena.replay(x, worst, clauses, arena.rows.noise(y, clauses))
