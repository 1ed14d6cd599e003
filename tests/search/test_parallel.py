"""Several processes on one tree: nothing is lost, nothing is done twice, and no process is left over."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from falsify import instances
from forks import PATIENCE, alive, notebook, watched
from search.cases import FAMILIES, Case, ignore, random_case, unbounded
from search.signs.test_space import narrow
from search.test_frontier import Named, domains
from search.test_loop import witness

from verifier.bounding.core.base import Until
from verifier.clock import Clock
from verifier.processes import Send, forkable
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.boxes.space import InputOptions
from verifier.search.domains import Counts, Outcome, Progress, Space, Step
from verifier.search.loop import Hunt, Limits, advance, hunt
from verifier.search.parallel import Cores, Crew
from verifier.search.problem import ProblemSearch, Splitting

__all__ = ["witness"]

pytestmark = [
    pytest.mark.usefixtures("unchecked"),
    pytest.mark.skipif(not forkable(), reason="forks work on Linux only"),
]

INF = float("inf")


# ---------------------------------------------------------------- cores


@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_cores_but_one_are_idle_at_first(count: int) -> None:
    cores = Cores(count)
    assert [cores.take() for _ in range(count + 2)] == [True] * (count - 1) + [False] * 3
    cores.give()
    assert (cores.take(), cores.take()) == (True, False)
    cores.close()


def test_every_core_is_taken_by_one_process_only() -> None:
    cores, crew = Cores(9), Crew(None)

    def greedy(send: Send) -> Outcome:
        taken = 0
        while taken < 20 and cores.take():
            taken += 1
        return Outcome(None, None, Progress(Counts({"taken": taken})))

    with watched(), crew:
        for _ in range(3):
            crew.send_out(greedy)
        assert heard(crew).counts.tiers == {"taken": 8}
    assert not cores.take()
    cores.close()


# ---------------------------------------------------------------- crews


def heard(crew: Crew) -> Progress:
    """What the forks have found when all of them are done."""
    end = time.monotonic() + PATIENCE
    while crew.busy and time.monotonic() < end:
        crew.rest()
        crew.listen()
    assert not crew.busy
    return crew.beside(Progress())


@pytest.mark.parametrize("ends", [1, 2])
def test_a_crew_that_rests_gives_its_core_back_once(ends: int) -> None:
    cores = Cores(2)
    crew = Crew(cores)
    assert (crew.idle_core(), crew.idle_core()) == (True, False)
    for _ in range(ends):
        crew.rest()
    for _ in range(ends):
        crew.done()
    assert (cores.take(), cores.take()) == (True, False)
    cores.close()


def test_without_cores_nobody_is_sent_out() -> None:
    crew = Crew(None)
    assert not crew.idle_core()
    crew.rest()
    crew.done()
    assert not crew.busy


def test_progress_counts_as_it_comes_and_the_outcome_at_last() -> None:
    go = os.pipe()

    def labour(send: Send) -> Outcome:
        send(Progress(Counts({"a": 1}), 5, 5, -3.0, 0.5))
        send(Progress(Counts({"a": 2}), 4, 5, -2.0, 0.25))
        os.read(go[0], 1)
        return Outcome(None, None, Progress(Counts({"a": 7}, leaves=1), 0, 6))

    own = Progress(Counts({"b": 1}), 1, 2, -1.0, 0.125)
    with watched(), Crew(None) as crew:
        crew.send_out(labour)
        while crew.beside(own).domains < 3:
            crew.rest()
            crew.listen()
        assert crew.beside(own) == Progress(Counts({"b": 1, "a": 2}), 5, 7, -2.0, 0.375)
        os.write(go[1], b"x")
        heard(crew)
        assert crew.beside(own) == Progress(Counts({"b": 1, "a": 7}, leaves=1), 1, 8, -1.0, 0.125)
    for end in go:
        os.close(end)


def test_the_doubts_of_all_forks_are_weighed(witness: Counterexample) -> None:
    with watched(), Crew(None) as crew:
        assert (crew.doubt, crew.witness) == (None, None)
        for reason in (None, Reason.TIMEOUT, Reason.NUMERICS, None):
            crew.send_out(lambda send, reason=reason: Outcome(None, reason, Progress()))
        crew.send_out(lambda send: Outcome(witness, None, Progress()))
        heard(crew)
        assert crew.doubt is Reason.TIMEOUT
        assert crew.witness is not None
        assert crew.witness.x.tolist() == witness.x.tolist()


def test_leaving_a_crew_ends_its_forks() -> None:
    with watched() as forks:
        with Crew(None) as crew:
            for _ in range(2):
                crew.send_out(lambda send: time.sleep(10 * PATIENCE))
            assert all(alive(child) for child in forks.children)
        assert not any(alive(child) for child in forks.children)


# ---------------------------------------------------------------- a tree that all processes write down

Twist = Callable[[list[int]], Step[Named] | None]
"""Gives another step than usual for the children with these numbers."""


def usual(children: list[int]) -> None:
    """No twist."""


class Binary(Space[Named]):
    """A complete binary tree: domain k has the children 2k and 2k + 1; those of the last level are closed.

    Every process writes down whom it has split.
    """

    def __init__(self, depth: int, twist: Twist = usual) -> None:
        self._depth, self._twist, self._book = depth, twist, notebook()
        self.home = os.getpid()

    def __del__(self) -> None:
        os.close(self._book)

    @property
    def parents(self) -> int:
        return 2

    def begin(self) -> Step[Named]:
        return self._step([1])

    def expand(self, parents: Named) -> Step[Named]:
        for number in parents.number.tolist():
            os.write(self._book, f"{os.getpid()} {number}\n".encode())
        time.sleep(0.002)  # so that everybody gets a share
        children = [2 * k + side for k in parents.number.tolist() for side in (0, 1)]
        return self._twist(children) or self._step(children)

    def _step(self, numbers: list[int]) -> Step[Named]:
        depth = numbers[0].bit_length() - 1
        left = [k for k in numbers if k.bit_length() <= self._depth]
        made = replace(
            domains([-1.0 / k for k in left], depths=[k.bit_length() - 1 for k in left] or None),
            number=torch.tensor(left, dtype=torch.long),
        )
        return Step(made, Counts({"binary": len(numbers)}, batches=1, iterations=depth))

    @property
    def split(self) -> list[tuple[int, int]]:
        """Processes and the domains that they have split."""
        lines = os.pread(self._book, 2**20, 0).decode().splitlines()
        return [(int(process), int(number)) for process, number in (line.split() for line in lines)]

    @property
    def abroad(self) -> bool:
        """Whether this is a fork."""
        return os.getpid() != self.home


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single domain is worth a process."""
    monkeypatch.setattr("verifier.search.loop.WORTHWHILE", 1)


