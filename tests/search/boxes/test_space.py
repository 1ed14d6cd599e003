"""Branch and bound over boxes: verdicts are exact, and what cannot be decided is told."""

from __future__ import annotations

import itertools

import pytest
import torch
from falsify import instances
from search.boxes.deciding import blind, decide
from search.cases import Case, begun, expanded, random_case

from verifier.bounding.core.base import Until
from verifier.property.problem import Problem
from verifier.result.verdict import Reason
from verifier.search.boxes.bounds import DOUBLE, Effort
from verifier.search.boxes.space import SPARE, InputOptions, InputSpace
from verifier.search.domains import Outcome, Progress

GAP = 1e-3
# Rows per clause, whether rows look at the input, boxes.
SHAPES = {
    "single": ((1,), False, 1),
    "clauses": ((1, 2, 1), False, 1),
    "joint": ((3,), False, 1),
    "mixed": ((2, 3), True, 1),
    "boxes": ((1, 2, 2, 1), True, 2),
}
OPTIONS = (
    InputOptions(),
    InputOptions(batch=4, least_children=1),
    InputOptions(batch=64, effort=Effort(0, 0), chunk_bytes=2**12),
)


def judge(case: Case, options: InputOptions, seed: int) -> None:
    """Every clause just empty: all is closed.  One of them just not empty: there is a witness, and it is one."""
    margins = [GAP] * len(case.claims)
    safe = decide(case.problem(margins), options)
    assert safe.witness is None
    assert safe.reason is None
    assert safe.progress.lower == float("inf")
    margins[seed % len(margins)] = -GAP
    problem = case.problem(margins)
    unsafe = decide(problem, options)
    assert unsafe.witness is not None
    box = case.boxes[case.claims[unsafe.witness.clause].box]
    instances.check(problem, unsafe.witness, box[0].tolist(), box[1].tolist())


def check(family: str, shape: str, seed: int) -> None:
    counts, mixed, boxes = SHAPES[shape]
    judge(random_case(family, seed, counts, mixed, boxes), OPTIONS[seed % len(OPTIONS)], seed)


# Sixteen inputs are many for boxes: of the convolutions only those that take a second.
CASES = [*itertools.product(("dense", "residual"), SHAPES, range(3)), ("conv", "single", 0), ("conv", "joint", 0)]


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("family", "shape", "seed"), CASES)
def test_verdicts_are_exact(family: str, shape: str, seed: int) -> None:
    check(family, shape, seed)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", ["dense", "residual"])
def test_verdicts_are_exact_on_many(family: str, shape: str, seed: int) -> None:
    check(family, shape, seed)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("shape", SHAPES)
def test_networks_that_run_in_float64_are_never_rounded(shape: str) -> None:
    counts, mixed, boxes = SHAPES[shape]
    case = random_case("dense", 5, counts, mixed, boxes)
    judge(case, InputOptions(double=True), 5)
    space = InputSpace(
        case.problem([GAP] * len(counts)), range(len(counts)), blind, Until(), None, InputOptions(double=True)
    )
    assert set(space.whole().tier.tolist()) == {DOUBLE}
    assert space._candidates._net.output.bias.dtype is torch.float64


def test_the_first_boxes_show_how_many_fit_together() -> None:
    """Nothing is known of whole boxes, so that one of them comes first; the others follow together."""
    case = random_case("dense", 1, [1] * 12, False, 12)
    problem = case.problem([-GAP] * 12)
    wide = max(problem.network.n_in, *(group.size for group in problem.network.groups))
    room = 4 * wide * (problem.network.n_in + problem.network.neurons)
    space = InputSpace(problem, range(12), blind, Until(), None, InputOptions(chunk_bytes=room))
    kinks = torch.zeros(3, dtype=torch.long)
    whole = space.whole()
    assert len(space._chunks(whole)) == 12
    foreseen = space._foreseen(whole, kinks)
    assert int(foreseen.kinks.max()) == min(SPARE, problem.network.neurons)
    assert torch.equal(foreseen.low, whole.low)
    assert sum(len(chunk) for chunk in space._chunks(foreseen)) == 12
    bounded = space.bound(whole)
    assert torch.cat([boxes.number for boxes, _ in bounded.chunks]).tolist() == whole.number.tolist()


def flat(bound: str) -> Problem:
    """y = x_0 on a box that is a point: y <= bound is the clause."""
    box = instances.boxes([["0.5", "0.25"]], [["0.5", "0.25"]])
    return instances.problem(instances.identity(2), box, [(0, [instances.row({0: 1}, bound)])])


def test_a_box_that_cannot_be_cut_is_told() -> None:
    outcome = decide(flat("0.5"), offer=blind)
    assert outcome.reason is Reason.NUMERICS
    assert outcome.progress.lower <= 0
    assert decide(flat("0.5")).witness is not None
    assert decide(flat("0.4999999")).reason is None


@pytest.mark.parametrize("reason", [None, Reason.NUMERICS, Reason.TIMEOUT])
def test_what_cannot_be_cut_is_handed_over(reason: Reason | None) -> None:
    asked = []

    def finish(low: torch.Tensor, high: torch.Tensor, clauses: tuple[int, ...]) -> Outcome:
        asked.append((low.tolist(), high.tolist(), clauses))
        return Outcome(None, reason, Progress())

    outcome = decide(flat("0.5"), finish=finish, offer=blind)
    assert asked == [([0.5, 0.25], [0.5, 0.25], (0,))]
    assert outcome.reason is reason


@pytest.mark.parametrize(("few_kinks", "patience", "wanted"), [(99, 0, True), (99, 99, False), (-1, 0, False)])
def test_boxes_with_few_kinks_are_handed_over_after_some_cuts(few_kinks: int, patience: int, wanted: bool) -> None:
    asked = []

    def finish(low: torch.Tensor, high: torch.Tensor, clauses: tuple[int, ...]) -> Outcome:
        asked.append(clauses)
        return Outcome(None, None, Progress())

    problem = random_case("dense", 1, (1,)).problem([GAP])
    outcome = decide(problem, InputOptions(few_kinks=few_kinks, patience=patience), finish)
    assert outcome.reason is None
    assert set(asked) == ({(0,)} if wanted else set())


def test_a_witness_of_finish_ends_the_search() -> None:
    witness = decide(flat("0.6")).witness
    outcome = decide(flat("0.6"), finish=lambda *_: Outcome(witness, None, Progress()), offer=blind)
    assert outcome.witness is witness


def test_the_time_limit_holds() -> None:
    case = random_case("dense", 1, (1,))
    outcome = decide(case.problem([0.0]), InputOptions(batch=1, least_children=1), offer=blind, seconds=0.0)
    assert outcome.reason is Reason.TIMEOUT


def test_clauses_of_one_box_share_its_parts() -> None:
    """Twelve copies of a clause cost no more boxes than one."""
    case = random_case("dense", 2, (1,))
    one = case.problem([GAP])
    rows = list(one.property.clauses[0].rows.exact)
    sides = [[side.tolist()] for side in case.boxes[0]]
    many = instances.problem(case.net, instances.boxes(*sides), [(0, rows)] * 12)
    alone, together = decide(one), decide(many)
    assert alone.progress.domains == together.progress.domains > 1


def test_numbers_are_unique() -> None:
    problem = random_case("dense", 1, (1,)).problem([GAP])
    space = InputSpace(problem, (0,), blind, Until())
    seen = begun(space)
    numbers = set(seen.number.tolist())
    assert len(seen)
    while len(seen):
        seen = expanded(space, seen)
        assert not numbers & set(seen.number.tolist())
        numbers |= set(seen.number.tolist())
