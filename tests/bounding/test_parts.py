"""Objectives in parts: masks count as memory, parts give what the whole gives, and watchers hear of all of it."""

from __future__ import annotations

from typing import Any

import networks
import pytest
import torch

from verifier.bounding.active_set import ActiveSet, Additions
from verifier.bounding.ascent import Ascent, Steps
from verifier.bounding.base import Bounder, Objective, Proof, Region, Until
from verifier.bounding.big_m import BigM
from verifier.bounding.intermediate import RootBounds
from verifier.bounding.lagrangian import Lagrangian
from verifier.bounding.oracle import Masks
from verifier.bounding.saddle_point import FrankWolfe, SaddlePoint
from verifier.bounding.sweep import Sweep
from verifier.network.network import Network

WIDTHS = (3, 30, 30, 8)
STEPS = Steps(0.05, 0.01)
MASKS = 40
MANY = ActiveSet(Ascent(MASKS, STEPS), Ascent(2, STEPS), Additions(MASKS, MASKS, MASKS))
NONE = ActiveSet(Ascent(0, STEPS), Ascent(2, STEPS), Additions(most=0))


def instance() -> tuple[Network, Region, Objective]:
    net = networks.dense(1, WIDTHS)
    region = RootBounds().region(net, *networks.box(net, 1, 2.0, count=2), Until())
    return net, region, Objective(3, torch.eye(8, dtype=torch.float64).unsqueeze(0))


def weights_of_kinks(net: Network, region: Region) -> list[int]:
    """How many weights the kinks of each group have."""
    kinks = Sweep.prepare(net, region, 3).kinks
    return [len(k.index) * n for k, n in zip(kinks, WIDTHS, strict=False)]


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many objectives each ascent of Active Set was asked for."""
    seen: list[int] = []
    climb = ActiveSet.climb

    def counting(self: ActiveSet, plain: Lagrangian, *rest: Any) -> Any:
        seen.append(plain.objective.count)
        return climb(self, plain, *rest)

    monkeypatch.setattr(ActiveSet, "climb", counting)
    return seen


@pytest.mark.parametrize("way", ["added", "inherited"])
def test_masks_count_as_memory(sizes: list[int], way: str) -> None:
    """Four objectives' masks would fill the memory; all else is small beside them."""
    net, region, objective = instance()
    masks_each = MASKS * sum(weights_of_kinks(net, region)) * region.count
    memory = 4 * masks_each
    assert masks_each > 2 * 40 * 30 * 8 * region.count  # more than the vectors of a sweep
    whole = MANY.bound(net, region, objective, Until(memory_bytes=2**30))
    warm: Proof | None = None
    solver = MANY
    if way == "inherited":
        warm, solver = whole.proof, NONE
    sizes.clear()
    found = solver.bound(net, region, objective, Until(memory_bytes=memory), warm)
    assert sum(sizes) == 8
    assert 1 <= max(sizes) < 4
    torch.testing.assert_close(found.lower, whole.lower, rtol=0, atol=1e-9)


def test_shared_masks_need_little(sizes: list[int]) -> None:
    net, region, objective = instance()
    memory = 4 * MASKS * sum(weights_of_kinks(net, region)) * region.count
    few = ActiveSet(Ascent(2, STEPS), Ascent(2, STEPS), Additions(1, 1, 2), masks=Masks.SHARED)
    few.bound(net, region, objective, Until(memory_bytes=memory))
    assert sizes == [8]


def test_the_weights_that_saddle_point_reads_count_as_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    net, region, objective = instance()
    seen: list[int] = []
    begin = FrankWolfe.__init__

    def counting(self: FrankWolfe, *args: Any) -> None:
        begin(self, *args)
        seen.append(self.now.lower.shape[1])

    monkeypatch.setattr(FrankWolfe, "__init__", counting)
    solver = SaddlePoint(2, initial=NONE, primal_start=Ascent(1, STEPS))
    reading = 6 * 8 * max(weights_of_kinks(net, region)) * region.count
    solver.bound(net, region, objective, Until(memory_bytes=4 * reading))
    assert sum(seen) == 8
    assert max(seen) < 4


@pytest.mark.parametrize("solver", [BigM(Ascent(5, STEPS)), MANY, SaddlePoint(5, initial=NONE)])
def test_watchers_hear_of_all_objectives(solver: Bounder) -> None:
    net, region, objective = instance()
    heard: list[torch.Tensor] = []
    found = solver.bound(net, region, objective, Until(memory_bytes=1, watch=heard.append))
    assert {lower.shape for lower in heard} == {(2, 8)}
    assert bool(heard[0][:, 1:].isneginf().all())
    torch.testing.assert_close(heard[-1], found.lower)
    for before, after in zip(heard, heard[1:], strict=False):
        assert bool((after >= before).all()) or bool(before.isneginf().any())
