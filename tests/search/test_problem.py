"""Whole problems: all boxes in one frontier, or in groups where memory is short."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
import torch
from falsify import instances
from search.cases import decide, grow, ignore, narrow, random_case, root_of, unbounded, wedge

from verifier.bounding.clauses import ClauseBounder, ClauseBounds
from verifier.bounding.core.base import Until
from verifier.bounding.frugal import Frugal
from verifier.bounding.hidden import RootBounds
from verifier.clock import Clock
from verifier.property.problem import Problem
from verifier.result.verdict import Reason
from verifier.search.domains import Outcome, Progress
from verifier.search.loop import Limits
from verifier.search.problem import ProblemSearch, Splitting, open_clauses
from verifier.search.signs.space import Policy

TWO = instances.boxes([[-1], [-1]], [[1], [1]])


signs = partial(ProblemSearch, splitting=Splitting.RELUS)


def boxed(margins: list[float]) -> Problem:
    """Four clauses on two boxes: 0 and 2 on the first, 1 and 3 on the second."""
    return random_case("residual", 2, (1, 2, 2, 1), boxes=2).problem(margins)


def run(problem: Problem, search: ProblemSearch, found: ClauseBounds | None = None) -> tuple[Outcome, list[Progress]]:
    heard: list[Progress] = []
    bounds = found or unbounded(problem)
    return search.run(problem, bounds, instances.target(problem), Clock.begin(60), heard.append), heard


def test_clauses_of_closed_bounds_are_not_searched() -> None:
    outcome = decide(boxed([50.0, 50.0, 50.0, 50.0]), bounded=True)
    assert outcome == Outcome(None, None, Progress())


def test_what_is_open() -> None:
    problem, nan = boxed([1.0] * 4), float("nan")
    for lower, expected in (
        ([1.0, 1.0, 1.0, 1.0], []),
        ([0.0, 1e-9, 1.0, nan], [(0, (0,)), (1, (3,))]),
        ([-1.0, 1.0, -1.0, 1.0], [(0, (0, 2))]),
    ):
        assert open_clauses(problem, ClauseBounds(torch.tensor(lower, dtype=torch.float64), {}, {})) == expected


def test_few_moving_inputs_prefer_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    few = random_case("dense", 1, (1,)).problem([1e-3])
    assert ProblemSearch().by_inputs(few)
    assert ProblemSearch(splitting=Splitting.INPUTS).by_inputs(few)
    assert not signs().by_inputs(few)
    monkeypatch.setattr("verifier.search.problem.FEW_INPUTS", 1)
    assert not ProblemSearch().by_inputs(few)


def test_a_witness_in_the_last_box_is_found() -> None:
    outcome = decide(boxed([1e-3, 1e-3, 1e-3, -1e-3]))
    assert outcome.witness is not None
    assert outcome.witness.clause == 3


def test_all_boxes_are_searched_together() -> None:
    """The root's batch holds all clauses; with little memory for roots one box follows the other."""
    problem = boxed([1e-3] * 4)
    together, heard = run(problem, signs(limits=Limits(max_batches=1)))
    assert (together.reason, heard[0].domains, heard[0].counts.batches) == (Reason.LIMIT, 4, 1)
    _, apart = run(problem, signs(limits=Limits(max_batches=1), root_bytes=1))
    assert (apart[0].domains, apart[0].counts.batches) == (2, 1)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("root_bytes", [1, 2**28])
