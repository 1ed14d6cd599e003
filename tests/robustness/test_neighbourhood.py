"""Balls: distances, what is stated about them, and the form that is not VNN-LIB."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.errors import InputError
from verifier.property.robustness import robustness_of
from verifier.robustness.neighbourhood import Neighbourhood
from verifier.robustness.radius import between, rounded

POINTS = st.lists(st.floats(-2, 2, width=32), min_size=3, max_size=3)


@given(POINTS, POINTS, st.sampled_from(["inf", "2", "1"]))
def test_a_point_lies_in_balls_from_its_distance_on(x: list[float], centre: list[float], norm: str) -> None:
    around = Neighbourhood.of(norm, None, "0.5", "0.25")
    middle = np.array(centre).reshape(1, 3)
    distance = around.distance(middle, np.array(x))
    if not distance:
        return
    outside = around.ball(middle, 0, 2, distance * Fraction(999999, 1000000)).property()
    inside = around.ball(middle, 0, 2, distance).property()
    for prop, holds in ((inside, True), (outside, False)):
        in_box = bool(((prop.boxes.lower[0] <= x) & (x <= prop.boxes.upper[0])).all())
        in_ball = prop.ball is None or prop.ball.holds([Fraction(v) for v in x])
        assert (in_box and in_ball) is holds


@given(POINTS, st.sampled_from(["2", "1", "inf"]), st.booleans())
def test_a_statement_reads_back_as_it_was(centre: list[float], norm: str, clip: bool) -> None:
    around = Neighbourhood.of(norm, ("-2", "2") if clip else None, "1/3", [0.25])
    near = around.ball(np.array(centre, np.float32).reshape(1, 3), 1, 4, "1/7")
    found = robustness_of(near.as_json().encode())
    assert found is not None
    assert found.near() == near.near() or found.near().sides == near.near().sides
    assert (found.label, found.near().radius, found.near().ball) == (1, Fraction(1, 7), near.near().ball)


def test_other_texts_are_no_statements() -> None:
    assert robustness_of(b"(declare-const X_0 Real)") is None
    assert robustness_of(b'{"verdict": "sat"}') is None


@pytest.mark.parametrize("key", ["centre", "label", "eps", "shape"])
def test_a_statement_that_lacks_something_is_refused(key: str) -> None:
    text = Neighbourhood.of(2, None, 0, 1).ball(np.zeros((1, 2)), 0, 2, 1).as_json()
    data = {name: value for name, value in json.loads(text).items() if name != key}
    with pytest.raises(InputError, match="no statement of local robustness"):
        robustness_of(json.dumps(data).encode())


@given(st.fractions(0, 10), st.fractions(0, 10), st.sampled_from([0.1, 0.25, 0.5, 0.9]))
def test_a_decimal_between_two_numbers(one: Fraction, other: Fraction, share: float) -> None:
    low, high = min(one, other), max(one, other)
    if high - low < Fraction(1, 10**9):
        return
    found = between(low, high, share)
    assert low < found < high
    assert Fraction(repr(float(found))) == found  # a float prints it


@given(st.fractions(Fraction(1, 10**6), 10**6), st.integers(1, 12))
def test_rounding_up_stays_above(value: Fraction, digits: int) -> None:
    found = rounded(value, digits, "ROUND_CEILING")
    assert value <= found <= value * (1 + Fraction(10, 10**digits))
