"""Several processes on disjoint subtrees of one search.

A process with many open domains forks whenever a core is idle; the fork goes on with half of them, and may fork in
turn.  One that has closed its own part leaves its core to others while its forks still work.  Forks send how far they
are after each step, with their notes for the journal, and at last their outcome; so the first process knows the whole.

Domains travel only where a run is to be continued by another one, should it end too early.  Then every process knows at
any moment what its forks were last known to have left: at first the half that it gave, later what they send now and
then, together with the notes of the same step.  What they have done since is done again by whoever goes on, so it does
not count there.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from verifier.bounding.core.base import Until
from verifier.processes import NAP, Fork, Send, wait_for
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.domains import Counts, DomainsT, Outcome, Progress, outweighed
from verifier.search.journal import Journal, Note
from verifier.search.loop import BranchAndBound, Limits, Search, conclusion, run
from verifier.search.pace import Pace
from verifier.search.saved import Keeping, SavedPart, SavedTree

WORTHWHILE = 8
"""Open domains that are worth a process of their own."""


class Cores:
    """Idle cores, as bytes in a pipe that all processes of a search read: whoever gets one out may use a core."""

    def __init__(self, count: int) -> None:
        self._take, self._give = os.pipe()
        for end in (self._take, self._give):
            weakref.finalize(self, os.close, end)
        os.set_blocking(self._take, False)
        os.write(self._give, bytes(count - 1))  # one is in use from the beginning

    def take(self) -> bool:
        """Whether a core was idle; it is not any more."""
        try:
            return bool(os.read(self._take, 1))
        except BlockingIOError:
            return False

    def give(self) -> None:
        os.write(self._give, b"\0")


@dataclass(frozen=True)
class StepReport:
    """What a fork sends after each step."""

    progress: Progress
    notes: Sequence[Note] = ()
    part: SavedPart | None = None  # what is not closed after this step, now and then


@dataclass(frozen=True, eq=False)
class Working:
    """A fork at work: how far it is, what it was last known to have left, and what it has done since."""

    progress: Progress
    left: Callable[[], SavedPart]
    since: Counts = field(default_factory=Counts)

    def told(self, report: StepReport, counted: Counts) -> Working:
        """After one more step, whose notes have counted so much."""
        part = report.part
        if part is None:
            return replace(self, progress=report.progress, since=self.since + counted)
        return Working(report.progress, lambda: part, part.ahead)

    def part(self) -> SavedPart:
        return replace(self.left(), ahead=self.since)


def _not_kept() -> SavedPart:
    raise AssertionError("what forks began with was not kept")


class ForkedParts:
    """The parts of a tree that forks of this process search, and what they have found; the journal gets their notes."""

    def __init__(self, cores: Cores, journal: Journal) -> None:
        self._cores, self._journal = cores, journal
        self._working: dict[Fork, Working] = {}
        self._ended = Progress()
        self._resting = False
        self.witness: Counterexample | None = None
        self.doubt: Reason | None = None

    @property
    def busy(self) -> bool:
        """Whether some fork still works."""
        return bool(self._working)

    def start(
        self, work: Callable[[Send], Outcome], progress: Progress, left: Callable[[], SavedPart] = _not_kept
    ) -> None:
        """Let a fork do the work, which begins there with what is `left`.  Require: a core was taken for it."""
        self._working[Fork.start(work)] = Working(progress, left)

    def listen(self) -> None:
        """Take note of what the forks have sent."""
        for fork in list(self._working):
            for message in fork.messages():
                if isinstance(message, Outcome):
                    self._ended = self._ended.beside(message.progress)
                    self.witness = self.witness or message.witness
                    self.doubt = outweighed(self.doubt, message.reason)
                    del self._working[fork]
                elif isinstance(message, StepReport):
                    self._journal.receive(message.notes)
                    self._working[fork] = self._working[fork].told(message, self._journal.counted(message.notes))

    def rest(self) -> None:
        """Wait for forks, and leave the core of this process to others."""
        self.leave()
        wait_for(list(self._working), NAP)

    def leave(self) -> None:
        """This process needs its core no longer."""
        if not self._resting:
            self._cores.give()
            self._resting = True

    def beside(self, own: Progress) -> Progress:
        """How far this process and all of its forks are together."""
        total = own.beside(self._ended)
        for working in self._working.values():
            total = total.beside(working.progress)
        return total

    def part(self) -> SavedPart:
        """What is not closed in all forks together, as far as this process knows."""
        ended = SavedPart((), self.doubt, self._ended.lower)
        return SavedPart.joined([ended, *(working.part() for working in self._working.values())])

    def close(self) -> None:
        """End those that still work."""
        for fork in self._working:
            fork.stop()


class SharedSearch(Search):
    """One tree that several processes search."""

    def __init__(
        self, tree: BranchAndBound[DomainsT], limits: Limits, cores: Cores, keeping: Keeping | None = None
    ) -> None:
        """The limits are those of all processes together, and the tree has none of its own.

        With `keeping`, another run can go on from what is `saved`; the room is that of each process.
        """
        self._tree, self._limits, self._cores, self._keeping = tree, limits, cores, keeping
        self._journal = tree.space.journal
        self._forks = ForkedParts(cores, self._journal)
        self.progress = tree.progress
        self.outcome = None

    def step(self) -> None:
        """Give domains away while cores are idle, go on with the rest, and hear what the forks say."""
        while self._tree.open >= 2 * WORTHWHILE and self._cores.take():
            half = self._tree.halve()
            work = partial(_search_part, half, self._cores, self._keeping)
            self._forks.start(work, replace(half.progress, counts=Counts()), self._given(half))
        if self._tree.outcome is None:
            self._tree.step()
        else:
            self._forks.rest()
        self._forks.listen()
        self._conclude()

    def _conclude(self) -> None:
        tree, forks = self._tree, self._forks
        self.progress = forks.beside(replace(tree.progress, counts=self._journal.counts))
        closed = not tree.open and not forks.busy
        doubt = outweighed(tree.doubt, forks.doubt)
        self.outcome = conclusion(tree.witness or forks.witness, closed, doubt, self._limits, self.progress)
        if closed:
            forks.leave()

    def _given(self, half: BranchAndBound[DomainsT]) -> Callable[[], SavedPart]:
        """What a fork begins with, in the form in which it is kept; nobody holds it where nothing is to be kept."""
        if self._keeping is None:
            return _not_kept
        return partial(half.part, self._keeping.room)

    def part(self, room: int) -> SavedPart:
        """What is not closed in this process and in all of its forks, as far as it knows."""
        return SavedPart.joined([self._tree.part(room), self._forks.part()])

    def saved(self, room: int) -> SavedTree | None:
        return self._tree.saved_as(self.part(room)) if self._tree.begun else None

    def close(self) -> None:
        self._forks.close()


def _search_part(part: BranchAndBound[DomainsT], cores: Cores, keeping: Keeping | None, send: Send) -> Outcome:
    """What a fork does with its part; the process that forked it keeps the limits and the time."""
    journal = part.space.journal
    journal.go_abroad()
    search = SharedSearch(part, Limits(), cores, keeping)
    pace = None if keeping is None else Pace(keeping.seconds)

    def report(progress: Progress) -> None:
        if keeping is None or pace is None or not pace.due() or search.outcome is not None:
            send(StepReport(progress, journal.sent()))
            return
        with pace.taken():
            send(StepReport(progress, journal.sent(), search.part(keeping.room)))

    return run(search, Until(), report)
