"""Linear programs that prove: they reach their relaxation, prove it in float64, and keep warm from domain to domain."""

from __future__ import annotations

import itertools
from dataclasses import replace

import networks
import pytest
import torch
from bounding.cases import random_rows, root
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Bound, Objective, Region, Until
from verifier.bounding.core.closing import closes
from verifier.bounding.core.state import cat
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.lp.bounder import PlanetLP, RowCut, lp_with_cuts
from verifier.bounding.lp.dual import LinearPrograms
from verifier.bounding.lp.program import Program
from verifier.bounding.lp.solver import Solver
from verifier.bounding.solvers.big_m import BigM
from verifier.bounding.solvers.crown import Linear
from verifier.bounding.solvers.multipliers import MultiplierVariables
from verifier.bounding.solvers.solver import Task
from verifier.clock import Clock
from verifier.functions import RELU
from verifier.network.network import Network

CLOSE = 1e-7
SEEDS = st.integers(0, 2**16)


def kinks(region: Region) -> list[tuple[int, int]]:
    """The ambiguous neurons of a region of one box: group (from 1) and neuron."""
    return [(k, int(i)) for k in range(1, region.known + 1) for i in torch.nonzero(region.ambiguous(k)[0]).flatten()]


def signed(region: Region, signs: dict[tuple[int, int], int]) -> Region:
    """The part of a region of one box where some neurons have these signs."""
    splits, l_hat, u_hat = ([t.clone() for t in ts] for ts in (region.l_hat, region.l_hat, region.u_hat))
    splits = [torch.zeros_like(split, dtype=torch.int8) for split in splits]
    for (k, i), sign in signs.items():
        splits[k - 1][0, i] = sign
        cut = l_hat[k - 1][0, i] if sign > 0 else u_hat[k - 1][0, i]
        cut.clamp_(min=0) if sign > 0 else cut.clamp_(max=0)
    return replace(region, l_hat=tuple(l_hat), u_hat=tuple(u_hat), splits=tuple(splits))


def common(region: Region) -> Region:
    """With its ambiguous neurons as kinks of all later parts of it."""
    return replace(
        region, kinks=tuple(torch.nonzero(region.ambiguous(k)[0]).flatten() for k in range(1, region.known + 1))
    )


def domains(region: Region, seed: int, count: int) -> list[Region]:
    """The region itself, and parts of it with random signs, more and more of them."""
    generator = torch.Generator().manual_seed(seed)
    whole, places = common(region), kinks(region)
    found = [signed(whole, {})]
    for n in range(count):
        some = torch.randperm(len(places), generator=generator)[: n + 1].tolist()
        signs = (2 * torch.randint(0, 2, (len(some),), generator=generator) - 1).tolist()
        found.append(signed(whole, {places[i]: sign for i, sign in zip(some, signs, strict=True)}))
    return found


def instance(family: str, seed: int, radius: float = 0.6) -> tuple[Network, Region, Objective]:
    net = networks.FAMILIES[family](seed)
    return net, root(net, *networks.box(net, seed, radius)), random_rows(net, seed, 2)


def task_of(net: Network, region: Region, objective: Objective) -> Task:
    return Task(Sweep.prepare(net, region, objective.layer), objective)


def proved(bound: Bound, net: Network, region: Region, objective: Objective) -> torch.Tensor:
    """What the multipliers prove, evaluated once more."""
    assert isinstance(bound.state, MultiplierVariables)
    return bound.state.lower(task_of(net, region, objective))


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=SEEDS)
@settings(max_examples=6)
def test_reaches_the_planet_relaxation_in_every_domain(family: str, seed: int) -> None:
    net, region, objective = instance(family, seed)
    for part in domains(region, seed, 3):
        reference = PlanetLP().bound(net, part, objective, Until()).lower
        found = LinearPrograms().bound(net, part, objective, Until())
        torch.testing.assert_close(proved(found, net, part, objective), found.lower, rtol=0, atol=0)
        feasible = torch.isfinite(reference)
        assert bool((found.lower <= reference + 1e-9).all())
        torch.testing.assert_close(found.lower[feasible], reference[feasible], rtol=0, atol=CLOSE)
        assert bool(closes(found.lower[~feasible]).all())


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=SEEDS)
@settings(max_examples=2)
def test_no_ascent_over_the_same_relaxation_gets_higher(family: str, seed: int) -> None:
    net, region, objective = instance(family, seed, 1.0)
    climbing = BigM(Ascent(30, Steps(0.1, 0.01)))
    for part in domains(region, seed, 3):
        lower = climbing.bound(net, part, objective, Until()).lower
        assert bool((LinearPrograms().bound(net, part, objective, Until()).lower >= lower - CLOSE).all())


