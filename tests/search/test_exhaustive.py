"""Verdicts equal exact answers, with the threshold just above and just below the exact minimum."""

from __future__ import annotations

import itertools

import pytest
from falsify import instances
from search.cases import BIG_M, CUTS, FAMILIES, GAP, Case, decide, ignore, long, random_case, slopes, unbounded

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.branching.babsr import BaBSR
from verifier.branching.fsb import FilteredSmart
from verifier.clock import Clock
from verifier.falsify.base import Falsifier
from verifier.falsify.pgd import PGD, Descent
from verifier.network.network import Network
from verifier.search.ladder import Ladder
from verifier.search.loop import Limits
from verifier.search.problem import ProblemSearch, Splitting
from verifier.search.signs.space import Policy
from verifier.search.signs.tighten import AfterSplit

ATTACK = PGD(Descent(steps=6), samples=16, restarts=4, effort=0.001)
# Rows per clause, whether rows look at the input, boxes.
SHAPES = {
    "single": ((1,), False, 1),
    "clauses": ((1, 2, 1), False, 1),
    "joint": ((3,), False, 1),
    "mixed": ((2, 3), True, 1),
    "boxes": ((1, 2, 2, 1), True, 2),
}
WEAK = slopes(Ascent(8, Steps(0.2, 0.05)), Ascent(4, Steps(0.1, 0.05)))  # few steps: leaves are reached
TWO = (*WEAK.tiers, long(Ascent(12, Steps(0.2, 0.02)), Ascent(8, Steps(0.1, 0.02))))
POLICIES = {
    "intercept": Policy(WEAK, batch=256, fill=64),
    "babsr": Policy(WEAK, BaBSR(), batch=4, fill=1),
    "fsb": Policy(WEAK, FilteredSmart(2), batch=16, fill=8),
    "tightened": Policy(WEAK, tightening=AfterSplit(), batch=64, fill=16),
    "sometimes tightened": Policy(WEAK, BaBSR(), AfterSplit(every=2), batch=16, fill=4),
    "two tiers": Policy(Ladder(TWO, (1.05,)), batch=64, fill=8),
    "two tiers, tightened": Policy(Ladder(TWO, (1.05,)), FilteredSmart(2), AfterSplit(), batch=32, fill=8),
    "cuts": Policy(Ladder((*WEAK.tiers, CUTS), (1.05,)), BaBSR(), batch=32, fill=8),
    "multipliers": Policy(Ladder((*WEAK.tiers, BIG_M), (1.05,)), batch=32, fill=8),
}
BEST_FIRST, DEPTH_FIRST = Limits(max_domains=20000), Limits(memory_bytes=1, max_domains=20000)

pytestmark = pytest.mark.usefixtures("unchecked")


def judge(case: Case, policy: Policy, seed: int, falsifier: Falsifier | None) -> None:
    """Every clause just empty: all is closed.  One of them just not empty: there is a witness, and it is one."""
    limits, bounded = DEPTH_FIRST if seed % 3 == 2 else BEST_FIRST, seed % 5 < 2
    safe = decide(case.problem([GAP] * len(case.claims)), policy, falsifier, limits, bounded=bounded)
    assert safe.witness is None
    assert safe.reason is None
    assert safe.progress.lower == float("inf")
    margins = [GAP] * len(case.claims)
    margins[seed % len(margins)] = -GAP
    problem = case.problem(margins)
    unsafe = decide(problem, policy, falsifier, limits, bounded=bounded)
    assert unsafe.witness is not None
    assert unsafe.reason is None
    box = case.boxes[case.claims[unsafe.witness.clause].box]
    instances.check(problem, unsafe.witness, box[0].tolist(), box[1].tolist())


def run(family: str, shape: str, seed: int, policy: str, falsifiers: tuple[Falsifier | None, ...]) -> None:
    counts, mixed, boxes = SHAPES[shape]
    case = random_case(family, seed, counts, mixed, boxes)
    for falsifier in falsifiers:
        judge(case, POLICIES[policy], seed, falsifier)


MEETINGS = [
    (family, shape, 300 + 9 * i + j, policy)
    for i, (family, shape) in enumerate(itertools.product(FAMILIES, SHAPES))
    for j, policy in enumerate(POLICIES)
    if (i + j) % 2
]
"""Half of all pairs of a policy with a family and a shape, each on another network."""


@pytest.mark.parametrize(("family", "shape", "seed", "policy"), MEETINGS)
def test_verdicts_are_exact(family: str, shape: str, seed: int, policy: str) -> None:
    run(family, shape, seed, policy, (None,) if seed // 2 % 2 else (ATTACK,))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1010))
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_verdicts_are_exact_on_many(family: str, shape: str, policy: str, seed: int) -> None:
    run(family, shape, seed, policy, (None, ATTACK))


def test_weights_that_float32_does_not_know_are_not_lost_with_boxes() -> None:
    """y = -16 at x = 1, behind a weight of 2^-151 that a float32 copy of the network takes for zero."""
    first = instances.layer("first", 0, [[2.0**126]], [0.0])
    second = instances.layer("second", 1, [[2.0**-151]], [-(2.0**-26)])
    third = instances.layer("third", 2, [[2.0**30]], [-1.0])
    net = Network((1,), (first, second, third), instances.layer("out", 3, [[-1.0]], [-1.0]))
    problem = instances.problem(net, instances.boxes([[0.5]], [[1.0]]), [(0, [instances.row({0: 1}, -10)])])
    whole = ProblemSearch(limits=Limits(max_batches=20), splitting=Splitting.INPUTS)
    outcome = whole.run(problem, unbounded(problem), instances.target(problem), Clock.begin(60), ignore)
    assert outcome.witness is not None or outcome.reason is not None
