"""Planes lie below the rows, slopes and weights climb along the true derivative, and bounds are those of boxes."""

from __future__ import annotations

from dataclasses import replace

import networks
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from search.cases import begun, random_case

from verifier.bounding.core.base import Region, Until
from verifier.bounding.relaxation.zonotope import Form, propagate
from verifier.bounding.rows import Conjunction
from verifier.network.network import Network
from verifier.property.problem import Problem
from verifier.search.boxes.bounds import DOUBLE, SINGLE, BoxBounder, Effort
from verifier.search.boxes.boxes import BoxDomains, halved
from verifier.search.boxes.planes import planes_below
from verifier.search.boxes.slopes import Choice, Kinked, Sweeps, climb
from verifier.search.boxes.space import InputSpace
from verifier.search.boxes.table import Table
from verifier.search.boxes.weights import best_weights

SEEDS = st.integers(0, 10_000)
FAMILY = st.sampled_from(sorted(networks.FAMILIES))


def random_rows(net: Network, count: int, m: int, seed: int, mixed: bool = True) -> Conjunction:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    B = normal(count, m, net.n_in) if mixed else None
    return Conjunction(normal(count, m, net.n_out), B, normal(count, m), torch.ones(count, m, dtype=torch.bool))


def sweeps_of(net: Network, low: torch.Tensor, high: torch.Tensor, rows: Conjunction) -> Sweeps:
    found = propagate(net, low, high)
    groups = tuple(Kinked.of(*bounds) for bounds in zip(found.l_hat, found.u_hat, strict=True))
    return Sweeps(net, low, high, groups, rows)


def random_choice(sweeps: Sweeps, seed: int) -> Choice:
    generator = torch.Generator().manual_seed(seed)
    slopes = tuple(
        torch.where(g.kinked, torch.rand(g.upper.shape, generator=generator, dtype=torch.float64), g.upper)
        for g in sweeps.groups
    )
    weights = torch.rand(sweeps.rows.c.shape, generator=generator, dtype=torch.float64)
    return Choice(slopes, weights / weights.sum(dim=1, keepdim=True))


@settings(max_examples=40)
@given(FAMILY, SEEDS, st.booleans())
def test_planes_lie_below_the_rows(family: str, seed: int, mixed: bool) -> None:
    net = networks.FAMILIES[family](seed)
    low, high = networks.box(net, seed, 0.6, 3)
    rows, found = random_rows(net, 3, 2, seed, mixed), propagate(net, low, high)
    choice = random_choice(sweeps_of(net, low, high, rows), seed)
    weights = torch.eye(2, dtype=torch.float64).expand(3, -1, -1)
    planes = planes_below(
        net,
        Region(low, high, found.l_hat, found.u_hat),
        rows.combined(len(net.layers), weights),
        [s.unsqueeze(1) for s in choice.slopes],
        torch.zeros(3, 2, dtype=torch.float64),
    )
    x = networks.points(low, high, 50, seed)
    g = rows.values(net.forward(x).transpose(0, 1), x.transpose(0, 1))  # D points m
    plane = x.transpose(0, 1) @ planes.slope.transpose(1, 2) + planes.offset.unsqueeze(1)
    assert bool((plane <= g + 1e-9).all())
    corner = torch.where(planes.slope >= 0, low.unsqueeze(1), high.unsqueeze(1))
    torch.testing.assert_close(planes.lower, (planes.slope * corner).sum(dim=-1) + planes.offset)


@settings(max_examples=30)
@given(FAMILY, SEEDS)
def test_the_ascent_evaluates_what_the_planes_do(family: str, seed: int) -> None:
    net = networks.FAMILIES[family](seed)
    low, high = networks.box(net, seed, 0.6, 2)
    rows, found = random_rows(net, 2, 3, seed), propagate(net, low, high)
    sweeps = sweeps_of(net, low, high, rows)
    choice = random_choice(sweeps, seed)
    objective = rows.combined(len(net.layers), choice.weights.unsqueeze(1))
    region, slopes = Region(low, high, found.l_hat, found.u_hat), [s.unsqueeze(1) for s in choice.slopes]
    planes = planes_below(net, region, objective, slopes, torch.zeros(2, 1, dtype=torch.float64))
    torch.testing.assert_close(planes.lower.squeeze(1), sweeps.backward(choice)[0], rtol=1e-9, atol=1e-9)


