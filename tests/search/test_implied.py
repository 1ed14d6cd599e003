"""Signs that a clause forces by itself: exact, and only where they are forced."""

from __future__ import annotations

import pytest
import torch
from falsify import instances
from search.cases import decide, root_of

from verifier.network.network import Affine, Network
from verifier.operators import Dense
from verifier.search.implied import implied_signs

KINKS = (torch.arange(3),)


def sums(*output: float, bias: float = 0.0) -> Network:
    """y = output . relu(x) + bias for three inputs."""

    def layer(name: str, source: int, weight: torch.Tensor, constant: torch.Tensor) -> Affine:
        return Affine(name, (len(weight),), ((source, Dense(weight)),), constant, torch.zeros_like(constant))

    first = layer("first", 0, torch.eye(3, dtype=torch.float64), torch.zeros(3, dtype=torch.float64))
    last = layer("last", 1, torch.tensor([output], dtype=torch.float64), torch.tensor([bias], dtype=torch.float64))
    return Network((3,), (first,), last)


@pytest.mark.parametrize(
    ("output", "bias", "row", "expected"),
    [
        ((1.0, 1.0, 0.0), 0.0, ({0: 1}, 0.0), [-1, -1, 0]),  # a sum of activations that must vanish
        ((1.0, 1.0, 0.0), 0.5, ({0: 1}, 0.5), [-1, -1, 0]),
        ((1.0, 1.0, 0.0), 0.0, ({0: 1}, 1e-300), [0, 0, 0]),  # a little room is room
        ((1.0, -1.0, 0.0), 0.0, ({0: 1}, 0.0), [0, 0, 0]),  # the activations may cancel
        ((-1.0, -2.0, 0.0), 1.0, ({0: -1}, -1.0), [-1, -1, 0]),  # y >= 1 for y = 1 - a - 2 b
        ((0.1, 1.0, 0.0), 0.0, ({0: 1}, 0.0), [0, 0, 0]),  # 0.1 is no float32: somebody has rounded
        ((1.0, -(2.0**-100), 0.0), 0.0, ({0: 1e-300}, 0.0), [0, 0, 0]),  # a product that underflows has a sign
    ],
)
def test_what_a_row_implies(
    output: tuple[float, ...], bias: float, row: tuple[dict[int, object], float], expected: list[int]
) -> None:
    net = sums(*output, bias=bias)
    problem = instances.problem(net, instances.boxes([[-1] * 3], [[1] * 3]), [(0, [instances.row(*row)])])
    assert implied_signs(problem, [0], KINKS).tolist() == [expected]


def test_a_row_that_looks_at_inputs_or_several_outputs_implies_nothing() -> None:
    problem = instances.problem(
        sums(1.0, 1.0, 1.0), instances.boxes([[-1] * 3], [[1] * 3]), [(0, [instances.row({0: 1}, 0.0, {0: 1})])]
    )
    assert not implied_signs(problem, [0], KINKS).any()


@pytest.mark.parametrize(("bound", "reason"), [(-0.25, None), (0.25, "witness")])
def test_verdicts_with_implied_signs(bound: float, reason: str | None) -> None:
    """relu(a) + relu(b) + relu(c) <= 0 and a + b + c >= -bound: impossible just below zero, possible above."""
    net = sums(1.0, 1.0, 1.0)
    rows = [instances.row({0: 1}, 0.0), instances.row({}, bound, {0: -1, 1: -1, 2: -1})]
    problem = instances.problem(net, instances.boxes([[-1] * 3], [[1] * 3]), [(0, rows)])
    assert root_of(problem).implied.tolist() == [[-1, -1, -1]]
    outcome = decide(problem)
    assert outcome.reason is None
    assert (outcome.witness is not None) == (reason == "witness")
