"""A whole problem: one search after the other for the boxes that the root bounds left open."""

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
        waiting = _open_clauses(problem, found)
        while waiting:
            box, clauses = waiting.pop(0)
            policy = self._allowance(done)
            if clock.expired() or policy is None:
                reason = Reason.TIMEOUT if clock.expired() else Reason.LIMIT
                return Outcome(None, reason, done + _worst(found, [(box, clauses), *waiting]))
            later = done + _worst(found, waiting)
            root = Root.of(problem, self._region(problem, found, box, clock), clauses, found.lower[list(clauses)])
            outcome = search(root, policy, Until(clock), offer, _after(later, report))
            done = done + outcome.progress
            if outcome.witness is not None:
                return Outcome(outcome.witness, None, done)
            if outcome.reason in (Reason.TIMEOUT, Reason.LIMIT):
                return Outcome(None, outcome.reason, later + outcome.progress)
            doubt = doubt or outcome.reason
        return Outcome(None, doubt, done)

    def _region(self, problem: Problem, found: ClauseBounds, box: int, clock: Clock) -> Region:
        """The bounds of a box, unless they are known already."""
        region = found.regions.get(box)
        if region is not None:
            return region
        sides = problem.lower[box : box + 1], problem.upper[box : box + 1]
        return self.intermediate.region(problem.network, *sides, Until(clock))

    def _allowance(self, done: Progress) -> Policy | None:
        """The policy with what is left of the limit of domains; None if nothing is."""
        most = self.policy.max_domains
        if most is None:
            return self.policy
        return replace(self.policy, max_domains=most - done.domains) if done.domains < most else None

    def _offer(self, arena: Arena, clock: Clock) -> Callable[[Tensor, Tensor], Counterexample | None]:
        def offer(x: Float[Tensor, "P n0"], clauses: Int[Tensor, " P"]) -> Counterexample | None:
            x, clauses = x.to(arena.device, torch.float32), clauses.to(arena.device)
            if self.falsifier is None:
                return as_they_are(arena, x, clauses)
            return self.falsifier.improve(arena, x, clauses, clock.within(OFFER_SECONDS))

        return offer


def _open_clauses(problem: Problem, found: ClauseBounds) -> list[tuple[int, tuple[int, ...]]]:
    """Boxes with their clauses that are not closed; a bound that is NaN closes nothing."""
    closed = (found.lower > 0).tolist()
    members = ((box, tuple(k for k in clauses if not closed[k])) for box, clauses in enumerate(problem.clauses_of))
    return [(box, clauses) for box, clauses in members if clauses]


def _worst(found: ClauseBounds, boxes: list[tuple[int, tuple[int, ...]]]) -> Progress:
    """What is known of boxes whose search has not begun."""
    return Progress(lower=min((float(found.lower[k]) for _, clauses in boxes for k in clauses), default=float("inf")))


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
