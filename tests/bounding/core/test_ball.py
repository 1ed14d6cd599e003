"""Least values over the part of a box in a ball: exact laws, an oracle, samples, rounding in rational arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import ball_oracle
import networks
import numpy as np
import pytest
import torch
from ball_oracle import BallCase

from verifier.bounding.core.ball import InputBall
from verifier.bounding.core.base import Objective, Region, Until, minimise_over_input
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.hidden import RootBounds
from verifier.bounding.solvers.crown import Linear
from verifier.network.network import Network
from verifier.property.ball import Ball

NORMS = (1, 2)


def random_case(seed: int, p: int, n: int = 5, away: float = 0.0) -> BallCase:
    """A weighted ball and a box that cuts off parts of it; `away` moves the box off the centre."""
    rng = np.random.default_rng(seed)
    centre, weight, radius = rng.normal(size=n), rng.uniform(0.3, 3.0, size=n), float(rng.uniform(0.1, 2.0))
    reach = radius / weight
    low = centre - rng.uniform(0.0, 1.0, size=n) * reach
    high = centre + rng.uniform(0.0, 1.0, size=n) * reach
    shift = away * reach * rng.choice([-0.3, 0.0, 0.3], size=n)
    return BallCase(p, centre, weight, radius, low + shift, high + shift)


def ball_of(case: BallCase) -> InputBall:
    exact = Ball(case.p, *(tuple(map(Fraction, v.tolist())) for v in (case.centre, case.weight)), Fraction(case.radius))
    found = InputBall.of(exact, torch.zeros(1, dtype=torch.float64))
    assert found is not None
    return found


def rows(*values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.stack(values))


def nothing(n: int) -> tuple[np.ndarray, np.ndarray]:
    return np.zeros((0, n)), np.zeros(0)


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("away", [0.0, 1.0])
@pytest.mark.parametrize("seed", range(20))
def test_least_values_are_those_of_the_oracle(p: int, away: float, seed: int) -> None:
    case = random_case(seed, p, away=away)
    low, high = rows(case.low), rows(case.high)
    nearest = np.clip(case.centre, case.low, case.high)
    if np.linalg.norm(case.weight * (nearest - case.centre), p) > 0.95 * case.radius:
        pytest.skip("the box hardly meets the ball")
    a = np.random.default_rng(seed + 1).normal(size=(4, 5))
    a[3] = 0.0
    found = ball_of(case).least(torch.from_numpy(a)[None], low, high)
    for s in range(4):
        exact = ball_oracle.least(a[s], case, nothing(5))
        assert float(found.value[0, s]) == pytest.approx(exact, abs=2e-6)
        assert float((torch.from_numpy(a[s]) * found.x[0, s]).sum()) == pytest.approx(exact, abs=2e-6)
        assert case.holds(case.centre + (found.x[0, s].numpy() - case.centre) * (1 - 1e-6)).all() or away


@pytest.mark.parametrize("p", NORMS)
def test_without_a_box_it_is_the_dual_norm(p: int) -> None:
    """min c . x = c . x0 - eps ||c / w||, with the maximum norm for l1."""
    rng = np.random.default_rng(p)
    for _ in range(50):
        n = int(rng.integers(1, 40))
        centre, weight, radius = rng.normal(size=n), rng.uniform(0.2, 5.0, size=n), float(rng.uniform(0.01, 3.0))
        case = BallCase(p, centre, weight, radius, centre - radius / weight, centre + radius / weight)
        a = rng.normal(size=n) * 10.0 ** rng.integers(-3, 4)
        found = ball_of(case).least(torch.from_numpy(a).view(1, 1, -1), rows(case.low), rows(case.high))
        dual = np.linalg.norm(a / weight, np.inf if p == 1 else 2)
        assert float(found.value) == pytest.approx(a @ centre - radius * dual, rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("build", [networks.dense, networks.conv, networks.residual])
def test_bounds_of_networks_hold_for_samples(p: int, build: Callable[[int], Network]) -> None:
    net = build(3)
    rng = np.random.default_rng(p)
    for seed in range(3):
        case = random_case(seed, p, net.n_in)
        region = RootBounds().completed(net, Region(rows(case.low), rows(case.high), ball=ball_of(case)), Until())
        x = torch.from_numpy(case.sample(rng, 4000))
        for low, high, x_hat in zip(region.l_hat, region.u_hat, net.preactivations(x), strict=False):
            assert (x_hat >= low - 1e-12).all()
            assert (x_hat <= high + 1e-12).all()
        coefficients = torch.from_numpy(rng.normal(size=(1, 3, net.n_out)))
        bound = Linear().bound(net, region, Objective(len(net.layers), coefficients), Until()).lower
        assert (net.forward(x) @ coefficients[0].T >= bound - 1e-12).all()


@pytest.mark.parametrize("p", NORMS)
def test_bounds_of_affine_networks_are_exact(p: int) -> None:
    """Also of the first layer's neurons, which intervals of the box alone leave much too wide."""
    net = networks.dense(5, (6, 4, 2))
    case = random_case(2, p, 6)
    case = BallCase(p, case.centre, case.weight, case.radius, case.centre - 99, case.centre + 99)
    region = RootBounds().completed(net, Region(rows(case.low), rows(case.high), ball=ball_of(case)), Until())
    weight = net.groups[0].forward([torch.eye(6, dtype=torch.float64)]) - net.groups[0].bias
    for i in range(4):
        row = weight[:, i].numpy()
        middle = float(row @ case.centre + net.groups[0].bias[i].numpy())
        reach = case.radius * float(np.linalg.norm(row / case.weight, np.inf if p == 1 else 2))
        assert float(region.l_hat[0][0, i]) == pytest.approx(middle - reach, rel=1e-8)
        assert float(region.u_hat[0][0, i]) == pytest.approx(middle + reach, rel=1e-8)


