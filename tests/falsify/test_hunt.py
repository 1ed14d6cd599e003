"""Attacks that take turns with bounds and a search."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from falsify import instances
from forks import PATIENCE, watched

from verifier.bounding.core.base import Until
from verifier.clock import Clock
from verifier.falsify import hunt as module
from verifier.falsify.base import Falsifier, FirstOf, Wave, one_after_another
from verifier.falsify.hunt import Hunt, HuntBeside
from verifier.falsify.pgd import PGD, quick
from verifier.falsify.target import Target
from verifier.processes import Forked, forkable
from verifier.property.problem import Problem
from verifier.result.counterexample import Counterexample
from verifier.search.domains import Outcome, Progress
from verifier.search.loop import Search, run

SECONDS = 10.0


class Hours:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Hours:
    made = Hours()
    monkeypatch.setattr(module, "time", made)
    return made


@pytest.fixture(scope="module")
def witness() -> Counterexample:
    found = instances.search(quick(), easy(), instances.Float32Model(easy().network), Clock.begin())
    assert found is not None
    return found


def easy(bound: str = "0.25", clauses: int = 1) -> Problem:
    """y = x on [0, 1]^2; every clause asks for y_0 <= bound."""
    rows = [(0, [instances.row({0: 1}, bound)])] * clauses
    return instances.problem(instances.identity(2), instances.boxes([[0, 0]], [[1, 1]]), rows)


def waves(
    hours: Hours, log: list[int], found: dict[int, Counterexample] | None = None, count: int = 5
) -> Iterator[Wave]:
    """Waves that take a second each; `log` gets their numbers, and some of them find something."""

    def wave(number: int) -> Wave:
        def made(until: Clock) -> Counterexample | None:
            log.append(number)
            hours.now += 1.0
            return (found or {}).get(number)

        return made

    return (wave(number) for number in range(count))


def test_the_first_wave_has_its_turn_at_once(hours: Hours) -> None:
    log: list[int] = []
    hunt = Hunt(waves(hours, log), Clock.begin(), SECONDS)
    assert hunt.due
    assert hunt.turn() is None
    assert log == [0]


def test_waves_wait_until_all_else_has_taken_its_part(hours: Hours) -> None:
    log: list[int] = []
    hunt = Hunt(waves(hours, log), Clock.begin(), SECONDS)
    hunt.turn()
    for passed, expected in ((2.0, 1), (0.9, 1), (0.2, 2), (2.0, 2), (0.9, 3)):
        hours.now += passed
        hunt.turn()
        assert len(log) == expected


def test_turns_are_taken_as_long_as_they_are_due(hours: Hours) -> None:
    log: list[int] = []
    hunt = Hunt(waves(hours, log), Clock.begin(), SECONDS)
    hours.now += 7.5
    assert hunt.turns() is None
    assert log == [0, 1, 2]
    assert not hunt.due


def test_the_rest_needs_no_turn_and_ends_with_what_is_found(hours: Hours, witness: Counterexample) -> None:
    log: list[int] = []
    hunt = Hunt(waves(hours, log, {3: witness}), Clock.begin(), SECONDS)
    assert hunt.rest() is witness
    assert log == [0, 1, 2, 3]
    assert not hunt.over
    assert hunt.rest() is None
    assert log == [0, 1, 2, 3, 4]
    assert hunt.over
    assert not hunt.due
    assert hunt.turn() is None


def test_waves_have_their_seconds_in_all(hours: Hours) -> None:
    log: list[int] = []
    hunt = Hunt(waves(hours, log), Clock.begin(), 2.5)
    assert hunt.rest() is None
    assert log == [0, 1, 2]
    assert hunt.over


def test_no_wave_begins_after_the_deadline(hours: Hours) -> None:
    log: list[int] = []
    hunt = Hunt(waves(hours, log), Clock.begin(0.0), SECONDS)
    assert hunt.rest() is None
    assert hunt.over
    assert log == []


def test_a_wave_is_given_what_is_left(hours: Hours) -> None:
    given: list[float] = []

    def made(until: Clock) -> None:
        given.append(until.remaining())
        hours.now += 1.0

    Hunt(iter([made, made]), Clock.begin(), 3.0).rest()
    assert given == pytest.approx([3.0, 2.0], abs=0.5)


def test_points_that_come_up_are_tried_next_even_if_all_waves_are_over(hours: Hours, witness: Counterexample) -> None:
    log: list[int] = []
    hunt = Hunt(waves(hours, log, count=2), Clock.begin(), SECONDS)
    hunt.turn()
    hunt.near([lambda until: log.append(99)])  # type: ignore[func-returns-value, list-item]
    hunt.rest()
    assert log == [0, 99, 1]
    hunt.near([lambda until: witness])
    assert hunt.rest() is witness


FORKS = pytest.mark.skipif(not forkable(), reason="forks work on Linux only")


def beside(work: Callable[..., Any]) -> tuple[Forked[Counterexample | None], HuntBeside]:
    fork: Forked[Counterexample | None] = Forked(work)
    return fork, HuntBeside(fork, Clock.begin(PATIENCE), SECONDS)


@FORKS
def test_a_fork_is_asked_and_waited_for(witness: Counterexample) -> None:
    with watched():
        fork, hunt = beside(lambda send: witness)
        with fork:
            found = hunt.rest()
            assert found is not None
            assert (found.x == witness.x).all()
            assert hunt.ready()
            assert hunt.turn() is not None
            assert hunt.turns() is not None


@FORKS
def test_nobody_waits_for_a_fork_in_a_turn() -> None:
    tried: list[int] = []
    with watched():
        fork, hunt = beside(lambda send: time.sleep(PATIENCE))
        with fork:
            assert hunt.turn() is None
            assert not hunt.ready()
            hunt.near([lambda until: tried.append(1)])  # type: ignore[func-returns-value, list-item]
            assert hunt.turn() is None
            assert tried == [1]


class Endless(Search):
    """A search that never ends by itself."""

    def __init__(self, hours: Hours) -> None:
        self.hours, self.steps = hours, 0
        self.progress, self.outcome = Progress(), None

    def step(self) -> None:
        self.steps += 1
        self.hours.now += 0.5


def test_a_hunt_ends_a_search(hours: Hours, witness: Counterexample) -> None:
    log: list[int] = []
    hunt = Hunt(waves(hours, log, {2: witness}), Clock.begin(), SECONDS)
    search = Endless(hours)
    outcome = run(search, Until(Clock.begin(PATIENCE)), hunt=hunt)
    assert outcome == Outcome(witness, None, search.progress)
    assert log == [0, 1, 2]
    assert search.steps == 12  # of half a second: the third wave begins when the first two are a quarter of the time


class Whole(Falsifier):
    """An attack of one piece."""

    def __init__(self, found: Counterexample | None) -> None:
        self.found, self.asked = found, 0

    def attack(self, target: Target, until: Clock) -> Counterexample | None:
        self.asked += 1
        return self.found

    def improve(self, *given: Any) -> Counterexample | None:
        return None


def test_an_attack_is_one_wave_unless_it_says_otherwise(witness: Counterexample) -> None:
    first, second, third = Whole(None), Whole(witness), Whole(witness)
    target = instances.target(easy())
    (wave,) = first.waves(target)
    assert wave(Clock.begin()) is None
    assert one_after_another(FirstOf((first, second, third)).waves(target), Clock.begin()) is witness
    assert (first.asked, second.asked, third.asked) == (2, 1, 0)


@pytest.mark.parametrize("clauses", [1, 5])
def test_waves_of_descents_are_the_attack(clauses: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever makes them one after the other tries the same points as the attack as a whole; the second wave takes the
    quarter of the clauses that came lowest."""
    target, tried = instances.target(easy("-0.5", clauses)), []
    usual = PGD._wave

    def told(self: PGD, target: Target, chosen: torch.Tensor, *others: Any) -> Any:
        tried.append(chosen.tolist())
        return usual(self, target, chosen, *others)

    monkeypatch.setattr(PGD, "_wave", told)
    assert quick().attack(target, Clock.begin()) is None
    whole = list(tried)
    tried.clear()
    made = [wave(Clock.begin()) for wave in quick().waves(target)]
    assert made == [None] * (2 if clauses == 1 else 4)
    assert tried == whole
    if clauses > 1:
        assert [len(chosen) for chosen in tried] == [5, 2, 5, 2]
