"""Verdicts about balls against an exact oracle: all patterns of small networks, and a convex program for each."""

from __future__ import annotations

import itertools
from fractions import Fraction

import ball_oracle
import numpy as np
import pytest
import torch
from ball_oracle import BallCase, Layer
from torch import nn

import verifier
from verifier.config import load_config
from verifier.property.ball import Ball

NEAR = 1e-4
"""How far from the exact minimum thresholds are; the oracle is exact to 1e-7 or so."""


def module_of(layers: list[Layer]) -> nn.Module:
    parts: list[nn.Module] = []
    for weight, bias in layers:
        linear = nn.Linear(*reversed(weight.shape)).double()
        linear.weight.data, linear.bias.data = torch.from_numpy(weight.copy()), torch.from_numpy(bias.copy())
        parts += [linear, nn.ReLU()]
    return nn.Sequential(*parts[:-1])


def instance(seed: int) -> tuple[list[Layer], BallCase]:
    """One to four inputs, up to eight ReLUs; half of the balls are weighted, half are cut off by a box."""
    rng = np.random.default_rng(seed)
    n, width, depth, p = (int(rng.integers(low, high)) for low, high in ((1, 5), (2, 5), (1, 3), (1, 3)))
    sizes = [n, *[width] * depth, 1]
    layers = [
        (1.5 * rng.normal(size=(m, k)) / np.sqrt(k), 0.5 * rng.normal(size=m)) for k, m in itertools.pairwise(sizes)
    ]
    centre, radius = rng.normal(size=n), float(rng.uniform(0.05, 2.0))
    weight = rng.uniform(0.3, 3.0, size=n) if rng.random() < 0.5 else np.ones(n)
    share = rng.uniform(0.0, 1.0, size=(2, n)) if rng.random() < 0.5 else np.ones((2, n))
    low, high = centre - share[0] * radius / weight, centre + share[1] * radius / weight
    return layers, BallCase(p, centre, weight, radius, low, high)


def decided(seed: int, splitting: str) -> None:
    """No wrong verdict, and none missing, on either side of the exact minimum; without an attack but for `auto`."""
    layers, case = instance(seed)
    exact = ball_oracle.minimum(layers, case, np.ones(1))
    overrides = [] if splitting == "auto" else [f"search.splitting={splitting}", "falsify.enabled=false"]
    for offset, expected in ((-NEAR, "unsat"), (NEAR, "sat")):
        result = verifier.verify(
            module_of(layers),
            lower=case.low,
            upper=case.high,
            around=verifier.Around(case.centre, case.radius, case.p, case.weight),
            unsafe=[([[1.0]], [exact + offset])],
            config=load_config("auto", overrides),
            threads=1,
        )
        assert result.verdict.value == expected, (seed, splitting, offset, result.message)
        if result.counterexample is not None:
            exactly = [tuple(map(Fraction, values.tolist())) for values in (case.centre, case.weight)]
            ball = Ball(case.p, *exactly, Fraction(case.radius))
            assert ball.holds([Fraction(v) for v in result.counterexample.x.tolist()])


@pytest.mark.parametrize("splitting", ["auto", "relus", "inputs"])
@pytest.mark.parametrize("seed", range(8))
def test_verdicts_on_either_side_of_the_exact_minimum(seed: int, splitting: str) -> None:
    decided(seed, splitting)


@pytest.mark.slow
@pytest.mark.parametrize("splitting", ["auto", "relus", "inputs"])
@pytest.mark.parametrize("part", range(4))
def test_two_hundred_more(part: int, splitting: str) -> None:
    for seed in range(100 + 50 * part, 150 + 50 * part):
        decided(seed, splitting)


def test_affine_networks_obey_the_law_of_the_dual_norm() -> None:
    """c . x > c . x0 - eps ||c||_dual - d holds for d > 0, and not for d < 0."""
    for seed, norm in itertools.product(range(5), (1, 2)):
        rng = np.random.default_rng(seed)
        c, x0, eps = rng.normal(size=7), rng.normal(size=7), float(rng.uniform(0.1, 2))
        least = c @ x0 - eps * np.linalg.norm(c, np.inf if norm == 1 else 2)
        module = module_of([(c[None], np.zeros(1))])
        for offset, expected in ((-1e-9, "unsat"), (1e-6, "sat")):
            around = verifier.Around(x0, eps, norm)
            result = verifier.verify(module, around=around, unsafe=[([[1.0]], [least + offset])], threads=1)
            assert result.verdict.value == expected


def test_robustness_shrinks_with_the_norm() -> None:
    """The balls of a radius contain each other: l1 in l2 in l-infinity; so do the verdicts."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3))
    x = torch.randn(6)
    verdicts = {
        (norm, eps): verifier.robust(module, x, eps, norm=norm, threads=1).verdict.value
        for norm in ("inf", 2, 1)
        for eps in (0.02, 0.1, 0.2, 0.4, 0.8)
    }
    assert set(verdicts.values()) == {"sat", "unsat"}
    for eps in (0.02, 0.1, 0.2, 0.4, 0.8):
        held = [verdicts[norm, eps] == "unsat" for norm in ("inf", 2, 1)]
        assert held == sorted(held)
    assert any(verdicts["inf", eps] != verdicts[1, eps] for eps in (0.02, 0.1, 0.2, 0.4, 0.8))


def test_bounds_of_layers_over_a_ball() -> None:
    """Those of the first layer are exact: middle plus and minus eps ||row||."""
    linear = nn.Linear(5, 4).double()
    module = nn.Sequential(linear, nn.ReLU(), nn.Linear(4, 2).double())
    x = torch.randn(5, dtype=torch.float64)
    (low, high), _ = verifier.bounds(module, around=verifier.Around(x, 0.5, 2))
    reach = 0.5 * linear.weight.norm(dim=1)
    assert torch.allclose(low[0], linear(x) - reach)
    assert torch.allclose(high[0], linear(x) + reach)
