"""Two ways to search the same problem, when nobody knows beforehand which is the better one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

from verifier.result.verdict import Reason
from verifier.search.domains import Outcome, Progress
from verifier.search.loop import Search
from verifier.search.saved import SavedRace, SavedRunner

FIRST_SLICE = 1.0
"""Seconds that every search gets in the first round; rounds double."""

HEAD_START = 3.0
"""How many times longer the first of the searches goes on in the first round: it is the one that seems better."""

FAVOUR = 4.0
"""How many times more the search gets that has closed its tree faster so far."""


LEAST_REST = 10.0
"""Seconds that a search has at least after another one has given up."""


class Runner:
    """One of the searches: it is made when its first turn begins."""

    def __init__(self, make: Callable[[], Search]) -> None:
        self._make = make
        self.search: Search | None = None
        self.progress = Progress()
        self.spent = 0.0

    def saved(self, room: int, ended: bool) -> SavedRunner:
        search = None if self.search is None or ended else self.search.saved(room)
        return SavedRunner(search, self.spent, self.progress, ended)

    def go_on(self, saved: SavedRunner) -> None:
        """What another run has spent counts, unless it has left nothing to go on from."""
        if saved.search is not None or saved.ended:
            self.spent, self.progress = saved.spent, saved.progress

    def step(self) -> Outcome | None:
        began = time.perf_counter()
        if self.search is None:
            self.search = self._make()
        self.search.step()
        self.progress = self.search.progress
        self.spent += time.perf_counter() - began
        return self.search.outcome

    @property
    def speed(self) -> float:
        """Halvings of what is left, per second."""
        return -math.log2(max(self.progress.left, 1e-300)) / self.spent if self.spent else 0.0

    def close(self) -> None:
        if self.search is not None:
            self.search.close()


class Race(Search):
    """Several searches of one problem: whichever decides first does.  They take turns; the faster one gets longer ones.

    A search that ends without an answer (numerics, a limit) leaves the others a few times as long as it took itself:
    what one of them cannot decide in floats, the others seldom can.
    """

    def __init__(self, makers: Sequence[Callable[[], Search]], saved: SavedRace | None = None) -> None:
        """Where another run is continued, the makers give searches that go on from what that one has saved."""
        self._all = self._runners = [Runner(make) for make in makers]
        self._ended: list[Runner] = []
        self._round = self._runners[:]  # whose turn it is, and who follows in this round
        self._fastest = self._runners[0]
        self._seconds = FIRST_SLICE
        self._reason, self._allowed = Reason.TIMEOUT, float("inf")
        self._turn_ends = self._turn()
        self.progress = Progress(lower=-float("inf"))
        self.outcome = None
        if saved is not None:
            self._go_on(saved)

    def _go_on(self, saved: SavedRace) -> None:
        for runner, left in zip(self._all, saved.runners, strict=True):
            runner.go_on(left)
        ended = [left.ended for left in saved.runners]
        self._ended = [runner for runner, over in zip(self._all, ended, strict=True) if over]
        self._runners = [runner for runner, over in zip(self._all, ended, strict=True) if not over]
        self._reason, self._allowed = saved.reason, saved.allowed
        self._seconds = saved.seconds / 2  # the round begins anew
        self._round = []
        self._next()

    def saved(self, room: int) -> SavedRace:
        runners = tuple(runner.saved(room, runner in self._ended) for runner in self._all)
        return SavedRace(runners, self._seconds, self._reason, self._allowed)

    def step(self) -> None:
        runner = self._round[0]
        outcome = runner.step()
        others = [other.progress for other in (*self._ended, *self._runners) if other is not runner and other.spent]
        self.progress = beside(runner.progress, others)
        if outcome is not None:
            self._heed(runner, outcome)
        elif runner.spent >= self._allowed:
            self.outcome = Outcome(None, self._reason, self.progress)
        elif runner.spent >= self._turn_ends:
            self._next()

    def _heed(self, runner: Runner, outcome: Outcome) -> None:
        """One of the searches has ended."""
        if outcome.witness is not None or outcome.reason is None or len(self._runners) == 1:
            self.outcome = Outcome(outcome.witness, outcome.reason, self.progress)
            return
        self._runners = [other for other in self._runners if other is not runner]
        self._ended.append(runner)
        self._reason, self._allowed = outcome.reason, max(LEAST_REST, FAVOUR * runner.spent)
        self._next()

    def _next(self) -> None:
        """The turn of the next search."""
        self._round = self._round[1:]
        if not self._round:
            self._round = self._runners[:]
            self._fastest = max(self._runners, key=lambda runner: runner.speed)
            self._seconds *= 2
        self._turn_ends = self._turn()

    def _turn(self) -> float:
        """How much its search will have spent when this turn ends."""
        runner = self._round[0]
        favour = 1.0
        if runner is self._runners[0] and not runner.spent:
            favour = HEAD_START
        elif len(self._runners) > 1 and runner.spent and runner is self._ahead():
            favour = FAVOUR
        return min(runner.spent + self._seconds * favour, self._allowed)

    def _ahead(self) -> Runner:
        """The fastest; if nobody has closed anything, the first one has had its chance, and it is the last one."""
        return self._fastest if self._fastest.speed > 0 else self._runners[-1]

    def close(self) -> None:
        for runner in (*self._runners, *self._ended):
            runner.close()


def beside(now: Progress, others: Sequence[Progress]) -> Progress:
    """What several searches of the same problem know together: the best of their bounds, the sum of their work."""
    counts, lower, most = now.counts, now.lower, now.max_open
    for other in others:
        counts, lower, most = counts + other.counts, max(lower, other.lower), max(most, other.max_open)
    return Progress(counts, now.open, most, lower, now.left)
