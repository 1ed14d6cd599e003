"""Branch and bound: the main loop, for any kind of subproblem."""

from __future__ import annotations

from collections.abc import Callable
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


def search(space: Space[DomainsT], limits: Limits, until: Until, report: Report = lambda progress: None) -> Outcome:
    """Decide everything in `space`.  `report` hears how far it is after each batch."""
    frontier: Frontier[DomainsT] = Frontier(limits.memory_bytes)
    counts, doubt, undecided = Counts(), None, float("inf")
    step = space.begin()
    while True:
        frontier.push(step.open)
        counts, doubt, undecided = counts + step.counts, outweighed(doubt, step.doubt), min(undecided, step.undecided)
        progress = Progress(counts, frontier.open, frontier.most, min(frontier.lower(), undecided))
        report(progress)
        if step.witness is not None:
            return Outcome(step.witness, None, progress)
        if not frontier.open:
            return Outcome(None, doubt, progress)
        if until.expired():
            return Outcome(None, Reason.TIMEOUT, progress)
        if limits.reached(counts):
            return Outcome(None, Reason.LIMIT, progress)
        step = space.expand(frontier.pop(space.parents))
