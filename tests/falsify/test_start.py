"""Where the search begins."""

from __future__ import annotations

import networks
import torch
from falsify import instances
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.clock import Clock
from verifier.falsify.start import SOBOL_AXES, corner, middle, rank, sample, scatter, starts


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@given(
    axes=st.sampled_from([1, 2, 5, SOBOL_AXES + 3]),
    count=st.integers(1, 40),
    seed=st.integers(0, 999),
    scale=st.sampled_from([1e-30, 1.0, 3e38]),
)
@settings(max_examples=60, deadline=None)
def test_samples_lie_in_their_boxes(axes: int, count: int, seed: int, scale: float) -> None:
    ends = scale * (2 * torch.rand(2, 3, axes, generator=generator(seed)) - 1)
    lower, upper = ends.amin(0), ends.amax(0)
    upper[:, 0] = lower[:, 0]  # an input that cannot move
    x = scatter(lower, upper, count, generator(seed))
    assert x.shape == (3, count, axes)
    assert bool(((lower[:, None] <= x) & (x <= upper[:, None])).all())
    torch.testing.assert_close(x[:, 0], middle(lower, upper))
    corners = (count - 1) // 4
    last = x[:, count - corners :]
    assert bool(((last == lower[:, None]) | (last == upper[:, None])).all())


def test_few_axes_are_covered_evenly() -> None:
    """Of 64 inner points on a line every sixteenth holds at least two; independent points leave gaps."""
    x = scatter(torch.zeros(1, 1), torch.ones(1, 1), 86, generator())[0, 1:65, 0]
    assert torch.histc(x, 16, 0.0, 1.0).min() >= 2


def test_clauses_are_ranked_by_their_margin_at_the_centre() -> None:
    box = instances.boxes([[0, 0], [0, 2]], [[1, 1], [1, 3]])
    clauses = [(0, [instances.row({0: 1}, -5)]), (1, [instances.row({1: -1}, -3)]), (0, [instances.row({0: 1}, -2)])]
    target = instances.target(instances.problem(instances.identity(2), box, clauses))
    assert rank(target, Clock.begin()).tolist() == [1, 2, 0]  # margins 0.5, 2.5, 5.5


@given(seed=st.integers(0, 2**16))
@settings(max_examples=20, deadline=None)
def test_the_corner_is_the_minimiser_of_an_affine_clause(seed: int) -> None:
    net = instances.identity(3)
    weights = torch.randint(-2, 3, (3,), generator=generator(seed)).tolist()
    row = instances.row(dict(enumerate(weights)), -100)
    target = instances.target(instances.problem(net, instances.boxes([[-1, 0, 1]], [[1, 0, 4]]), [(0, [row])]))
    x = corner(target, torch.tensor([0]))[0]
    lower, upper = [-1.0, 0.0, 1.0], [1.0, 0.0, 4.0]
    best = [lo if w > 0 else hi if w < 0 else (lo + hi) / 2 for w, lo, hi in zip(weights, lower, upper, strict=True)]
    assert x.tolist() == best


def test_clauses_of_one_box_share_its_samples_and_keep_their_own_margins() -> None:
    net = networks.dense(1)
    lower, upper = networks.box(net, 1, count=2)
    box = instances.boxes(lower.tolist(), upper.tolist())
    clauses = [(b, [instances.row({j: 1}, 0), instances.row({j: -1}, j)]) for b in (1, 0) for j in (0, 1)]
    target = instances.target(instances.problem(net, box, clauses))
    order = torch.tensor([2, 0, 3, 1])
    x, worst = sample(target, order, 8, generator())
    torch.testing.assert_close(x[0], x[2])
    torch.testing.assert_close(x[1], x[3])
    for i, k in enumerate(order.tolist()):
        y = target.network.forward(x[i])
        alone = target.rows.margins(x[i], y, torch.full((8,), k)).amax(-1)
        torch.testing.assert_close(worst[i], alone)


def test_descents_begin_at_the_corner_and_at_the_best_samples() -> None:
    net = networks.dense(2)
    lower, upper = networks.box(net, 2)
    row = instances.row({0: 1}, -100)
    box = instances.boxes(lower.tolist(), upper.tolist())
    target = instances.target(instances.problem(net, box, [(0, [row])]))
    clause = torch.tensor([0])
    witness, x = starts(target, clause, 20, 5, generator(7))
    assert witness is None
    assert x.shape == (1, 5, 3)
    torch.testing.assert_close(x[:, 0], corner(target, clause))
    points, worst = sample(target, clause, 20, generator(7))
    torch.testing.assert_close(x[0, 1:3], points[0, worst[0].argsort()[:2]])
    assert len(x[0, 1:].unique(dim=0)) == 4


def test_a_witness_among_the_samples_is_found() -> None:
    box = instances.boxes([[0]], [[1]])
    target = instances.target(instances.problem(instances.identity(1), box, [(0, [instances.row({0: 1}, "0.5")])]))
    witness, _ = starts(target, torch.tensor([0]), 8, 1, generator())
    assert witness is not None
