"""Every operator over the grid of its attributes: the lowered network equals onnxruntime, output by output."""

from __future__ import annotations

import functools
from collections import Counter

import pytest
from operator_grid.case import OLDEST, newest_opset
from operator_grid.judge import End, Outcome, judged
from operator_grid.refusals import REFUSALS
from operator_grid.table import FAMILIES, case_of

from verifier.network.rewrite import arithmetic
from verifier.network.rewrite.normalise import REWRITERS

LARGER = 5
"""The slow tests go through this many times as many cases."""


@functools.cache
def outcomes(name: str, first: int, last: int) -> tuple[Outcome, ...]:
    cases = (FAMILIES[name].case(number) for number in range(first, last))
    return tuple(judged(case) for case in cases if case is not None)


def fast(name: str) -> tuple[Outcome, ...]:
    return outcomes(name, 0, FAMILIES[name].count)


def faults(found: tuple[Outcome, ...]) -> list[str]:
    """What is wrong with a family's outcomes: one line for each case, or for each sort of refusal that has grown."""
    lines = []
    covered: Counter[int] = Counter()
    for outcome in found:
        row = next((i for i, refusal in enumerate(REFUSALS) if refusal.covers(outcome)), None)
        if outcome.end is End.REFUSED and row is not None:
            covered[row] += 1
        elif outcome.end not in {End.EQUAL, End.NO_MODEL}:
            lines.append(str(outcome))
    decided = sum(outcome.end is not End.NO_MODEL for outcome in found)
    for row, count in covered.items():
        if count > REFUSALS[row].most * decided + 1:
            lines.append(f"{count} of {decided} cases are refused: {REFUSALS[row]}")
    return lines


def report(lines: list[str]) -> str:
    return "\n".join([f"{len(lines)} faults", *lines[:20]])


@pytest.mark.parametrize("name", FAMILIES)
def test_family(name: str) -> None:
    lines = faults(fast(name))
    assert not lines, report(lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_larger_family(name: str) -> None:
    count = FAMILIES[name].count
    lines = faults(outcomes(name, count, LARGER * count))
    assert not lines, report(lines)


def test_the_grid_is_large_enough() -> None:
    found = [outcome for name in FAMILIES for outcome in fast(name)]
    assert sum(outcome.end is End.EQUAL for outcome in found) >= 5_000
    assert sum(outcome.end is End.NO_MODEL for outcome in found) <= 0.1 * len(found)
    assert sum(LARGER * family.count for family in FAMILIES.values()) >= 25_000


def test_every_operator_and_operator_set_is_compared() -> None:
    equal = [outcome.case for name in FAMILIES for outcome in fast(name) if outcome.end is End.EQUAL]
    assert set(REWRITERS) <= {node.op_type for case in equal for node in case.nodes}
    assert {case.opset for case in equal} == set(range(OLDEST, newest_opset() + 1))


def test_every_refusal_of_the_table_occurs() -> None:
    found = [outcome for name in FAMILIES for outcome in fast(name) if outcome.end is End.REFUSED]
    unused = [refusal for refusal in REFUSALS if not any(refusal.covers(outcome) for outcome in found)]
    assert not unused


# -- the judge itself ----------------------------------------------------------------------------------------


def first_equal(name: str) -> str:
    return next(outcome.case.label for outcome in fast(name) if outcome.end is End.EQUAL)


def again(label: str) -> Outcome:
    case = case_of(label)
    assert case is not None
    return judged(case)


def test_a_wrong_value_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    label = next(outcome.case.label for outcome in fast("unary") if outcome.case.nodes[-1].op_type == "Neg")
    monkeypatch.setitem(REWRITERS, "Neg", arithmetic.unchanged_value)
    outcome = again(label)
    assert outcome.end is End.WRONG
    assert label in faults((outcome,))[0]


def test_a_wrong_shape_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    label = first_equal("unsqueeze")
    monkeypatch.setitem(REWRITERS, "Unsqueeze", arithmetic.unchanged_value)
    assert again(label).end is End.WRONG


def test_a_crash_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise AssertionError("seeded")

    label = first_equal("concat")
    monkeypatch.setattr("verifier.network.models.onnx.normalise", crash)
    outcome = again(label)
    assert outcome.end is End.CRASHED
    assert faults((outcome,))


def test_a_new_refusal_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    label = first_equal("transpose")
    monkeypatch.delitem(REWRITERS, "Transpose")
    outcome = again(label)
    assert outcome.end is End.REFUSED
    assert faults((outcome,))


def test_refusals_that_grow_are_seen() -> None:
    refused = tuple(outcome for outcome in fast("dropout") if outcome.end is End.REFUSED)
    assert not faults(fast("dropout"))
    assert faults(refused)
