"""Slices of boxes in large networks: they cover the boxes, and the answers are those of the oracle."""

from __future__ import annotations

from pathlib import Path

import networks
import pytest
import torch
from falsify import instances
from search.cases import GAP, random_case, unbounded

from verifier.api import verify
from verifier.bounding import frugal
from verifier.bounding.core.base import Until
from verifier.bounding.frugal import Frugal
from verifier.bounding.hidden import RootBounds
from verifier.clock import Clock
from verifier.property.problem import Problem
from verifier.result.verdict import Verdict
from verifier.search import problem as whole_problem
from verifier.search import slices
from verifier.search.domains import Outcome, Progress
from verifier.search.loop import Search
from verifier.search.problem import ProblemSearch, Splitting
from verifier.search.slices import Slice, SlicedSearch, Slicing

HIDDEN = Frugal(RootBounds())


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every network is, and no input moves so little that boxes are cut instead."""
    monkeypatch.setattr(frugal, "LARGE", 0.0)
    monkeypatch.setattr(frugal, "OVERHEAD", 0.0)
    monkeypatch.setattr(whole_problem, "FEW_OF_LARGE", 0)
    monkeypatch.setattr(slices, "THICK", 0.0)


def whole(problem: Problem) -> Slice:
    return Slice(problem.lower[:1], problem.upper[:1], problem.clauses_of[0], -torch.inf)


def search(problem: Problem, options: ProblemSearch | None = None) -> tuple[Outcome, list[Progress]]:
    heard: list[Progress] = []
    options = options or ProblemSearch(intermediate=HIDDEN)
    return options.run(problem, unbounded(problem), instances.target(problem), Clock.begin(60), heard.append), heard


@pytest.mark.usefixtures("large")
@pytest.mark.parametrize("family", ["dense", "conv", "residual"])
@pytest.mark.parametrize("seed", [0, 3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
@pytest.mark.parametrize("guilty", [None, 0, 1])
def test_verdicts_are_those_of_the_oracle(family: str, seed: int, guilty: int | None) -> None:
    margins = [-GAP if k == guilty else GAP for k in range(2)]
    problem = random_case(family, seed, (1, 2)).problem(margins)
    assert ProblemSearch(intermediate=HIDDEN).by_slices(problem)
    outcome, _ = search(problem)
    assert outcome.reason is None
    assert (None if outcome.witness is None else outcome.witness.clause) == guilty


@pytest.mark.usefixtures("large")
def test_boxes_have_slices_of_their_own() -> None:
    case = random_case("residual", 2, (1, 2, 2, 1), boxes=2)
    safe, _ = search(case.problem([GAP] * 4))
    assert (safe.witness, safe.reason) == (None, None)
    for guilty in range(4):
        outcome, _ = search(case.problem([-GAP if k == guilty else GAP for k in range(4)]))
        assert outcome.witness is not None
        assert outcome.witness.clause == guilty


@pytest.mark.usefixtures("large")
def test_slices_cover_their_box_and_share_their_cuts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "MOST_CUTS", 3)
    problem = random_case("conv", 1, (1,)).problem([GAP])
    thin = Slicing(problem, HIDDEN, Until()).thin(whole(problem))
    assert len(thin) == 8
    volumes = [(part.upper - part.lower).clamp(min=1e-300).log().sum() for part in thin]
    all_of_it = (problem.upper - problem.lower)[:1].clamp(min=1e-300).log().sum()
    torch.testing.assert_close(torch.stack(volumes).logsumexp(0), all_of_it)
    x = networks.points(problem.lower[:1], problem.upper[:1], 500, 3)
    inside = torch.stack([((x >= part.lower) & (x <= part.upper)).all(dim=1) for part in thin])
    assert bool(inside.any(dim=0).all())


@pytest.mark.usefixtures("large")
def test_inputs_that_account_for_little_are_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slices, "THICK", 1.1)
    problem = random_case("conv", 1, (1,)).problem([GAP])
    box = whole(problem)
    assert Slicing(problem, HIDDEN, Until()).thin(box) == [box]


@pytest.mark.usefixtures("large")
def test_a_slice_with_a_point_is_never_left_out() -> None:
    """Whatever the bounds are: the slice that holds the unsafe point stays, with its clause."""
    for seed in range(6):
        problem = random_case("dense", seed, (1, 1)).problem([GAP, -GAP])
        slicing = Slicing(problem, HIDDEN, Until())
        left = [part for thin in slicing.thin(whole(problem)) if (part := slicing.by_sweeps(thin)) is not None]
        witness = search(problem, ProblemSearch(splitting=Splitting.RELUS))[0].witness
        assert witness is not None
        x = torch.as_tensor(witness.x, dtype=torch.float64).flatten()
        holding = [part for part in left if bool(((x >= part.lower - 1e-6) & (x <= part.upper + 1e-6)).all())]
        assert any(1 in part.clauses for part in holding)


class Undecided(Search):
    """Goes on for ever."""

    def __init__(self) -> None:
        self.progress, self.outcome = Progress(open=1, lower=-1.0, left=0.5), None

    def step(self) -> None:
        pass


@pytest.mark.usefixtures("large")
def test_every_slice_counts_once_and_the_search_begins_with_those_that_are_left() -> None:
    problem = random_case("dense", 3, (1,)).problem([-GAP])
    slicing, given = Slicing(problem, HIDDEN, Until()), list[Slice]()

    def make(left: object) -> Search:
        assert isinstance(left, list)
        given.extend(left)
        return Undecided()

    sliced = SlicedSearch(slicing, [whole(problem)], make)
    steps = 0
    while not given:
        sliced.step()
        steps += 1
        assert steps < 100
    thin = len(slicing.thin(whole(problem)))
    counts = sliced.progress.counts.tiers
    assert counts["forms"] <= thin
    assert counts["linear"] >= len(given) > 0
    assert all(part.region is not None for part in given)
    assert sliced.outcome is None
    assert sliced.progress.lower == -1.0


@pytest.mark.slow
def test_a_public_network_is_proved_by_slices(benchmarks: Path) -> None:
    folder = benchmarks / "cifar_biasfield"
    names = "onnx/cifar_bias_field_1.onnx", "vnnlib/prop_1.vnnlib"
    network, prop = (str(next(folder.glob(f"{name}*"))) for name in names)
    result = verify(network, prop, timeout=600)
    assert result.verdict is Verdict.UNSAT
    assert set(result.statistics.domains_by_tier) <= {"forms", "linear", "alpha_crown"}
