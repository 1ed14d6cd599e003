"""What closes, and what the error model promises at the ends of the floats."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from falsify import instances
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.core.closing import closes, crossed, settled
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.hidden import RootBounds
from verifier.bounding.relaxation.interval import Interval, interval_image
from verifier.bounding.relaxation.relu import chord
from verifier.bounding.solvers.crown import Linear
from verifier.bounding.solvers.lagrangian import Lagrangian
from verifier.network.magnitudes import LARGEST
from verifier.network.network import Network

NAN, INF = float("nan"), float("inf")
SIZES = st.floats(1e-323, 1e307)


def doubles(values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def chain(*weights: float) -> Network:
    """x times all weights, with a ReLU between any two."""
    layers = [instances.layer(f"layer{k}", k, [[w]], [0.0]) for k, w in enumerate(weights)]
    return Network((1,), tuple(layers[:-1]), layers[-1])


def test_only_numbers_above_zero_close() -> None:
    lower = doubles([1e-320, 1.0, 0.0, -0.0, -1.0, INF, -INF, NAN])
    assert closes(lower).tolist() == [True, True, *[False] * 6]


def test_only_numbers_cross() -> None:
    low, high = doubles([1.0, 1.0, INF, NAN, 0.0, 2.0]), doubles([0.0, 1.0, 0.0, 0.0, -INF, NAN])
    assert crossed(low, high).tolist() == [True, *[False] * 5]


def test_what_overflowed_is_settled_at_minus_infinity() -> None:
    value, error = doubles([INF, -INF, NAN, 1.0, 1.0, INF]), doubles([1.0, 1.0, 1.0, INF, NAN, INF])
    assert settled(value, error).tolist() == [-INF] * 6
    assert float(settled(doubles(1.0), doubles(0.25))) == 0.75 - 2.0**-53 * 64 * 0.25


@settings(max_examples=500)
@given(SIZES, SIZES)
def test_chords_lie_above_the_kink(below: float, above: float) -> None:
    """slope t + intercept >= max(t, 0) at both ends, up to the one rounding of the intercept that sweeps pay for."""
    slope, intercept = (Fraction(float(part)) for part in chord(doubles(-below), doubles(above)))
    low, high = Fraction(-below), Fraction(above)
    assert slope >= high / (high - low)
    assert slope * low + intercept * (1 + Fraction(1, 2**52)) >= 0
    assert slope * high + intercept * (1 + Fraction(1, 2**52)) >= high


@pytest.mark.parametrize("ends", [(-1.5e308, 1.5e308), (-INF, 1.0), (-1.0, INF), (-INF, INF), (NAN, 1.0)])
def test_bounds_without_a_chord_have_no_face(ends: tuple[float, float]) -> None:
    assert bool(chord(doubles(ends[0]), doubles(ends[1]))[0].isnan())


@settings(max_examples=200)
@given(st.lists(st.sampled_from([1e-320, 1e-200, 1e-160, 1e-30, 1.0, 1e30, 1e60]), min_size=2, max_size=4))
def test_intervals_enclose_products_that_underflow(weights: list[float]) -> None:
    """Also where the exact value is smaller than any float: zero would be magnified to zero."""
    net = chain(*weights)
    region, exact = Region(doubles([[1.0]]), doubles([[2.0]])), Fraction(1)
    for k, weight in enumerate(weights):
        low, high = interval_image(net.layers[k], region)
        exact *= Fraction(weight)
        assert Fraction(float(low)) <= exact
        assert 2 * exact <= Fraction(float(high))
        region = region.extended(net.layers[k], low, high)


@pytest.mark.parametrize("bounder", [Interval(), Linear()])
@pytest.mark.parametrize("size", [1e200, 1e308, -1e308])
def test_bounds_that_overflow_say_nothing(bounder: Interval | Linear, size: float) -> None:
    """y in [1, 2] times 1e308, twice: +inf would be a bound that closes."""
    net = chain(1.0, abs(size))
    region = RootBounds().region(net, doubles([[1.0]]), doubles([[2.0]]), Until())
    objective = Objective(2, doubles([[[size]]]), None, doubles([[-1e308]]))
    lower = bounder.bound(net, region, objective, Until()).lower
    assert not bool(closes(lower).any())
    assert float(lower) == -INF


def test_intervals_that_overflow_are_infinite() -> None:
    net = chain(1.5e308, 1.0)
    low, high = interval_image(net.layers[0], Region(doubles([[1.0]]), doubles([[2.0]])))
    assert (float(low), float(high)) == (-INF, INF)
    region = RootBounds().region(net, doubles([[-1.0]]), doubles([[2.0]]), Until())
    bound = Linear().bound(net, region, Objective(2, doubles([[[-1.0]]]), None, doubles([[1e10]])), Until())
    assert float(bound.lower) == -INF


def test_multipliers_stay_where_products_are_finite() -> None:
    net = chain(1.0, 1.0)
    region = RootBounds().region(net, doubles([[-1.0]]), doubles([[1.0]]), Until())
    dual = Lagrangian(Sweep.prepare(net, region, 2), Objective(2, doubles([[[1.0]]])))
    for dtype, factor in ((torch.float32, 100.0), (torch.float64, LARGEST)):
        point = torch.full((1, 1, dual.variables), torch.finfo(dtype).max, dtype=dtype)
        dual.project(point)
        assert bool(torch.isfinite(point * factor).all())
