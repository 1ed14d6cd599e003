"""The estimate of tree sizes: exact values, and in which direction each quantity pushes."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verifier.search.ladder import SMOOTHING, hard, log2_size, smoothed

NAN, INF = math.nan, math.inf
BOUND, RISE, GAIN = st.floats(-50, 0), st.floats(1e-3, 20), st.floats(0, 60)
RATIO = st.floats(1, 1000)


def one(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


@pytest.mark.parametrize(
    ("lower", "rise", "nodes"),
    [(0.0, 1.0, 1), (-1.0, 1.0, 3), (-4.0, 1.0, 31), (-1.0, 0.125, 511), (-0.5, 1.0, 2**1.5 - 1), (-6.0, 2.0, 15)],
)
def test_sizes(lower: float, rise: float, nodes: float) -> None:
    assert float(log2_size(one(lower), one(rise))) == pytest.approx(math.log2(nodes), abs=1e-12)


def test_a_tree_has_a_node() -> None:
    """Also where a bound is above zero: exponents are at least 1."""
    assert log2_size(torch.tensor([5.0, 0.0]), torch.tensor([1.0, 1e-9])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_trees_do_not_overflow(dtype: torch.dtype) -> None:
    sizes = log2_size(torch.tensor([-1.0, -1000.0], dtype=dtype), torch.tensor([1e-6, 1e-3], dtype=dtype))
    assert sizes.tolist() == pytest.approx([1e6 + 1, 1e6 + 1])


def test_a_worked_example() -> None:
    """p = -4, rise 1: 31 nodes; a gain of 1 leaves 15 of them, so the dearer method may cost 31/15 = 2.0667 each."""
    p, rise, gain = one(-4.0), one(1.0), one(1.0)
    assert hard(p, rise, gain, 2.06).tolist() == [True]
    assert hard(p, rise, gain, 2.07).tolist() == [False]
    # A gain that closes the domain at once leaves one node.
    assert hard(p, rise, one(4.0), 30.9).tolist() == hard(p, rise, one(400.0), 30.9).tolist() == [True]
    assert hard(p, rise, one(4.0), 31.1).tolist() == hard(p, rise, one(400.0), 31.1).tolist() == [False]


def test_a_search_in_its_precision() -> None:
    """float32, and a tree that nobody could finish: a gain of 0.01 at 1e-6 per level saves 10^4 doublings."""
    lower, rise, gain = (torch.tensor([v], dtype=torch.float32) for v in (-1.0, 1e-6, 0.01))
    assert hard(lower, rise, gain, 1e12).tolist() == [True]


@given(BOUND, RISE, st.tuples(GAIN, GAIN), RATIO)
def test_a_larger_gain_never_makes_a_subtree_easier(
    lower: float, rise: float, gains: tuple[float, float], ratio: float
) -> None:
    less, more = (bool(hard(one(lower), one(rise), one(gain), ratio)) for gain in sorted(gains))
    assert less <= more


@given(BOUND, RISE, GAIN, st.tuples(RATIO, RATIO))
def test_a_dearer_method_never_makes_a_subtree_harder(
    lower: float, rise: float, gain: float, ratios: tuple[float, float]
) -> None:
    cheap, dear = (bool(hard(one(lower), one(rise), one(gain), ratio)) for ratio in sorted(ratios))
    assert cheap >= dear


@given(st.tuples(BOUND, BOUND), RISE)
def test_sizes_grow_downwards_and_with_slower_rises(lowers: tuple[float, float], rise: float) -> None:
    far, near = (float(log2_size(one(lower), one(rise))) for lower in sorted(lowers))
    assert far >= near >= 0
    assert float(log2_size(one(lowers[0]), one(2 * rise))) <= float(log2_size(one(lowers[0]), one(rise))) + 1e-12


@given(BOUND, RISE, RATIO, st.floats(-5, 0))
def test_a_method_that_gains_nothing_is_never_worth_it(lower: float, rise: float, ratio: float, gain: float) -> None:
    assert not bool(hard(one(lower), one(rise), one(gain), ratio))


@pytest.mark.parametrize("lower", [-4.0, NAN, -INF])
@pytest.mark.parametrize("rise", [1.0, NAN])
@pytest.mark.parametrize("gain", [1.0, NAN])
def test_a_missing_number_promotes_nothing(lower: float, rise: float, gain: float) -> None:
    known = (lower, rise, gain) == (-4.0, 1.0, 1.0)
    assert bool(hard(one(lower), one(rise), one(gain), 1.5)) == known


def test_moving_averages() -> None:
    before, now = torch.tensor([NAN, 1.0, 4.0, 0.0]), torch.tensor([3.0, 2.0, 0.0, 8.0])
    assert smoothed(before, now).tolist() == [3.0, 1.5, 2.0, 4.0]
    assert SMOOTHING == 0.5
