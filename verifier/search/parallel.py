"""Several processes on disjoint subtrees of one search.

A process with many open domains forks whenever a core is idle; the fork goes on with half of them, and may fork in
turn.  One that has closed its own part leaves its core to others while its forks still work.  Forks send how far they
are after each step, with their notes for the journal, and at last their outcome; so no domain ever travels, and the
first process knows the whole.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from verifier.bounding.core.base import Until
from verifier.processes import NAP, Fork, Send, wait_for
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.domains import Counts, DomainsT, Outcome, Progress, outweighed
from verifier.search.journal import Note
from verifier.search.loop import BranchAndBound, Limits, Search, conclusion, run

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


class ForkedParts:
    """The parts of a tree that forks of this process search, and what they have found; `keep` gets their notes."""

    def __init__(self, cores: Cores, keep: Callable[[Sequence[Note]], None]) -> None:
        self._cores, self._keep = cores, keep
        self._working: dict[Fork, Progress] = {}
        self._ended = Progress()
        self._resting = False
        self.witness: Counterexample | None = None
        self.doubt: Reason | None = None

    @property
    def busy(self) -> bool:
        """Whether some fork still works."""
        return bool(self._working)

    def start(self, work: Callable[[Send], Outcome], progress: Progress) -> None:
        """Let a fork do the work, which begins there.  Require: a core was taken for it."""
        self._working[Fork.start(work)] = progress

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
                    self._keep(message.notes)
                    self._working[fork] = message.progress

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
        for progress in self._working.values():
            total = total.beside(progress)
        return total

    def close(self) -> None:
        """End those that still work."""
        for fork in self._working:
            fork.stop()


class SharedSearch(Search):
    """One tree that several processes search."""

    def __init__(self, tree: BranchAndBound[DomainsT], limits: Limits, cores: Cores) -> None:
        """The limits are those of all processes together, and the tree has none of its own."""
        self._tree, self._limits, self._cores = tree, limits, cores
        self._journal = tree.space.journal
        self._forks = ForkedParts(cores, self._journal.receive)
        self.progress = tree.progress
        self.outcome = None

    def step(self) -> None:
        """Give domains away while cores are idle, go on with the rest, and hear what the forks say."""
        while self._tree.open >= 2 * WORTHWHILE and self._cores.take():
            half = self._tree.halve()
            self._forks.start(partial(_search_part, half, self._cores), replace(half.progress, counts=Counts()))
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

    def close(self) -> None:
        self._forks.close()


def _search_part(part: BranchAndBound[DomainsT], cores: Cores, send: Send) -> Outcome:
    """What a fork does with its part; the process that forked it keeps the limits and the time."""
    journal = part.space.journal
    journal.go_abroad()
    search = SharedSearch(part, Limits(), cores)
    return run(search, Until(), lambda progress: send(StepReport(progress, journal.sent())))
