"""Saddle Point's prices: mixtures of cuts are worth what the cuts are, prove their bounds, and pass primals on."""

from __future__ import annotations

from dataclasses import replace

import networks
import pytest
import torch

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.anderson import RowGeometry, SharedGeometry
from verifier.bounding.cuts.masks import CutMasks, Form, Geometries, GroupBits, by_weight
from verifier.bounding.hidden import RootBounds
from verifier.bounding.lp.bounder import CutLP
from verifier.bounding.solvers.active_set import ActiveSet, Additions
from verifier.bounding.solvers.lagrangian import Lagrangian
from verifier.bounding.solvers.multipliers import MultiplierVariables
from verifier.bounding.solvers.saddle import DualVertex, Saddle
from verifier.bounding.solvers.saddle_point import Heritage, SaddlePoint
from verifier.bounding.solvers.solver import Certified, Sizes, Task, converted, variables_of
from verifier.network.network import Network

SHORT = Ascent(10, Steps(0.05, 0.01))
SOLVER = SaddlePoint(20, initial=ActiveSet(Ascent(0, SHORT.steps), SHORT, Additions(most=0)), primal_start=SHORT)


def instance(family: str, seed: int) -> tuple[Network, Region, Objective]:
    net = networks.FAMILIES[family](seed)
    region = RootBounds().region(net, *networks.box(net, seed, 0.8, 2), Until())
    kinks = tuple(k.index for k in Sweep.prepare(net, region, len(net.layers)).kinks)
    weights = torch.randn(1, 2, net.n_out, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return net, replace(region, kinks=kinks), Objective(len(net.layers), weights)


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_a_mixture_is_worth_what_its_cuts_are(family: str) -> None:
    """Prices that move towards three replies, and a Lagrangian with all three cuts."""
    net, region, objective = instance(family, 3)
    task = Task(Sweep.prepare(net, region, objective.layer), objective)
    rows, plain = task.geometries.rows(), Lagrangian(task.sweep, objective)
    generator = torch.Generator().manual_seed(3)

    def random(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    saddle = Saddle.of(plain, plain.zero(), rows)
    prices, dual, point = saddle.start(plain, plain.zero(), CutMasks()), plain, plain.zero()
    for weight in (0.7, 0.4, 0.2):
        replies, cuts = [], []
        for kinks, geometry in zip(task.sweep.kinks, rows, strict=True):
            free = kinks.ambiguous.expand(-1, 2, -1)
            mask = None if geometry is None else random(*free.shape, geometry.weights.shape[-1]) < 0.5
            replies.append(DualVertex(*(random(*free.shape) * free for _ in range(4)), mask))
            cuts.append(None if geometry is None or mask is None else geometry.cut(mask))
        prices = tuple(p.towards(reply, weight) for p, reply in zip(prices, replies, strict=True))
        dual = dual.with_cuts(tuple(cuts))
        point = torch.nn.functional.pad((1 - weight) * point, (0, dual.variables - point.shape[-1]))
        for at, reply in zip(dual.views(point), replies, strict=True):
            at.alpha.add_(weight * reply.alpha)
            at.beta0.add_(weight * reply.beta0)
            at.beta1.add_(weight * reply.beta1)
            at.cuts[-1].copy_(weight * reply.beta_c)
    torch.testing.assert_close(saddle.answer(prices).lower, dual.evaluate(point).lower, rtol=0, atol=1e-9)
    assert bool((saddle.answer(prices).lower != plain.evaluate(point[..., : plain.variables]).lower).any())


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_bounds_that_single_precision_finds_are_proved_in_double(family: str) -> None:
    net, region, objective = instance(family, 5)
    single = net.to(dtype=torch.float32), region.to(torch.float32), objective.to(torch.float32)
    quick = SOLVER.bound(*single, Until())
    found = Certified(SOLVER).bound(net, region, objective, Until())
    assert found.lower.dtype is torch.float64
    torch.testing.assert_close(found.lower, quick.lower.double(), rtol=0, atol=1e-5)
    program = CutLP(rounds=8).bound(net, region, objective, Until()).lower
    assert bool((found.lower <= program + 2e-3).all())


def test_masks_out_of_the_interval_would_be_noticed() -> None:
    """A state is its proof: shares are kept between 0 and 1."""
    net, region, objective = instance("dense", 7)
    masks = variables_of(SOLVER.bound(net, region, objective, Until())).masks
    shares = [group.bits for cut in masks.cuts for group in cut if group is not None]
    assert shares
    assert all(bool(((part >= 0) & (part <= 1)).all()) for part in shares)
    assert any(bool(((part > 0) & (part < 1)).any()) for part in shares)


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_shared_masks_written_out_give_the_same_cut(family: str) -> None:
    net, region, objective = instance(family, 2)
    geometries = Geometries(Sweep.prepare(net, region, objective.layer))
    generator = torch.Generator().manual_seed(2)
    seen = 0
    for k in range(len(geometries.sweep.kinks)):
        shared, rows = geometries.at(k, Form.SHARED), geometries.at(k, Form.ROWS)
        if not isinstance(shared, SharedGeometry) or not isinstance(rows, RowGeometry):
            continue
        bits = torch.rand(2, 1, sum(term.n_in for _, term in shared.terms), generator=generator) < 0.5
        written = rows.cut(by_weight(GroupBits(Form.SHARED, bits), rows))
        torch.testing.assert_close(written.offset, shared.cut(bits).offset)
        torch.testing.assert_close(written.zc, shared.cut(bits).zc)
        seen += 1
    assert seen


def test_children_inherit_where_the_primal_point_ended() -> None:
    net, region, objective = instance("residual", 4)
    region = replace(region, kinks=None).select(torch.tensor([0]))  # so that all kinks are ambiguous
    task = Task(Sweep.prepare(net, region, objective.layer), objective)
    found = variables_of(SOLVER.bound(net, region, objective, Until()))
    assert isinstance(found, MultiplierVariables)
    row = SOLVER.inherited(found)
    kinks = sum(k.count for k in task.sweep.kinks)
    assert row.point.shape[-1] == SOLVER.inherits(Sizes(net.n_in, net.neurons, kinks)) == row.variables(task)
    state = SOLVER.init(task, SOLVER.blank(row.point))
    assert isinstance(state, MultiplierVariables)
    assert found.primal is not None
    assert state.primal is not None
    assert torch.equal(state.primal, found.primal)
    assert not state.masks.count
    still = replace(SOLVER, iterations=0)
    again = variables_of(still.solve(task, state, Until()))
    assert isinstance(again, MultiplierVariables)
    assert again.primal is not None
    torch.testing.assert_close(again.primal, found.primal)  # it was inside of the boxes, and no descent moved it


def test_multipliers_become_a_heritage_and_come_back() -> None:
    net, region, objective = instance("conv", 6)
    task = Task(Sweep.prepare(net, region, objective.layer), objective)
    plain = variables_of(SOLVER.initial.bound(net, region, objective, Until()))
    row = converted(task, plain, "saddle")
    assert isinstance(row, Heritage)
    torch.testing.assert_close(row.lower(task), plain.lower(task))
    assert torch.equal(converted(task, row, "multipliers").point, plain.point)
