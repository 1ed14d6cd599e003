"""The dual of the decomposition: valid at every point, its supergradient, its optimum, its rounding."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import networks
import pytest
import torch
from bounding.cases import random_rows, root, value
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.core.sweep import Choice, Sweep
from verifier.bounding.lp.bounder import PlanetLP
from verifier.bounding.solvers.crown import Linear, Slope
from verifier.bounding.solvers.decomposition import Decomposition, PairVariables
from verifier.bounding.solvers.solver import Task
from verifier.network.network import Network
from verifier.operators import Dense

SEEDS = st.integers(0, 2**16)


def instance(family: str, seed: int, method: str = "interval", boxes: int = 1) -> tuple[Network, Region, Objective]:
    net = networks.FAMILIES[family](seed)
    return net, root(net, *networks.box(net, seed, 0.6, boxes), method), random_rows(net, seed, 2)


def task_of(net: Network, region: Region, objective: Objective) -> Task:
    return Task(Sweep.prepare(net, region, objective.layer), objective)


def split(region: Region, sign: int) -> Region:
    """With a sign for the first ambiguous neuron of the first box."""
    k = next(k for k in range(1, region.known + 1) if bool(region.ambiguous(k)[0].any()))
    i = int(torch.nonzero(region.ambiguous(k)[0])[0])
    splits = [torch.zeros(low.shape, dtype=torch.int8) for low in region.l_hat]
    low, high = [side.clone() for side in region.l_hat], [side.clone() for side in region.u_hat]
    splits[k - 1][:, i] = sign
    (low if sign > 0 else high)[k - 1][:, i] = 0.0
    return replace(region, l_hat=tuple(low), u_hat=tuple(high), splits=tuple(splits))


def random_point(dual: Decomposition, seed: int, scale: float = 1.0) -> torch.Tensor:
    shape = (dual.sweep.region.count, dual.objective.count, dual.variables)
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=SEEDS)
@settings(max_examples=4)
def test_every_propagated_bound_is_a_point_of_the_same_value(family: str, seed: int) -> None:
    net, region, objective = instance(family, seed, "best", boxes=2)
    dual = Decomposition.of(task_of(net, region, objective))
    generator = torch.Generator().manual_seed(seed)
    slopes = [torch.rand(kinks.l_hat.shape, generator=generator, dtype=torch.float64) for kinks in dual.sweep.kinks]
    choices = [Choice(kinks.faces(slope)) for kinks, slope in zip(dual.sweep.kinks, slopes, strict=True)]
    expected = dual.sweep.backward(objective, choices).lower
    torch.testing.assert_close(dual.evaluate(dual.propagated(choices)).lower, expected, rtol=0, atol=1e-9)
    parallel = Linear(Slope.PARALLEL).bound(net, region, objective, Until()).lower
    torch.testing.assert_close(dual.evaluate(dual.start()).lower, parallel, rtol=0, atol=1e-9)


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=SEEDS, scale=st.sampled_from([0.0, 0.1, 1.0, 10.0]))
@settings(max_examples=6)
def test_every_point_is_valid(family: str, seed: int, scale: float) -> None:
    net, region, objective = instance(family, seed, "best")
    dual = Decomposition.of(task_of(net, region, objective))
    lower = dual.evaluate(dual.start() + random_point(dual, seed, scale)).lower
    x = networks.points(region.lower, region.upper, 200, seed)
    assert bool((value(net, objective, x) >= lower).all())
    assert bool((lower <= PlanetLP().bound(net, region, objective, Until()).lower + 1e-8).all())


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("sign", [0, 1, -1])
@given(seed=SEEDS)
@settings(max_examples=3)
def test_supergradients_equal_finite_differences(family: str, sign: int, seed: int) -> None:
    net, region, objective = instance(family, seed, "best", boxes=2)
    if sign and bool(region.ambiguous(1)[0].any()):
        region = split(region, sign)
    dual = Decomposition.of(task_of(net, region, objective))
    point, direction = random_point(dual, seed), random_point(dual, seed + 1)
    gradient = dual.supergradient(point, dual.evaluate(point))
    h = 1e-7
    ahead, behind = (dual.evaluate(point + s * h * direction).lower for s in (1, -1))
    torch.testing.assert_close((gradient * direction).sum(-1), (ahead - behind) / (2 * h), rtol=1e-4, atol=1e-4)


SPLITS = {("dense", 1), ("dense", -1), ("conv", 1), ("residual", -1)}


@pytest.mark.parametrize(
    ("family", "sign"),
    [
        pytest.param(family, sign, marks=[] if not sign or (family, sign) in SPLITS else pytest.mark.slow)
        for family in networks.FAMILIES
        for sign in (0, 1, -1)
    ],
)
def test_the_maximum_is_that_of_the_planet_program(family: str, sign: int) -> None:
    """With interval bounds of hidden neurons, which the relaxation implies, and with the constraint of a split."""
    net, region, objective = instance(family, 9)
    region = split(region, sign) if sign else region
    dual = Decomposition.of(task_of(net, region, objective))
    found = Ascent(400, Steps(0.1, 1e-3)).run(dual, dual.start(), Until()).lower
    program = PlanetLP().bound(net, region, objective, Until()).lower
    torch.testing.assert_close(found, program, rtol=0, atol=4e-3)


def exact_value(net: Network, region: Region, row: torch.Tensor, mus: list[torch.Tensor]) -> Fraction:
    """The dual function of a chain of dense layers at one point, in rationals."""

    def rational(values: torch.Tensor) -> list[Fraction]:
        return [Fraction(v) for v in values.tolist()]

    total, multipliers = Fraction(0), [*(rational(mu) for mu in mus), rational(row)]
    for k in range(len(net.layers), 0, -1):
        mu, (_, term) = multipliers[k - 1], net.layers[k - 1].terms[0]
        assert isinstance(term, Dense)
        weights = [rational(line) for line in term.weight]
        total += sum(m * b for m, b in zip(mu, rational(net.layers[k - 1].bias), strict=True))
        lam = [sum(m * line[j] for m, line in zip(mu, weights, strict=True)) for j in range(len(weights[0]))]
        low, high = (region.lower, region.upper) if k == 1 else (region.l_hat[k - 2], region.u_hat[k - 2])
        ends = list(zip(lam, rational(low[0]), rational(high[0]), strict=True))
        if k == 1:
            return total + sum(min(c * left, c * right) for c, left, right in ends)
        for (c, left, right), m in zip(ends, multipliers[k - 2], strict=True):
            points = [left, right, Fraction(0)] if left < 0 < right else [left, right]
            total += min(c * max(p, Fraction(0)) - m * p for p in points)
    raise AssertionError


@given(seed=SEEDS, scale=st.sampled_from([1e-3, 1.0, 1e6, 1e12]))
@settings(max_examples=40)
def test_rounding_is_paid(seed: int, scale: float) -> None:
    """Against the same function in rationals: never above it, and close to it."""
    net = networks.dense(seed, (4, 12, 12, 1))
    region = root(net, *networks.box(net, seed, 0.6))
    row = torch.randn(1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * scale
    objective = Objective(3, row.view(1, 1, 1))
    dual = Decomposition.of(task_of(net, region, objective))
    point = random_point(dual, seed, scale)
    found = dual.evaluate(point).lower.item()
    exact = exact_value(net, region, row, [mu[0, 0] for mu in dual.groups(point)])
    assert Fraction(found) <= exact
    assert float(exact - Fraction(found)) <= 1e-11 * scale


@given(seed=SEEDS)
@settings(max_examples=20)
def test_rounding_is_paid_where_bounds_are_far_looser_than_their_layer(seed: int) -> None:
    """Then the vertices are far outside of what the layer can reach, and their own rounding is all that matters."""
    net = networks.dense(seed, (4, 12, 12, 1))
    region = root(net, *networks.box(net, seed, 0.6))
    generator = torch.Generator().manual_seed(seed)
    low, high = (1e6 * torch.rand(1, 12, generator=generator, dtype=torch.float64) for _ in range(2))
    region = replace(region, l_hat=(region.l_hat[0], -low), u_hat=(region.u_hat[0], high))
    row = torch.full((1,), 1e-9, dtype=torch.float64)
    dual = Decomposition.of(task_of(net, region, Objective(3, row.view(1, 1, 1))))
    point = random_point(dual, seed)
    found = dual.evaluate(point).lower.item()
    exact = exact_value(net, region, row, [mu[0, 0] for mu in dual.groups(point)])
    assert Fraction(found) <= exact
    assert float(exact - Fraction(found)) <= 1e-5


def test_what_overflows_says_nothing() -> None:
    net, region, objective = instance("dense", 1)
    dual = Decomposition.of(task_of(net, region, objective))
    for size in (torch.inf, torch.nan, 1e308):
        assert bool((dual.evaluate(dual.start() * 0 + size).lower == -torch.inf).all())
    endless = replace(region, l_hat=(region.l_hat[0] * torch.inf, *region.l_hat[1:]))
    assert bool((PairVariables(dual.start()).lower(task_of(net, endless, objective)) == -torch.inf).all())
