"""The main loop, on spaces whose every step is written down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
import torch
from search.cases import EACH, Late, Named, domains, some_witness

from verifier.bounding.core.base import Until
from verifier.clock import Stopwatch
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.domains import Outcome, Progress
from verifier.search.journal import Bounded, Journal, LeafSolved
from verifier.search.loop import BranchAndBound, Limits
from verifier.search.loop import run as drive
from verifier.search.space import Leaves, Remaining, Space

INF = float("inf")


@pytest.fixture
def witness() -> Counterexample:
    return some_witness()


@dataclass(frozen=True, eq=False)
class Prepared(Remaining):
    """One prepared step: what is open after it, what its leaves found, and a counterexample of its points."""

    open: Named
    leaves: Leaves
    witness: Counterexample | None


class Script(Space[Named, Prepared, Prepared, Prepared]):
    """Gives one prepared step after the other, of four domains and a leaf each, and remembers whom it split."""

    def __init__(self, *steps: Prepared, parents: int = 2) -> None:
        self.steps, self.asked, self._parents = iter(steps), list[list[int]](), parents
        self.journal, self.bounding = Journal(), Stopwatch()

    @property
    def roots(self) -> int:
        return 5

    @property
    def parents(self) -> int:
        return self._parents

    def whole(self) -> Prepared:
        return next(self.steps)

    def split(self, parents: Named) -> Prepared:
        self.asked.append(sorted(parents.number.tolist()))
        return next(self.steps)  # StopIteration: the loop went on too long

    def bound(self, children: Prepared) -> Prepared:
        self.journal.hear(Bounded(torch.arange(5), torch.zeros(5), "some"))
        self.journal.hear(LeafSolved(0, "some"))
        return children

    def certify(self, bounded: Prepared) -> Prepared:
        return bounded

    def attack(self, left: Prepared) -> Counterexample | None:
        return left.witness

    def leaves(self, left: Prepared) -> Leaves:
        assert left.witness is None, "there is no need for them"
        return left.leaves

    def open(self, left: Prepared, leaves: Leaves) -> Named:
        return left.open

    def covering(self, domains: Named) -> torch.Tensor:
        raise AssertionError("nothing moves")


def step(
    lower: list[float],
    first: int = 0,
    witness: Counterexample | None = None,
    doubt: Reason | None = None,
    undecided: float = INF,
    depths: list[int] | None = None,
) -> Prepared:
    return Prepared(
        torch.arange(5), 0, domains(lower, first, depths), Leaves(doubt=doubt, undecided=undecided), witness
    )


def run(space: Script, limits: Limits | None = None, until: Until | None = None) -> tuple[Outcome, list[Progress]]:
    heard: list[Progress] = []
    return drive(BranchAndBound(space, limits or Limits()), until or Until(), heard.append), heard


def test_the_worst_are_split_until_nothing_is_open() -> None:
    space = Script(step([-1.0, -3.0, -2.0]), step([-0.5], first=3), step([], first=4))
    outcome, heard = run(space)
    assert space.asked == [[1, 2], [0, 3]]
    assert (outcome.witness, outcome.reason) == (None, None)
    assert [(p.open, p.max_open, p.lower, p.domains, p.counts.batches) for p in heard] == [
        (3, 3, -3.0, 5, 1),
        (2, 3, -1.0, 10, 2),
        (0, 3, INF, 15, 3),
    ]
    assert outcome.progress == heard[-1]


def test_a_space_that_is_closed_at_once() -> None:
    outcome, heard = run(Script(step([])))
    assert (outcome.witness, outcome.reason, outcome.progress.lower) == (None, None, INF)
    assert len(heard) == 1


@pytest.mark.parametrize("early", [True, False])
def test_a_witness_ends_everything_and_outweighs_all_else(early: bool, witness: Counterexample) -> None:
    found = step([-1.0], 1, witness=witness, doubt=Reason.TIMEOUT, undecided=-2.0)
    space = Script(found) if early else Script(step([-1.0]), found)
    outcome, heard = run(space, Limits(max_batches=2), Until(Late(0 if early else 1)))
    assert outcome.witness is witness
    assert outcome.reason is None
    assert len(heard) == (1 if early else 2)


def test_doubt_is_told_at_the_end_with_the_worst_of_what_is_undecided() -> None:
    space = Script(
        step([-1.0, -1.0], doubt=Reason.NUMERICS, undecided=-0.25),
        step([-0.125], 2),
        step([], 3),
    )
    outcome, heard = run(space)
    assert (outcome.witness, outcome.reason) == (None, Reason.NUMERICS)
    assert [p.lower for p in heard] == [-1.0, -0.25, -0.25]


def test_a_lack_of_time_in_a_leaf_outweighs_doubt() -> None:
    numerics = step([-1.0], doubt=Reason.NUMERICS, undecided=-0.5)
    outcome, _ = run(Script(numerics, step([], 1, doubt=Reason.TIMEOUT, undecided=-0.25)))
    assert (outcome.reason, outcome.progress.lower) == (Reason.TIMEOUT, -0.5)


def endless() -> Iterator[Prepared]:
    for k in range(10**6):
        yield step([-1.0 / (k + 1)], first=k)


def test_a_deadline_is_looked_at_in_every_round() -> None:
    for looks in range(5):
        outcome, heard = run(Script(*(step([-1.0], k) for k in range(9))), until=Until(Late(looks)))
        assert (outcome.reason, len(heard)) == (Reason.TIMEOUT, looks + 1)
        assert (outcome.progress.open, outcome.progress.lower) == (1, -1.0)


def test_all_is_closed_though_time_is_up() -> None:
    assert run(Script(step([-1.0]), step([])), until=Until(Late(1)))[0].reason is None


@pytest.mark.parametrize(
    ("limits", "rounds"),
    [
        (Limits(max_domains=1), 1),
        (Limits(max_domains=5), 1),
        (Limits(max_domains=6), 2),
        (Limits(max_domains=20), 4),
        (Limits(max_batches=3), 3),
        (Limits(max_batches=3, max_domains=6), 2),
        (Limits(max_batches=1, max_domains=600), 1),
    ],
)
def test_limits_end_with_the_bound_so_far(limits: Limits, rounds: int) -> None:
    """Every step counts four domains and a leaf."""
    space = Script()
    space.steps = endless()
    outcome, heard = run(space, limits)
    assert (outcome.witness, outcome.reason, len(heard)) == (None, Reason.LIMIT, rounds)
    assert outcome.progress.lower == pytest.approx(-1.0 / rounds)


def test_what_ends_with_the_last_batch_is_no_limit() -> None:
    assert run(Script(step([-1.0]), step([])), Limits(max_batches=2, max_domains=10))[0].reason is None


def timeless(progress: Progress) -> Progress:
    """The same without the seconds."""
    return replace(progress, counts=replace(progress.counts, seconds=0.0))


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_a_search_can_be_left_and_taken_up_again(looks: int) -> None:
    """In slices of so many batches it makes the same steps, and none of them twice."""

    def steps() -> list[Prepared]:
        return [
            step([-3.0, -1.0]),
            *(step([-2.0 / k], first=k) for k in range(2, 7)),
            *(step([], k) for k in (7, 8, 9)),
        ]

    whole, parts = Script(*steps(), parents=1), Script(*steps(), parents=1)
    expected, at_once = run(whole)
    search, heard, ends = BranchAndBound(parts, Limits()), list[Progress](), list[Outcome]()
    while search.outcome is None:
        ends.append(drive(search, Until(Late(looks - 1)), heard.append))
        assert ends[-1].progress == heard[-1] == search.progress
    assert len(ends) > 1
    assert all(end.reason is Reason.TIMEOUT for end in ends[:-1])
    assert timeless(ends[-1].progress) == timeless(expected.progress)
    assert [timeless(p) for p in heard] == [timeless(p) for p in at_once]
    assert parts.asked == whole.asked


def test_beyond_its_memory_the_loop_dives() -> None:
    def steps() -> tuple[Prepared, ...]:
        deep = step([-0.1, -0.2], 3, depths=[5, 6])
        return step([-1.0, -3.0, -2.0]), deep, *(step([], 9) for _ in range(4))

    best_first, diving = Script(*steps(), parents=1), Script(*steps(), parents=1)
    run(best_first)
    run(diving, Limits(memory_bytes=2 * EACH))
    assert best_first.asked == [[1], [2], [0], [4], [3]]
    assert diving.asked == [[0], [4], [3], [1], [2]]  # as long as more than two wait, the deepest one
