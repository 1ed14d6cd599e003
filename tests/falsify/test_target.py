"""Margins, gradients and replays of many clauses at a time."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import networks
import numpy as np
import pytest
import torch
from falsify import instances
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.falsify.target import MEMORY, REPLAYS, RowTable, Target
from verifier.network.network import Network

CLAUSE_ROWS = (1, 3, 2, 0)
"""RoundedRows of the clauses of `several`; the last clause is the whole box."""


def several(net: Network, seed: int, linear: bool = True) -> Target:
    """Clauses with different numbers of random rows over two boxes; `linear`: some rows look at the input too."""
    rng = np.random.default_rng(seed)

    def random_row() -> object:
        y = {j: Fraction(rng.normal()) for j in range(net.n_out)}
        x = {i: Fraction(rng.normal()) for i in range(net.n_in)} if linear and rng.random() < 0.5 else {}
        return instances.row(y, Fraction(rng.normal()), x)

    lower, upper = networks.box(net, seed, count=2)
    box = instances.boxes(lower.tolist(), upper.tolist())
    clauses = [(k % 2, [random_row() for _ in range(m)]) for k, m in enumerate(CLAUSE_ROWS)]
    return instances.target(instances.problem(net, box, clauses))


def doubled(target: Target, net: Network) -> Target:
    """The same target in float64, where finite differences mean something."""
    rows = target.rows
    B = None if rows.B is None else rows.B.double()
    table = RowTable(rows.A.double(), B, rows.c.double(), rows.index, rows.own)
    return replace(target, network=net, lower=target.lower.double(), upper=target.upper.double(), rows=table)


def drawn(target: Target, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random points of the boxes of random clauses."""
    generator = torch.Generator().manual_seed(seed)
    clause = torch.randint(target.clauses, (count,), generator=generator)
    lower, upper = target.bounds(clause)
    return lower + torch.rand(lower.shape, generator=generator, dtype=lower.dtype) * (upper - lower), clause


def violated(target: Target, x: torch.Tensor, clause: torch.Tensor) -> torch.Tensor:
    """The quantity whose gradient `slope` gives, row by row in plain loops."""
    y = target.network.forward(x)
    values = []
    for point, output, k in zip(x, y, clause.tolist(), strict=True):
        rows = target.prop.clauses[k].rows
        g = torch.from_numpy(rows.A) @ output - torch.from_numpy(rows.c)
        g = g if rows.B is None else g + torch.from_numpy(rows.B) @ point
        values.append(g.clamp(min=0).sum() if (g > 0).any() else g.max() if len(g) else output.new_zeros(()))
    return torch.stack(values)


@given(seed=st.integers(0, 2**16), linear=st.booleans())
@settings(max_examples=25, deadline=None)
def test_margins_are_those_of_the_clause(seed: int, linear: bool) -> None:
    net = networks.dense(seed)
    target = doubled(several(net, seed, linear), net)
    x, clause = drawn(target, 12, seed)
    y = net.forward(x)
    worst = target.rows.margins(x, y, clause).amax(-1)
    for i, k in enumerate(clause.tolist()):
        rows = target.prop.clauses[k].rows
        g = rows.A @ y[i].numpy() - rows.c + (0 if rows.B is None else rows.B @ x[i].numpy())
        assert worst[i].item() == pytest.approx(g.max() if len(g) else 0.0, abs=1e-5)
    together = target.rows.margins(x[:, None].expand(-1, 3, -1), y[:, None].expand(-1, 3, -1), clause)
    torch.testing.assert_close(together[:, 2].amax(-1), worst)


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=15, deadline=None)
def test_the_slope_equals_finite_differences(family: str, seed: int) -> None:
    net = networks.FAMILIES[family](seed)
    target = doubled(several(net, seed), net)
    x, clause = drawn(target, 5, seed)
    _, gradient = target.slope(x, clause)
    h = 1e-6
    for axis in range(net.n_in):
        step = torch.zeros_like(x)
        step[:, axis] = h
        difference = (violated(target, x + step, clause) - violated(target, x - step, clause)) / (2 * h)
        # A kink within h of a point would spoil the quotient; none of so few random points is that close.
        torch.testing.assert_close(gradient[:, axis], difference, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_a_batch_equals_its_members(family: str) -> None:
    target = several(networks.FAMILIES[family](3), 3)
    x, clause = drawn(target, 9, 0)
    worst, gradient = target.slope(x, clause)
    for i in range(len(x)):
        alone = target.slope(x[i : i + 1], clause[i : i + 1])
        torch.testing.assert_close(worst[i], alone[0][0], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(gradient[i], alone[1][0], rtol=1e-5, atol=1e-5)


def test_padding_pulls_on_no_row() -> None:
    """A clause with one row beside one with three: its gradient must not count the row three times."""
    net = instances.identity(1)
    box = instances.boxes([[0]], [[1]])
    one = [instances.row({0: -1}, -2)]
    three = [instances.row({0: -1}, -2)] * 3
    target = instances.target(instances.problem(net, box, [(0, one), (0, three)]))
    _, gradient = target.slope(torch.tensor([[0.5], [0.5]]), torch.tensor([0, 1]))
    assert gradient.flatten().tolist() == [-1.0, -3.0]


def test_once_all_rows_hold_the_worst_one_leads() -> None:
    net = instances.identity(2)
    rows = [instances.row({0: 1}, 1), instances.row({1: 1}, 1)]
    target = instances.target(instances.problem(net, instances.boxes([[0, 0]], [[1, 1]]), [(0, rows)]))
    worst, gradient = target.slope(torch.tensor([[0.25, 0.5]]), torch.tensor([0]))
    assert worst.item() == -0.5
    assert gradient.tolist() == [[0.0, 1.0]]


def test_memory_is_bounded() -> None:
    target = several(networks.conv(0), 0)
    floats = (
        target.network.relus + target.network.n_in + max(CLAUSE_ROWS) * (target.network.n_in + target.network.n_out)
    )
    assert 1 <= target.points_in_memory <= MEMORY // (4 * floats)


def test_only_the_most_promising_points_are_replayed() -> None:
    """No point is a witness for the model, which is shifted; it must be asked about few of them, once."""
    box = instances.boxes([[0]], [[1]])
    target = instances.target(instances.problem(instances.identity(1), box, [(0, [instances.row({0: 1}, "0.5")])]), 2.0)
    x = torch.linspace(0, 1, 101)[:, None]
    worst = x[:, 0] - 0.5
    assert target.replay(x, worst, torch.zeros(101, dtype=torch.long)) is None
    assert target.model.asked == REPLAYS  # type: ignore[attr-defined]
    assert target.replay(x[60:], worst[60:], torch.zeros(41, dtype=torch.long)) is None
    assert target.model.asked == REPLAYS  # type: ignore[attr-defined]


def test_points_that_are_no_numbers_are_not_replayed() -> None:
    box = instances.boxes([[0]], [[1]])
    target = instances.target(instances.problem(instances.identity(1), box, [(0, [instances.row({0: 1}, "0.5")])]))
    nan = torch.full((2, 1), torch.nan)
    assert target.replay(nan, nan[:, 0], torch.zeros(2, dtype=torch.long)) is None


def test_the_work_of_a_pass_counts_multiplications() -> None:
    target = several(networks.dense(0, (30, 40, 50, 2)), 0)
    exact = 30 * 40 + 40 * 50 + 50 * 2
    assert exact <= target.network.work <= 1.3 * exact