def finish(running: Hunt) -> tuple[Outcome, list[Progress]]:
    heard: list[Progress] = []
    _, outcome = advance(running, Until(Clock.begin(PATIENCE)), heard.append)
    assert outcome is not None
    return outcome, heard


@pytest.mark.parametrize("cores", [1, 2, 3, 5])
@pytest.mark.parametrize("depth", [1, 4, 7])
def test_every_domain_is_split_once_whoever_does_it(depth: int, cores: int) -> None:
    space = Binary(depth)
    with watched() as forks:
        outcome, heard = finish(hunt(space, Limits(), cores))
    everyone = list(range(1, 2**depth))
    assert sorted(number for _, number in space.split) == everyone
    assert (outcome.witness, outcome.reason) == (None, None)
    assert outcome.progress.domains == 2 ** (depth + 1) - 1
    assert (outcome.progress.open, outcome.progress.lower, outcome.progress.left) == (0, INF, 0.0)
    assert outcome.progress == heard[-1]
    counts = [p.domains for p in heard]
    assert counts == sorted(counts)  # what was done stays done when a fork ends
    assert all(0 <= p.left <= 1 for p in heard)
    if cores == 1 or depth == 1:
        assert not forks.pairs
    elif depth == 7:
        assert len({process for process, _ in space.split}) >= 2
        assert forks.children