@settings(max_examples=30)
@given(FAMILY, SEEDS)
def test_derivatives_are_differences(family: str, seed: int) -> None:
    net = networks.FAMILIES[family](seed)
    low, high = networks.box(net, seed, 0.6)
    sweeps = sweeps_of(net, low, high, random_rows(net, 1, 2, seed))
    choice, step = random_choice(sweeps, seed), 1e-6
    value, x0, lam = sweeps.backward(choice)
    by_slope, by_weight = sweeps.gradient(choice, x0, lam)
    for k, slope in enumerate(choice.slopes):
        for i in torch.nonzero(sweeps.groups[k].kinked[0]).flatten().tolist():
            moved = slope.clone()
            moved[0, i] += step
            there = sweeps.backward(replace(choice, slopes=(*choice.slopes[:k], moved, *choice.slopes[k + 1 :])))[0]
            assert float(there - value) / step == pytest.approx(float(by_slope[k][0, i]), abs=1e-4)
    shifted = choice.weights + step * torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    along = float(sweeps.backward(replace(choice, weights=shifted))[0] - value) / step
    assert along == pytest.approx(float(by_weight[0, 0] - by_weight[0, 1]), abs=1e-4)


@settings(max_examples=20)
@given(FAMILY, SEEDS)
def test_climbing_never_loses(family: str, seed: int) -> None:
    net = networks.FAMILIES[family](seed)
    low, high = networks.box(net, seed, 0.6, 4)
    sweeps = sweeps_of(net, low, high, random_rows(net, 4, 2, seed))
    weights = random_choice(sweeps, seed).weights
    starts = [sweeps.backward(start)[0] for start in sweeps.starts(weights)]
    found = climb(sweeps, weights, 5)
    assert bool((sweeps.backward(found)[0] >= torch.maximum(*starts) - 1e-12).all())
    assert all(bool(((s >= 0) & (s <= 1)).all()) for s in found.slopes)
    torch.testing.assert_close(found.weights.sum(dim=1), torch.ones(4, dtype=torch.float64))


def test_weights_balance_rows_that_exclude_each_other() -> None:
    """Rows x and 1 - x on [-1, 2]: no single one is positive, their mean is 1 / 2."""
    low, high = torch.tensor([[-1.0]], dtype=torch.float64), torch.tensor([[2.0]], dtype=torch.float64)
    form, first = Form.of_box(low, high, torch.float64), torch.tensor([0])
    A = torch.tensor([[[1.0], [-1.0]]], dtype=torch.float64)
    c = torch.tensor([[0.0, -1.0]], dtype=torch.float64)
    rows = Conjunction(A, None, c, torch.ones(1, 2, dtype=torch.bool))
    assert best_weights(rows, (form, form), first, 10)[0].tolist() == pytest.approx([0.5, 0.5], abs=1e-6)
    alone = best_weights(replace(rows, present=torch.tensor([[True, False]])), (form, form), first, 10)
    assert alone.tolist() == [[1.0, 0.0]]


def roots(problem: Problem) -> BoxDomains:
    def offer(x: torch.Tensor, clauses: torch.Tensor) -> None:
        return None

    return begun(InputSpace(problem, range(len(problem.rows)), offer, Until()))


@pytest.mark.parametrize("family", sorted(networks.FAMILIES))
@pytest.mark.parametrize("seed", range(3))
def test_bounds_are_below_the_exact_minimum_and_a_batch_is_its_members(family: str, seed: int) -> None:
    case = random_case(family, seed, (1, 2), seed % 2 == 1)
    problem = case.problem([-0.05, -0.05])
    boxes = halved(roots(problem))
    bounder = BoxBounder(problem.network, problem.network.to(dtype=torch.float32), Table.of(problem, (0, 1)), Effort())
    together = bounder.bound(boxes)
    for clause in (0, 1):
        assert float(together.lower[:, clause].min()) <= -0.05 + 1e-9
    for d in range(2):
        alone = bounder.bound(boxes.select(torch.tensor([d])))
        torch.testing.assert_close(alone.lower[0], together.lower[d], rtol=1e-3, atol=1e-3)
    exact = bounder.bound(replace(boxes, tier=torch.full_like(boxes.tier, DOUBLE)))
    assert int(boxes.tier[0]) == SINGLE
    torch.testing.assert_close(exact.lower, together.lower, rtol=1e-2, atol=1e-2)
