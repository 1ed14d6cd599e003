"""Two ways to search the same problem, when nobody knows beforehand which is the better one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from verifier.bounding.base import Until
from verifier.result.verdict import Reason
from verifier.search.domains import Outcome, Progress
from verifier.search.engine import Hunt, Report, advance

FIRST_SLICE = 1.0
"""Seconds that every search gets in the first round; rounds double."""

FAVOUR = 4.0
"""How many times more the search gets that has closed its tree faster so far."""


@dataclass
class Runner:
    """One of the searches: it begins when its first slice does."""

    make: Callable[[], Hunt]
    hunt: Hunt | None = None
    progress: Progress = field(default_factory=Progress)
    spent: float = 0.0

    def run(self, seconds: float, until: Until, report: Report) -> Outcome | None:
        began = time.perf_counter()
        self.hunt = self.hunt or self.make()
        slice_ = Until(until.clock.within(seconds))
        self.progress, outcome = advance(self.hunt, slice_, report)
        self.spent += time.perf_counter() - began
        return outcome

    @property
    def speed(self) -> float:
        """Halvings of what is left, per second."""
        return -math.log2(max(self.progress.left, 1e-300)) / self.spent if self.spent else 0.0


def race(makers: Sequence[Callable[[], Hunt]], until: Until, report: Report) -> Outcome:
    """The outcome of whichever search decides first; they take turns, and the faster one gets longer ones.

    An outcome that decides nothing (numerics, a limit) ends only its own search, unless no other is left.
    """
    runners, ended = [Runner(make) for make in makers], list[Progress]()
    seconds = FIRST_SLICE
    while True:
        fastest = max(runners, key=lambda runner: runner.speed)
        for runner in list(runners):
            others = [*ended, *(other.progress for other in runners if other is not runner and other.spent)]
            favour = FAVOUR if len(runners) > 1 and runner is fastest and runner.spent else 1.0
            outcome = runner.run(seconds * favour, until, _on_top(others, report))
            total = beside(runner.progress, others)
            if outcome is not None:
                if outcome.witness is not None or outcome.reason is None or len(runners) == 1:
                    return Outcome(outcome.witness, outcome.reason, total)
                runners.remove(runner)
                ended.append(runner.progress)
            elif until.expired():
                return Outcome(None, Reason.TIMEOUT, total)
        seconds *= 2


def beside(now: Progress, others: Sequence[Progress]) -> Progress:
    """What several searches of the same problem know together: the best of their bounds, the sum of their work."""
    counts, lower, most = now.counts, now.lower, now.max_open
    for other in others:
        counts, lower, most = counts + other.counts, max(lower, other.lower), max(most, other.max_open)
    return Progress(counts, now.open, most, lower, now.left)


def _on_top(others: Sequence[Progress], report: Report) -> Report:
    return lambda progress: report(beside(progress, others))
