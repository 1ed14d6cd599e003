"""The largest of some numbers: faces against exact values at corners, and where they are equalities."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verifier.functions import Largest
from verifier.shapes import Tensor

ENDS = st.floats(-10, 10).map(lambda x: 0.0 if abs(x) < 1e-300 else x)
INTERVALS = st.lists(st.tuples(ENDS, ENDS).map(sorted), min_size=2, max_size=5)


def tensors(intervals: list[list[float]]) -> tuple[Tensor, Tensor]:
    low, high = torch.tensor(intervals, dtype=torch.float64).T
    return low, high


def points(intervals: list[list[float]]) -> list[tuple[Fraction, ...]]:
    """All corners, and the middle."""
    corners = list(itertools.product(*((Fraction(a), Fraction(b)) for a, b in intervals)))
    return [*corners, tuple((Fraction(a) + Fraction(b)) / 2 for a, b in intervals)]


def face(slopes: Tensor, offset: float, t: tuple[Fraction, ...]) -> Fraction:
    return sum((Fraction(s) * v for s, v in zip(slopes.flatten().tolist(), t, strict=True)), Fraction(offset))


@given(INTERVALS)
def test_faces_hold_without_rounding(intervals: list[list[float]]) -> None:
    """A convex function is below an affine one on a box if it is at the corners."""
    function, (low, high) = Largest(len(intervals)), tensors(intervals)
    below, (above, offset) = function.below(low, high), function.above(low, high)
    least, most = function.image(low, high)
    for t in points(intervals):
        assert face(below, 0.0, t) <= max(t) <= face(above, offset.item(), t)
        assert Fraction(least.item()) <= max(t) <= Fraction(most.item())


@given(INTERVALS, st.integers(0, 4))
def test_an_entry_above_all_others_is_the_value(intervals: list[list[float]], place: int) -> None:
    place %= len(intervals)
    top = max(b for _, b in intervals)
    intervals[place] = [top + 0.5, top + 2.0]
    function, (low, high) = Largest(len(intervals)), tensors(intervals)
    alone = [float(i == place) for i in range(len(intervals))]
    slopes, offset = function.above(low, high)
    assert function.below(low, high).flatten().tolist() == slopes.flatten().tolist() == alone
    assert 0 <= offset.item() < 1e-11
    assert not bool(function.bends(low, high).any())


def test_two_entries_share_the_chord() -> None:
    """On [0, 1]^2 the face t_1 + t_2, which is 1 in the middle; the level face of height 1 is no lower there."""
    slopes, offset = Largest(2).above(torch.zeros(2, dtype=torch.float64), torch.ones(2, dtype=torch.float64))
    assert slopes.flatten().tolist() == [1.0, 1.0]
    assert offset.item() == pytest.approx(0.0, abs=1e-13)
    slopes, offset = Largest(3).above(torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64))
    assert slopes.flatten().tolist() == [0.0] * 3
    assert offset.item() == pytest.approx(1.0, abs=1e-13)


def test_infinite_bounds_prove_nothing() -> None:
    low, high = torch.tensor([-torch.inf, 0.0]), torch.tensor([torch.inf, 1.0])
    _, offset = Largest(2).above(low.double(), high.double())
    assert not bool(torch.isfinite(offset))
    assert Largest(2).image(low.double(), high.double())[1].item() == torch.inf


def test_gradients_are_differences() -> None:
    function = Largest(3)
    t = torch.randn(7, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    weight = torch.randn(7, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = function.pull(t, weight)
    for i in range(12):
        step = torch.zeros_like(t)
        step[:, i] = 1e-6
        slope = ((function.value(t + step) - function.value(t - step)) * weight).sum(dim=-1) / 2e-6
        assert torch.allclose(found[:, i], slope, atol=1e-6)
