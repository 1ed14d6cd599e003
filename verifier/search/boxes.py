"""A whole problem: one search after the other for the boxes that the root bounds left open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from verifier.bounding.base import Until
from verifier.bounding.clauses import ClauseBounds
from verifier.bounding.intermediate import GroupBounds, RootBounds
from verifier.clock import Clock
from verifier.falsify.arena import Arena
from verifier.falsify.base import Falsifier
from verifier.property.canonical import Problem
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.engine import Outcome, Policy, Progress, search
from verifier.search.root import Root
from verifier.shapes import Float, Int, Tensor

OFFER_SECONDS = 0.5
"""The most that the falsifier may spend on the minimisers of one batch."""


@dataclass(frozen=True)
class BoxSearch:
    """Branch and bound on every open box, with intermediate bounds by `intermediate` where none are known yet."""

    policy: Policy = field(default_factory=Policy)
    intermediate: GroupBounds = field(default_factory=RootBounds)
    falsifier: Falsifier | None = None

    def run(
        self, problem: Problem, found: ClauseBounds, arena: Arena, clock: Clock, report: Callable[[Progress], None]
    ) -> Outcome:
        """Decide all clauses that `found` has not closed.  `report` hears the totals after each batch."""
        done, doubt = Progress(), None
        offer = self._offer(arena, clock)
        for box, members in enumerate(problem.clauses_of):
            clauses = tuple(k for k in members if not found.lower[k] > 0)
            if not clauses:
                continue
            region = found.regions.get(box)
            if region is None:
                sides = problem.lower[box : box + 1], problem.upper[box : box + 1]
                region = self.intermediate.region(problem.network, *sides, Until(clock))
            root = Root.of(problem, region, clauses)
            outcome = search(root, self.policy, Until(clock), offer, _after(done, report))
            done = done + outcome.progress
            if outcome.witness is not None or outcome.reason is Reason.TIMEOUT:
                return Outcome(outcome.witness, outcome.reason, done)
            doubt = doubt or outcome.reason
        return Outcome(None, doubt, done)

    def _offer(self, arena: Arena, clock: Clock) -> Callable[[Tensor, Tensor], Counterexample | None]:
        def offer(x: Float[Tensor, "P n0"], clauses: Int[Tensor, " P"]) -> Counterexample | None:
            x, clauses = x.to(arena.device, torch.float32), clauses.to(arena.device)
            if self.falsifier is None:
                return as_they_are(arena, x, clauses)
            return self.falsifier.improve(arena, x, clauses, clock.within(OFFER_SECONDS))

        return offer


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
