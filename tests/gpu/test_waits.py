"""How often the host waits for the device: never inside of an iteration, and a fixed number of times for a batch."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networks
import pytest
import torch
from bounding.cases import random_rows
from gpu.tally import Tally, counted
from search.cases import hard, nobody, root_of, slopes, unsigned

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Until
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.hidden import RootBounds
from verifier.bounding.solvers.active_set import ActiveSet, Additions
from verifier.bounding.solvers.alpha_crown import AlphaCrown
from verifier.bounding.solvers.bdd_plus import BddPlus
from verifier.bounding.solvers.big_m import BigM
from verifier.bounding.solvers.propagated import Propagated, Scout
from verifier.bounding.solvers.saddle_point import SaddlePoint
from verifier.bounding.solvers.solver import Solver, Task
from verifier.pipeline import moved
from verifier.property.problem import Problem
from verifier.search.boxes.space import InputOptions, InputSpace
from verifier.search.loop import BranchAndBound, Limits
from verifier.search.signs.space import Policy, SignSpace

STEPS = Steps(0.05, 0.01)
CHECK_EVERY = 10


def ascent(iterations: int) -> Ascent:
    return Ascent(iterations, STEPS, CHECK_EVERY)


def solver(name: str, iterations: int) -> Solver:
    """A method whose last ascent has so many iterations."""
    short = ascent(4)
    plain = ActiveSet(ascent(0), short, Additions(most=0))
    scouts = (Scout(short, 2, (0.4, 0.6)), Scout(short, 2, (0.5,)))
    found: dict[str, Solver] = {
        "alpha_crown": AlphaCrown(ascent(iterations)),
        "propagated": Propagated(ascent(iterations), scouts),
        "exact cuts": Propagated(ascent(iterations), (Scout(short, 2, (None, 0.5)),)),
        "big_m": BigM(ascent(iterations)),
        "active_set": ActiveSet(ascent(iterations), short, Additions(2, 1, 2)),
        "saddle_point": SaddlePoint(iterations, initial=plain, primal_start=short),
        "bdd_plus": BddPlus(iterations),
    }
    return found[name]


NAMES = ("alpha_crown", "propagated", "exact cuts", "big_m", "active_set", "saddle_point", "bdd_plus")


def task(family: str, device: torch.device, count: int = 3) -> Task:
    """The same region so many times, with signs that a branch might impose, in float32."""
    net = networks.FAMILIES[family](1)
    region = RootBounds().region(net, *networks.box(net, 1, 1.0, 2), Until()).select(torch.arange(count) % 2)
    splits = tuple(torch.zeros_like(low, dtype=torch.int8) for low in region.l_hat)
    kinks = Sweep.prepare(net, region, len(net.layers)).kinks
    region = replace(region, splits=splits, kinks=tuple(k.index for k in kinks)).to(torch.float32).to(device)
    objective = random_rows(net, 3, 2).to(torch.float32).to(device)
    return Task(Sweep.prepare(net.to(device, torch.float32), region, len(net.layers)), objective)


def climbed(name: str, iterations: int, some: Task) -> Tally:
    with counted() as tally:
        solver(name, iterations).begin(some, Until(threshold=1e6))
    return tally


@pytest.mark.parametrize("family", ["conv", pytest.param("residual", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", NAMES)
def test_an_ascent_waits_once_per_look_at_who_is_done(name: str, family: str, device: torch.device) -> None:
    some = task(family, device)
    climbed(name, 1, some)  # geometries are made once
    short, long = climbed(name, 5, some), climbed(name, 25, some)
    more = 20 // CHECK_EVERY
    assert long.waits - short.waits <= more, long.places - short.places
    assert long.launches > short.launches


@pytest.mark.parametrize("name", NAMES)
def test_a_larger_batch_launches_and_waits_no_more(name: str, device: torch.device) -> None:
    few, many = (climbed(name, 3, task("conv", device, count)) for count in (2, 9))
    assert (many.launches, many.waits) == (few.launches, few.waits), many.places - few.places
    assert many.read_and_written > 3 * few.read_and_written


def steps(problem: Problem, device: torch.device, batch: int, iterations: int, count: int) -> list[Tally]:
    """What the first steps of a search by signs do."""
    root = unsigned(root_of(moved(problem, device)))
    ladder = slopes(ascent(0), ascent(iterations))
    space = SignSpace(root, Policy(ladder, batch=batch, fill=1), Until(), nobody)
    return first_steps(BranchAndBound(space, Limits()), count)


def first_steps(tree: BranchAndBound[Any], count: int) -> list[Tally]:
    """After that of the whole boxes."""
    found = []
    tree.step()
    for _ in range(count):
        assert tree.outcome is None
        with counted() as tally:
            tree.step()
        found.append(tally)
    return found


MOST_WAITS = 60
"""Of one step of a search by signs: what comes from the frontier and goes there is half of it."""


def test_a_batch_waits_a_fixed_number_of_times(device: torch.device) -> None:
    few, many = (steps(hard(), device, batch, 2, 5) for batch in (4, 32))
    longer = steps(hard(), device, 32, 12, 5)
    for tallies in (few, many, longer):
        assert max(tally.waits for tally in tallies) <= MOST_WAITS, tallies[-1].places
    assert max(t.waits for t in many) <= max(t.waits for t in few) + 2, many[-1].places - few[-1].places
    assert max(t.waits for t in longer) <= max(t.waits for t in many) + 2, longer[-1].places - many[-1].places


def box_steps(problem: Problem, device: torch.device, batch: int, count: int) -> list[Tally]:
    """What the first steps of a search by boxes do."""
    whole = moved(problem, device)
    options = replace(InputOptions(), batch=batch, least_children=2)
    space = InputSpace(whole, range(len(whole.rows)), nobody, Until(), options=options)
    return first_steps(BranchAndBound(space, Limits()), count)


def test_a_batch_of_boxes_waits_a_fixed_number_of_times(device: torch.device) -> None:
    few, many = (box_steps(hard(), device, batch, 4) for batch in (2, 8))
    assert max(t.waits for t in many) <= max(t.waits for t in few) + 4, many[-1].places - few[-1].places
    assert max(t.waits for t in many) <= 2 * MOST_WAITS, many[-1].places
