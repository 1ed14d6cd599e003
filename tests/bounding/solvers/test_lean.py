"""Cuts are kept where they gain: what they gain, which groups lose theirs, and what is left of a state."""

from __future__ import annotations

from dataclasses import replace

import networks
import pytest
import torch
from bounding.cases import random_rows, root, value

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Until
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.masks import Geometries
from verifier.bounding.rows import Conjunction
from verifier.bounding.solvers import propagated
from verifier.bounding.solvers.alpha_crown import AlphaCrown, SlopeDual
from verifier.bounding.solvers.propagated import Layout, Propagated, PropagatedDual, Shares
from verifier.bounding.solvers.solver import Task, Variables, variables_of
from verifier.network.network import Network

FIRST, THEN = Ascent(15, Steps(0.2, 0.02)), Ascent(20, Steps(0.1, 0.02))
ONE = Propagated.in_rounds(FIRST, THEN, (0.5,), averaged=8)
TWO = Propagated.in_rounds(FIRST, THEN, (0.5, None), averaged=8)
SOLVERS = {"one": ONE, "two": TWO}
SEED, WIDTHS = 7, (4, 8, 8, 8, 2)
"""Of a chain in which cuts gain at all groups of both boxes."""


def network(family: str) -> Network:
    return networks.dense(SEED, WIDTHS) if family == "dense" else networks.FAMILIES[family](SEED)


def task_of(family: str, regions: int = 2, rows: int = 2, dtype: torch.dtype = torch.float64) -> Task:
    net = network(family)
    region = root(net, *networks.box(net, SEED, 1.0, regions))
    neurons = Sweep.prepare(net, region, len(net.layers)).neurons
    region = replace(region, kinks=tuple(each.index for each in neurons)).to(dtype)
    return Task(Sweep.prepare(net.to(dtype=dtype), region, len(net.layers)), random_rows(net, SEED, rows).to(dtype))


def blocks(task: Task, state: Variables) -> dict[tuple[int, int], torch.Tensor]:
    """The shares of every cut at every group that takes it: views."""
    plain = SlopeDual(task.sweep, task.objective).variables
    parts = Layout.of(state.masks, task.sweep).split(state.point[..., plain:])
    return {(block.cut, block.group): part for block, part in parts}


def used(task: Task, state: Variables, seed: int = 0) -> Shares:
    """The same with random shares, in all blocks and well inside of what is feasible."""
    assert isinstance(state, Shares)
    generator = torch.Generator().manual_seed(seed)
    found = replace(state, point=state.point.clone())
    for part in blocks(task, found).values():
        part.copy_(0.05 + 0.3 * torch.rand(part.shape, generator=generator, dtype=torch.float64))
    return found


def dual_of(task: Task, state: Variables) -> PropagatedDual:
    return PropagatedDual.of(Geometries(task.sweep), task.objective, state.masks)


def scaled(task: Task, state: Shares, group: int, factor: float) -> Shares:
    """With all shares of a group multiplied."""
    found = replace(state, point=state.point.clone())
    for (_, k), part in blocks(task, found).items():
        if k == group:
            part.mul_(factor)
    return found


def lower(task: Task, state: Shares) -> torch.Tensor:
    return dual_of(task, state).evaluate(state.point).lower


# ---------------------------------------------------------------- what cuts gain


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("family", ["dense", "conv", "residual", "unread"])
def test_gains_are_derivatives_along_the_shares_of_a_group(family: str, solver: str) -> None:
    task = task_of(family)
    state = used(task, variables_of(SOLVERS[solver].begin(task, Until())))
    gained = dual_of(task, state).gained(task.objective, state.point)
    assert gained.shape == (2, len(task.sweep.neurons))
    h = 1e-6
    for k in range(len(task.sweep.neurons)):
        ahead, behind = (lower(task, scaled(task, state, k, 1 + side * h)) for side in (1, -1))
        torch.testing.assert_close(gained[:, k], ((ahead - behind) / (2 * h)).sum(dim=1), rtol=1e-4, atol=1e-5)
        if k not in state.masks.groups:
            assert not gained[:, k].any()
    if family != "unread":
        assert int((gained.abs() > 1e-3).any(dim=0).sum()) >= 2


