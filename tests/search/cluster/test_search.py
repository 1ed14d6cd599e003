"""A tree searched by workers elsewhere, here by objects of this process that are lost now and then."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from falsify import instances
from forks import PATIENCE
from search.binary import Binary
from search.binary import closed as closing_step
from search.cases import FAMILIES, GAP, Named, ignore, narrow, random_case, some_witness, unbounded
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
from verifier.search.cluster.search import ClusterSearch
from verifier.search.cluster.worker import PartWorker, Point
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
    for seed in range(3):
        pool = pool_of(count, seed, deadly)
        searched = clustered(Binary(DEPTH), pool)
        while searched.outcome is None:
            searched.step()
            if searched.outcome is None:
                saved = searched.saved(0)
                assert saved is not None
                check(saved, DEPTH)
        assert (searched.outcome.witness, searched.outcome.reason) == (None, None)
        assert searched.progress.domains == size(DEPTH)
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
@pytest.mark.parametrize("family", FAMILIES)
def test_workers_that_are_lost_answer_as_the_oracle_does(family: str, splitting: Splitting) -> None:
    for seed in (1, 3):
        case = random_case(family, seed, (3, 1), boxes=2)
        for margin in (GAP, -GAP):
            outcome = decided(case.problem([margin, GAP]), splitting, seed)
            assert (outcome.witness is not None or outcome.reason is not None) == (margin < 0)


@pytest.mark.parametrize("splitting", [Splitting.RELUS, Splitting.INPUTS, Splitting.AUTO])
@pytest.mark.parametrize("telling", [0.0, 0.02])
def test_who_listens_hears_of_every_domain_once_whoever_was_lost(splitting: Splitting, telling: float) -> None:
    """Its birth first, then its bound and its end: what is done again was never told."""
    rough = replace(CUT, effort=Effort(0, 0))
    for seed in range(1 if splitting is Splitting.AUTO else 2):
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
