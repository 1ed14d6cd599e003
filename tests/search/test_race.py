"""Races: whoever decides first wins, and what nobody can decide ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from search.cases import Hours

from verifier.bounding.core.base import Until
from verifier.clock import Clock
from verifier.result.verdict import Reason
from verifier.search import race as module
from verifier.search.domains import Counts, Outcome, Progress
from verifier.search.loop import Report, Search, run
from verifier.search.race import Race, beside

HOURS = Hours()


class Steady(Search):
    """A search of so many steps (None: without end) that take a millisecond each."""

    def __init__(self, steps: int | None, reason: Reason | None, left: float, lower: float) -> None:
        self._steps, self._reason, self._left, self._lower = steps, reason, left, lower
        self._done = 0
        self.closed = False
        self.progress, self.outcome = Progress(), None

    def step(self) -> None:
        assert self.outcome is None
        HOURS.now += 0.001
        self._done += 1
        self.progress = Progress(Counts({"some": self._done}), 1, 1, self._lower, self._left**self._done)
        if self._done == self._steps:
            self.progress = Progress(Counts({"some": self._done}), 0, 1, float("inf"))
            self.outcome = Outcome(None, self._reason, self.progress)

    def close(self) -> None:
        self.closed = True


def runner(
    steps: int | None, reason: Reason | None = None, left: float = 0.5, lower: float = -1.0
) -> Callable[[], Search]:
    return lambda: Steady(steps, reason, left, lower)


def race(makers: list[Callable[[], Search]], until: Until, report: Report) -> Outcome:
    return run(Race(makers), until, report)


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


def test_leaving_a_race_closes_all_that_began() -> None:
    searches = [Steady(None, None, 0.5, -1.0) for _ in range(3)]
    race(
        [lambda: searches[0], lambda: searches[1], lambda: pytest.fail("too early")], Until(Clock.begin(0.035)), ignore
    )
    assert [search.closed for search in searches] == [True, True, False]


def test_a_head_start_without_success_favours_the_other_search() -> None:
    first, second = Steady(None, None, 1.0, -1.0), Steady(None, None, 1.0, -1.0)
    race([lambda: first, lambda: second], Until(Clock.begin(0.7)), ignore)
    assert second._done > 2 * first._done