@pytest.mark.parametrize("family", ["dense", "residual"])
def test_what_is_lost_without_a_group_lies_between_two_derivatives(family: str) -> None:
    """The bound is concave in the shares of one group, and linear where no sign changes on the way."""
    task = task_of(family)
    state = used(task, variables_of(TWO.begin(task, Until())))
    for k in state.masks.groups:
        none, few = scaled(task, state, k, 0.0), scaled(task, state, k, 1e-4)
        gained = [dual_of(task, each).gained(task.objective, each.point)[:, k] for each in (none, few, state)]
        base = lower(task, none).sum(dim=1)
        begins, lost = lower(task, few).sum(dim=1) - base, lower(task, state).sum(dim=1) - base
        assert not gained[0].any()
        torch.testing.assert_close(gained[1], begins, rtol=1e-3, atol=1e-9)
        assert bool((gained[2] <= lost + 1e-8).all())
        assert bool((lost <= 1e4 * begins + 1e-6).all())


def test_gains_of_a_clause_are_those_of_its_combined_rows() -> None:
    task = task_of("dense", 2, 3)
    objective = task.objective
    assert objective.inputs is not None
    assert objective.constant is not None
    A, B, c = (
        part.expand(2, *part.shape[1:]) for part in (objective.coefficients, objective.inputs, objective.constant)
    )
    rows = Conjunction(A, B, -c, torch.ones(2, 3, dtype=torch.bool))
    clause = Task.of_rows(task.sweep, rows)
    state = variables_of(ONE.begin(clause, Until()))
    assert state.weights is not None
    combined = clause.weighted(state.weights)
    dual = PropagatedDual.of(clause.geometries, clause.objective, state.masks)
    gained = dual.gained(combined, state.point)
    assert gained.shape == (2, len(WIDTHS) - 2)
    own = PropagatedDual.of(Geometries(task.sweep), combined, state.masks)
    torch.testing.assert_close(gained, own.gained(combined, state.point), rtol=0, atol=0)
    assert ONE.lean(clause, state).weights is state.weights


# ---------------------------------------------------------------- what is dropped


def shares_of(state: Shares, task: Task) -> torch.Tensor:
    """What the cuts of each group gain, as a part of what all gain: [D, K]."""
    gained = dual_of(task, state).gained(task.objective, state.point)
    return gained / gained.sum(dim=1, keepdim=True)


def between(state: Shares, task: Task) -> tuple[float, int]:
    """A least part at which one group loses its cuts, and that group."""
    most, groups = shares_of(state, task).amax(dim=0).sort()
    assert most[0] < most[1]
    return float(most[:2].mean()), int(groups[0])


def gaining(task: Task, solver: Propagated = TWO) -> Shares:
    """A state whose cuts gain something at all groups of all regions."""
    state = variables_of(solver.begin(task, Until()))
    assert isinstance(state, Shares)
    assert bool((dual_of(task, state).gained(task.objective, state.point) > 1e-4).all())
    return state


