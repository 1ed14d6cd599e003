"""Balls and neighbourhoods in exact arithmetic: membership, the floats around them, and points pulled inside."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import verifier
from verifier.errors import InputError
from verifier.property.arrays import InputSet
from verifier.property.ball import Ball, norm_number
from verifier.property.near import Near
from verifier.property.robustness import LocalRobustness, Scaling


def rationals(*values: str | float) -> tuple[Fraction, ...]:
    return tuple(Fraction(value) for value in values)


def distance(ball: Ball, x: list[Fraction]) -> Fraction:
    """To the power of the norm."""
    parts = [abs(w * (v - c)) ** ball.norm for v, c, w in zip(x, ball.centre, ball.weight, strict=True)]
    return sum(parts, Fraction(0))


def test_the_border_belongs_to_a_ball() -> None:
    """3, 4, 5 exactly, and not a float beyond it."""
    ball = Ball(2, rationals(0, 0), rationals(1, 1), Fraction(5))
    assert ball.holds(rationals(3, 4))
    assert not ball.holds([Fraction(3), Fraction(np.nextafter(4.0, 5.0))])
    weighted = Ball(1, rationals("1/3", 0), rationals(3, "1/2"), Fraction(2))
    assert weighted.holds(rationals("2/3", 2))
    assert not weighted.holds(rationals("2/3", "2.0000001"))


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("seed", range(20))
def test_the_floats_describe_a_larger_ball(norm: int, seed: int) -> None:
    """Points on the border of the exact ball lie in the one of the floats."""
    rng = np.random.default_rng(seed)
    n = 4
    centre = [Fraction(int(v), 255) for v in rng.integers(-500, 500, size=n)]
    weight = [Fraction(int(v), 1000) for v in rng.integers(100, 900, size=n)]
    ball = Ball(norm, tuple(centre), tuple(weight), Fraction(int(rng.integers(1, 999)), 1001))
    around, scales, radius = ball.enclosing
    other = Ball(norm, tuple(map(Fraction, around.tolist())), tuple(map(Fraction, scales.tolist())), Fraction(radius))
    for axis in range(n):
        for side in (-1, 1):
            x = [c + side * ball.radius / w * (i == axis) for i, (c, w) in enumerate(zip(centre, weight, strict=True))]
            assert distance(ball, x) == ball.radius**norm
            assert other.holds(x)
    assert radius <= float(ball.radius) * (1 + 1e-14)


@pytest.mark.parametrize("norm", [1, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("eps", ["1/1000", "8/255", "3"])
def test_points_pulled_inside_are_inside(norm: int, dtype: type[np.floating], eps: str) -> None:
    rng = np.random.default_rng(norm)
    centre, std = tuple(Fraction(int(v), 255) for v in rng.integers(0, 255, size=30)), Fraction("0.3081")
    centre = tuple((c - Fraction("0.1307")) / std for c in centre)
    ball = Ball(norm, centre, (std,) * 30, Fraction(eps))
    ends = np.full(30, -9.0, dtype), np.full(30, 9.0, dtype)
    for _ in range(10):
        z = rng.normal(size=30)
        z *= float(ball.radius / std) / np.linalg.norm(z, norm)
        x = (np.array([float(c) for c in centre]) + 1.0001 * z).astype(dtype)
        inside = ball.inside(x, ends)
        assert inside.dtype == dtype
        assert ball.holds([Fraction(v) for v in inside.tolist()])
        assert np.abs(inside - x).max() <= 0.02 * np.abs(z).max() + 1e-6
        assert ball.inside(inside, ends) is inside


def test_norms_by_name() -> None:
    assert [norm_number(norm) for norm in ("inf", float("inf"), 2, "2", 2.0, "l2", 1, "1")] == [None] * 2 + [2] * 4 + [
        1
    ] * 2
    for wrong in (3, "euclid", None, True):
        with pytest.raises(InputError, match="there are 'inf', 2 and 1"):
            norm_number(wrong)


def test_local_robustness_in_the_coordinates_of_the_network() -> None:
    """Pixels within eps become inputs with weights std around (pixel - mean) / std."""
    task = LocalRobustness(np.array([0.5, 0.25]), 0, 3, "0.1", (0, "0.55"), Scaling(("0.5",), ("0.2",)), 2)
    prop = task.property()
    assert prop.ball == Ball(2, rationals(0, "-5/4"), rationals("1/5", "1/5"), Fraction("1/10"))
    assert task.bounds() == [rationals("-1/2", "1/4"), rationals("-7/4", "-3/4")]
    assert [clause.rows.A.tolist() for clause in prop.clauses] == [[[1.0, -1.0, 0.0]], [[1.0, 0.0, -1.0]]]
    boxed = LocalRobustness(np.array([0.5, 0.25]), 0, 3, "0.1", norm="inf").property()
    assert boxed.ball is None
    assert LocalRobustness(np.array([0.5]), 0, 3, 0, norm=2).property().ball is None


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match=r"has no form in VNN-LIB 1\.0"):
        LocalRobustness(np.array([0.5]), 0, 2, "0.1", norm=2).vnnlib()
    far = [(Fraction(1), Fraction(2))] * 2
    with pytest.raises(InputError, match="further than eps from the centre"):
        Near(rationals(0, 0), rationals(1, 1), Fraction("1.2"), 2, far)
    assert Near(rationals(0, 0), rationals(1, 1), Fraction("1.5"), 2, far).ball is not None
    for around, message in (
        (verifier.Around([0.0, 0.0], 1.0, scale=[1.0]), None),
        (verifier.Around([0.0, 0.0], -1.0), "eps is -1, it must not be negative"),
        (verifier.Around([0.0, 0.0], 1.0, scale=[1.0, 1.0, 1.0]), "scale needs positive numbers"),
        (verifier.Around([0.0, 0.0], 1.0, scale=0.0), "scale needs positive numbers"),
        (verifier.Around([], 1.0), "needs an array as its centre"),
        (verifier.Around([0.0], "a"), "eps is no array of real numbers"),  # type: ignore[arg-type]
    ):
        if message is None:
            assert InputSet.of(None, None, around).boxes.lower.tolist() == [[-1.0, -1.0]]
            continue
        with pytest.raises(InputError, match=message):
            InputSet.of(None, None, around)
    with pytest.raises(InputError, match="the box has 1 inputs and the centre 2"):
        InputSet.of([0.0], [1.0], verifier.Around([0.0, 0.0], 1.0))
    with pytest.raises(InputError, match="a box needs both lower and upper"):
        InputSet.of([0.0], None, verifier.Around([0.0], 1.0))
