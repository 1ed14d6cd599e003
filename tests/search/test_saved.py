"""What searches leave behind: nothing is lost, nothing counts twice, and whoever goes on ends with the same answer."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from contextlib import closing

import pytest
import torch
from falsify import instances
from forks import PATIENCE, watched
from search.binary import Binary
from search.binary import closed as closing_step
from search.cases import EASY_OR_HARD, GAP, MODERATE, Named, ignore, narrow, random_case, unbounded

from verifier.bounding.core.base import Until
from verifier.clock import Clock
from verifier.errors import InputError
from verifier.processes import forkable
from verifier.property.problem import Problem
from verifier.result.verdict import Reason
from verifier.search.boxes.space import InputOptions
from verifier.search.checkpoint import CLASSES
from verifier.search.codec import decoded, encoded
from verifier.search.domains import Outcome, Progress
from verifier.search.keeper import Keeper
from verifier.search.loop import BranchAndBound, Limits, Search, run
from verifier.search.parallel import Cores, SharedSearch
from verifier.search.problem import ProblemSearch, Splitting
from verifier.search.saved import Keeping, Saved, SavedGroups, SavedRace, SavedRegion, SavedRoot, SavedTree

pytestmark = [
    pytest.mark.usefixtures("unchecked"),
    pytest.mark.skipif(not forkable(), reason="forks work on Linux only"),
]

KEEPING = Keeping(0.0, 2**20)


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """A single domain is worth a process, and every step a checkpoint."""
    monkeypatch.setattr("verifier.search.parallel.WORTHWHILE", 1)
    monkeypatch.setattr("verifier.search.pace.SHARE", float("inf"))


def through_bytes(saved: Saved) -> Saved:
    """What a file would give back."""
    found = decoded(encoded(saved), (*CLASSES, Named))
    assert isinstance(found, Saved)
    return found


# ---------------------------------------------------------------- a tree whose size is known


def below(number: int, depth: int) -> int:
    """How many domains come from one of a complete tree, without itself."""
    return 2 ** (depth + 2 - number.bit_length()) - 2


def snapshots(search: Search, every: int = 1) -> Iterator[SavedTree]:
    """What could be saved after each step, until the search ends."""
    with closing(search):
        steps = 0
        while search.outcome is None:
            search.step()
            steps += 1
            if search.outcome is None and steps % every == 0:
                saved = through_bytes(saved) if (saved := search.saved(0)) is not None else None
                assert isinstance(saved, SavedTree)
                yield saved


def check(saved: SavedTree, depth: int) -> None:
    """Open domains are no descendants of each other, and with all that is counted they make up the whole tree."""
    numbers = [k for part in saved.part.domains for k in part.number.tolist()]  # type: ignore[attr-defined]
    assert len(numbers) == len(set(numbers))
    ancestors = {k >> up for k in numbers for up in range(1, k.bit_length())}
    assert not ancestors & set(numbers)
    assert saved.counts.domains + sum(below(k, depth) for k in numbers) == 2 ** (depth + 1) - 1
    leaves = sum(2 ** (depth + 1 - k.bit_length()) for k in numbers)
    assert saved.part.doubt is None
    assert 0 <= leaves <= 2**depth  # none, once forks have told that, and not yet that they have ended


@pytest.mark.parametrize("seconds", [0.0, 0.02, 1e6])  # after which forks tell what they have left
@pytest.mark.parametrize("cores", [1, 2, 3, 5])
def test_at_any_moment_open_and_counted_domains_are_the_whole_tree(cores: int, seconds: float) -> None:
    depth, keeping = 8, Keeping(seconds, 2**20)
    with watched() as forks:
        search = SharedSearch(BranchAndBound(Binary(depth), Limits()), Limits(), Cores(cores), keeping)
        count = 0
        for saved in snapshots(search):
            check(saved, depth)
            count += 1
        assert count > 8
        assert bool(forks.pairs) == (cores > 1)
    assert search.progress.domains == 2 ** (depth + 1) - 1


@pytest.mark.parametrize(("before", "after"), [(1, 1), (1, 3), (3, 1), (3, 2)])
def test_whoever_goes_on_counts_every_domain_once(before: int, after: int) -> None:
    depth, rng = 7, random.Random(before * 10 + after)
    with watched():
        first = SharedSearch(BranchAndBound(Binary(depth), Limits()), Limits(), Cores(before), KEEPING)
        every = list(snapshots(first))
    for saved in rng.sample(every, min(6, len(every))):
        tree = BranchAndBound(Binary(depth), Limits())
        tree.go_on(saved)
        with watched():
            outcome = run(SharedSearch(tree, Limits(), Cores(after), KEEPING), Until(Clock.begin(PATIENCE)))
        assert (outcome.witness, outcome.reason) == (None, None)
        assert outcome.progress.domains == 2 ** (depth + 1) - 1
        assert outcome.progress.max_open >= saved.most


def test_forks_of_forks_are_in_it_too() -> None:
    """The first process has closed its own part; what is open is with its fork and the forks of that."""
    depth = 9
    space = Binary(depth, lambda children: None if space.abroad or children[0] < 4 else closing_step(children))
    with watched() as forks:
        search = SharedSearch(BranchAndBound(space, Limits()), Limits(), Cores(3), KEEPING)
        saved = list(snapshots(search))
        assert forks.grandchildren
    own = saved[0].counts.domains
    for one in saved:
        numbers = [k for part in one.part.domains for k in part.number.tolist()]  # type: ignore[attr-defined]
        assert len(numbers) == len(set(numbers))
    last = [one for one in saved if one.part.domains]
    assert last[-1].counts.domains > own
    assert any(len(one.part.domains) > 1 for one in saved)


def test_what_a_fork_was_given_is_there_before_it_says_anything() -> None:
    depth = 6
    with watched():
        tree = BranchAndBound(Binary(depth), Limits())
        for _ in range(4):
            tree.step()
        # The forks wait longer than this test, so that all that is known of them is what they were given.
        search = SharedSearch(tree, Limits(), Cores(4), Keeping(1e6, 2**20))
        with closing(search):
            search.step()
            saved = search.saved(0)
            assert saved is not None
            check(saved, depth)
            assert len(saved.part.domains) > 1


def test_doubts_are_saved_and_told_at_the_end() -> None:
    depth = 5
    twisted = Binary(depth, lambda c: closing_step(c, doubt=Reason.NUMERICS, undecided=-0.25) if 20 in c else None)
    first = BranchAndBound(twisted, Limits())
    while first.doubt is None:
        first.step()
    saved = first.saved(0)
    assert saved is not None
    tree = BranchAndBound(Binary(depth), Limits())
    tree.go_on(saved)
    outcome = run(tree, Until())
    assert (outcome.reason, outcome.progress.lower) == (Reason.NUMERICS, -0.25)


def test_the_doubt_of_a_fork_is_saved() -> None:
    space = Binary(7, lambda c: closing_step(c, doubt=Reason.NUMERICS, undecided=-0.25) if space.abroad else None)
    with watched() as forks:
        search = SharedSearch(BranchAndBound(space, Limits()), Limits(), Cores(2), KEEPING)
        saved = list(snapshots(search))
        assert forks.pairs
    assert search.outcome is not None
    assert search.outcome.reason is Reason.NUMERICS
    assert (saved[-1].part.doubt, saved[-1].part.undecided) == (Reason.NUMERICS, -0.25)


def test_a_tree_in_which_nothing_was_left_open_ends_at_once() -> None:
    first = BranchAndBound(Binary(4), Limits())
    first.step()
    saved = first.saved(0)
    assert saved is not None
    empty = SavedTree(type(saved.part)(()), saved.counts, saved.most)
    tree = BranchAndBound(Binary(4), Limits())
    tree.go_on(empty)
    assert tree.outcome is None
    assert run(tree, Until()).reason is None


def test_a_tree_that_has_not_begun_begins_anew() -> None:
    tree = BranchAndBound(Binary(4), Limits())
    assert tree.saved(0) is None
    assert SharedSearch(tree, Limits(), Cores(2), KEEPING).saved(0) is None


# ---------------------------------------------------------------- real problems, against exact answers


class Interrupted(Exception):
    """The run was killed."""


class Killer(Keeper):
    """Ends a run after some steps, with what it has saved; None: it lives."""

    def __init__(self, steps: int | None, left: Saved | None) -> None:
        super().__init__(Keeping(1e9), Clock.begin(), lambda saved: None, left)
        self._steps = steps
        self.saved: Saved | None = None

    def look(self, search: Search) -> None:
        if self._steps is None or search.outcome is not None:
            return
        self._steps -= 1
        if self._steps <= 0:
            self.saved = search.saved(KEEPING.room)
            raise Interrupted


WAYS = {
    "signs": (Splitting.RELUS, 2**28),
    "groups": (Splitting.RELUS, 1),
    "boxes": (Splitting.INPUTS, 2**28),
    "race": (Splitting.AUTO, 2**28),
}


def whole_search(way: str, cores: int) -> ProblemSearch:
    splitting, root_bytes = WAYS[way]
    inputs = InputOptions(batch=4, least_children=1)
    return ProblemSearch(
        narrow(4), splitting=splitting, inputs=inputs, root_bytes=root_bytes, cores=cores, keeping=KEEPING
    )


def decided(problem: Problem, way: str, cores: int, kills: list[int]) -> tuple[Outcome, list[Saved | None]]:
    """The answer of a run that is killed after so many steps, and continued, again and again."""
    left, seen, steps = None, list[Saved | None](), [*kills, None]
    for some in steps:
        keeper = Killer(some, left)
        search = whole_search(way, cores)
        if left is not None:
            search.journal.numbers(10**6)
        try:
            with watched():
                outcome = search.run(
                    problem, unbounded(problem), instances.target(problem), Clock.begin(PATIENCE), ignore, keeper
                )
            return outcome, seen
        except Interrupted:
            left = None if keeper.saved is None else through_bytes(keeper.saved)
            seen.append(left)
    raise AssertionError("the last run ends by itself")


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("family", "seed"), [*MODERATE, *(pytest.param(*which, marks=pytest.mark.slow) for which in EASY_OR_HARD)]
)
def test_killed_and_continued_runs_answer_as_the_oracle_does(family: str, seed: int, way: str, cores: int) -> None:
    rng = random.Random(f"{family} {way} {cores} {seed}")
    interrupted = 0
    case = random_case(family, seed, (3, 1), boxes=2)
    for margin in (GAP, -GAP):
        kills = [rng.randint(1, 3) for _ in range(3)]
        outcome, seen = decided(case.problem([margin, GAP]), way, cores, kills)
        interrupted += len([left for left in seen if left is not None])
        # Nobody looks for witnesses here, so an unsafe leaf is one that cannot be closed.
        assert (outcome.witness is not None or outcome.reason is not None) == (margin < 0)
    assert interrupted > 0 or (family, seed) == ("residual", 3)  # that one is done at once


@pytest.mark.parametrize("way", ["signs", "boxes"])
def test_one_process_that_is_continued_counts_what_it_would_have_counted(way: str) -> None:
    """With one process the same tree grows again, so the counters must be those of a run that nobody killed."""
    problem = random_case(*MODERATE[0], (3, 1), boxes=2).problem([GAP, GAP])
    alone, _ = decided(problem, way, 1, [])
    assert alone.progress.counts.batches > 4
    for steps in (1, 2, 3, alone.progress.counts.batches - 1):
        outcome, seen = decided(problem, way, 1, [steps])
        assert seen[0] is not None
        assert outcome.progress.counts.domains == alone.progress.counts.domains
        assert outcome.progress.counts.batches == alone.progress.counts.batches


def test_every_kind_of_search_has_its_form() -> None:
    problem = random_case("dense", 3, (1, 1), boxes=2).problem([GAP, GAP])
    kinds = {way: decided(problem, way, 1, [1])[1][0] for way in WAYS}
    assert isinstance(kinds["signs"], SavedGroups)
    assert isinstance(kinds["groups"], SavedGroups)
    assert len(kinds["groups"].groups) == 2
    assert isinstance(kinds["boxes"], SavedTree)
    assert isinstance(kinds["race"], SavedRace)


def test_every_box_gets_its_own_bounds_back() -> None:
    problem = random_case("dense", 3, (1, 1), boxes=2).problem([GAP, GAP])
    rng = torch.Generator().manual_seed(0)
    sizes = [problem.network.n_in, *(group.size for group in problem.network.groups)]
    low = [torch.rand(3, size, generator=rng, dtype=torch.float64) for size in sizes]
    high = [end + 1 for end in low]
    saved = SavedRegion(low[0], high[0], tuple(low[1:]), tuple(high[1:]))
    for row, region in enumerate(saved.regions(problem)):
        assert [end.tolist() for end in (region.lower, *region.l_hat)] == [[end[row].tolist()] for end in low]
        assert [end.tolist() for end in (region.upper, *region.u_hat)] == [[end[row].tolist()] for end in high]


def test_bounds_of_another_network_are_refused() -> None:
    """A checkpoint names its files; this is for one that lies."""
    problem = random_case("dense", 3, (1, 1), boxes=2).problem([GAP, GAP])
    net = problem.network
    inputs, widths = torch.zeros(1, net.n_in), [torch.zeros(1, group.size) for group in net.groups]
    (region,) = SavedRegion(inputs, inputs, tuple(widths), tuple(widths)).regions(problem)
    assert [low.shape for low in region.l_hat] == [low.shape for low in widths]
    more, wider = torch.zeros(1, net.n_in + 1), tuple(torch.zeros(1, low.shape[1] + 1) for low in widths)
    for other in (SavedRegion(more, more, (), ()), SavedRegion(inputs, inputs, wider, wider)):
        with pytest.raises(InputError, match="does not fit this network"):
            other.regions(problem)


def test_bounds_of_another_property_are_refused() -> None:
    problem = random_case("dense", 3, (1, 1), boxes=2).problem([GAP, GAP])
    lower, boxes = torch.full((len(problem.rows),), -1.0), len(problem.lower)
    assert SavedRoot(lower, (), ()).found(problem).lower.tolist() == lower.tolist()
    for other in (SavedRoot(lower[1:], (), ()), SavedRoot(lower, (boxes,), ()), SavedRoot(lower, (-1,), ())):
        with pytest.raises(InputError, match="does not fit this property"):
            other.found(problem)


# ---------------------------------------------------------------- when nothing may be written


class Steps(Search):
    """Never ends."""

    def __init__(self, saved: Saved | None) -> None:
        self.outcome = None
        self._saved = saved

    def step(self) -> None:
        """Nothing."""

    def saved(self, room: int) -> Saved | None:
        return self._saved


def test_once_time_is_up_nothing_is_written() -> None:
    """A leaf that was given up for lack of time must not be given up for good."""
    written: list[Saved] = []
    for deadline, expected in ((60.0, 1), (-1.0, 0)):
        written.clear()
        Keeper(Keeping(0.0), Clock.begin(deadline), written.append).look(Steps(Saved()))
        assert len(written) == expected


def test_what_was_not_ready_in_time_is_not_written() -> None:
    """Time may run out while a checkpoint is made."""

    class Slow(Steps):
        def saved(self, room: int) -> Saved | None:
            time.sleep(0.2)
            return super().saved(room)

    written: list[Saved] = []
    Keeper(Keeping(0.0), Clock.begin(0.1), written.append).look(Slow(Saved()))
    assert written == []


def test_variables_get_the_room_that_there_is() -> None:
    rooms: list[int] = []

    class Asked(Steps):
        def saved(self, room: int) -> Saved | None:
            rooms.append(room)
            return super().saved(room)

    Keeper(Keeping(0.0, 12345), Clock.begin(60), lambda saved: None).look(Asked(Saved()))
    assert rooms == [12345]


@pytest.mark.parametrize(("processes", "room"), [(0, 100), (1, 100), (3, 33), (8, 12)])
def test_processes_share_the_room(processes: int, room: int) -> None:
    shared = Keeping(7.0, 100).among(processes)
    assert (shared.seconds, shared.room) == (7.0, room)


def test_a_search_that_has_ended_or_has_nothing_to_save_is_not_written() -> None:
    written: list[Saved] = []
    keeper = Keeper(Keeping(0.0), Clock.begin(60), written.append)
    keeper.look(Steps(None))
    over = Steps(Saved())
    over.outcome = Outcome(None, Reason.LIMIT, Progress())
    keeper.look(over)
    assert written == []


def test_forks_of_a_search_that_keeps_nothing_are_not_taken_for_empty() -> None:
    with watched():
        search = SharedSearch(BranchAndBound(Binary(9), Limits()), Limits(), Cores(3))
        with closing(search):
            for _ in range(5):
                search.step()
            with pytest.raises(AssertionError):
                search.saved(0)
