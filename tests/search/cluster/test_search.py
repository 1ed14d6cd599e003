"""A tree searched by workers elsewhere, here by objects of this process that are lost now and then."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest
from falsify import instances
from forks import PATIENCE
from search.binary import Binary
from search.binary import closed as closing_step
from search.cases import EASY_OR_HARD, GAP, MODERATE, Named, ignore, narrow, random_case, some_witness, unbounded
from search.cluster.grown import below, size
from search.cluster.local import Local, LocalCluster
from search.events import Lives

from verifier.bounding.core.base import Until
from verifier.clock import Clock
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.boxes.bounds import Effort
from verifier.search.boxes.space import InputOptions
from verifier.search.checkpoint import CLASSES
from verifier.search.cluster import policy, search
from verifier.search.cluster.policy import Order
from verifier.search.cluster.search import ClusterSearch
from verifier.search.cluster.worker import Answer, PartWorker, Point
from verifier.search.codec import decoded, encoded
from verifier.search.domains import Outcome
from verifier.search.journal import BLOCK, Journal, Listener
from verifier.search.loop import BranchAndBound, Limits, Search, run
from verifier.search.problem import ProblemSearch, Splitting
from verifier.search.saved import Keeping, SavedTree

pytestmark = pytest.mark.usefixtures("unchecked")

DEPTH = 8


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (policy, search):
        monkeypatch.setattr(module, "WORTHWHILE", 1)


def clustered(
    space: Binary, pool: Local, confirm: Callable[[Point], Counterexample | None] = lambda point: None
) -> ClusterSearch:
    keeping = Keeping(0.0, 2**20)
    return ClusterSearch(BranchAndBound(space, Limits()), Limits(), lambda: pool, confirm, keeping)


def part_worker(space: Binary) -> PartWorker:  # type: ignore[type-arg]
    return PartWorker(space, Until(), Limits(), 2**20, 0.0)


def pool_of(count: int, seed: int, deadly: float, depth: int = DEPTH) -> Local:
    return Local(lambda: part_worker(Binary(depth)), count, random.Random(seed), deadly)


def check(saved: SavedTree, depth: int) -> None:
    numbers = [k for part in saved.part.domains for k in part.number.tolist()]  # type: ignore[attr-defined]
    assert len(numbers) == len(set(numbers))
    assert saved.counts.domains + sum(below(k, depth) for k in numbers) == size(depth)


@pytest.mark.parametrize("deadly", [0.0, 0.15])
@pytest.mark.parametrize("count", [1, 2, 5])
def test_at_any_moment_open_and_counted_domains_are_the_whole_tree(count: int, deadly: float) -> None:
    depth = 7
    for seed in range(3):
        pool = pool_of(count, seed, deadly, depth)
        searched = clustered(Binary(depth), pool)
        while searched.outcome is None:
            searched.step()
            if searched.outcome is None:
                saved = searched.saved(0)
                assert saved is not None
                check(saved, depth)
        assert (searched.outcome.witness, searched.outcome.reason) == (None, None)
        assert searched.progress.domains == size(depth)
        assert (searched.progress.open, searched.progress.left) == (0, 0.0)
        assert bool(pool.kills) == bool(deadly)
        assert searched.traffic.lost == pool.kills


def test_a_coordinator_that_is_killed_is_continued() -> None:
    """By another one, again and again; in the end every domain has been counted once."""
    rng, left, turns = random.Random(5), None, 0
    while True:
        tree = BranchAndBound(Binary(DEPTH), Limits())
        if left is not None:
            tree.go_on(left)
        pool = pool_of(3, turns, 0.05)
        searched = ClusterSearch(tree, Limits(), lambda pool=pool: pool, lambda point: None, Keeping(0.0, 2**20))
        for _ in range(rng.randint(3, 25)):
            if searched.outcome is None:
                searched.step()
        if searched.outcome is not None:
            break
        saved = searched.saved(0)
        left = decoded(encoded(saved), (*CLASSES, Named))
        assert isinstance(left, SavedTree)
        turns += 1
    assert turns > 3
    assert searched.outcome.reason is None
    assert searched.progress.domains == size(DEPTH)


def test_the_first_witness_ends_the_search_once_it_is_confirmed_here() -> None:
    witness = some_witness()
    heard: list[Point] = []

    def confirm(point: Point) -> Counterexample:
        heard.append(point)
        return witness

    def make() -> PartWorker:  # type: ignore[type-arg]
        return part_worker(Binary(DEPTH, lambda children: closing_step(children, witness)))

    pool = Local(make, 2, random.Random(0))
    outcome = run(clustered(Binary(DEPTH), pool, confirm), Until())
    assert outcome.witness is witness
    assert heard[0][0].tolist() == witness.x.tolist()
    assert pool.ended


def test_a_witness_that_is_not_confirmed_here_decides_nothing() -> None:
    def make() -> PartWorker:  # type: ignore[type-arg]
        return part_worker(Binary(DEPTH, lambda children: closing_step(children, some_witness())))

    outcome = run(clustered(Binary(DEPTH), Local(make, 2, random.Random(0))), Until())
    assert (outcome.witness, outcome.reason) == (None, Reason.NUMERICS)


def test_the_doubts_of_workers_are_told() -> None:
    def make() -> PartWorker:  # type: ignore[type-arg]
        return part_worker(Binary(DEPTH, lambda c: closing_step(c, doubt=Reason.NUMERICS, undecided=-0.25)))

    outcome = run(clustered(Binary(DEPTH), Local(make, 2, random.Random(0))), Until())
    assert (outcome.witness, outcome.reason, outcome.progress.lower) == (None, Reason.NUMERICS, -0.25)


def test_what_was_in_doubt_before_workers_came_is_saved_and_told() -> None:
    tree = BranchAndBound(Binary(DEPTH), Limits())
    while tree.open < 4:
        tree.step()
    tree.doubt, tree.undecided = Reason.NUMERICS, -0.25
    searched = ClusterSearch(tree, Limits(), lambda: pool_of(2, 0, 0.1), lambda point: None, Keeping(0.0, 2**20))
    while searched.outcome is None:
        searched.step()
        if searched.outcome is None:
            saved = searched.saved(0)
            assert saved is not None
            assert (saved.part.doubt, saved.part.undecided) == (Reason.NUMERICS, -0.25)
    assert (searched.outcome.reason, searched.outcome.progress.lower) == (Reason.NUMERICS, -0.25)


def test_what_workers_that_are_done_doubt_is_saved() -> None:
    """Parts that are done are in no checkpoint; their doubts are."""

    def make() -> PartWorker:  # type: ignore[type-arg]
        # Those that get the first half of the tree give up at once, the others go on.
        doubt = partial(closing_step, doubt=Reason.NUMERICS, undecided=-0.25)
        return part_worker(Binary(DEPTH, lambda c: doubt(c) if _first(c[0]) == 2 else None))

    tree = BranchAndBound(Binary(DEPTH), Limits())
    for _ in range(2):
        tree.step()
    pool = Local(make, 2, random.Random(0))
    searched = ClusterSearch(tree, Limits(), lambda: pool, lambda point: None, Keeping(0.0, 2**20))
    doubts = list[bool]()
    while searched.outcome is None:
        searched.step()
        if searched.outcome is None and (saved := searched.saved(0)) is not None:
            doubts.append((saved.part.doubt, saved.part.undecided) == (Reason.NUMERICS, -0.25))
    assert doubts == sorted(doubts)  # once it is there it stays
    assert sum(doubts) > 10
    assert searched.outcome.reason is Reason.NUMERICS


def _first(number: int) -> int:
    """The ancestor on the first level."""
    return number >> (number.bit_length() - 2)


def test_what_lost_workers_have_done_in_vain_is_told() -> None:
    for deadly in (0.0, 0.05):
        tree, pool = BranchAndBound(Binary(DEPTH), Limits()), pool_of(2, 1, deadly)
        searched = ClusterSearch(tree, Limits(), lambda pool=pool: pool, lambda point: None, Keeping(1e9))
        assert run(searched, Until()).progress.domains == size(DEPTH)
        assert bool(searched.traffic.again) == bool(searched.traffic.lost) == bool(deadly)


class Late(Local):
    """Workers that are given up, and answer nevertheless."""

    late: list[tuple[int, Answer | None]]

    def heard(self, seconds: float) -> list[tuple[int, Answer | None]]:
        found, self.late = getattr(self, "late", []), []
        for worker in [worker for worker in self.orders if self.rng.random() < self.deadly]:
            self.late.append((worker, self.workers.pop(worker).follow(self.orders.pop(worker))))
            self.kills += 1
            found.append((worker, None))
        return found + super().heard(seconds)


def test_what_workers_say_after_they_were_given_up_is_passed_over() -> None:
    tree, pool = BranchAndBound(Binary(DEPTH), Limits()), Late(pool_of(2, 0, 0.0).make, 2, random.Random(0))
    searched = ClusterSearch(tree, Limits(), lambda: pool, lambda point: None, Keeping(0.0))
    while searched.outcome is None:
        pool.deadly = 0.2 if pool.kills < 5 else 0.0  # Local's own kills are kills too
        searched.step()
    assert searched.progress.domains == size(DEPTH)
    assert pool.kills == searched.traffic.lost >= searched.traffic.stale > 0


def test_a_new_part_has_no_doubts_of_the_one_before() -> None:
    doubt = partial(closing_step, doubt=Reason.NUMERICS, undecided=-0.25)
    tree = BranchAndBound(Binary(DEPTH), Limits())
    for _ in range(2):
        tree.step()
    other = tree.halve()
    worker = part_worker(Binary(DEPTH, lambda c: doubt(c) if _first(c[0]) == 2 else closing_step(c)))
    parts = sorted([tree.part(0), other.part(0)], key=lambda part: int(part.domains[0].number[0]))  # type: ignore[attr-defined]
    reports = [worker.follow(Order(k, part)).report for k, part in enumerate(parts)]
    assert [(report.open, report.doubt) for report in reports] == [(0, Reason.NUMERICS), (0, None)]


def test_limits_count_the_domains_of_all_workers() -> None:
    pool = pool_of(2, 0, 0.0, 30)
    tree = BranchAndBound(Binary(30), Limits())
    searched = ClusterSearch(tree, Limits(max_domains=200), lambda: pool, lambda point: None, Keeping())
    outcome = run(searched, Until(Clock.begin(PATIENCE)))
    assert outcome.reason is Reason.LIMIT
    assert outcome.progress.domains >= 200


def test_without_workers_the_tree_is_searched_here() -> None:
    outcome = run(clustered(Binary(5), pool_of(0, 0, 0.0)), Until())
    assert (outcome.reason, outcome.progress.domains) == (None, size(5))


# ---------------------------------------------------------------- real problems


CUT = InputOptions(batch=4, least_children=1)


def decided(
    problem: object,
    splitting: Splitting,
    seed: int,
    listeners: Sequence[Listener] = (),
    telling: float = 0.0,
    inputs: InputOptions = CUT,
) -> Outcome:
    target = instances.target(problem)  # type: ignore[arg-type]
    engine = LocalCluster(target.model, Keeping(telling, 2**20), 0.0, seed=seed)
    whole = ProblemSearch(narrow(4), splitting=splitting, inputs=inputs, engine=engine, journal=Journal(listeners))
    return whole.run(problem, unbounded(problem), target, Clock.begin(PATIENCE), ignore)  # type: ignore[arg-type]


@pytest.mark.parametrize("splitting", [Splitting.RELUS, Splitting.INPUTS, Splitting.AUTO])
@pytest.mark.parametrize(
    ("family", "seed"), [*MODERATE, *(pytest.param(*which, marks=pytest.mark.slow) for which in EASY_OR_HARD)]
)
def test_workers_that_are_lost_answer_as_the_oracle_does(family: str, seed: int, splitting: Splitting) -> None:
    case = random_case(family, seed, (3, 1), boxes=2)
    for margin in (GAP, -GAP):
        outcome = decided(case.problem([margin, GAP]), splitting, seed)
        assert (outcome.witness is not None or outcome.reason is not None) == (margin < 0)


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("splitting", [Splitting.RELUS, Splitting.INPUTS, Splitting.AUTO])
@pytest.mark.parametrize("telling", [0.0, 0.02])
def test_who_listens_hears_of_every_domain_once_whoever_was_lost(
    splitting: Splitting, telling: float, seed: int
) -> None:
    """Its birth first, then its bound and its end: what is done again was never told."""
    rough = replace(CUT, effort=Effort(0, 0))
    case, lives = random_case("dense", 1, (1, 2)), Lives()
    outcome = decided(case.problem([GAP] * len(case.claims)), splitting, seed, [lives], telling, rough)
    assert (outcome.witness, outcome.reason) == (None, None)
    assert len({number // BLOCK for number in lives.parent}) > 1, "several workers have made domains"
    if splitting is not Splitting.AUTO:  # else the loser of the race stays open
        assert not lives.open
        assert outcome.progress.counts.tiers == lives.counts.tiers
        assert outcome.progress.counts.iterations == lives.counts.iterations
        assert outcome.progress.domains == len(lives.parent)


def test_searches_are_what_is_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """The workers get all of the work, once there is any."""
    made: list[Search] = []
    usual = ClusterSearch.__init__

    def noted(self: ClusterSearch, *args: object, **kwargs: object) -> None:
        usual(self, *args, **kwargs)  # type: ignore[arg-type]
        made.append(self)

    monkeypatch.setattr(ClusterSearch, "__init__", noted)
    case = random_case("residual", 1, (3,))
    assert decided(case.problem([GAP]), Splitting.RELUS, 0).reason is None
    (own,) = made
    assert isinstance(own, ClusterSearch)
    assert own.traffic.messages > 10
    assert own.traffic.sent > 2
    assert own.traffic.told_bytes > own.traffic.told > 0


def test_the_bytes_of_a_part_are_those_that_travel() -> None:
    """But for what a pickle says of itself."""
    tree = BranchAndBound(Binary(12), Limits())
    while tree.open < 1000:
        tree.step()
    part = tree.part(0)
    known, travels = search.bytes_of(part), len(pickle.dumps(part))
    assert known < travels < 1.2 * known + 4096
