"""Branch and bound: the main loop, for any kind of subproblem."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from verifier.bounding.base import Until
from verifier.result.verdict import Reason
from verifier.search.domains import Counts, DomainsT, Outcome, Progress, Space, outweighed
from verifier.search.frontier import Frontier

Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Limits:
    """When a search gives up, apart from its deadline, and when it turns depth-first."""

    memory_bytes: int = 2 * 2**30  # of domains that wait
    max_domains: int | None = None
    max_batches: int | None = None

    def reached(self, counts: Counts) -> bool:
        domains = self.max_domains is not None and counts.domains >= self.max_domains
        return domains or (self.max_batches is not None and counts.batches >= self.max_batches)


Hunt = Generator[Progress, None, Outcome]
"""A search that can be left and taken up again: it says how far it is after each batch, and at last its outcome."""


def hunt(space: Space[DomainsT], limits: Limits) -> Hunt:
    """Decide everything in `space`, one batch after the other."""
    frontier: Frontier[DomainsT] = Frontier(limits.memory_bytes)
    counts, doubt, undecided, roots = Counts(), None, float("inf"), 0
    step = space.begin()
    while True:
        frontier.push(step.open)
        counts, doubt, undecided = counts + step.counts, outweighed(doubt, step.doubt), min(undecided, step.undecided)
        roots = roots or max(1, counts.domains)
        lower, left = min(frontier.lower(), undecided), frontier.share() / roots
        progress = Progress(counts, frontier.open, frontier.most, lower, left)
        if step.witness is not None:
            return Outcome(step.witness, None, progress)
        if not frontier.open:
            return Outcome(None, doubt, progress)
        if limits.reached(counts):
            return Outcome(None, Reason.LIMIT, progress)
        yield progress
        step = space.expand(frontier.pop(space.parents))


def advance(running: Hunt, until: Until, report: Report) -> tuple[Progress, Outcome | None]:
    """Go on with a search until it ends or time is up; where it is then, and its outcome if it has ended."""
    while True:
        try:
            progress = next(running)
        except StopIteration as end:
            outcome: Outcome = end.value
            report(outcome.progress)
            return outcome.progress, outcome
        report(progress)
        if until.expired():
            return progress, None


def search(space: Space[DomainsT], limits: Limits, until: Until, report: Report = lambda progress: None) -> Outcome:
    """Decide everything in `space` in time.  `report` hears how far it is after each batch."""
    progress, outcome = advance(hunt(space, limits), until, report)
    return outcome or Outcome(None, Reason.TIMEOUT, progress)
