"""Several processes on one tree: nothing is lost, nothing is done twice, and no process is left over."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import closing

import pytest
from falsify import instances
from forks import PATIENCE, alive, watched
from search.binary import Binary, Grown, closed
from search.cases import FAMILIES, Case, ignore, narrow, random_case, some_witness, unbounded

from verifier.bounding.core.base import Until
from verifier.clock import Clock
from verifier.processes import Send, forkable
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.boxes.space import InputOptions
from verifier.search.domains import Counts, Outcome, Progress
from verifier.search.journal import Journal, Note
from verifier.search.loop import BranchAndBound, Limits, Search, run
from verifier.search.parallel import Cores, ForkedParts, SharedSearch, StepReport
from verifier.search.problem import ProblemSearch, Splitting

pytestmark = [
    pytest.mark.usefixtures("unchecked"),
    pytest.mark.skipif(not forkable(), reason="forks work on Linux only"),
]

INF = float("inf")


@pytest.fixture
def witness() -> Counterexample:
    return some_witness()


# ---------------------------------------------------------------- cores


@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_cores_but_one_are_idle_at_first(count: int) -> None:
    cores = Cores(count)
    assert [cores.take() for _ in range(count + 2)] == [True] * (count - 1) + [False] * 3
    cores.give()
    assert (cores.take(), cores.take()) == (True, False)


def test_every_core_is_taken_by_one_process_only() -> None:
    cores = Cores(9)

    def greedy(send: Send) -> Outcome:
        taken = 0
        while taken < 20 and cores.take():
            taken += 1
        return Outcome(None, None, Progress(Counts({"taken": taken})))

    with watched(), closing(parts()) as forks:
        for _ in range(3):
            forks.start(greedy, Progress())
        assert heard(forks).counts.tiers == {"taken": 8}
    assert not cores.take()


def test_the_files_of_cores_are_closed_with_them() -> None:
    before = len(os.listdir("/proc/self/fd"))
    cores = Cores(3)
    assert len(os.listdir("/proc/self/fd")) == before + 2
    del cores
    assert len(os.listdir("/proc/self/fd")) == before


# ---------------------------------------------------------------- parts that forks search


class Letters(Journal):
    """Keeps all notes as they come, whatever they are."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[Note] = []

    def receive(self, notes: Sequence[Note]) -> None:
        self.notes.extend(notes)

    def counted(self, notes: Sequence[Note]) -> Counts:
        return Counts({"notes": len(notes)})


def parts(cores: Cores | None = None, journal: Journal | None = None) -> ForkedParts:
    return ForkedParts(cores or Cores(2), journal or Letters())


def heard(forks: ForkedParts) -> Progress:
    """What the forks have found when all of them are done."""
    end = time.monotonic() + PATIENCE
    while forks.busy and time.monotonic() < end:
        forks.rest()
        forks.listen()
    assert not forks.busy
    return forks.beside(Progress())


@pytest.mark.parametrize("ends", [1, 2])
def test_a_process_that_rests_gives_its_core_back_once(ends: int) -> None:
    cores = Cores(2)
    forks = parts(cores)
    assert (cores.take(), cores.take()) == (True, False)
    for _ in range(ends):
        forks.rest()
    for _ in range(ends):
        forks.leave()
    assert (cores.take(), cores.take()) == (True, False)


def test_progress_and_notes_come_together_and_the_outcome_at_last() -> None:
    go = os.pipe()
    journal = Letters()
    notes = journal.notes

    def work(send: Send) -> Outcome:
        send(StepReport(Progress(Counts(), 5, 5, -3.0, 0.5), [(0, 0, "one")]))
        send(StepReport(Progress(Counts(), 4, 5, -2.0, 0.25), [(0, 0, "two"), (1, 0, "three")]))
        os.read(go[0], 1)
        return Outcome(None, None, Progress(Counts(), 0, 6))

    own = Progress(Counts({"b": 1}), 1, 2, -1.0, 0.125)
    with watched(), closing(parts(journal=journal)) as forks:
        forks.start(work, Progress(Counts(), 6, 6, -4.0, 0.75))
        assert forks.beside(own) == Progress(Counts({"b": 1}), 7, 8, -4.0, 0.875)
        while len(notes) < 3:
            forks.rest()
            forks.listen()
        assert forks.beside(own) == Progress(Counts({"b": 1}), 5, 7, -2.0, 0.375)
        os.write(go[1], b"x")
        heard(forks)
        assert forks.beside(own) == Progress(Counts({"b": 1}), 1, 8, -1.0, 0.125)
    assert [note for _, _, note in notes] == ["one", "two", "three"]
    for end in go:
        os.close(end)


def test_the_doubts_of_all_forks_are_weighed(witness: Counterexample) -> None:
    with watched(), closing(parts()) as forks:
        assert (forks.doubt, forks.witness) == (None, None)
        for reason in (None, Reason.TIMEOUT, Reason.NUMERICS, None):
            forks.start(lambda send, reason=reason: Outcome(None, reason, Progress()), Progress())
        forks.start(lambda send: Outcome(witness, None, Progress()), Progress())
        heard(forks)
        assert forks.doubt is Reason.TIMEOUT
        assert forks.witness is not None
        assert forks.witness.x.tolist() == witness.x.tolist()


