"""Faces of groups that are no ReLUs: valid for every variable, alone and in sweeps, with all rounding paid for."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import networks
import pytest
import torch
from functions.references import ALL
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding import HIDDEN
from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.core.sweep import Choice, Sweep
from verifier.bounding.relaxation.smooth import Curves, Products
from verifier.functions import PRODUCT, RELU, Function
from verifier.functions.base import Scalar
from verifier.functions.exponential import Exp, Softplus
from verifier.functions.gaussian import Gelu
from verifier.functions.periodic import Cos, Sin
from verifier.functions.powers import Power, PowerOptions
from verifier.functions.sigmoids import Sigmoid, Tanh
from verifier.functions.steps import Floor, Sign
from verifier.network.network import Network

SEEDS = st.integers(0, 10**6)
KINDS: tuple[Function, ...] = (
    *(RELU, PRODUCT, Sigmoid(), Tanh(), Sin(), Cos(), Gelu(), Softplus(), Exp(), Sign(), Floor()),
    Power(PowerOptions(2.0)),
    Power(PowerOptions(3.0)),
)
SIDES = (1.0, -1.0)


def uniform(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=generator, dtype=torch.float64)


def between(low: torch.Tensor, high: torch.Tensor, share: torch.Tensor) -> torch.Tensor:
    return torch.minimum(torch.maximum(low + share * (high - low), low), high)


@pytest.mark.parametrize("name", ALL)
def test_faces_of_curves_are_valid_whatever_the_variable(name: str) -> None:
    generator, function = torch.Generator().manual_seed(0), ALL[name].function
    assert isinstance(function, Scalar)
    low, high = torch.tensor(list(ALL[name].intervals(80)), dtype=torch.float64).T
    curves = Curves.of(Region(low[None], high[None], (low[None],), (high[None],), (function,)), 1)
    t = between(low, high, uniform(generator, 40, len(low)))
    t[0], t[1] = low, high
    for side in SIDES:
        for variable in (uniform(generator, 1, 6, len(low)), torch.full((1, 1, len(low)), 0.5, dtype=torch.float64)):
            faces = curves.lines(variable, side)
            face = faces.slopes[0][0, :, None] * t + faces.offset[0, :, None]
            size = 1 + function.value(t).abs() + (faces.slopes[0][0, :, None] * t).abs()
            assert bool((side * (function.value(t) - face) >= -1e-13 * size).all())
            assert bool(torch.isfinite(faces.offset).all())


def product_ends(generator: torch.Generator, n: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Of both factors, some of them constant, some large, some tiny."""
    scale = 10.0 ** torch.randint(-9, 9, (2 * n,), generator=generator).double()
    low = scale * torch.randn(2 * n, generator=generator, dtype=torch.float64)
    width = scale * uniform(generator, 2 * n) * (uniform(generator, 2 * n) > 0.2)
    return low, low + width


@settings(max_examples=25)
@given(SEEDS)
def test_faces_of_products_are_valid_in_exact_arithmetic(seed: int) -> None:
    generator, n = torch.Generator().manual_seed(seed), 6
    low, high = product_ends(generator, n)
    products = Products.of(Region(low[None], high[None], (low[None],), (high[None],), (PRODUCT,)), 1)
    t = between(low, high, uniform(generator, 12, 2 * n).round())
    for side in SIDES:
        faces = products.lines(uniform(generator, 1, 1, n), side)
        (a, c), h = faces.slopes, faces.offset
        for point in t.tolist():
            for i in range(n):
                p, q = Fraction(point[i]), Fraction(point[n + i])
                face = Fraction(float(a[0, 0, i])) * p + Fraction(float(c[0, 0, i])) * q + Fraction(float(h[0, 0, i]))
                assert side * (p * q - face) >= 0


