"""Interval and linear bounds: validity, exact cases, rounding, batches, deadlines."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import networks
import pytest
import torch
from bounding.cases import random_rows, root, value
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.core.sweep import Kinks
from verifier.bounding.hidden import RootBounds
from verifier.bounding.relaxation.interval import Interval, interval_image
from verifier.bounding.solvers.crown import Linear, Slope
from verifier.clock import Clock
from verifier.functions import RELU
from verifier.network.network import Affine, Network
from verifier.operators import Dense

BOUNDERS = {"interval": Interval(), "crown": Linear(), "wong_kolter": Linear(Slope.PARALLEL)}


def output_rows(net: Network, seed: int, count: int = 3) -> Objective:
    return random_rows(net, seed, count)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("bounder", BOUNDERS)
@pytest.mark.parametrize("method", ["interval", "best", "paper"])
@given(seed=st.integers(0, 2**16), radius=st.sampled_from([0.01, 0.3, 2.0]))
@settings(max_examples=8)
def test_no_point_lies_below_the_bound(family: str, bounder: str, method: str, seed: int, radius: float) -> None:
    net = networks.FAMILIES[family](seed)
    lower, upper = networks.box(net, seed, radius, count=2)
    region = root(net, lower, upper, method)
    x = networks.points(lower, upper, 200, seed)
    for low, high, x_hat in zip(region.l_hat, region.u_hat, net.preactivations(x), strict=False):
        assert bool((x_hat >= low).all())
        assert bool((x_hat <= high).all())
    objective = output_rows(net, seed)
    bound = BOUNDERS[bounder].bound(net, region, objective, Until())
    assert bool((value(net, objective, x) >= bound.lower).all())


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("slope", Slope)
def test_linear_bound_is_exact_without_ambiguous_neurons(family: str, slope: Slope) -> None:
    """On a tiny box the network is affine, so the minimiser that the bound names attains it."""
    net = networks.FAMILIES[family](7)
    lower, upper = networks.box(net, 3, radius=1e-3)
    region = root(net, lower, upper)
    assert not any(bool(region.ambiguous(k).any()) for k in range(1, region.known + 1))
    objective = output_rows(net, 5)
    bound = Linear(slope).bound(net, region, objective, Until())
    assert bound.x0 is not None
    attained = value(net, objective, bound.x0.transpose(0, 1))  # [S, D, S]
    torch.testing.assert_close(attained.diagonal(dim1=0, dim2=2), bound.lower, rtol=0, atol=1e-12)


def test_one_layer_is_exact_for_every_bounder() -> None:
    generator = torch.Generator().manual_seed(0)
    net = Network((3,), (), networks.affine("out", {0: networks.matrix(2, 3, generator)}, generator))
    lower, upper = networks.box(net, 0)
    term = net.output.terms[0][1]
    assert isinstance(term, Dense)
    exact = net.output.bias + torch.minimum(term.weight * lower, term.weight * upper).sum(-1)
    rows = Objective(1, torch.eye(2, dtype=torch.float64).unsqueeze(0))
    for bounder in BOUNDERS.values():
        found = bounder.bound(net, Region(lower, upper), rows, Until()).lower
        torch.testing.assert_close(found, exact.unsqueeze(0), rtol=0, atol=1e-13)


def test_values_of_the_papers_example() -> None:
    net, lower, upper = networks.paper_example()
    interval = root(net, lower, upper, "interval")
    torch.testing.assert_close(interval.l_hat[0], torch.tensor([[-3.0, -1.0]]).double())
    torch.testing.assert_close(interval.u_hat[0], torch.tensor([[1.0, 3.0]]).double())
    torch.testing.assert_close(interval.l_hat[1], torch.tensor([[-3.0, -2.0]]).double())
    torch.testing.assert_close(interval.u_hat[1], torch.tensor([[4.0, 3.0]]).double())
    row = Objective(3, torch.ones(1, 1, 1, dtype=torch.float64))
    assert Interval().bound(net, interval, row, Until()).lower.item() == pytest.approx(-3.0)
    # By hand: neuron 1 gets x >= x_hat, neuron 2 x <= 3/5 (x_hat + 2); what is left of group 1 is
    # -4/5 x[0] + 17/5 x[1] - 26/5, whose faces are x[0] <= (x_hat + 3) / 4 and x[1] >= x_hat.
    crown = Linear().bound(net, interval, row, Until()).lower.item()
    by_hand = (
        -Fraction(4, 5) / 4 * (-1 + 3) + Fraction(17, 5) * 1 - Fraction(26, 5) - 2 * (Fraction(17, 5) - Fraction(1, 5))
    )
    assert crown == pytest.approx(float(by_hand))
    assert crown <= -9 / 5 + 1e-12  # no better than the LP over the same bounds


def test_a_better_relaxation_of_the_intermediate_bounds_is_never_looser() -> None:
    net = networks.dense(3, (4, 12, 12, 12, 2))
    lower, upper = networks.box(net, 3, 0.4)
    interval, best = root(net, lower, upper, "interval"), root(net, lower, upper, "best")
    for k in range(len(net.groups)):
        assert bool((best.l_hat[k] >= interval.l_hat[k] - 1e-12).all())
        assert bool((best.u_hat[k] <= interval.u_hat[k] + 1e-12).all())
    width = [(r.u_hat[-1] - r.l_hat[-1]).sum() for r in (interval, best)]
    assert width[1] < 0.8 * width[0]


@pytest.mark.parametrize(("some", "all_of_them"), [("best", "best_all"), ("wong_kolter", "paper")])
def test_passing_neurons_have_their_sweep_where_it_is_asked_for(some: str, all_of_them: str) -> None:
    net = networks.dense(3, (4, 12, 12, 12, 2))
    lower, upper = networks.box(net, 3, 0.3)
    few, many = root(net, lower, upper, some), root(net, lower, upper, all_of_them)
    gained = 0
    x = networks.points(lower, upper, 300, 3)
    for k, group in enumerate(net.groups):
        passing = few.l_hat[k] >= 0
        wider = (few.u_hat[k] - few.l_hat[k]) > (many.u_hat[k] - many.l_hat[k]) + 1e-6
        gained += int((passing & wider).sum())
        blocking = many.u_hat[k] <= 0  # perhaps by its interval image, and then not looked at
        assert bool(((many.l_hat[k] >= few.l_hat[k] - 1e-12) | blocking).all())
        assert bool(((many.u_hat[k] <= few.u_hat[k] + 1e-12) | blocking).all())
        x = group.forward([None] * k + [x])
        assert bool(((x >= many.l_hat[k]) & (x <= many.u_hat[k])).all())
        x = x.clamp(min=0)
    assert gained > 0


def test_too_many_passing_neurons_keep_their_interval_image() -> None:
    net = networks.dense(3, (4, 12, 12, 12, 2))
    box = networks.box(net, 3, 0.3)
    found = RootBounds(passing_bytes=100).region(net, *box, Until())
    for k, group in enumerate(net.groups):
        low, high = interval_image(group, found)
        passing = low >= 0
        assert bool(passing.any())
        assert torch.equal(found.l_hat[k][passing], low[passing])
        assert torch.equal(found.u_hat[k][passing], high[passing])


@pytest.mark.parametrize("bounder", BOUNDERS)
def test_a_batch_equals_its_members_and_chunks_equal_the_whole(bounder: str) -> None:
    net = networks.residual(2)
    lower, upper = networks.box(net, 2, 0.5, count=3)
    objective = output_rows(net, 1, count=5)
    whole = BOUNDERS[bounder].bound(net, root(net, lower, upper), objective, Until()).lower
    for d in range(3):
        alone = root(net, lower[d : d + 1], upper[d : d + 1])
        tight = replace(BOUNDERS[bounder], memory_bytes=1)  # one objective at a time
        found = tight.bound(net, alone, objective, Until()).lower
        # A member alone sharpens fewer neurons than the union over the batch, hence "no looser" and a tolerance.
        assert bool((whole[d] >= found[0] - 1e-9).all())
        torch.testing.assert_close(found[0], whole[d], rtol=0, atol=0.2)


@given(seed=st.integers(0, 2**16))
@settings(max_examples=25)
def test_rounding_is_covered_when_terms_cancel(seed: int) -> None:
    """Large weights whose contributions cancel: the bound stays below the minimum in rational arithmetic."""
    generator = torch.Generator().manual_seed(seed)
    first = torch.randn(40, 6, generator=generator, dtype=torch.float64) * 1e7
    last = torch.randn(1, 40, generator=generator, dtype=torch.float64) * 1e7
    shift = 1e10 * torch.ones(40, dtype=torch.float64)  # all neurons pass
    net = Network(
        (6,),
        (Affine("first", (40,), ((0, Dense(first)),), shift, torch.zeros_like(shift)),),
        Affine("out", (1,), ((1, Dense(last)),), -(last @ shift), (1e-10 * (last @ shift)).abs()),
    )
    lower, upper = networks.box(net, seed, 0.5)
    region = root(net, lower, upper)
    assert bool((region.l_hat[0] >= 0).all())
    row = Objective(2, torch.ones(1, 1, 1, dtype=torch.float64))
    exact = _exact_minimum(first, shift, last, net.output.bias, (lower[0], upper[0]))
    for bounder in BOUNDERS.values():
        assert Fraction(bounder.bound(net, region, row, Until()).lower.item()) <= exact


def _exact_minimum(
    first: torch.Tensor,
    shift: torch.Tensor,
    last: torch.Tensor,
    bias: torch.Tensor,
    box: tuple[torch.Tensor, torch.Tensor],
) -> Fraction:
    """min of last (first x + shift) + bias over a box, in rationals (no ReLU is active)."""
    weights = [Fraction(v) for v in last[0].tolist()]
    rows = [[Fraction(v) for v in row] for row in first.tolist()]
    total = Fraction(bias.item()) + sum(w * Fraction(s) for w, s in zip(weights, shift.tolist(), strict=True))
    for j, (low, high) in enumerate(zip(box[0].tolist(), box[1].tolist(), strict=True)):
        slope = sum(w * row[j] for w, row in zip(weights, rows, strict=True))
        total += min(slope * Fraction(low), slope * Fraction(high))
    return total


@given(
    low=st.floats(-1e6, -1e-12, allow_nan=False),
    high=st.floats(1e-12, 1e6, allow_nan=False),
    t=st.floats(0, 1),
)
def test_faces_are_valid_in_exact_arithmetic(low: float, high: float, t: float) -> None:
    l_hat, u_hat = torch.tensor([[[low]], [[high]]], dtype=torch.float64)
    kinks = Kinks.of(Region(l_hat, u_hat, (l_hat,), (u_hat,), (RELU,)), 1)
    for slope in Slope:
        a, p = Fraction(slope.choice(kinks).slope.item()), Fraction(kinks.upper.item())
        assert 0 <= a <= 1
        for x_hat in (
            Fraction(low),
            Fraction(high),
            Fraction(low) + Fraction(t) * (Fraction(high) - Fraction(low)),
        ):
            x = max(x_hat, Fraction(0))
            assert a * x_hat <= x
            assert x <= p * (x_hat - Fraction(low))


def test_only_neurons_that_differ_carry_a_choice() -> None:
    """Two regions: stable in both, stable in different ways, ambiguous in one, split in one."""
    low = torch.tensor([[0.5, -2.0, 1.0, -1.0, 0.0], [0.1, -3.0, -2.0, 0.5, 0.0]], dtype=torch.float64)
    high = torch.tensor([[1.0, -1.0, 2.0, 1.0, 4.0], [0.2, 0.0, -1.0, 1.0, 3.0]], dtype=torch.float64)
    splits = torch.tensor([[0, 0, 0, 0, 1], [0, 0, 0, 0, 0]], dtype=torch.int8)
    kinks = Kinks.of(Region(low, high, (low,), (high,), (RELU,), splits=(splits,)), 1)
    assert kinks.index.tolist() == [2, 3, 4]
    assert kinks.passing.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
    assert kinks.ambiguous[:, 0].tolist() == [[False, True, False], [False, False, False]]
    assert kinks.sign is not None
    assert kinks.sign[:, 0].tolist() == [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    assert kinks.adaptive()[:, 0].tolist() == [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]]
    assert kinks.intercept[:, 0].tolist() == [[0.0, pytest.approx(0.5), 0.0], [0.0, 0.0, 0.0]]


def test_a_passed_deadline_leaves_valid_interval_bounds() -> None:
    net = networks.dense(1, (4, 10, 10, 2))
    lower, upper = networks.box(net, 1)
    late = RootBounds().region(net, lower, upper, Until(Clock.begin(0.0)))
    interval = root(net, lower, upper, "interval")
    for k in range(len(net.groups)):
        torch.testing.assert_close(late.l_hat[k], interval.l_hat[k])
    assert bool((root(net, lower, upper, "best").l_hat[-1] > late.l_hat[-1] + 1e-3).any())  # with time it is tighter


def test_nan_never_proves_anything() -> None:
    """An overflow inside of a sweep must not look like a positive bound."""
    net = networks.dense(0)
    huge = torch.full((1, 3), 1e308, dtype=torch.float64)
    region = root(net, -huge, huge)
    objective = output_rows(net, 0)
    for bounder in BOUNDERS.values():
        assert not bool((bounder.bound(net, region, objective, Until()).lower > 0).any())


def test_a_neuron_with_unknown_bounds_is_not_taken_for_a_dead_one() -> None:
    net = networks.dense(0, (3, 6, 2))
    lower, upper = networks.box(net, 0, 0.1)
    region = root(net, lower, upper)
    broken = [side.clone() for side in (region.l_hat[0], region.u_hat[0])]
    for side in broken:
        side[0, 2] = torch.nan
    objective = Objective(2, torch.ones(1, 1, 2, dtype=torch.float64), constant=torch.full((1, 1), 1e3).double())
    spoiled = replace(region, l_hat=(broken[0],), u_hat=(broken[1],))
    for bounder in BOUNDERS.values():
        assert bool((bounder.bound(net, region, objective, Until()).lower > 0).all())
        assert not bool((bounder.bound(net, spoiled, objective, Until()).lower > 0).any())
