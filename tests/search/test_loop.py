"""The main loop, on spaces whose every step is written down."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from falsify import instances
from search.cases import Late
from search.test_frontier import EACH, Named, domains

from verifier.bounding.core.base import Until
from verifier.clock import Clock
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.domains import Counts, Outcome, Progress, Space, Step
from verifier.search.loop import Limits, advance, hunt, search
from verifier.search.offers import Offers

INF = float("inf")


@pytest.fixture
def witness() -> Counterexample:
    """A real one: there are no others."""
    rows = [(0, [instances.row({0: 1}, 1)])]
    problem = instances.problem(instances.identity(1), instances.boxes([[0]], [[1]]), rows)
    found = Offers(None, instances.target(problem), Clock.begin())(torch.zeros(1, 1), torch.zeros(1, dtype=torch.long))
    assert found is not None
    return found


class Script(Space[Named]):
    """Gives one prepared step after the other and remembers whom it was asked to split."""

    def __init__(self, *steps: Step[Named], parents: int = 2) -> None:
        self.steps, self.asked, self._parents = iter(steps), list[list[int]](), parents

    @property
    def parents(self) -> int:
        return self._parents

    def begin(self) -> Step[Named]:
        return next(self.steps)

    def expand(self, parents: Named) -> Step[Named]:
        self.asked.append(sorted(parents.number.tolist()))
        return next(self.steps)  # StopIteration: the loop went on too long


def step(
    lower: list[float],
    first: int = 0,
    witness: Counterexample | None = None,
    doubt: Reason | None = None,
    undecided: float = INF,
) -> Step[Named]:
    return Step(domains(lower, first), Counts({"some": 4}, leaves=1, batches=1), witness, doubt, undecided)


def run(space: Script, limits: Limits | None = None, until: Until | None = None) -> tuple[Outcome, list[Progress]]:
    heard: list[Progress] = []
    return search(space, limits or Limits(), until or Until(), heard.append), heard


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


def endless() -> Iterator[Step[Named]]:
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


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_a_search_can_be_left_and_taken_up_again(looks: int) -> None:
    """In slices of so many batches it makes the same steps, and none of them twice."""

    def steps() -> list[Step[Named]]:
        return [
            step([-3.0, -1.0]),
            *(step([-2.0 / k], first=k) for k in range(2, 7)),
            *(step([], k) for k in (7, 8, 9)),
        ]

    whole, parts = Script(*steps(), parents=1), Script(*steps(), parents=1)
    expected, at_once = run(whole)
    running, heard, ends = hunt(parts, Limits()), list[Progress](), list[Outcome | None]()
    while not ends or ends[-1] is None:
        progress, outcome = advance(running, Until(Late(looks - 1)), heard.append)
        ends.append(outcome)
        assert progress == heard[-1]
    assert len(ends) > 1
    assert ends[-1] == expected
    assert (heard, parts.asked) == (at_once, whole.asked)


def test_beyond_its_memory_the_loop_dives() -> None:
    def steps() -> tuple[Step[Named], ...]:
        deep = Step(domains([-0.1, -0.2], 3, depths=[5, 6]), Counts(batches=1))
        return step([-1.0, -3.0, -2.0]), deep, *(step([], 9) for _ in range(4))

    best_first, diving = Script(*steps(), parents=1), Script(*steps(), parents=1)
    run(best_first)
    run(diving, Limits(memory_bytes=2 * EACH))
    assert best_first.asked == [[1], [2], [0], [4], [3]]
    assert diving.asked == [[0], [4], [3], [1], [2]]  # as long as more than two wait, the deepest one
