"""Points that a search comes across: unsafe ones are always replayed, descents get their share of the time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count, repeat

import pytest
import torch
from falsify import instances
from search.cases import Hours

from verifier.clock import Clock
from verifier.falsify import pgd
from verifier.falsify.base import Falsifier
from verifier.falsify.target import Target
from verifier.property.problem import Problem
from verifier.result.counterexample import Counterexample
from verifier.search import offers
from verifier.search.offers import ANEW, EARLY, LATE_SHARE, LATER, SECONDS, SHARE, Offers


@dataclass(frozen=True)
class Slow(Falsifier):
    """Finds nothing, and takes its time."""

    hours: Hours
    seconds: float
    asked: list[tuple[torch.Tensor, torch.Tensor, Clock]] = field(default_factory=list)

    def attack(self, target: Target, until: Clock) -> Counterexample | None:
        raise AssertionError("only points are tried here")

    def improve(self, target: Target, x: torch.Tensor, clause: torch.Tensor, until: Clock) -> Counterexample | None:
        self.asked.append((x, clause, until))
        self.hours.now += self.seconds
        return None


@dataclass(frozen=True)
class Restart(Falsifier):
    """Begins anew somewhere, finds nothing, and takes its time."""

    hours: Hours
    seconds: float
    made: list[float]

    def attack(self, target: Target, until: Clock) -> Counterexample | None:
        self.made.append(self.hours.now)
        self.hours.now += self.seconds
        return None

    def improve(self, target: Target, x: torch.Tensor, clause: torch.Tensor, until: Clock) -> Counterexample | None:
        raise AssertionError("restarts are given no points")


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Hours:
    """A clock of our own, and nothing begins anew."""
    made = Hours()
    monkeypatch.setattr(offers, "time", made)
    monkeypatch.setattr(offers, "restarts", lambda seed: repeat(Restart(made, 0.0, [])))
    return made


@pytest.fixture(scope="module")
def problem() -> Problem:
    """y = x on [0, 1]^2; clause 0: y_0 <= 0.25, clause 1: y_1 >= 0.75."""
    rows = [(0, [instances.row({0: 1}, "0.25")]), (0, [instances.row({1: -1}, "-0.75")])]
    return instances.problem(instances.identity(2), instances.boxes([[0, 0]], [[1, 1]]), rows)


SAFE = torch.tensor([[0.5, 0.5], [0.5, 0.5]])
CLAUSES = torch.tensor([0, 1])


def test_a_point_that_is_unsafe_is_replayed_for_its_own_clause(problem: Problem) -> None:
    offer = Offers(None, instances.target(problem), Clock.begin())
    assert offer(SAFE, CLAUSES) is None
    for point, clause, expected in (
        ([0.1, 0.9], 0, True),
        ([0.1, 0.9], 1, True),
        ([0.1, 0.1], 0, True),
        ([0.1, 0.1], 1, False),
        ([0.9, 0.9], 0, False),
    ):
        found = offer(torch.tensor([point]), torch.tensor([clause]))
        assert (found is not None) == expected
        if found is not None:
            instances.check(problem, found, [0, 0], [1, 1])
    found = offer(torch.tensor([[0.5, 0.5], [0.5, 0.8]], dtype=torch.float64), CLAUSES)
    assert found is not None
    assert found.clause == 1


def test_points_outside_of_their_box_are_moved_into_it(problem: Problem) -> None:
    found = Offers(None, instances.target(problem), Clock.begin())(torch.tensor([[-0.5, 3.0]]), torch.tensor([0]))
    assert found is not None
    instances.check(problem, found, [0, 0], [1, 1])


def test_unsafe_points_need_no_descent(problem: Problem, hours: Hours) -> None:
    slow = Slow(hours, 1.0)
    offer = Offers(slow, instances.target(problem), Clock.begin())
    hours.now += 10.0
    assert offer(torch.zeros(1, 2), torch.tensor([0])) is not None
    assert slow.asked == []


def test_the_falsifier_gets_all_points_and_half_a_second(problem: Problem, hours: Hours) -> None:
    slow = Slow(hours, 0.0)
    offer = Offers(slow, instances.target(problem), Clock.begin(60))
    hours.now += LATER
    assert offer(SAFE.double(), CLAUSES) is None
    ((x, clauses, until),) = slow.asked
    assert x.dtype is torch.float32
    assert torch.equal(x, SAFE)
    assert torch.equal(clauses, CLAUSES)
    assert 0 < until.remaining() <= SECONDS


def test_there_is_no_descent_at_first(problem: Problem, hours: Hours) -> None:
    slow = Slow(hours, 0.0)
    offer = Offers(slow, instances.target(problem), Clock.begin())
    for seconds, asked in ((0.0, 0), (0.9 * LATER, 0), (0.2 * LATER, 1)):
        hours.now += seconds
        assert offer(SAFE, CLAUSES) is None
        assert len(slow.asked) == asked


def allowed(elapsed: float) -> float:
    return SHARE * elapsed if elapsed < EARLY else SHARE * EARLY + LATE_SHARE * (elapsed - EARLY)


@pytest.mark.parametrize("seconds", [0.5, 0.01])
@pytest.mark.parametrize("batch", [0.1, 2.0])
def test_descents_keep_to_their_share_of_the_time(problem: Problem, hours: Hours, seconds: float, batch: float) -> None:
    slow, began = Slow(hours, seconds), hours.now
    offer = Offers(slow, instances.target(problem), Clock.begin())
    for _ in range(2000):
        hours.now += batch
        assert offer(SAFE, CLAUSES) is None
        spent, elapsed = seconds * len(slow.asked), hours.now - began
        assert spent <= allowed(elapsed) + seconds  # at most one descent too many
    wanted = min(2000, (allowed(elapsed) - SHARE * LATER) / seconds)
    assert 0.9 * wanted <= len(slow.asked) <= wanted + 1  # and they do take their share


def test_unsafe_points_are_replayed_when_descents_have_used_up_their_share(problem: Problem, hours: Hours) -> None:
    slow = Slow(hours, 100.0)
    offer = Offers(slow, instances.target(problem), Clock.begin())
    for _ in range(5):
        hours.now += 1.0
        assert offer(SAFE, CLAUSES) is None
    assert len(slow.asked) == 1
    assert offer(torch.tensor([[0.5, 0.5], [0.5, 0.8]]), CLAUSES) is not None


def test_nothing_is_tried_after_the_deadline(problem: Problem, hours: Hours) -> None:
    slow = Slow(hours, 0.0)
    offer = Offers(slow, instances.target(problem), Clock.begin(0.0))
    hours.now += 10.0
    assert offer(torch.zeros(1, 2), torch.tensor([0])) is None
    assert slow.asked == []


def test_what_a_descent_finds_is_told(problem: Problem, hours: Hours) -> None:
    target = instances.target(problem)
    witness = Offers(None, target, Clock.begin())(torch.zeros(1, 2), torch.tensor([0]))
    assert witness is not None

    class Lucky(Slow):
        def improve(self, *given: object) -> Counterexample | None:
            return witness

    offer = Offers(Lucky(hours, 0.0), target, Clock.begin())
    hours.now += 10.0
    assert offer(SAFE, CLAUSES) is witness


@pytest.mark.parametrize("seconds", [0.3, 4.0])
def test_restarts_have_a_share_of_their_own(
    problem: Problem, hours: Hours, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """Whatever the descents from the search's points take, the others get as much, and no more."""
    made: list[float] = []
    monkeypatch.setattr(offers, "restarts", lambda seed: repeat(Restart(hours, seconds, made)))
    slow, began = Slow(hours, 100.0), hours.now
    offer = Offers(slow, instances.target(problem), Clock.begin())
    for _ in range(3000):
        hours.now += 0.2
        assert offer(SAFE, CLAUSES) is None
        assert seconds * len(made) <= SHARE * (hours.now - began) + seconds
        assert not made or made[0] >= began + ANEW  # searches that end soon pay nothing
    assert 0.9 <= len(made) / (SHARE * (hours.now - began) / seconds) <= 1.1


