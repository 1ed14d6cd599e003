"""Verdicts equal exact answers, with the threshold just above and just below the exact minimum."""

from __future__ import annotations

import pytest
from falsify import instances
from search.cases import FAMILIES, Case, decide, random_case

from verifier.bounding.ascent import Ascent, Steps
from verifier.falsify.base import Falsifier
from verifier.falsify.pgd import PGD, Descent
from verifier.search.engine import Policy

GAP = 1e-3
ATTACK = PGD(Descent(steps=6), samples=16, restarts=4, effort=0.001)
# Rows per clause, whether rows look at the input, boxes.
SHAPES = {
    "single": ((1,), False, 1),
    "clauses": ((1, 2, 1), False, 1),
    "joint": ((3,), False, 1),
    "mixed": ((2, 3), True, 1),
    "boxes": ((1, 2, 2, 1), True, 2),
}
BATCHES = (4, 16, 64, 256)
ROOT, CHILD = Ascent(20, Steps(0.2, 0.02)), Ascent(8, Steps(0.1, 0.02))  # few steps: leaves are reached

pytestmark = pytest.mark.usefixtures("unchecked")


def judge(case: Case, seed: int, falsifier: Falsifier | None) -> None:
    """Every clause just empty: all is closed.  One of them just not empty: there is a witness, and it is one."""
    policy = Policy(ROOT, CHILD, batch=BATCHES[seed % len(BATCHES)], max_domains=20000)
    safe = decide(case.problem([GAP] * len(case.claims)), policy, falsifier, bounded=bool(seed % 2))
    assert safe.witness is None
    assert safe.reason is None
    assert safe.progress.lower == float("inf")
    margins = [GAP] * len(case.claims)
    margins[seed % len(margins)] = -GAP
    problem = case.problem(margins)
    unsafe = decide(problem, policy, falsifier, bounded=bool(seed % 2))
    assert unsafe.witness is not None
    assert unsafe.reason is None
    box = case.boxes[case.claims[unsafe.witness.clause].box]
    instances.check(problem, unsafe.witness, box[0].tolist(), box[1].tolist())


def run(family: str, shape: str, seed: int) -> None:
    counts, mixed, boxes = SHAPES[shape]
    case = random_case(family, seed, counts, mixed, boxes)
    judge(case, seed, None)
    judge(case, seed, ATTACK)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_verdicts_are_exact(family: str, shape: str, seed: int) -> None:
    run(family, shape, seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 120))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_verdicts_are_exact_on_many(family: str, shape: str, seed: int) -> None:
    run(family, shape, seed)
