"""Bounds of whole problems: clauses share boxes, and neither padding nor batches change a bound."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from networks import conv, dense, residual

from verifier.bounding.clauses import ClauseBounder, ClauseBounds
from verifier.bounding.core.base import Until
from verifier.bounding.hidden import RootBounds
from verifier.clock import Clock
from verifier.network.network import Network
from verifier.property.problem import Problem, canonicalise
from verifier.property.property import Boxes, Clause, ExactRow, Property, RoundedRows


def problem(network: Network, seed: int, boxes: int, sizes: list[int], inputs: bool = False) -> Problem:
    """Clauses with `sizes` random rows each, dealt out to random boxes in turn."""
    chance = np.random.default_rng(seed)
    centre = chance.uniform(-1, 1, (boxes, network.n_in))
    radius = chance.uniform(0.01, 0.3, (boxes, network.n_in))
    low, high = centre - radius, centre + radius

    def row() -> ExactRow:
        y = tuple((j, Fraction(int(a))) for j, a in enumerate(chance.integers(-3, 4, network.n_out)) if a)
        x = ((0, Fraction(1, 2)),) if inputs and chance.random() < 0.5 else ()
        return ExactRow(y, x, Fraction(int(chance.integers(-3, 4)), 4), strict=False)

    clauses = []
    for k, size in enumerate(sizes):
        box = k % boxes
        rows = RoundedRows.of([row() for _ in range(size)], network.n_in, network.n_out, (low[box], high[box]))
        clauses.append(Clause(box, rows))
    prop = Property(network.n_in, network.n_out, Boxes.enclosed((low, low), (high, high)), tuple(clauses))
    return canonicalise(network, prop)


def margins(instance: Problem, clause: int, count: int) -> torch.Tensor:
    """The largest row of a clause at random points of its box."""
    box, rows = instance.property.clauses[clause].box, instance.rows[clause]
    share = torch.rand(count, instance.network.n_in, dtype=torch.float64)
    x = instance.lower[box] + share * (instance.upper[box] - instance.lower[box])
    g = instance.network.forward(x) @ rows.A.T - rows.c
    return (g if rows.B is None else g + x @ rows.B.T).amax(-1)


@pytest.mark.parametrize("make", [dense, conv, residual])
@pytest.mark.parametrize("inputs", [False, True])
def test_bounds_are_below_what_happens(make: object, inputs: bool) -> None:
    instance = problem(make(3), 1, boxes=3, sizes=[1, 3, 2, 2, 1], inputs=inputs)  # type: ignore[operator]
    found = ClauseBounder().bound(instance, Until())
    assert torch.isfinite(found.lower).all()
    for clause in range(5):
        assert found.lower[clause] <= margins(instance, clause, 2000).min()
    assert found.worst == float(found.lower.min())


@pytest.mark.parametrize("batch", [1, 2, 100])
def test_a_batch_is_its_members_one_by_one(batch: int) -> None:
    instance = problem(residual(5), 2, boxes=5, sizes=[2, 1, 3, 1, 1, 4, 2], inputs=True)
    # With linear intermediate bounds a batch may do more: a neuron that is ambiguous in one box is swept in all.
    intervals = RootBounds(None)
    whole = ClauseBounder(intervals, batch=100).bound(instance, Until())
    parts = ClauseBounder(intervals, batch=batch).bound(instance, Until())
    torch.testing.assert_close(parts.lower, whole.lower, rtol=0, atol=1e-12)


def test_points_lie_in_the_box_of_their_open_clause() -> None:
    instance = problem(dense(1), 4, boxes=2, sizes=[1, 2, 1, 1, 3, 1])
    found = ClauseBounder().bound(instance, Until())
    assert found.points
    for clause, x in found.points.items():
        box = instance.property.clauses[clause].box
        assert found.lower[clause] <= 0
        assert (instance.lower[box] <= x).all()
        assert (x <= instance.upper[box]).all()
    assert len(ClauseBounder(most=1).bound(instance, Until()).points) == 1


def test_a_clause_without_rows_is_never_closed() -> None:
    instance = problem(dense(1), 4, boxes=1, sizes=[0])
    found = ClauseBounder().bound(instance, Until())
    assert not found.closed
    assert found.worst == -torch.inf


def test_what_was_not_reached_in_time_is_not_closed() -> None:
    instance = problem(dense(1), 4, boxes=2, sizes=[1, 1])
    found = ClauseBounder().bound(instance, Until(Clock.begin(0.0)))
    assert (found.lower == -torch.inf).all()
    assert not found.closed


def test_the_report_hears_the_worst_bound_so_far() -> None:
    heard: list[float] = []
    instance = problem(dense(1), 4, boxes=3, sizes=[1, 1, 1])
    found = ClauseBounder(batch=1).bound(instance, Until(), heard.append)
    assert heard == sorted(heard, reverse=True)
    assert (len(heard), heard[-1]) == (3, found.worst)


def test_a_bound_of_zero_proves_nothing() -> None:
    assert not ClauseBounds(torch.tensor([1.0, 0.0]), {}, {}).closed
    assert ClauseBounds(torch.tensor([1.0, 1e-300], dtype=torch.float64), {}, {}).closed


def test_a_point_box_is_bounded_by_its_value() -> None:
    """The equality case: on a single point the bound is the value itself, but for rounding."""
    instance = problem(conv(2), 6, boxes=1, sizes=[1, 2, 3])
    at = (instance.lower + instance.upper) / 2
    found = ClauseBounder().bound(replace(instance, lower=at, upper=at), Until())
    for clause, rows in enumerate(instance.rows):
        value = (instance.network.forward(at[0]) @ rows.A.T - rows.c).max()
        assert float(value) - 1e-9 <= float(found.lower[clause]) <= float(value)