def test_restarts_are_numbered_from_the_seed_and_forks_make_none(
    problem: Problem, hours: Hours, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[float] = []
    taken: list[int] = []

    def numbered(seed: int) -> Iterator[Falsifier]:
        for turn in count(seed):
            taken.append(turn)
            yield Restart(hours, 0.01, made)

    monkeypatch.setattr(offers, "restarts", numbered)
    offer = Offers(Slow(hours, 0.0), instances.target(problem), Clock.begin(), seed=7)
    for _ in range(3):
        hours.now += 10.0
        offer(SAFE, CLAUSES)
    assert taken == [7, 8, 9]
    monkeypatch.setattr(offers.os, "getpid", lambda: -1)
    hours.now += 10.0
    offer(SAFE, CLAUSES)
    assert len(made) == 3


def test_without_an_attack_nothing_begins_anew(problem: Problem, hours: Hours, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[float] = []
    monkeypatch.setattr(offers, "restarts", lambda seed: repeat(Restart(hours, 0.0, made)))
    offer = Offers(None, instances.target(problem), Clock.begin())
    hours.now += 10.0
    assert offer(SAFE, CLAUSES) is None
    assert made == []


def test_a_restart_finds_what_the_search_does_not_offer(
    problem: Problem, hours: Hours, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The points are safe, and so is what the falsifier makes of them; the boxes are not."""
    monkeypatch.setattr(offers, "restarts", pgd.restarts)
    offer = Offers(Slow(hours, 0.0), instances.target(problem), Clock.begin())
    hours.now += 10.0
    instances.check(problem, offer(SAFE, CLAUSES), [0, 0], [1, 1])