@pytest.mark.parametrize("solver", SOLVERS)
def test_groups_that_gain_little_lose_their_cuts_and_nothing_else_changes(
    solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = task_of("dense")
    state = gaining(task, SOLVERS[solver])
    least, weak = between(state, task)
    monkeypatch.setattr(propagated, "LEAST", least)
    before = state.point.clone()
    found = SOLVERS[solver].lean(task, state)
    assert torch.equal(state.point, before)
    assert isinstance(found, Shares)
    assert found.masks.groups == state.masks.groups - {weak}
    assert found.masks.count == state.masks.count
    assert found.point.shape[-1] == found.variables(task) == found.dual(task).start().shape[-1]
    plain = SlopeDual(task.sweep, task.objective).variables
    assert torch.equal(found.point[..., :plain], state.point[..., :plain])
    old, new = blocks(task, state), blocks(task, found)
    assert list(new) == [place for place in old if place[1] != weak]
    assert all(torch.equal(new[place], old[place]) for place in new)
    for mine, whole in zip(found.masks.cuts, state.masks.cuts, strict=True):
        assert [group is all_ for group, all_ in zip(mine, whole, strict=True)] == [k != weak for k in range(3)]
    torch.testing.assert_close(lower(task, found), lower(task, scaled(task, state, weak, 0.0)), rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", ["dense", "conv", "residual"])
@pytest.mark.parametrize("least", [0.01, 0.1, 0.3, 0.6])
def test_what_is_left_proves_bounds(family: str, least: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found in single precision, and evaluated in double precision."""
    monkeypatch.setattr(propagated, "LEAST", least)
    rough, exact = task_of(family, dtype=torch.float32), task_of(family)
    state = variables_of(TWO.begin(rough, Until()))
    found = TWO.lean(rough, state)
    assert found.masks.groups
    region, net = exact.sweep.region, exact.sweep.net
    sure = found.lower(exact)
    values = value(net, exact.objective, networks.points(region.lower, region.upper, 400, SEED))
    assert bool((values >= sure).all())
    again = TWO.solve(rough, found, Until())
    assert bool((again.lower >= sure - 1e-4).all())
    assert bool((values >= variables_of(again).lower(exact)).all())


def test_a_group_that_gains_in_one_region_keeps_its_cuts_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of("dense")
    state = gaining(task)
    monkeypatch.setattr(propagated, "LEAST", 1e-9)
    for group in sorted(state.masks.groups):
        for regions in ([0], [1], [0, 1]):
            point = state.point.clone()
            for (_, k), part in blocks(task, replace(state, point=point)).items():
                if k == group:
                    part[regions] = 0.0
            some = replace(state, point=point)
            found = TWO.lean(task, some)
            if len(regions) == 2:
                assert found.masks.groups == state.masks.groups - {group}
            elif bool((shares_of(some, task).max(dim=0).values > 0).all()):
                assert found is some


def spoiled(state: Shares, regions: list[int]) -> Shares:
    """With variables that are no numbers in some regions."""
    point = state.point.clone()
    point[regions] = torch.nan
    return replace(state, point=point)


def test_all_cuts_stay_where_nobody_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """No shares, no numbers, or losses alone; regions that can tell decide for the others."""
    task = task_of("dense")
    state = gaining(task)
    least, weak = between(state, task)
    monkeypatch.setattr(propagated, "LEAST", least)
    unused = replace(state, point=state.point.clone())
    for part in blocks(task, unused).values():
        part.zero_()
    for each in (unused, spoiled(state, [0, 1])):
        assert TWO.lean(task, each) is each
    for region in (0, 1):
        alone = spoiled(state, [1 - region])
        assert TWO.lean(task, alone).masks.groups == {
            k for k in state.masks.groups if shares_of(state, task)[region, k] >= least
        }
    assert weak not in TWO.lean(task, state).masks.groups


def test_cuts_that_lose_alone_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """A negative sum tells nothing about the parts."""
    task = task_of("dense")
    state = gaining(task)
    monkeypatch.setattr(PropagatedDual, "gained", lambda *_: torch.tensor([[-1.0, -5.0, 0.0], [-2.0, 1.0, 0.5]]))
    assert TWO.lean(task, state) is state


def test_without_cuts_there_is_nothing_to_drop() -> None:
    task = task_of("dense")
    for solver in (ONE, AlphaCrown(FIRST)):
        state = variables_of(AlphaCrown(FIRST).begin(task, Until()))
        assert solver.lean(task, state) is state


def test_more_cuts_are_found_where_a_parent_has_some() -> None:
    task, first = task_of("dense"), Propagated.one_by_one(FIRST, THEN, (0.5,))
    parent = variables_of(first.begin(task, Until()))
    assert parent.masks.groups == {0, 1, 2}
    more = Propagated.one_by_one(FIRST, THEN, (0.5, 0.5))
    kept = [part for (_, k), part in blocks(task, parent).items() if k != 1]
    plain = parent.point[..., : SlopeDual(task.sweep, task.objective).variables]
    lean = replace(parent, masks=parent.masks.only({0, 2}), point=torch.cat([plain, *kept], dim=-1))
    found = variables_of(more.begin(task, Until(), lean))
    assert found.masks.places == [(0, 0), (0, 2), (1, 0), (1, 2)]
    bare = variables_of(AlphaCrown(FIRST).begin(task, Until()))
    assert variables_of(more.begin(task, Until(), bare)).masks.groups == {0, 1, 2}


def test_networks_without_groups_have_no_cuts_to_drop() -> None:
    net = networks.dense(0, (3, 2))
    task = Task(Sweep.prepare(net, root(net, *networks.box(net, 0, 1.0)), 1), random_rows(net, 0, 2))
    few = Ascent(12, Steps(0.2, 0.02))
    solver = Propagated.in_rounds(few, few, averaged=5)
    state = variables_of(solver.begin(task, Until()))
    assert solver.lean(task, state).point.shape == state.point.shape
    solver.learning().begin(task, Until())
