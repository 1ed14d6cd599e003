"""Branch and bound: one step on one screen, for any kind of domain."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Generic

from verifier.bounding.core.base import Until
from verifier.falsify.hunt import Hunt
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.domains import Counts, DomainsT, Outcome, Progress, outweighed
from verifier.search.frontier import Frontier
from verifier.search.journal import Stepped, Superseded
from verifier.search.saved import Saved, SavedPart, SavedTree
from verifier.search.space import Leaves, Space

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

    def after(self, counts: Counts) -> Limits:
        """What is left of them when so much has been done."""
        return replace(
            self,
            max_domains=None if self.max_domains is None else self.max_domains - counts.domains,
            max_batches=None if self.max_batches is None else self.max_batches - counts.batches,
        )


class Search(ABC):
    """Something that decides a problem step by step.

    `progress` says how far it is, `outcome` how it ended; None while it goes on.
    """

    progress: Progress
    outcome: Outcome | None

    @abstractmethod
    def step(self) -> None:
        """Go on for a moment.  Require: there is no outcome yet.  Guarantee: the first step begins the search."""

    def saved(self, room: int) -> Saved | None:
        """What another run needs to go on from here; None: it begins this search anew.

        Require: no outcome yet.  `room` is for what only saves time, in bytes.
        """
        return None

    def close(self) -> None:  # noqa: B027 (most searches work in this process alone)
        """End whatever works beside this process: nobody takes another step."""


def run(search: Search, until: Until, report: Report = lambda progress: None, hunt: Hunt | None = None) -> Outcome:
    """Steps until the search ends or time is up, at least one.  `report` hears how far it is after each of them.

    A `hunt` for counterexamples has its turns between them.

    The first step is taken however late it is: the bounds of the whole problem may be all that is missing.
    """
    with closing(search):
        while True:
            search.step()
            report(search.progress)
            if search.outcome is not None:
                return search.outcome
            if hunt is not None and (witness := hunt.turn()) is not None:
                return Outcome(witness, None, search.progress)
            if until.expired():
                return Outcome(None, Reason.TIMEOUT, search.progress)


class BranchAndBound(Search, Generic[DomainsT]):
    """A tree of domains, or a part of one."""

    def __init__(self, space: Space[DomainsT, Any, Any, Any], limits: Limits) -> None:
        self.space, self.limits = space, limits
        self._frontier: Frontier[DomainsT] = Frontier(limits.memory_bytes)
        self.begun = False
        self.undecided = float("inf")
        self.witness: Counterexample | None = None
        self.doubt: Reason | None = None
        self.progress = Progress(lower=-float("inf"))
        self.outcome = None

    def step(self) -> None:
        space = self.space
        if self.begun and not self.open:  # another run had closed the last domain
            self._conclude(Leaves())
            return
        children = space.split(self._frontier.pop(space.parents)) if self.begun else space.whole()
        children = space.tighten(children)
        bounded = space.bound(children)
        left = space.certify(bounded)
        witness = space.attack(left)
        leaves = space.leaves(left) if witness is None else Leaves(witness=witness)
        self._frontier.push(space.open(left, leaves))
        space.journal.hear(Stepped(left.number, left.iterations, space.bounding.lap()))
        self._conclude(leaves)

    def _conclude(self, leaves: Leaves) -> None:
        """Take note of what one step found."""
        self.begun = True
        self.witness = leaves.witness
        self.doubt = outweighed(self.doubt, leaves.doubt)
        self.undecided = min(self.undecided, leaves.undecided)
        frontier = self._frontier
        lower = min(frontier.lower(), self.undecided)
        share = frontier.share() / self.space.roots
        self.progress = Progress(self.space.journal.counts, frontier.open, frontier.most, lower, share)
        self.outcome = conclusion(self.witness, not self.open, self.doubt, self.limits, self.progress)

    @property
    def open(self) -> int:
        """Domains that wait."""
        return self._frontier.open

    def waiting(self) -> DomainsT | None:
        """All domains that wait; None if none ever did."""
        return self._frontier.all()

    def part(self, room: int) -> SavedPart:
        """All domains that wait, and what is known of those that never will again.  Require: it has begun."""
        waiting = self.waiting()
        domains = () if waiting is None or not len(waiting) else (self.space.kept(waiting, room),)
        return SavedPart(domains, self.doubt, self.undecided)

    def saved(self, room: int) -> SavedTree | None:
        return self.saved_as(self.part(room)) if self.begun else None

    def saved_as(self, part: SavedPart) -> SavedTree:
        """This tree, if that is all that is left of it."""
        counts = self.space.journal.counts - part.ahead
        return SavedTree(part, counts, self._frontier.most, *self.space.basis())

    def go_on(self, saved: SavedTree) -> None:
        """Begin where another run was.  Require: not begun, and the space has the basis of the saved tree."""
        part = saved.part
        for domains in self.space.begin_again(part.domains):
            self._frontier.push(domains)
        self._frontier.most = max(self._frontier.most, saved.most)
        self.space.journal.begin_with(saved.counts)
        self._conclude(Leaves(None, None, part.doubt, part.undecided))
        self.outcome = None  # that is for the next step to say

    def halve(self) -> BranchAndBound[DomainsT]:
        """Give half of the open domains away, to a search without limits.  Require: some are open."""
        other = BranchAndBound(self.space, Limits(self.limits.memory_bytes))
        other._frontier = self._frontier.halve()
        other._conclude(Leaves())
        return other

    def adopt(self, other: BranchAndBound[DomainsT]) -> None:
        """Begin, and go on with the domains that are open in `other`, a search of the same problem, as the space says.

        Require: the spaces share a journal; this search has not begun, and `other` is not a part of one.
        """
        self.step()
        waiting, begun = other.waiting(), self.waiting()
        if waiting is not None and begun is not None:
            self._frontier = Frontier(self.limits.memory_bytes)
            self._frontier.push(self.space.adopt(waiting, begun, other.space))
        elif waiting is not None:
            self.space.journal.hear(Superseded(waiting.number, self.space.covering(waiting)))
        self._frontier.most = max(self._frontier.most, other._frontier.most)
        self._conclude(Leaves(None, self.witness, other.doubt, other.undecided))


def conclusion(
    witness: Counterexample | None, closed: bool, doubt: Reason | None, limits: Limits, progress: Progress
) -> Outcome | None:
    """How a search has ended, if it has; a witness outweighs everything, and what is closed is no limit."""
    if witness is not None:
        return Outcome(witness, None, progress)
    if closed:
        return Outcome(None, doubt, progress)
    return Outcome(None, Reason.LIMIT, progress) if limits.reached(progress.counts) else None
