"""BDD+: its proximal problem, its optimum, what it keeps."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import networks
import pytest
import torch
from bounding.cases import random_rows, root, value
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.ascent import Steps
from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.lp.bounder import PlanetLP
from verifier.bounding.solvers.bdd_plus import BddPlus, Blocks
from verifier.bounding.solvers.crown import Linear, Slope
from verifier.bounding.solvers.decomposition import Decomposition
from verifier.bounding.solvers.solver import Certified, Task
from verifier.clock import Clock
from verifier.functions import RELU
from verifier.network.network import Network

LIGHT = Steps(0.1, 10.0, linear=True)
"""Weights for networks this small."""


def instance(family: str, seed: int, boxes: int = 1) -> tuple[Network, Region, Objective]:
    net = networks.FAMILIES[family](seed)
    return net, root(net, *networks.box(net, seed, 0.6, boxes), "interval"), random_rows(net, seed, 2)


def proximal_value(blocks: Blocks, eta: float) -> torch.Tensor:
    """What the blocks minimise: the objective, the prices of the anchor and the proximal term, from its definition."""
    dual = blocks.dual
    objective, layer = dual.objective, dual.sweep.net.layers[dual.sweep.layer - 1]
    assert objective.inputs is not None
    assert objective.constant is not None
    total = (layer.forward([blocks.x0, *blocks.x]) * objective.coefficients).sum(-1)
    total = total + (blocks.x0 * objective.inputs).sum(-1) + objective.constant
    values = [blocks.x0, *blocks.x]
    for k, (anchor, read) in enumerate(zip(blocks.anchor, blocks.x_hat, strict=True)):
        apart = dual.sweep.net.layers[k].forward(values[: k + 1]) - read
        total = total + (anchor * apart).sum(-1) + apart.square().sum(-1) / (2 * eta)
    return total


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("eta", [3.0, 30.0])
def test_visits_solve_the_proximal_problem(family: str, eta: float) -> None:
    """They never make it worse; its dual, at the multipliers of the point, stays below and comes close."""
    net, region, objective = instance(family, 4, boxes=2)
    dual = Decomposition.of(Task(Sweep.prepare(net, region, objective.layer), objective))
    start = dual.start()
    blocks = Blocks(dual, start, 0.0)
    gaps = []
    for _ in range(40):
        before = proximal_value(blocks, eta)
        blocks.visit(eta)
        now = proximal_value(blocks, eta)
        assert bool((now <= before + 1e-9).all())
        moved = torch.cat([blocks._prices(k, eta) for k in range(1, dual.sweep.layer)], dim=-1)
        below = dual.evaluate(moved).lower - 0.5 * eta * (moved - start).square().sum(-1)
        assert bool((below <= now + 1e-9).all())
        gaps.append(float((now - below).max()))
    assert gaps[-1] < 0.05 * gaps[0]


def test_the_anchor_moves_to_the_multipliers_and_goes_on() -> None:
    net, region, objective = instance("residual", 4)
    dual = Decomposition.of(Task(Sweep.prepare(net, region, objective.layer), objective))
    blocks = Blocks(dual, dual.start(), 0.5)
    blocks.visit(2.0)
    first = torch.cat([blocks._prices(k, 2.0) for k in range(1, dual.sweep.layer)], dim=-1)
    blocks.move(2.0)
    torch.testing.assert_close(blocks.point(), first)
    went = first - dual.start()
    blocks.visit(3.0)
    second = torch.cat([blocks._prices(k, 3.0) for k in range(1, dual.sweep.layer)], dim=-1)
    blocks.move(3.0)
    torch.testing.assert_close(blocks.point(), second + 0.5 * went)


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_it_reaches_the_planet_program(family: str) -> None:
    net, region, objective = instance(family, 9)
    program = PlanetLP().bound(net, region, objective, Until()).lower
    found = BddPlus().bound(net, region, objective, Until())
    torch.testing.assert_close(found.lower, program, rtol=0, atol=4e-3)
    assert bool((found.lower <= program + 1e-8).all())
    assert found.iterations == 400


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=3)
def test_what_single_precision_found_is_proved(family: str, seed: int) -> None:
    net, region, objective = instance(family, seed, boxes=2)
    found = Certified(BddPlus(30, weights=LIGHT)).bound(net, region, objective, Until())
    assert found.lower.dtype is torch.float64
    x = networks.points(region.lower, region.upper, 200, seed)
    assert bool((value(net, objective, x) >= found.lower).all())
    start = Linear(Slope.PARALLEL).bound(net, region, objective, Until()).lower
    assert bool((found.lower >= start - 1e-4).all())


def test_the_best_bound_is_kept_and_told() -> None:
    """Weights so light that the method jumps about."""
    net, region, objective = instance("dense", 3)
    heard: list[torch.Tensor] = []
    wild = BddPlus(200, weights=Steps(1e-3, 1e-3), check_every=2)
    lower = wild.watched(heard.append).bound(net, region, objective, Until()).lower
    dual = Decomposition.of(Task(Sweep.prepare(net, region, objective.layer), objective))
    blocks = Blocks(dual, dual.start(), wild.momentum)
    values = [dual.evaluate(dual.start()).lower]
    for _ in range(100):
        blocks.visit(1e-3)
        blocks.visit(1e-3)
        blocks.move(1e-3)
        values.append(dual.evaluate(blocks.point()).lower)
    torch.testing.assert_close(lower, torch.stack(values).amax(dim=0))
    assert bool((values[-1] < lower).any())
    assert bool((torch.stack(heard).diff(dim=0) >= 0).all())


def test_it_stops_when_all_are_done_and_when_time_is_up() -> None:
    net, region, objective = instance("dense", 3)
    solver = BddPlus(100, weights=LIGHT)
    assert solver.bound(net, region, objective, Until(threshold=-1e6)).iterations == 0
    late = solver.bound(net, region, objective, Until(Clock.begin(0.0)))
    assert late.iterations == 0
    start = Linear(Slope.PARALLEL).bound(net, region, objective, Until()).lower
    torch.testing.assert_close(late.lower, start, rtol=0, atol=1e-9)
    assert solver.bound(net, region, objective, Until(threshold=1e6)).iterations == 100


def test_value_of_the_papers_example() -> None:
    net, lower, upper = networks.paper_example()
    pairs = [torch.tensor([pair], dtype=torch.float64) for pair in ((-3, -1), (1, 3), (-9 / 4, -1 / 2), (3, 9 / 4))]
    region = Region(lower, upper, (pairs[0], pairs[2]), (pairs[1], pairs[3]), (RELU, RELU))
    row = Objective(3, torch.ones(1, 1, 1, dtype=torch.float64))
    found = BddPlus(600, weights=Steps(1.0, 50.0, linear=True)).bound(net, region, row, Until()).lower.item()
    assert found == pytest.approx(float(Fraction(-27, 22)), abs=1e-3)
    assert found <= float(Fraction(-27, 22)) + 1e-9


def test_parts_equal_the_whole() -> None:
    net, region, objective = instance("conv", 5, boxes=2)
    whole = BddPlus(30).bound(net, region, objective, Until()).lower
    parts = replace(BddPlus(30), memory_bytes=1).bound(net, region, objective, Until()).lower
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-9)
