"""Properties without the function that a network ends with: the same points are unsafe, ties included."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import verifier
from verifier.network.lowering.run import lower
from verifier.property.arrays import InputSet, property_of_arrays
from verifier.property.heads import without_head
from verifier.property.property import Clause, ExactRow, Property, RoundedRows

HEADS: dict[str, nn.Module] = {
    "Sigmoid": nn.Sigmoid(),
    "Tanh": nn.Tanh(),
    "Softmax": nn.Softmax(dim=-1),
    "LogSoftmax": nn.LogSoftmax(dim=-1),
}
RANGES = {"Sigmoid": (0, 1), "Tanh": (-1, 1)}


def value(name: str, t: float) -> Fraction:
    """Sigmoid or Tanh at a float, to 80 digits."""
    with localcontext() as context:
        context.prec = 80
        power = (Decimal(-t) if name == "Sigmoid" else Decimal(-2 * t)).exp()
        found = 1 / (1 + power) if name == "Sigmoid" else (1 - power) / (1 + power)
        return Fraction(found)


def network(head: nn.Module | None, n: int = 4, seed: int = 0, whole: bool = False) -> Any:
    """A small network with that head; with `whole` numbers for weights, so that outputs may be equal."""
    torch.manual_seed(seed)
    parts = [nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, n)]
    module = nn.Sequential(*parts, *([] if head is None else [head])).double()
    if whole:
        for parameter in module.parameters():
            parameter.data = (parameter.data * 4).round()
    return lower(module.eval(), (1, 3), {})


def with_rows(rows: list[ExactRow], n_y: int = 4) -> Property:
    empty = property_of_arrays(InputSet.of(-np.ones(3), np.ones(3), None), [], (3, n_y))
    box = empty.boxes.lower[0], empty.boxes.upper[0]
    clause = Clause(0, RoundedRows.of(rows, 3, n_y, box))
    return Property(3, n_y, empty.boxes, (clause,))


def row(terms: dict[int, Any], bound: Any = 0, strict: bool = False, x: dict[int, Any] | None = None) -> ExactRow:
    """A row of a property."""
    y, inputs = (tuple((j, Fraction(a)) for j, a in part.items()) for part in (terms, x or {}))
    return ExactRow(y, inputs, Fraction(bound), strict)


def restated_row(head: str, given: ExactRow, n: int = 4) -> ExactRow | None:
    found = without_head(network(HEADS[head], n), with_rows([given], n))
    return None if found is None else found.property.clauses[0].rows.exact[0]


# -- thresholds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", RANGES)
@pytest.mark.parametrize("side", [1, -1])
def test_thresholds_are_rounded_to_the_next_float(head: str, side: int) -> None:
    random = np.random.default_rng(side + 1)
    low, high = RANGES[head]
    for _ in range(60):
        share = Fraction(random.random()) ** int(random.integers(1, 9))
        theta = low + (high - low) * (share if random.random() < 0.5 else 1 - share)
        if not low < theta < high:
            continue
        factor = Fraction(int(random.integers(1, 9)), 3)
        found = restated_row(head, row({2: side * factor}, side * factor * theta))
        assert found is not None
        assert found.y == ((2, Fraction(side)),)
        tau = side * float(found.bound)
        assert Fraction(tau) == side * found.bound
        inner = math.nextafter(tau, -side * math.inf)
        assert side * (value(head, tau) - theta) >= 0
        assert side * (value(head, inner) - theta) < 0


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize(("head", "middle"), [("Sigmoid", Fraction(1, 2)), ("Tanh", Fraction(0))])
def test_the_middle_is_exact(head: str, middle: Fraction, strict: bool) -> None:
    assert restated_row(head, row({1: 2}, 2 * middle, strict)) == row({1: 1}, 0, strict)
    assert restated_row(head, row({1: -3}, -3 * middle, strict)) == row({1: -1}, 0, strict)


@pytest.mark.parametrize("theta", [-1, 0, 1, 2])
def test_thresholds_that_floats_alone_reach_keep_the_head(theta: int) -> None:
    assert restated_row("Sigmoid", row({0: 1}, theta)) is None
    assert restated_row("Sigmoid", row({0: -1}, -theta)) is None


# -- which rows need the head --------------------------------------------------------------------------------

COMPARED = [row({0: 1, 3: -1}), row({0: Fraction(-1, 3), 1: Fraction(1, 3)}, 0, True)]
OTHERS = [
    row({0: 1, 1: 1}),
    row({0: 1, 1: -2}),
    row({0: 1, 1: -1}, x={0: 1}),
    row({0: 1, 1: -1, 2: 1}),
    row({}, 1),
]


@pytest.mark.parametrize("head", HEADS)
def test_comparisons_stay_as_they_are(head: str) -> None:
    for given in COMPARED:
        assert restated_row(head, given) == given


@pytest.mark.parametrize("head", ["Sigmoid", "Tanh", "Softmax"])
@pytest.mark.parametrize("given", [*OTHERS, row({0: 1, 1: -1}, Fraction(1, 10))])
def test_other_rows_keep_the_head(head: str, given: ExactRow) -> None:
    assert restated_row(head, given) is None


def test_softmax_has_no_thresholds() -> None:
    assert restated_row("Softmax", row({0: 1}, Fraction(1, 3))) is None
    assert restated_row("LogSoftmax", row({0: 1}, -1)) is None


def test_log_softmax_keeps_differences() -> None:
    for given in (row({0: 1, 1: -1}, Fraction(7, 5)), row({0: 2, 1: -1, 3: -1}, -1, x={1: 4}), row({}, 1)):
        assert restated_row("LogSoftmax", given) == given
    assert restated_row("LogSoftmax", row({0: 1, 1: -2})) is None


def test_what_is_not_normalised_together_is_not_compared() -> None:
    torch.manual_seed(0)
    halves = nn.Sequential(nn.Linear(3, 4), nn.Unflatten(1, (2, 2)), nn.Softmax(dim=-1), nn.Flatten()).double().eval()
    found = lower(halves, (1, 3), {})
    assert found.head is not None
    assert without_head(found, with_rows([row({0: 1, 1: -1})])) is not None
    assert without_head(found, with_rows([row({0: 1, 2: -1})])) is None


def test_one_row_that_needs_it_keeps_the_head() -> None:
    net = network(HEADS["Softmax"])
    assert without_head(net, with_rows([COMPARED[0], row({0: 1}, Fraction(1, 2))])) is None
    assert without_head(network(None), with_rows([COMPARED[0]])) is None


# -- the same points -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("n", [2, 4])
def test_the_same_points_are_unsafe(head: str, n: int) -> None:
    """On a grid, ties included: with whole numbers before the head, equal outputs are equal after it as well."""
    random = np.random.default_rng(n)
    x = torch.cartesian_prod(*[torch.arange(-4, 5, dtype=torch.float64) / 2] * 3)
    for seed in range(6):
        net = network(HEADS[head], n, seed, whole=True)
        rows = [row({0: 1, 1: -1}), row({n - 1: -1, 0: 1})]
        if head in RANGES:
            rows.append(row({1: 1}, Fraction(int(random.integers(1, 9)), 10)))
        for given in rows:
            found = without_head(net, with_rows([given], n))
            assert found is not None
            after, before = net.forward(x).tolist(), found.network.forward(x).tolist()
            (new,) = found.property.clauses[0].rows.exact
            for y, t in zip(after, before, strict=True):
                rounded = [round(v, 12) for v in y]  # equal numbers are summed up in different orders
                if len(set(rounded)) < len(set(t)):
                    continue  # the head's values are too close for floats
                assert given.holds((), [Fraction(v) for v in rounded]) == new.holds((), [Fraction(v) for v in t])


class Headed(nn.Module):
    """A network that is known: t = (|x|, x + shift), and a head."""

    def __init__(self, head: nn.Module, shift: float) -> None:
        super().__init__()
        self.head, self.shift = head, shift

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.cat([x.abs(), x + self.shift], dim=-1))


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize(("shift", "verdict"), [(-0.25, "unsat"), (0.0, "sat"), (0.25, "sat")])
def test_verdicts(head: str, shift: float, verdict: str) -> None:
    """Unsafe: the second output is not below the first; without a shift they are equal for all x >= 0.

    Equal outputs are what only the network's own run confirms, so the search then takes all the time that it has.
    """
    box, unsafe = {"lower": [[-1.0]], "upper": [[1.0]]}, [([[1.0, -1.0]], [0.0])]
    found = verifier.verify(Headed(HEADS[head], shift), **box, unsafe=unsafe, timeout=20 if shift else 2)
    assert found.verdict.value == verdict


@pytest.mark.parametrize(("limit", "verdict"), [(0.75, "unsat"), (0.7, "sat")])
def test_verdicts_of_thresholds(limit: float, verdict: str) -> None:
    """sigmoid(1) = 0.731 is the largest value."""
    found = verifier.verify(
        Headed(nn.Sigmoid(), 0.0), lower=[[-1.0]], upper=[[1.0]], unsafe=[([[-1.0, 0.0]], [-limit])], timeout=20
    )
    assert found.verdict.value == verdict
    if verdict == "sat":
        assert found.counterexample is not None
        assert found.counterexample.y[0] >= limit