@pytest.mark.parametrize("p", NORMS)
@pytest.mark.parametrize("scale", [1e-150, 1e-9, 1.0, 1e9])
def test_rounding_is_priced(p: int, scale: float) -> None:
    """The rigorous bound is at most the exact value at points that are exactly inside, in rational arithmetic."""
    net = networks.dense(1, (4, 1))
    rng = np.random.default_rng(p)
    weight = net.output.forward([torch.eye(4, dtype=torch.float64)]) - net.output.bias
    for seed in range(20):
        case = random_case(seed, p, 4)
        case = BallCase(p, case.centre, case.weight, case.radius * scale, case.low, case.high)
        exact = Ball(p, *(tuple(map(Fraction, v.tolist())) for v in (case.centre, case.weight)), Fraction(case.radius))
        region = Region(rows(case.low), rows(case.high), ball=ball_of(case))
        objective = Objective(1, torch.tensor([[[1.0]]], dtype=torch.float64))
        lower = Fraction(float(Sweep.prepare(net, region, 1).backward(objective, []).lower))
        best = minimise_over_input(region, weight.T[None]).x[0, 0].numpy()
        ends = case.low, case.high
        for x in (best, *case.sample(rng, 20)):
            inside = exact.inside(np.clip(x, *ends), ends)
            if exact.holds([Fraction(v) for v in inside.tolist()]):
                parts = (Fraction(w) * Fraction(v) for w, v in zip(weight[:, 0].tolist(), inside.tolist(), strict=True))
                assert lower <= sum(parts, Fraction(float(net.output.bias)))


@pytest.mark.parametrize("p", NORMS)
def test_contracted_boxes_keep_all_points_and_touch_the_ball(p: int) -> None:
    rng = np.random.default_rng(p)
    for seed in range(30):
        case = random_case(seed, p, 3, away=1.0)
        low, high, some = ball_of(case).contracted(rows(case.low), rows(case.high))
        x = torch.from_numpy(case.sample(rng, 3000))
        assert bool(some) or not len(x)
        assert ((x >= low) & (x <= high)).all()
        if not bool(some):
            continue
        for i in range(3):
            unit = np.eye(3)[i]
            least, most = (ball_oracle.least(side * unit, case, nothing(3)) for side in (1.0, -1.0))
            if np.isfinite(least):
                assert float(low[0, i]) == pytest.approx(least, abs=1e-5)
                assert float(high[0, i]) == pytest.approx(-most, abs=1e-5)


def test_boxes_that_the_ball_misses_are_empty() -> None:
    case = BallCase(2, np.zeros(2), np.ones(2), 1.0, np.array([0.8, 0.8]), np.array([2.0, 2.0]))
    low, high, some = ball_of(case).contracted(rows(case.low), rows(case.high))
    assert not bool(some)
    assert low.tolist() == [[0.8, 0.8]]
    assert high.tolist() == [[2.0, 2.0]]
    touching = BallCase(2, np.zeros(2), np.ones(2), 1.0, np.array([0.6, 0.8]), np.array([2.0, 2.0]))
    assert bool(ball_of(touching).contracted(rows(touching.low), rows(touching.high))[2])


@pytest.mark.parametrize("p", NORMS)
def test_points_are_pulled_to_the_ball(p: int) -> None:
    case = random_case(4, p, 6)
    ball = ball_of(case)
    x = torch.from_numpy(case.centre + 3 * np.random.default_rng(0).normal(size=(50, 6)))
    pulled = ball.pulled(x)
    length = np.linalg.norm(case.weight * (pulled.numpy() - case.centre), p, axis=1)
    assert (length <= case.radius * (1 + 1e-12)).all()
    assert torch.equal(ball.pulled(pulled * 0.5 + ball.centre * 0.5), pulled * 0.5 + ball.centre * 0.5)


@pytest.mark.parametrize("p", NORMS)
def test_some_of_the_inputs(p: int) -> None:
    """The shadow of a ball on some inputs is what functions of these inputs see."""
    case = random_case(1, p, 5)
    ball, kept = ball_of(case), torch.tensor([1, 3])
    a = torch.zeros(1, 1, 5, dtype=torch.float64)
    a[..., kept] = torch.tensor([1.0, -2.0], dtype=torch.float64)
    low, high = rows(case.low), rows(case.high)
    whole = ball.least(a, low, high).value
    assert ball.on(kept).least(a[..., kept], low[:, kept], high[:, kept]).value.item() == pytest.approx(whole.item())
