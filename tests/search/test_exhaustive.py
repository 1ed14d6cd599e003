"""Verdicts equal exact answers, with the threshold just above and just below the exact minimum."""

from __future__ import annotations

import pytest
from falsify import instances
from search.cases import FAMILIES, Case, decide, random_case

from verifier.falsify.base import Falsifier
from verifier.falsify.pgd import PGD
from verifier.search.engine import Policy

GAP = 1e-3
ATTACK = PGD(samples=16, restarts=4, effort=0.001)
# Rows per clause, whether rows look at the input, boxes.
SHAPES = {
    "single": ((1,), False, 1),
    "clauses": ((1, 2, 1), False, 1),
    "joint": ((3,), False, 1),
    "mixed": ((2, 3), True, 1),
    "boxes": ((1, 2, 2, 1), True, 2),
}
BATCHES = (2, 6, 32, 256)


def judge(case: Case, seed: int, falsifier: Falsifier | None) -> None:
    """Every clause just empty: all is closed.  One of them just not empty: there is a witness, and it is one."""
    policy = Policy(batch=BATCHES[seed % len(BATCHES)], max_domains=20000)
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


def run(family: str, shape: str, seed: int, attack: bool) -> None:
    counts, mixed, boxes = SHAPES[shape]
    judge(random_case(family, seed, counts, mixed, boxes), seed, ATTACK if attack else None)


@pytest.mark.parametrize("attack", [False, True], ids=["off", "on"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_verdicts_are_exact(family: str, shape: str, seed: int, attack: bool) -> None:
    run(family, shape, seed, attack)


@pytest.mark.slow
@pytest.mark.parametrize("attack", [False, True], ids=["off", "on"])
@pytest.mark.parametrize("seed", range(100, 120))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", FAMILIES)
def test_verdicts_are_exact_on_many(family: str, shape: str, seed: int, attack: bool) -> None:
    run(family, shape, seed, attack)