@pytest.mark.parametrize("guilty", [None, 0, 1, 2, 3])
def test_groups_of_boxes_give_the_same_verdict(root_bytes: int, guilty: int | None) -> None:
    margins = [1e-3 if k != guilty else -1e-3 for k in range(4)]
    outcome, _ = run(boxed(margins), signs(root_bytes=root_bytes))
    assert outcome.reason is None
    assert (None if outcome.witness is None else outcome.witness.clause) == guilty


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("root_bytes", [1, 2**28])
def test_the_limit_counts_the_domains_of_all_boxes(root_bytes: int) -> None:
    problem = boxed([1e-3] * 4)
    bounds = ClauseBounder().bound(problem, Until())
    search = signs(narrow(4), root_bytes=root_bytes)
    whole = run(problem, search, bounds)[0].progress
    assert whole.domains > 12
    for most in (2, whole.domains // 2, whole.domains - 4):  # the last batch may end beyond the limit
        outcome, _ = run(problem, replace(search, limits=Limits(max_domains=most)), bounds)
        assert outcome.reason is Reason.LIMIT
        assert outcome.progress.domains < most + 4
        assert -20 < outcome.progress.lower <= 0
    assert run(problem, replace(search, limits=Limits(max_domains=whole.domains + 1)), bounds)[0].reason is None
    last = whole.counts.batches
    assert run(problem, replace(search, limits=Limits(max_batches=last)), bounds)[0].reason is None
    stopped = run(problem, replace(search, limits=Limits(max_batches=last - 1)), bounds)[0]
    assert (stopped.reason, stopped.progress.counts.batches) == (Reason.LIMIT, last - 1)


def test_points_are_offered_for_their_own_clauses() -> None:
    problem = boxed([1e-3] * 4)
    seen: set[int] = set()

    def watch(x: torch.Tensor, clauses: torch.Tensor) -> None:
        assert len(x) == len(clauses)
        for point, clause in zip(x.double(), clauses.tolist(), strict=True):
            box = clause % 2
            assert bool(((problem.lower[box] - 1e-6 <= point) & (point <= problem.upper[box] + 1e-6)).all())
        seen.update(clauses.tolist())

    grow(root_of(problem), narrow(4), watch)
    assert seen == {0, 1, 2, 3}
    seen.clear()
    grow(root_of(problem, 1), narrow(4), watch)
    assert seen == {1, 3}


@pytest.mark.parametrize("root_bytes", [1, 2**28])
def test_doubt_in_one_box_does_not_hide_a_witness_in_the_next(root_bytes: int) -> None:
    touching, holds = instances.row({0: 1}, 0, strict=True), instances.row({0: 1}, "0.5")
    search = signs(root_bytes=root_bytes)
    doubt = instances.problem(wedge(), TWO, [(0, [touching]), (1, [instances.row({0: 1}, -1)])])
    outcome, _ = run(doubt, search)
    assert (outcome.witness, outcome.reason) == (None, Reason.NUMERICS)
    assert -1e-6 < outcome.progress.lower <= 0
    sat = instances.problem(wedge(), TWO, [(0, [touching]), (1, [holds])])
    assert run(sat, replace(search, policy=Policy(offers=0)))[0].witness is not None


def test_boxes_that_wait_count_in_the_bound() -> None:
    problem = boxed([1e-3, 5.0, 1e-3, 5.0])
    assert problem.clauses_of == ((0, 2), (1, 3))
    clauses = ClauseBounds(torch.tensor([-0.5, 1.0, -7.0, -9.0], dtype=torch.float64), {}, {})
    search = signs(narrow(4), root_bytes=1)
    _, heard = run(problem, search, clauses)
    assert heard[0].lower == -9.0
    stopped, _ = run(problem, replace(search, limits=Limits(max_domains=1)), clauses)
    assert (stopped.reason, stopped.progress.lower) == (Reason.LIMIT, -9.0)


def test_no_time_at_all_leaves_what_was_known() -> None:
    problem = boxed([1e-3] * 4)
    clauses = ClauseBounds(torch.tensor([-0.5, 1.0, -7.0, 2.0], dtype=torch.float64), {}, {})
    out = signs().run(problem, clauses, instances.target(problem), Clock.begin(0.0), ignore)
    assert out == Outcome(None, Reason.TIMEOUT, Progress(lower=-7.0))


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("memory", [2**12, 2**33])
def test_memory_changes_how_much_is_done_at_once_and_no_verdict(memory: int) -> None:
    search = signs().within(memory)
    assert search.limits.memory_bytes <= memory // 4
    assert search.domain_bytes <= memory // 4
    assert search.inputs.memory_bytes <= memory // 4
    outcome, _ = run(boxed([1e-3] * 4), search)
    assert (outcome.witness, outcome.reason) == (None, None)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("margin", [1e-3, -1e-3])
def test_a_search_that_gets_its_bounds_bit_by_bit_decides_alike(margin: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifier.bounding.frugal.LARGE", 0.0)
    monkeypatch.setattr("verifier.search.race.HEAD_START", 0.0)
    monkeypatch.setattr("verifier.search.race.FIRST_SLICE", 0.0)
    problem = random_case("conv", 1, (1, 2)).problem([1e-3, margin])
    monkeypatch.setattr("verifier.search.problem.FEW_OF_LARGE", problem.network.n_in)
    outcome, _ = run(problem, ProblemSearch(intermediate=Frugal(RootBounds())))
    assert outcome.reason is None
    assert (outcome.witness is None) == (margin > 0)
