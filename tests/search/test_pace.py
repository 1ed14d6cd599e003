"""When checkpoints are due."""

from __future__ import annotations

import pytest
from search.cases import Hours

from verifier.search import pace
from verifier.search.pace import LAST, SHARE, Pace


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Hours:
    hours = Hours()
    monkeypatch.setattr(pace, "time", hours)
    return hours


def take(mine: Pace, hours: Hours, seconds: float) -> None:
    with mine.taken():
        hours.now += seconds


def test_one_is_due_every_so_many_seconds(hours: Hours) -> None:
    mine = Pace(30.0)
    hours.now += 29.9
    assert not mine.due()
    hours.now += 0.1
    assert mine.due()
    assert mine.due()
    take(mine, hours, 0.1)
    assert not mine.due()
    hours.now += 30.0
    assert mine.due()


def test_those_that_take_long_are_made_more_seldom(hours: Hours) -> None:
    mine = Pace(30.0)
    take(mine, hours, 2.0)
    hours.now += 2.0 / SHARE - 0.1
    assert not mine.due()
    hours.now += 0.2
    assert mine.due()


def test_one_more_is_due_before_a_deadline(hours: Hours) -> None:
    mine = Pace(30.0)
    assert not mine.due(LAST + 0.1)
    assert mine.due(LAST)
    assert not mine.due(LAST - 0.1)
    assert not mine.due(0.0)
    assert not mine.due(-float("inf"))


def test_none_is_begun_that_the_deadline_would_cut_off(hours: Hours) -> None:
    mine = Pace(1.0)
    take(mine, hours, 5.0)
    hours.now += 1000.0
    assert mine.due()
    assert not mine.due(9.0)
    assert mine.due(25.0)
