"""What the solvers hold in memory: Saddle Point does not grow with its iterations, and masks cost what they must."""

from __future__ import annotations

import gc

import networks
import torch

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Bounder, Objective, Region, Until
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.hidden import RootBounds
from verifier.bounding.solvers.active_set import ActiveSet, Additions
from verifier.bounding.solvers.saddle_point import SaddlePoint
from verifier.network.network import Network

STEPS = Steps(1e-2, 1e-3)
NO_MASKS = ActiveSet(Ascent(0, STEPS), Ascent(2, STEPS), Additions(most=0))


def wide() -> tuple[Network, Region, Objective]:
    net = networks.dense(0, (5, 60, 80, 1))
    region = RootBounds(None).region(net, *networks.box(net, 0, 1.0), Until())
    return net, region, Objective(3, torch.ones(1, 1, 1, dtype=torch.float64))


def held() -> int:
    """Bytes of all tensors that are alive; sparse ones have no storage of their own."""
    tensors = [thing for thing in gc.get_objects() if type(thing) is torch.Tensor and thing.layout is torch.strided]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in tensors}
    return sum(storages.values())


def held_by_iterate(solver: Bounder, at: tuple[int, ...]) -> list[int]:
    """What is alive at some iterates of a run, above what was alive before."""
    net, region, objective = wide()
    gc.collect()
    before, heard, found = held(), 0, []

    def watch(lower: torch.Tensor) -> None:
        nonlocal heard
        heard += 1
        if heard in at:
            gc.collect()
            found.append(held() - before)

    solver.watched(watch).bound(net, region, objective, Until())
    assert len(found) == len(at)
    return found


def test_saddle_point_does_not_grow_with_its_iterations() -> None:
    initial = NO_MASKS.initial.iterations + 2  # its ascents evaluate their last point, too
    solver = SaddlePoint(80, initial=NO_MASKS, primal_start=Ascent(2, STEPS))
    early, late = held_by_iterate(solver, (initial + 5, initial + 80))
    assert early == late
    net, region, _ = wide()
    rows = [len(k.index) * n for k, n in zip(Sweep.prepare(net, region, 3).kinks, (5, 60), strict=True)]
    assert early > 3 * 8 * sum(rows)  # it does hold the weights of the kinks, three times


def test_every_mask_of_active_set_costs_one_byte_per_weight() -> None:
    """And little else: multipliers, constants, Adam's moments."""
    net, region, _ = wide()
    kinks = [len(k.index) for k in Sweep.prepare(net, region, 3).kinks]
    mask = sum(a * n for a, n in zip(kinks, (5, 60), strict=True))
    solver = ActiveSet(Ascent(20, STEPS), Ascent(2, STEPS), Additions(20, 8, 8))
    initial = 3
    one, eight = held_by_iterate(solver, (initial + 3, initial + 2 * 8 + 1))
    assert 7 * mask <= eight - one <= 7 * (mask + 10 * 8 * sum(kinks))
