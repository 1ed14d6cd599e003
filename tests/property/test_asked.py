"""Only the outputs that a property asks for: the same points are unsafe, and witnesses speak of all outputs."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import verifier
from verifier.loading import GivenFiles
from verifier.network.lowering.run import lower
from verifier.network.network import Network
from verifier.pipeline import as_needed
from verifier.property.arrays import InputSet, property_of_arrays
from verifier.property.asked import only_asked
from verifier.property.property import Clause, ExactRow, Property, RoundedRows


def network(n: int = 6, seed: int = 0) -> Network:
    torch.manual_seed(seed)
    return lower(nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, n)).double().eval(), (1, 3), {})


def property_of(clauses: list[list[ExactRow]], n_y: int = 6) -> Property:
    empty = property_of_arrays(InputSet.of(-np.ones(3), np.ones(3), None), [], (3, n_y))
    box = empty.boxes.lower[0], empty.boxes.upper[0]
    made = tuple(Clause(0, RoundedRows.of(rows, 3, n_y, box)) for rows in clauses)
    return Property(3, n_y, empty.boxes, made)


def row(y: dict[int, Fraction | int], x: dict[int, int] | None = None, bound: Fraction | int = 0) -> ExactRow:
    terms = tuple((j, Fraction(a)) for j, a in y.items())
    return ExactRow(terms, tuple((i, Fraction(b)) for i, b in (x or {}).items()), Fraction(bound), False)


@given(st.integers(0, 2**16))
@settings(max_examples=30)
def test_every_row_has_the_same_value_at_every_point(seed: int) -> None:
    draw = np.random.default_rng(seed)
    rows = [
        row(
            {int(j): int(draw.integers(-3, 4)) for j in draw.choice(4, 2, replace=False)}, {0: 1}, int(draw.integers(3))
        )
        for _ in range(4)
    ]
    prop, net = property_of([rows[:2], rows[2:]]), network(seed=seed)
    found = only_asked(net, prop)
    if found is None:
        assert not any(a for r in rows for _, a in r.y)
        return
    x = torch.from_numpy(draw.uniform(-1, 1, (5, 3)))
    whole, small = net.forward(x), found.network.forward(x)
    assert found.property.n_y == small.shape[1] < 6
    for before, after in zip(prop.clauses, found.property.clauses, strict=True):
        assert before.box == after.box
        a, b = (part @ torch.from_numpy(c.rows.A).T for part, c in ((whole, before), (small, after)))
        torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)
        assert np.array_equal(before.rows.c, after.rows.c)
        for old, new in zip(before.rows.exact, after.rows.exact, strict=True):
            ys, zs = ([Fraction(v) for v in part[0].tolist()] for part in (whole, small))
            assert sum(w * zs[j] for j, w in new.y) == pytest.approx(float(sum(w * ys[j] for j, w in old.y)), abs=1e-9)
            assert (old.x, old.bound, old.strict) == (new.x, new.bound, new.strict)


def test_inexact_rows_keep_their_errors() -> None:
    found = only_asked(network(), property_of([[row({2: Fraction(1, 3), 4: 1})]]))
    assert found is not None
    error = found.property.clauses[0].rows.A_error
    assert error is not None
    assert error.shape == (1, 2)
    assert error[0, 0] > 0 == error[0, 1]


def test_nothing_is_left_out_where_all_or_no_outputs_are_asked_for() -> None:
    net = network(2)
    assert only_asked(net, property_of([[row({0: 1}), row({1: -1})]], 2)) is None
    assert only_asked(net, property_of([[row({}, {0: 1})]], 2)) is None
    assert only_asked(net, property_of([], 2)) is None
    assert only_asked(net, property_of([[row({0: 1})]], 3)) is None  # the property is of another network


def test_a_witness_has_all_outputs() -> None:
    module = nn.Linear(2, 3, bias=False)
    module.weight.data = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    A, c = np.array([[0.0, 0.0, -1.0]]), np.array([-1.5])  # y_2 >= 1.5
    found = verifier.verify(module, lower=[-1.0, -1.0], upper=[1.0, 1.0], unsafe=[(A, c)])
    assert found.verdict.value == "sat"
    assert found.counterexample is not None
    x, y = found.counterexample.x, found.counterexample.y
    assert y.shape == (3,)
    assert y.tolist() == module(torch.from_numpy(x)).tolist()
    assert verifier.verify(module, lower=[-1.0, -1.0], upper=[0.5, 0.5], unsafe=[(A, c)]).verdict.value == "unsat"


@pytest.mark.parametrize(("prop", "outputs"), [("prop3", 10), ("prop4", 14)])
def test_limits_of_voltages_need_relus_only(prop: str, outputs: int, benchmarks: Path) -> None:
    """The flows of a power grid are products of sines and cosines, but its voltages and generators are not."""
    folder = benchmarks / "ml4acopf"
    file = folder / "onnx" / "14_ieee_ml4acopf-linear-residual.onnx"
    loaded = GivenFiles(str(file), str(folder / "vnnlib" / f"14_ieee_{prop}.vnnlib")).load()
    whole = loaded.model.network()
    found = as_needed(whole, loaded.property)
    assert found is not None
    assert not whole.piecewise_linear
    assert found.network.piecewise_linear
    assert found.network.n_out == outputs
