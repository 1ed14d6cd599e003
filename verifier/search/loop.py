"""Branch and bound: the main loop, for any kind of subproblem."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Generic

from verifier.bounding.core.base import Until
from verifier.processes import Send
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.domains import Counts, DomainsT, Outcome, Progress, Space, Step, outweighed
from verifier.search.frontier import Frontier
from verifier.search.parallel import Cores, Crew

Report = Callable[[Progress], None]

WORTHWHILE = 8
"""Open domains that are worth a process of their own."""


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


class Part(Generic[DomainsT]):
    """A part of the tree: the domains that wait in it, and what became of the others."""

    def __init__(self, space: Space[DomainsT], frontier: Frontier[DomainsT], roots: int) -> None:
        self.space, self._frontier, self._roots = space, frontier, roots
        self._counts, self._undecided = Counts(), float("inf")
        self.witness: Counterexample | None = None
        self.doubt: Reason | None = None

    @classmethod
    def whole(cls, space: Space[DomainsT], memory_bytes: int) -> Part[DomainsT]:
        """The whole problem, bounded."""
        first = space.begin()
        part = cls(space, Frontier(memory_bytes), max(1, first.counts.domains))
        part._digest(first)
        return part

    @property
    def open(self) -> int:
        return self._frontier.open

    def progress(self) -> Progress:
        lower, left = min(self._frontier.lower(), self._undecided), self._frontier.share() / self._roots
        return Progress(self._counts, self._frontier.open, self._frontier.most, lower, left)

    def expand(self) -> None:
        """Split the worst domains and bound their children.  Require: some are open."""
        self._digest(self.space.expand(self._frontier.pop(self.space.parents)))

    def moved(self, space: Space[DomainsT], adopt: Callable[[DomainsT, DomainsT], DomainsT]) -> Part[DomainsT]:
        """The same in another space, which then has to begin.

        `adopt` gets what waits here and what is open there, and tells what to go on with.  Require: the whole problem,
        not a part of it.
        """
        memory = self._frontier.memory_bytes
        whole, waiting = Part.whole(space, memory), self._frontier.all()
        begun = whole._frontier.all()
        if waiting is not None and begun is not None:
            whole._frontier = Frontier(memory)
            whole._frontier.push(adopt(waiting, begun))
        whole._frontier.most = max(whole._frontier.most, self._frontier.most)
        whole._counts = self._counts + whole._counts
        whole.doubt, whole._undecided = outweighed(whole.doubt, self.doubt), min(whole._undecided, self._undecided)
        return whole

    def halve(self) -> Part[DomainsT]:
        """Give half of the open domains away."""
        return Part(self.space, self._frontier.halve(), self._roots)

    def _digest(self, step: Step[DomainsT]) -> None:
        self._frontier.push(step.open)
        self._counts, self.witness = self._counts + step.counts, step.witness
        self.doubt, self._undecided = outweighed(self.doubt, step.doubt), min(self._undecided, step.undecided)


def hunt(space: Space[DomainsT], limits: Limits, cores: int = 1) -> Hunt:
    """Decide everything in `space`, one batch after the other; with several cores, as many processes share the work."""
    return (yield from pursue(Part.whole(space, limits.memory_bytes // cores), limits, cores))


def pursue(part: Part[DomainsT], limits: Limits, cores: int = 1) -> Hunt:
    """Decide everything in one part of the tree.  Left early, it has not forked if there is only one core."""
    if cores == 1:
        return (yield from _pursue(part, limits, None))
    with closing(Cores(cores)) as idle:
        return (yield from _pursue(part, limits, idle))


def _pursue(part: Part[DomainsT], limits: Limits, cores: Cores | None) -> Hunt:
    """Decide everything in one part of the tree."""
    with Crew(cores) as crew:
        while True:
            crew.listen()
            progress, witness = crew.beside(part.progress()), part.witness or crew.witness
            if witness is not None:
                return Outcome(witness, None, progress)
            if not part.open and not crew.busy:
                crew.done()
                return Outcome(None, outweighed(part.doubt, crew.doubt), progress)
            if limits.reached(progress.counts):
                return Outcome(None, Reason.LIMIT, progress)
            yield progress
            while part.open >= 2 * WORTHWHILE and crew.idle_core():
                crew.send_out(partial(_errand, part.halve(), cores))
            if part.open:
                part.expand()
            else:
                crew.rest()


def _errand(part: Part[DomainsT], cores: Cores | None, send: Send) -> Outcome:
    """What a fork does with its part; the process that sent it out keeps the limits and the time."""
    _, outcome = advance(_pursue(part, Limits(), cores), Until(), send)
    assert outcome is not None, "there is no deadline"
    return outcome


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
