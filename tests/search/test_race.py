"""Races: whoever decides first wins, and what nobody can decide ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from verifier.bounding.core.base import Until
from verifier.clock import Clock
from verifier.result.verdict import Reason
from verifier.search import race as module
from verifier.search.domains import Counts, Outcome, Progress
from verifier.search.loop import Hunt
from verifier.search.race import beside, race


@dataclass
class Hours:
    """Stands for the module `time`: only what the searches say takes any."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now

    def perf_counter(self) -> float:
        return self.now


HOURS = Hours()


def runner(
    batches: int | None, reason: Reason | None = None, left: float = 0.5, lower: float = -1.0
) -> Callable[[], Hunt]:
    """A search of so many batches (None: without end) that take a millisecond each."""

    def hunt() -> Hunt:
        done = 0
        while batches is None or done < batches:
            HOURS.now += 0.001
            done += 1
            yield Progress(Counts({"some": done}), 1, 1, lower, left**done)
        return Outcome(None, reason, Progress(Counts({"some": done}), 0, 1, float("inf")))

    return hunt


def ignore(progress: Progress) -> None:
    """Nobody listens."""


@pytest.fixture(autouse=True)
def short_turns_on_a_clock_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FIRST_SLICE", 0.01)
    monkeypatch.setattr(module, "LEAST_REST", 0.05)
    monkeypatch.setattr(module, "time", HOURS)
    monkeypatch.setattr("verifier.clock.time", HOURS)


@pytest.mark.parametrize("order", [(50, None), (None, 50)])
def test_whoever_ends_first_decides(order: tuple[int | None, int | None]) -> None:
    outcome = race([runner(count) for count in order], Until(Clock.begin(20)), ignore)
    assert (outcome.witness, outcome.reason) == (None, None)
    assert outcome.progress.domains > 50  # the work of both counts


def test_a_search_that_cannot_decide_ends_only_itself() -> None:
    outcome = race([runner(3, Reason.NUMERICS), runner(20)], Until(Clock.begin(20)), ignore)
    assert outcome.reason is None


def test_doubt_ends_a_race_before_its_deadline() -> None:
    began = HOURS.now
    outcome = race([runner(3, Reason.NUMERICS), runner(None)], Until(Clock.begin(20)), ignore)
    assert outcome.reason is Reason.NUMERICS
    assert HOURS.now - began < 1


def test_the_deadline_ends_a_race() -> None:
    began = HOURS.now
    outcome = race([runner(None), runner(None)], Until(Clock.begin(0.2)), ignore)
    assert outcome.reason is Reason.TIMEOUT
    assert HOURS.now - began == pytest.approx(0.2, abs=0.005)


def test_a_single_search_keeps_its_reason() -> None:
    assert race([runner(3, Reason.LIMIT)], Until(Clock.begin(20)), ignore).reason is Reason.LIMIT


def test_the_faster_search_gets_more_time() -> None:
    slow, fast = runner(None, left=0.999), runner(None, left=0.5)
    heard: list[Progress] = []
    outcome = race([slow, fast], Until(Clock.begin(0.7)), heard.append)
    assert outcome.reason is Reason.TIMEOUT
    spent = [p.left for p in heard]
    assert sum(left < 0.4 for left in spent) > 2 * sum(left > 0.4 for left in spent)


def test_several_searches_know_the_best_bound_and_count_all_work() -> None:
    one, other = Progress(Counts({"a": 2}), 3, 5, -2.0, 0.5), Progress(Counts({"b": 4}), 1, 7, -1.0, 0.1)
    both = beside(one, [other])
    assert (both.counts.tiers, both.open, both.max_open, both.lower) == ({"a": 2, "b": 4}, 3, 7, -1.0)