def test_closing_ends_forks() -> None:
    with watched() as seen:
        with closing(parts()) as forks:
            for _ in range(2):
                forks.start(lambda send: time.sleep(10 * PATIENCE), Progress())
            assert all(alive(child) for child in seen.children)
        assert not any(alive(child) for child in seen.children)


# ---------------------------------------------------------------- a tree that all processes write down


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single domain is worth a process."""
    monkeypatch.setattr("verifier.search.parallel.WORTHWHILE", 1)


def shared(space: Binary, limits: Limits, cores: int) -> Search:
    return SharedSearch(BranchAndBound(space, Limits()), limits, Cores(cores))


def finish(search: Search) -> tuple[Outcome, list[Progress]]:
    heard: list[Progress] = []
    outcome = run(search, Until(Clock.begin(PATIENCE)), heard.append)
    assert outcome.reason is not Reason.TIMEOUT
    return outcome, heard


@pytest.mark.parametrize("cores", [1, 2, 3, 5])
@pytest.mark.parametrize("depth", [1, 4, 7])
def test_every_domain_is_split_once_whoever_does_it(depth: int, cores: int) -> None:
    space = Binary(depth)
    with watched() as forks:
        outcome, heard = finish(shared(space, Limits(), cores))
    everyone = list(range(1, 2**depth))
    assert sorted(number for _, number in space.history) == everyone
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
        assert len({process for process, _ in space.history}) >= 2
        assert forks.children


def test_few_domains_are_not_worth_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifier.search.parallel.WORTHWHILE", 8)
    with watched() as forks:
        finish(shared(Binary(4), Limits(), 3))  # never more than 8 wait
        assert not forks.pairs
        finish(shared(Binary(7), Limits(), 3))
        assert forks.pairs


def test_forks_fork_in_turn() -> None:
    """The first process closes its own part; the cores are then for the forks of its fork."""
    space = Binary(8, lambda children: None if space.abroad or children[0] < 4 else closed(children))
    with watched() as forks:
        outcome, _ = finish(shared(space, Limits(), 3))
        assert len(forks.children) == 1
        assert forks.grandchildren
    assert (outcome.witness, outcome.reason) == (None, None)
    numbers = [number for _, number in space.history]
    assert len(numbers) == len(set(numbers))
    assert len({process for process, _ in space.history}) >= 3


def test_a_witness_that_only_a_fork_meets(witness: Counterexample) -> None:
    space = Binary(9, lambda children: closed(children, witness) if space.abroad else None)
    with watched() as forks:
        outcome, _ = finish(shared(space, Limits(), 2))
        assert forks.children  # whoever is forked meets it at once; another may begin before that is heard
    assert outcome.reason is None
    assert outcome.witness is not None
    assert outcome.witness.x.tolist() == witness.x.tolist()
    assert len(space.history) < 2**9 - 1


def test_the_doubt_of_a_fork_is_told_at_the_end() -> None:
    space = Binary(5, lambda c: closed(c, doubt=Reason.NUMERICS, undecided=-0.25) if space.abroad else None)
    with watched() as forks:
        outcome, _ = finish(shared(space, Limits(), 2))
    assert forks.pairs
    assert (outcome.witness, outcome.reason, outcome.progress.lower) == (None, Reason.NUMERICS, -0.25)


def test_limits_count_the_domains_of_all_processes() -> None:
    """The first process has nothing left to do; only its fork goes on, for ever."""
    space = Binary(10**6, lambda children: None if space.abroad or children[0] < 4 else closed(children))
    for limits in (Limits(max_domains=100), Limits(max_batches=50)):
        with watched() as forks:
            outcome, _ = finish(shared(space, limits, 2))
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
            finish(shared(space, Limits(), 3))
        assert forks.children
        assert not any(alive(child) for child in forks.children)


def test_the_fork_of_a_fork_that_is_killed() -> None:
    def twist(children: list[int]) -> Grown | None:
        if space.abroad and os.getppid() != space.home:
            os.kill(os.getpid(), signal.SIGKILL)
        return None if space.abroad or children[0] < 4 else closed(children)

    space = Binary(8, twist)
    with watched() as forks:
        with pytest.raises(MemoryError):
            finish(shared(space, Limits(), 3))
        assert forks.grandchildren


def test_an_error_in_a_fork_is_raised() -> None:
    def twist(children: list[int]) -> None:
        if space.abroad:
            raise ZeroDivisionError("abroad")

    space = Binary(6, twist)
    with watched(), pytest.raises(ZeroDivisionError, match="abroad"):
        finish(shared(space, Limits(), 2))


def test_a_search_that_is_left_ends_its_forks() -> None:
    """All of them, and those that they have forked."""
    space = Binary(10**6, lambda children: None if space.abroad or children[0] < 4 else closed(children))
    with watched() as forks:
        search = shared(space, Limits(), 3)
        while not forks.grandchildren:
            search.step()
        search.close()
        assert not any(alive(child) for child in forks.children)
    assert forks.children


def test_a_search_that_rests_still_looks_around() -> None:
    """So that whoever runs it can keep its deadline while the forks are at work."""
    space = Binary(6, lambda children: closed(children) if not space.abroad and children[0] >= 4 else asleep(space))
    with watched():
        outcome = run(shared(space, Limits(), 2), Until(Clock.begin(1.0)))  # the forks sleep for longer
        assert (outcome.reason, outcome.progress.open) == (Reason.TIMEOUT, 1)


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
