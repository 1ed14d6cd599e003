"""Boxes of networks of any functions: verdicts agree with minima that Lipschitz constants prove."""

from __future__ import annotations

import networks
import pytest
import torch
from falsify import instances
from search.boxes.deciding import decide
from search.cases import begun, expanded, ignore, nobody, unbounded
from search.mixed import GAP, MixedCase, mixed_case

from verifier.bounding.core.base import Until
from verifier.clock import Clock
from verifier.functions import PRODUCT, Function
from verifier.functions.sigmoids import Sigmoid, Tanh
from verifier.search.boxes.boxes import Table
from verifier.search.boxes.space import InputOptions, InputSpace
from verifier.search.loop import Limits
from verifier.search.problem import ProblemSearch


def check(case: MixedCase, options: InputOptions | None = None) -> None:
    """Just empty: closed.  Just not empty: there is a witness, and it is one."""
    safe = decide(case.problem(case.low - GAP), options)
    assert safe.witness is None
    assert safe.reason is None
    problem = case.problem(case.high + GAP)
    unsafe = decide(problem, options)
    assert unsafe.witness is not None
    instances.check(problem, unsafe.witness, *(side.tolist() for side in case.box))


def checked(seeds: range, kinds: tuple[Function, ...] = networks.ANYTHING) -> int:
    """How many of the seeds have an oracle."""
    count = 0
    for seed in seeds:
        case = mixed_case(seed, kinds)
        if case is not None:
            count += 1
            check(case, InputOptions(batch=4, least_children=1) if seed % 5 == 0 else None)
    return count


@pytest.mark.parametrize("first", [0, 3])
def test_verdicts_are_those_of_the_oracle(first: int) -> None:
    assert checked(range(first, first + 3)) >= 2


@pytest.mark.usefixtures("unchecked")
@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 460, 30))
def test_verdicts_are_those_of_the_oracle_on_many(first: int) -> None:
    assert checked(range(first, first + 30)) >= 25


@pytest.mark.parametrize("kinds", [(Sigmoid(),), (Tanh(),), (PRODUCT,)], ids=lambda kinds: kinds[0].name)
def test_verdicts_of_each_function_alone(kinds: tuple[Function, ...]) -> None:
    assert checked(range(27, 29), kinds) == 2


def test_the_problem_chooses_boxes_for_networks_of_any_function() -> None:
    """The whole search: no signs are split, nothing is handed over to them."""
    case = next(case for seed in range(30, 60) if (case := mixed_case(seed)) and not case.net.piecewise_linear)
    for moved, sat in ((case.low - GAP, False), (case.high + GAP, True)):
        problem = case.problem(moved)
        target = instances.target(problem)
        whole = ProblemSearch(limits=Limits(max_domains=20_000))
        outcome = whole.run(problem, unbounded(problem), target, Clock.begin(60), ignore)
        assert (outcome.witness is not None) == sat
        assert outcome.reason is None


def test_boxes_on_which_a_bound_is_no_number_are_cut_along_their_widest_side() -> None:
    """Where the gains of cuts are no numbers, what counts is how much of the root each input still covers."""
    boxes = instances.boxes([[-1e30, -10.0]], [[1e30, 30.0]])
    clause = (0, [instances.row({0: 1}, 0)])
    space = InputSpace(
        instances.problem(networks.mixed(1, (2, 2, 2, 2), (PRODUCT,)), boxes, [clause]), (0,), nobody, Until()
    )
    halves = begun(space)
    assert halves.gains.tolist() == [[1.0, 1.0]]
    assert expanded(space, halves).gains.unique(dim=0).tolist() == [[0.125, 0.25]]  # five cuts


def test_inputs_that_stand_still_are_not_counted_nor_cut() -> None:
    """Forty inputs are decimals that no float is; two move.  Boxes are cut, and nobody is asked about signs."""
    wide = networks.mixed(3, (42, 4, 2), (Sigmoid(),))
    still = ["0.1"] * 40
    boxes = instances.boxes([["-0.5", "-0.5", *still]], [["0.5", "0.5", *still]])
    least = float(wide.forward(torch.rand(2000, 42).double() - 0.5)[:, 0].amin())
    problem = instances.problem(wide, boxes, [(0, [instances.row({0: 1}, least - 1)])])
    assert ProblemSearch().by_inputs(problem)
    table = Table.of(problem, (0,))
    assert table.moving is not None
    assert table.moving.tolist() == [0, 1]
    outcome = decide(problem)
    assert outcome.reason is None
    assert outcome.witness is None
    assert decide(case_of(wide, problem)).witness is not None


def case_of(wide: Network, problem: Problem) -> Problem:
    """The same with a bound that the centre of the box is below of."""
    y = wide.forward(torch.from_numpy(problem.property.boxes.lower + problem.property.boxes.upper) / 2)
    boxes = problem.property.boxes
    return instances.problem(wide, boxes, [(0, [instances.row({0: 1}, float(y[0, 0]) + 1e-3)])])