@pytest.mark.parametrize("rounds", [0, 1, 3])
@given(seed=SEEDS, family=st.sampled_from(["dense", "residual"]))
@settings(max_examples=6)
def test_never_above_the_exact_minimum(rounds: int, seed: int, family: str) -> None:
    net, region, objective = instance(family, seed, 0.4)
    places = kinks(region)
    if len(places) > 6:
        return  # too many leaves
    exact = torch.full((1, 2), torch.inf, dtype=torch.float64)
    for signs in itertools.product((-1, 1), repeat=len(places)):
        leaf = signed(region, dict(zip(places, signs, strict=True)))
        exact = torch.minimum(exact, PlanetLP().bound(net, leaf, objective, Until()).lower)
    found = LinearPrograms(rounds).bound(net, region, objective, Until())
    assert bool((found.lower <= exact + 1e-8).all())


def every_cut(net: Network, region: Region) -> list[RowCut]:
    """All masks of all ambiguous neurons."""
    found = []
    for k, neuron in kinks(region):
        width = sum(term.n_in for _, term in net.groups[k - 1].terms)
        masks = torch.tensor(list(itertools.product([False, True], repeat=width)))
        found += [RowCut(k, neuron, torch.arange(width), mask) for mask in masks]
    return found


@given(seed=SEEDS)
@settings(max_examples=8)
def test_rounds_of_cuts_reach_the_relaxation_with_all_masks(seed: int) -> None:
    net = networks.dense(seed, (2, 3, 3, 1))
    region = root(net, *networks.box(net, seed, 2.0))
    objective = random_rows(net, seed, 1)
    all_masks = lp_with_cuts(net, region, objective, every_cut(net, region)).lower
    found = LinearPrograms(rounds=40).bound(net, region, objective, Until())
    torch.testing.assert_close(found.lower, all_masks, rtol=0, atol=1e-5)
    torch.testing.assert_close(proved(found, net, region, objective), found.lower, rtol=0, atol=0)


def test_a_round_of_cuts_gains() -> None:
    """Guards the laws above, which programs without cuts would obey too."""
    for family in ("dense", "conv", "residual"):
        net, region, objective = instance(family, 3, 1.5)
        plain = LinearPrograms().bound(net, region, objective, Until()).lower
        assert bool((LinearPrograms(1).bound(net, region, objective, Until()).lower > plain + 1e-4).any())


def test_the_values_of_the_papers_example() -> None:
    net, lower, upper = networks.paper_example()
    pair = [torch.tensor([b], dtype=torch.float64) for b in ((-3.0, -1.0), (1.0, 3.0), (-3.0, -2.0), (4.0, 3.0))]
    region = Region(lower, upper, (pair[0], pair[2]), (pair[1], pair[3]), (RELU, RELU))
    row = Objective(3, torch.ones(1, 1, 1).double())
    assert LinearPrograms().bound(net, region, row, Until()).lower.item() == pytest.approx(-9 / 5, abs=1e-9)
    assert LinearPrograms(20).bound(net, region, row, Until()).lower.item() == pytest.approx(-9 / 7, abs=1e-9)


