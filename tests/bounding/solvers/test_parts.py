"""Objectives in parts: masks count as memory, parts give what the whole gives, and watchers hear of all of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networks
import pytest
import torch

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Bound, Bounder, Objective, Region, Until
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.masks import Form
from verifier.bounding.hidden import RootBounds
from verifier.bounding.solvers.active_set import ActiveSet, Additions
from verifier.bounding.solvers.big_m import BigM
from verifier.bounding.solvers.saddle_point import FrankWolfe, SaddlePoint
from verifier.bounding.solvers.solver import Task
from verifier.network.network import Network

WIDTHS = (3, 200, 300, 6)
STEPS = Steps(0.05, 0.01)
MASKS = 60  # a byte per weight each; the floats of one pass take 24
MANY = ActiveSet(Ascent(0, STEPS), Ascent(0, STEPS), Additions(most=MASKS))
NONE = ActiveSet(Ascent(0, STEPS), Ascent(1, STEPS), Additions(most=0))


def instance(widths: tuple[int, ...] = WIDTHS) -> tuple[Network, Region, Objective]:
    net = networks.dense(1, widths)
    region = RootBounds().region(net, *networks.box(net, 1, 2.0, count=2), Until())
    return net, region, Objective(3, torch.eye(6, dtype=torch.float64).unsqueeze(0))


def weights_of_kinks(net: Network, region: Region) -> list[int]:
    """How many weights the kinks of each group have."""
    kinks = Sweep.prepare(net, region, 3).kinks
    return [len(k.index) * n for k, n in zip(kinks, WIDTHS, strict=False)]


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many objectives each ascent of Active Set is asked for; it does nothing else."""
    seen: list[int] = []

    def counting(self: ActiveSet, task: Task, until: Until) -> Bound:
        seen.append(task.objective.count)
        nothing = task.sweep.region.lower.new_zeros(task.sweep.region.count, task.objective.count)
        return Bound(nothing, None)

    monkeypatch.setattr(ActiveSet, "begin", counting)
    return seen


def test_masks_count_as_memory(sizes: list[int]) -> None:
    """With room for the masks of four objectives alone, fewer than four are bounded together."""
    net, region, objective = instance()
    masks_each = MASKS * sum(weights_of_kinks(net, region)) * region.count
    many, none = (replace(solver, memory_bytes=4 * masks_each) for solver in (MANY, NONE))
    many.bound(net, region, objective, Until())
    assert sum(sizes) == 6
    assert max(sizes) < 4
    sizes.clear()
    none.bound(net, region, objective, Until())
    assert sizes == [6]


def test_shared_masks_need_little(sizes: list[int]) -> None:
    net, region, objective = instance()
    memory = 4 * MASKS * sum(weights_of_kinks(net, region)) * region.count
    replace(MANY, masks=Form.SHARED, memory_bytes=memory).bound(net, region, objective, Until())
    assert sizes == [6]


def test_the_weights_that_saddle_point_reads_count_as_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    net, region, objective = instance()
    seen: list[int] = []
    begin = FrankWolfe.__init__

    def counting(self: FrankWolfe, *args: Any) -> None:
        begin(self, *args)
        seen.append(self.now.lower.shape[1])

    monkeypatch.setattr(FrankWolfe, "__init__", counting)
    reading = 6 * 8 * max(weights_of_kinks(net, region)) * region.count
    solver = SaddlePoint(0, initial=NONE, primal_start=Ascent(0, STEPS), memory_bytes=4 * reading)
    solver.bound(net, region, objective, Until())
    assert sum(seen) == 6
    assert max(seen) < 4


@pytest.mark.parametrize(
    "solver",
    [
        BigM(Ascent(5, STEPS)),
        ActiveSet(Ascent(4, STEPS), Ascent(4, STEPS), Additions(2, 1, 2)),
        SaddlePoint(5, initial=NONE, primal_start=Ascent(2, STEPS)),
    ],
    ids=lambda solver: type(solver).__name__,
)
def test_watchers_hear_of_all_objectives(solver: Bounder) -> None:
    net, region, objective = instance((3, 10, 10, 6))
    heard: list[torch.Tensor] = []
    found = replace(solver, memory_bytes=1).watched(heard.append).bound(net, region, objective, Until())
    assert {lower.shape for lower in heard} == {(2, 6)}
    assert bool(heard[0][:, 1:].isneginf().all())
    torch.testing.assert_close(heard[-1], found.lower)