@settings(max_examples=25)
@given(SEEDS)
def test_planes_of_any_slopes_are_below_products_in_exact_arithmetic(seed: int) -> None:
    """McCormick's faces have the same value at two corners; with other slopes each of the four may decide."""
    generator, n = torch.Generator().manual_seed(seed), 6
    low, high = (side.chunk(2) for side in product_ends(generator, n))
    a, c = torch.randn(2, n, generator=generator, dtype=torch.float64) * torch.stack([high[1].abs(), high[0].abs()])
    for sign in (1.0, -1.0):
        least, _ = PRODUCT.below((a, c), low, high, torch.full((n,), sign, dtype=torch.float64))
        for s, t in ((s, t) for s in (low[0], high[0]) for t in (low[1], high[1])):
            for i in range(n):
                p, q, slopes = Fraction(float(s[i])), Fraction(float(t[i])), (float(a[i]), float(c[i]))
                value = sign * (p * q - Fraction(slopes[0]) * p - Fraction(slopes[1]) * q)
                assert Fraction(float(least[i])) <= value


@settings(max_examples=25)
@given(SEEDS)
def test_images_of_products_enclose_all_corners_in_exact_arithmetic(seed: int) -> None:
    generator, n = torch.Generator().manual_seed(seed), 8
    low, high = product_ends(generator, n)
    below, above = PRODUCT.image(low, high)
    for point in (low, high, torch.cat([low[:n], high[n:]]), torch.cat([high[:n], low[n:]])):
        for i in range(n):
            value = Fraction(float(point[i])) * Fraction(float(point[n + i]))
            assert Fraction(float(below[i])) <= value <= Fraction(float(above[i]))


def test_pulls_of_products_are_the_other_factors() -> None:
    t, cotangent = torch.tensor([2.0, 3.0, 5.0, 7.0]), torch.tensor([1.0, 10.0])
    assert PRODUCT.pull(t, cotangent).tolist() == [5.0, 70.0, 2.0, 30.0]


def test_mccormick_s_faces_are_the_ends_of_the_mixture() -> None:
    low, high = torch.tensor([[-1.0, 2.0]], dtype=torch.float64), torch.tensor([[3.0, 5.0]], dtype=torch.float64)
    products = Products.of(Region(low, high, (low,), (high,), (PRODUCT,)), 1)
    for variable, side, expected in (
        (0.0, 1.0, (2.0, -1.0, 2.0)),  # q >= 2 and p >= -1: p q >= 2 p - q + 2
        (1.0, 1.0, (5.0, 3.0, -15.0)),
        (0.0, -1.0, (2.0, 3.0, -6.0)),
        (1.0, -1.0, (5.0, -1.0, 5.0)),
    ):
        faces = products.lines(torch.full((1, 1, 1), variable, dtype=torch.float64), side)
        found = (*(float(slope) for slope in faces.slopes), float(faces.offset))
        assert found == pytest.approx(expected, abs=1e-13)


def random_choices(sweep: Sweep, rows: int, generator: torch.Generator, splits: bool) -> list[Choice]:
    """Any slopes, and multipliers of bounds of both signs where there are no ReLUs."""
    found = []
    for neurons in sweep.neurons:
        slope = neurons.faces(uniform(generator, sweep.region.count, rows, neurons.count))
        split = None
        if splits and neurons.least_split < 0:
            split = torch.randn(sweep.region.count, rows, neurons.entries, generator=generator, dtype=torch.float64)
            split = split * (uniform(generator, *split.shape) > 0.3)
        found.append(Choice(slope, split))
    return found


def objective_of(net: Network, generator: torch.Generator, rows: int) -> Objective:
    coefficients = torch.randn(1, rows, net.n_out, generator=generator, dtype=torch.float64)
    return Objective(len(net.layers), coefficients)