def test_few_domains_are_not_worth_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifier.search.loop.WORTHWHILE", 8)
    with watched() as forks:
        finish(hunt(Binary(4), Limits(), 3))  # never more than 8 wait
        assert not forks.pairs
        finish(hunt(Binary(7), Limits(), 3))
        assert forks.pairs


def test_forks_fork_in_turn() -> None:
    """The first process closes its own part; the cores are then for the forks of its fork."""
    space = Binary(8, lambda children: None if space.abroad or children[0] < 4 else closed(children))
    with watched() as forks:
        outcome, _ = finish(hunt(space, Limits(), 3))
        assert len(forks.children) == 1
        assert forks.grandchildren
    assert (outcome.witness, outcome.reason) == (None, None)
    numbers = [number for _, number in space.split]
    assert len(numbers) == len(set(numbers))
    assert len({process for process, _ in space.split}) >= 3


def closed(
    children: list[int],
    witness: Counterexample | None = None,
    doubt: Reason | None = None,
    undecided: float = INF,
) -> Step[Named]:
    return Step(domains([]), Counts({"binary": len(children)}, batches=1), witness, doubt, undecided)


def test_a_witness_that_only_a_fork_meets(witness: Counterexample) -> None:
    space = Binary(9, lambda children: closed(children, witness) if space.abroad else None)
    with watched() as forks:
        outcome, _ = finish(hunt(space, Limits(), 2))
        assert len(forks.children) == 1  # there is but one fork, and it ends everything
    assert outcome.reason is None
    assert outcome.witness is not None
    assert outcome.witness.x.tolist() == witness.x.tolist()
    assert len(space.split) < 2**9 - 1


def test_the_doubt_of_a_fork_is_told_at_the_end() -> None:
    space = Binary(5, lambda c: closed(c, doubt=Reason.NUMERICS, undecided=-0.25) if space.abroad else None)
    with watched() as forks:
        outcome, _ = finish(hunt(space, Limits(), 2))
    assert forks.pairs
    assert (outcome.witness, outcome.reason, outcome.progress.lower) == (None, Reason.NUMERICS, -0.25)


def test_limits_count_the_domains_of_all_processes() -> None:
    """The first process has nothing left to do; only its fork goes on, for ever."""
    space = Binary(10**6, lambda children: None if space.abroad or children[0] < 4 else closed(children))
    for limits in (Limits(max_domains=100), Limits(max_batches=50)):
        with watched() as forks:
            outcome, _ = finish(hunt(space, limits, 2))
        assert len(forks.children) == 1
        assert (outcome.witness, outcome.reason) == (None, Reason.LIMIT)
        assert limits.reached(outcome.progress.counts)
        assert outcome.progress.open > 0
        assert -1.0 < outcome.progress.lower < 0


def test_a_fork_that_is_killed_is_a_lack_of_memory_and_never_closed() -> None:
    def twist(children: list[int]) -> None:
        if space.abroad:
            os.kill(os.getpid(), signal.SIGKILL)

    space = Binary(6, twist)
    with watched() as forks:
        with pytest.raises(MemoryError):
            finish(hunt(space, Limits(), 3))
        assert forks.children
        assert not any(alive(child) for child in forks.children)


def test_the_fork_of_a_fork_that_is_killed() -> None:
    def twist(children: list[int]) -> Step[Named] | None:
        if space.abroad and os.getppid() != space.home:
            os.kill(os.getpid(), signal.SIGKILL)
        return None if space.abroad or children[0] < 4 else closed(children)

    space = Binary(8, twist)
    with watched() as forks:
        with pytest.raises(MemoryError):
            finish(hunt(space, Limits(), 3))
        assert forks.grandchildren


def test_an_error_in_a_fork_is_raised() -> None:
    def twist(children: list[int]) -> None:
        if space.abroad:
            raise ZeroDivisionError("abroad")

    space = Binary(6, twist)
    with watched(), pytest.raises(ZeroDivisionError, match="abroad"):
        finish(hunt(space, Limits(), 2))


