"""The laws of batches of tensors, on every kind of state that the solvers and the search carry around."""

from __future__ import annotations

from dataclasses import fields, is_dataclass, replace
from typing import Any

import networks
import pytest
import torch

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.core.state import State, cat, halved, tree_map
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.masks import Form, Geometries
from verifier.bounding.hidden import RootBounds
from verifier.bounding.rows import Conjunction
from verifier.bounding.solvers.active_set import ActiveSet, Additions
from verifier.bounding.solvers.alpha_crown import AlphaCrown
from verifier.bounding.solvers.big_m import BigM
from verifier.bounding.solvers.propagated import Propagated
from verifier.bounding.solvers.solver import Task, Variables

SHORT = Ascent(6, Steps(0.05, 0.01))
REGIONS, OBJECTIVES = 4, 2


def states() -> dict[str, State]:
    """One of every kind, of four regions and two objectives."""
    net = networks.residual(2)
    region = RootBounds().region(net, *networks.box(net, 2, 0.8, REGIONS), Until())
    splits = tuple(torch.zeros_like(low, dtype=torch.int8) for low in region.l_hat)
    region = replace(region, splits=splits)
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(REGIONS, OBJECTIVES, net.n_out, generator=generator, dtype=torch.float64)
    objective = Objective(len(net.layers), rows, None, rows[..., 0])
    sweep = Sweep.prepare(net, region, objective.layer)
    task = Task(sweep, objective)
    found: dict[str, State] = {"region": region, "objective": objective, "sweep": sweep, "kinks": sweep.kinks[-1]}
    found["shared objective"] = Objective(objective.layer, rows[:1])
    found["rows"] = Conjunction(rows, None, rows[..., 0], torch.ones(REGIONS, OBJECTIVES, dtype=torch.bool))
    for solver in (
        AlphaCrown(SHORT),
        Propagated.in_rounds(SHORT, SHORT, (0.5, None), averaged=3),
        BigM(SHORT),
        ActiveSet(SHORT, SHORT, Additions(2, 1, 2), masks=Form.SHARED),
    ):
        state = solver.begin(task, Until()).state
        assert isinstance(state, Variables)
        found[type(solver).__name__] = state
        found[f"dual of {type(solver).__name__}"] = state.dual(task)
    for form in Form:
        geometry = Geometries(sweep).at(len(sweep.kinks) - 1, form)
        assert geometry is not None
        found[f"geometry of {form.value}"] = geometry
    return found


STATES = states()
ALONG_OBJECTIVES = [name for name in STATES if name == "objective" or isinstance(STATES[name], Variables)]


def tensors(value: Any) -> list[torch.Tensor]:
    """All tensors, in order; written anew for the test."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, tuple):
        return [tensor for item in value for tensor in tensors(item)]
    if isinstance(value, State) and is_dataclass(value):
        return [tensor for f in fields(value) for tensor in tensors(getattr(value, f.name))]
    return []


def equal(one: State, other: State) -> bool:
    pairs = list(zip(tensors(one), tensors(other), strict=True))
    return bool(pairs) and all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("name", STATES)
def test_what_is_selected_and_put_together_is_the_whole(name: str) -> None:
    state = STATES[name]
    parts = [state.select(torch.tensor(rows)) for rows in ([0, 1], [2, 3])]
    if name != "shared objective":
        assert equal(cat(parts), state)
    assert equal(state.select(slice(None)), state)
    assert equal(state.select(torch.tensor([True, False, True, False])), state.select(torch.tensor([0, 2])))
    again = state.select(torch.tensor([2, 0, 2]))
    assert equal(again.select(torch.tensor([1, 0])), state.select(torch.tensor([0, 2])))


@pytest.mark.parametrize("name", ALONG_OBJECTIVES)
def test_parts_of_an_objective_make_the_whole(name: str) -> None:
    state = STATES[name]
    parts = [state.part(i, i + 1) for i in range(OBJECTIVES)]
    assert equal(cat(parts, dim=1), state)
    rows = torch.tensor([2, 1])
    assert equal(state.part(1, 2).select(rows), state.select(rows).part(1, 2))


@pytest.mark.parametrize("name", STATES)
def test_precision_changes_floats_only_and_comes_back(name: str) -> None:
    state = STATES[name]
    for precision in (state.to(torch.float32), state.to(torch.float16)):
        for old, new in zip(tensors(state), tensors(precision), strict=True):
            assert old.is_floating_point() == new.is_floating_point()
            if old.is_floating_point():
                torch.testing.assert_close(new.double(), old.clamp(-60000, 60000), rtol=2e-3, atol=2e-3)
            else:
                assert torch.equal(old, new)
    assert equal(state.to(torch.float32).to(torch.float64).to(torch.float32), state.to(torch.float32))
    assert equal(state.to(torch.device("cpu")), state)
    assert equal(tree_map(torch.clone, state), state)


def test_half_precision_is_cut_off_where_it_ends() -> None:
    found = halved(torch.tensor([1e6, -1e6, 0.5, torch.inf]))
    assert found.dtype is torch.float16
    assert found.tolist() == [60000.0, -60000.0, 0.5, 60000.0]


def test_a_shared_objective_serves_any_regions() -> None:
    shared = STATES["shared objective"]
    assert equal(shared.select(torch.tensor([2, 2, 2, 1])), shared)
    with pytest.raises(ValueError, match="serve all"):
        cat([shared, shared])


def test_states_of_different_structure_stay_apart() -> None:
    first, second = STATES["Propagated"], STATES["AlphaCrown"]
    assert isinstance(first, Variables)
    assert isinstance(second, Variables)
    mixed = replace(first, masks=replace(first.masks, cuts=first.masks.cuts[::-1]))
    with pytest.raises(ValueError, match="one structure"):
        cat([first, mixed])
    region = STATES["region"]
    assert isinstance(region, Region)
    with pytest.raises(ValueError, match="shorter"):
        cat([region, replace(region, l_hat=region.l_hat[:1])])
