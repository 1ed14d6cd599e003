"""Two ways to search the same problem, when nobody knows beforehand which is the better one."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from verifier.bounding.core.base import Until
from verifier.result.verdict import Reason
from verifier.search.domains import Outcome, Progress
from verifier.search.loop import Hunt, Report, advance

FIRST_SLICE = 1.0
"""Seconds that every search gets in the first round; rounds double."""

HEAD_START = 3.0
"""How many times longer the first of the searches goes on in the first round: it is the one that seems better."""

FAVOUR = 4.0
"""How many times more the search gets that has closed its tree faster so far."""


LEAST_REST = 10.0
"""Seconds that a search has at least after another one has given up."""


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

    A search that ends without an answer (numerics, a limit) leaves the others a few times as long as it took itself:
    what one of them cannot decide in floats, the others seldom can.
    """
    runners, ended = [Runner(make) for make in makers], list[Runner]()
    seconds, reason, allowed = FIRST_SLICE, Reason.TIMEOUT, float("inf")
    while True:
        fastest = max(runners, key=lambda runner: runner.speed)
        for runner in list(runners):
            others = [other.progress for other in (*ended, *runners) if other is not runner and other.spent]
            favour = FAVOUR if len(runners) > 1 and runner is fastest and runner.spent else 1.0
            if runner is runners[0] and not runner.spent:
                favour = HEAD_START
            turn = min(seconds * favour, allowed - runner.spent)
            outcome = runner.run(turn, until, _on_top(others, report))
            total = beside(runner.progress, others)
            if outcome is not None:
                if outcome.witness is not None or outcome.reason is None or len(runners) == 1:
                    return Outcome(outcome.witness, outcome.reason, total)
                runners.remove(runner)
                ended.append(runner)
                reason, allowed = outcome.reason, max(LEAST_REST, FAVOUR * runner.spent)
            elif until.expired() or runner.spent >= allowed:
                return Outcome(None, Reason.TIMEOUT if until.expired() else reason, total)
        seconds *= 2


def beside(now: Progress, others: Sequence[Progress]) -> Progress:
    """What several searches of the same problem know together: the best of their bounds, the sum of their work."""
    counts, lower, most = now.counts, now.lower, now.max_open
    for other in others:
        counts, lower, most = counts + other.counts, max(lower, other.lower), max(most, other.max_open)
    return Progress(counts, now.open, most, lower, now.left)


def _on_top(others: Sequence[Progress], report: Report) -> Report:
    return lambda progress: report(beside(progress, others))
