"""Every operator that the checker reads, over the grid of its attributes: it agrees with onnxruntime, or refuses."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from operator_grid.judge import Answer, End, Outcome, Refused, judged
from operator_grid.table import FAMILIES

from verifier.checker.graph import read_network
from verifier.checker.network import Network
from verifier.checker.rationals import Array
from verifier.checker.rules import OPERATORS
from verifier.checker.stream import Unreadable

LARGER = 5
"""The slow tests go through this many times as many cases."""


def outputs(net: Network, points: Array) -> Array:
    values = {0: points}
    for k, layer in enumerate(net.layers, start=1):
        values[k] = layer.moved(layer.forward(values))
        if k <= net.groups:
            values[k] = layer.function.value(values[k])
    return np.broadcast_to(values[len(net.layers)], (len(points), net.layers[-1].size))


def read(data: bytes) -> Answer:
    """The reader of the checker."""
    try:
        net, _ = read_network(data)
    except Unreadable as error:
        raise Refused(str(error)) from error
    return Answer(lambda points: outputs(net, points))


@functools.cache
def outcomes(name: str, first: int, last: int) -> tuple[Outcome, ...]:
    cases = (FAMILIES[name].case(number) for number in range(first, last))
    return tuple(judged(case, read) for case in cases if case is not None)


def faults(found: tuple[Outcome, ...]) -> str:
    lines = [str(outcome) for outcome in found if outcome.end in {End.WRONG, End.CRASHED}]
    return "\n".join(lines[:20])


@pytest.mark.parametrize("name", FAMILIES)
def test_family(name: str) -> None:
    lines = faults(outcomes(name, 0, FAMILIES[name].count))
    assert not lines, lines


@pytest.mark.slow
@pytest.mark.parametrize("name", FAMILIES)
def test_larger_family(name: str) -> None:
    count = FAMILIES[name].count
    lines = faults(outcomes(name, count, LARGER * count))
    assert not lines, lines


def test_every_operator_is_compared() -> None:
    found = [outcome for name in FAMILIES for outcome in outcomes(name, 0, FAMILIES[name].count)]
    equal = [outcome.case for outcome in found if outcome.end is End.EQUAL]
    assert len(equal) >= 4_000
    assert set(OPERATORS) <= {node.op_type for case in equal for node in case.nodes}


@pytest.mark.parametrize(("name", "wrong", "family"), [("Neg", "Identity", "unary"), ("Max", "Min", "several")])
def test_a_wrong_rule_is_seen(monkeypatch: pytest.MonkeyPatch, name: str, wrong: str, family: str) -> None:
    monkeypatch.setitem(OPERATORS, name, OPERATORS[wrong])
    cases = [FAMILIES[family].case(number) for number in range(60)]
    assert faults(tuple(judged(case, read) for case in cases if case is not None))