@settings(max_examples=15)
@given(SEEDS, st.sampled_from([0.0, 0.01, 0.3, 1.5]), st.booleans(), st.sampled_from(["crown", "interval"]))
def test_planes_are_below_networks_of_any_function(seed: int, radius: float, splits: bool, hidden: str) -> None:
    """Also where all coefficients are tiny: what they decide must not depend on their size."""
    generator = torch.Generator().manual_seed(seed)
    net = networks.mixed(seed, (2, 3, 3, 3, 2), KINDS)
    lower, upper = networks.box(net, seed, radius, 2)
    region = HIDDEN.build(hidden).region(net, lower, upper, Until())
    x = networks.points(lower, upper, 200, seed)
    for low, high, value in zip(region.l_hat, region.u_hat, net.preactivations(x), strict=False):
        size = 1e-11 * (1 + value.abs().amax())
        assert bool(((value >= low - size) & (value <= high + size)).all())
    sweep, objective = Sweep.prepare(net, region, len(net.layers)), objective_of(net, generator, 3)
    choices = random_choices(sweep, 3, generator, splits)
    for scale in (1.0, 2.0**-60):
        small = [Choice(c.slope, None if c.split is None else scale * c.split) for c in choices]
        rows = replace(objective, coefficients=scale * objective.coefficients)
        plane = sweep.backward(rows, small).plane
        y = net.forward(x) @ rows.coefficients[0].T
        reached = (plane.slope * x.unsqueeze(2)).sum(dim=-1) + plane.offset
        size = 1e-11 * (scale + y.abs().amax())
        assert bool((reached <= y + size).all() & (plane.lower <= y + size).all())


def exactly(net: Network, x: torch.Tensor) -> list[Fraction]:
    """The outputs of a network of products in exact arithmetic."""
    values = [[Fraction(v) for v in x.tolist()]]
    for layer in net.layers:
        t = [Fraction(b) for b in layer.bias.tolist()]
        for source, term in layer.terms:
            weight = term.forward(torch.eye(len(values[source]), dtype=torch.float64)).T.tolist()
            own = values[source]
            t = [
                b + sum(Fraction(w) * v for w, v in zip(row, own, strict=True))
                for b, row in zip(t, weight, strict=True)
            ]
        half = len(t) // 2
        values.append([p * q for p, q in zip(t[:half], t[half:], strict=True)] if layer is not net.output else t)
    return values[-1]


@settings(max_examples=40)
@given(SEEDS, st.sampled_from([1.0, 1e4]), st.booleans())
def test_rounding_is_paid_for_to_the_last_digit(seed: int, scale: float, splits: bool) -> None:
    """On boxes of a single point nothing but rounding keeps bounds from the value."""
    generator = torch.Generator().manual_seed(seed)
    net = networks.mixed(seed, (2, 3, 3, 2), (PRODUCT,))
    x = scale * torch.randn(1, 2, generator=generator, dtype=torch.float64)
    region = HIDDEN.build("crown").region(net, x, x, Until())
    sweep = Sweep.prepare(net, region, len(net.layers))
    rows = torch.eye(2, dtype=torch.float64)
    objective = Objective(len(net.layers), torch.cat([rows, -rows])[None])
    lower = sweep.backward(objective, random_choices(sweep, 4, generator, splits)).lower[0].tolist()
    y = exactly(net, x[0])
    for bound, value in zip(lower, [*y, *(-v for v in y)], strict=True):
        assert Fraction(bound) <= value
        assert float(value) - bound <= 1e-9 * (1 + scale**8)


def test_where_a_function_is_not_defined_no_bound_is_finite() -> None:
    """1 / t across 0; also where the coefficient of the neuron is tiny."""
    net = networks.mixed(1, (2, 3, 2), (Power(PowerOptions(-1.0)),))
    lower, upper = -torch.ones(1, 2, dtype=torch.float64) * 50, torch.ones(1, 2, dtype=torch.float64) * 50
    region = HIDDEN.build("crown").region(net, lower, upper, Until())
    sweep = Sweep.prepare(net, region, 2)
    objective = Objective(2, 1e-300 * torch.ones(1, 1, 2, dtype=torch.float64))
    found = sweep.backward(objective, [Choice(neurons.adaptive()) for neurons in sweep.neurons])
    assert found.lower.tolist() == [[-torch.inf]]