def test_a_search_that_is_left_ends_its_forks() -> None:
    """All of them, and those that they have forked."""
    space = Binary(10**6, lambda children: None if space.abroad or children[0] < 4 else closed(children))
    with watched() as forks:
        running = hunt(space, Limits(), 3)
        while not forks.grandchildren:
            next(running)
        running.close()
        assert not any(alive(child) for child in forks.children)
    assert forks.children


def test_a_search_that_rests_still_looks_around() -> None:
    """So that whoever runs it can keep its deadline while the forks are at work."""
    space = Binary(6, lambda children: closed(children) if not space.abroad and children[0] >= 4 else asleep(space))
    with watched():
        running = hunt(space, Limits(), 2)
        began = time.monotonic()
        progress, outcome = advance(running, Until(Clock.begin(1.0)), ignore)
        assert (outcome, progress.open) == (None, 1)
        assert time.monotonic() - began < PATIENCE  # the forks sleep for longer
        running.close()


def asleep(space: Binary) -> None:
    if space.abroad:
        time.sleep(10 * PATIENCE)


# ---------------------------------------------------------------- networks with exact answers

GAP = 1e-3
# Family, rows per clause, whether rows look at the input, boxes, seed: all of them need several batches.
CASES = [
    ("dense", (2, 1), False, 1, 1),
    ("dense", (2, 1), False, 1, 2),
    ("conv", (2,), False, 1, 0),
    ("residual", (1, 2, 2, 1), True, 2, 2),
    ("residual", (1, 2, 2, 1), True, 2, 6),
]
BOXES = InputOptions(batch=4, least_children=2)


def decide(case: Case, margins: list[float], splitting: Splitting, cores: int) -> Outcome:
    """Without any falsifier, and without help from bounds of the root."""
    problem = case.problem(margins)
    whole = ProblemSearch(narrow(4), Limits(max_domains=20000), splitting=splitting, inputs=BOXES, cores=cores)
    outcome = whole.run(problem, unbounded(problem), instances.target(problem), Clock.begin(120), ignore)
    if outcome.witness is not None:
        low, high = case.boxes[case.claims[outcome.witness.clause].box]
        instances.check(problem, outcome.witness, low.tolist(), high.tolist())
    return outcome


@pytest.mark.parametrize("splitting", [Splitting.RELUS, Splitting.INPUTS])
@pytest.mark.parametrize("which", CASES, ids=str)
def test_verdicts_are_exact_with_several_processes(
    which: tuple[str, tuple[int, ...], bool, int, int], splitting: Splitting
) -> None:
    family, counts, mixed, boxes, seed = which
    if splitting is Splitting.INPUTS and family == "conv":
        pytest.skip("sixteen inputs are too many to cut")
    case = random_case(family, seed, counts, mixed, boxes)
    safe = [GAP] * len(counts)
    unsafe = [*safe[:-1], -GAP]
    for cores in (2, 3):
        with watched() as forks:
            outcome = decide(case, safe, splitting, cores)
            assert (outcome.witness, outcome.reason, outcome.progress.lower) == (None, None, INF)
            assert forks.pairs
            found = decide(case, unsafe, splitting, cores)
        assert found.witness is not None
        assert (found.witness.clause, found.reason) == (len(counts) - 1, None)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 30))
@pytest.mark.parametrize("splitting", [Splitting.RELUS, Splitting.INPUTS])
@pytest.mark.parametrize("family", FAMILIES)
def test_verdicts_are_exact_on_many(family: str, splitting: Splitting, seed: int) -> None:
    if splitting is Splitting.INPUTS and family == "conv":
        pytest.skip("sixteen inputs are too many to cut")
    case = random_case(family, seed, (2, 1, 3), seed % 2 == 0, 1 + seed % 2)
    for cores in (2, 3):
        with watched():
            outcome = decide(case, [GAP] * 3, splitting, cores)
            assert (outcome.witness, outcome.reason) == (None, None)
            assert decide(case, [GAP, -GAP, GAP], splitting, cores).witness is not None