def test_a_ray_closes_an_empty_region() -> None:
    """Both neurons of the first group see x0 - x1; blocking the larger and passing the smaller is void."""
    net, lower, upper = networks.paper_example()
    region = root(net, lower, upper)
    void = signed(region, {(1, 0): 1, (1, 1): -1})
    row = Objective(3, torch.tensor([[[1.0], [-1.0]]], dtype=torch.float64))
    for rounds in (0, 2):
        assert bool(closes(LinearPrograms(rounds).bound(net, void, row, Until()).lower).all())


@pytest.mark.parametrize("rounds", [0, 1])
@given(seed=SEEDS, family=st.sampled_from([*networks.FAMILIES]))
@settings(max_examples=3)
def test_domains_of_one_problem_are_bounded_as_if_alone(rounds: int, seed: int, family: str) -> None:
    """Though HiGHS goes on from the domain before, and their bounds of hidden neurons differ."""
    net, region, objective = instance(family, seed, 1.0)
    parts = domains(region, seed, 4)
    inner = 0.5 * region.lower + 0.5 * region.upper
    smaller = root(net, 0.5 * (region.lower + inner), 0.5 * (region.upper + inner))
    parts.append(replace(parts[0], lower=smaller.lower, upper=smaller.upper, l_hat=smaller.l_hat, u_hat=smaller.u_hat))
    working = LinearPrograms(rounds).at_work()
    twice = [*parts, *parts[::-1]]
    alone = [LinearPrograms(rounds).bound(net, part, objective, Until()).lower for part in twice]
    one_by_one = [working.begin(task_of(net, part, objective), Until()).lower for part in twice]
    together = working.begin(task_of(net, cat(twice), objective), Until()).lower
    # Cuts depend on the optimum that HiGHS ends at, where there are several: only the order is certain then.
    plain = torch.cat([LinearPrograms().bound(net, part, objective, Until()).lower for part in twice])
    for found in (torch.cat(one_by_one), together):
        both = ~(closes(found) & closes(torch.cat(alone)))  # empty ones have any bound
        assert bool((found >= plain - CLOSE)[both].all())
        if not rounds:
            torch.testing.assert_close(found[both], torch.cat(alone)[both], rtol=0, atol=CLOSE)


def test_without_time_the_start_is_what_is_left() -> None:
    net, region, objective = instance("dense", 1, 1.0)
    passed = Until(Clock.begin(0.0))
    found = LinearPrograms(1).bound(net, region, objective, passed)
    torch.testing.assert_close(found.lower, Linear().bound(net, region, objective, Until()).lower, rtol=0, atol=1e-9)
    task, best = task_of(net, region, objective), LinearPrograms().bound(net, region, objective, Until())
    assert isinstance(best.state, MultiplierVariables)
    again = LinearPrograms().solve(task, LinearPrograms().init(task, best.state), passed)
    torch.testing.assert_close(again.lower, best.lower, rtol=0, atol=1e-9)


def test_crossed_bounds_leave_the_start() -> None:
    net, region, objective = instance("dense", 1, 1.0)
    crossed = replace(region, l_hat=(region.u_hat[0] + 1, *region.l_hat[1:]))
    assert LinearPrograms().bound(net, crossed, objective, Until()).lower.shape == (1, 2)


def test_a_held_program_becomes_another_one() -> None:
    """Sides, boxes and values change; rows that were added are forgotten."""
    net, region, objective = instance("residual", 4, 1.0)
    working = LinearPrograms(2).at_work()
    programs = working.programs
    assert programs is not None
    task = task_of(net, region, objective)
    working.begin(task, Until())
    _, frame = programs.frame(task, with_z=True)
    program: Program = programs._held[1] if programs._held else frame.program
    cost = frame.costs(net, objective)[0, 0].numpy()
    moved = replace(program, low=0.9 * program.low, high=0.9 * program.high)
    moved = replace(moved, rows=replace(program.rows, values=1.1 * program.rows.values, high=program.rows.high + 0.1))
    held = Solver(program)
    held.solve(cost, Until())
    held.add_rows(program.rows)
    held.become(moved)
    assert held.solve(cost, Until()).lower == pytest.approx(Solver(moved).solve(cost, Until()).lower, abs=1e-8)
