"""Witnesses: only replayed ones exist, and their text reads back exactly."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from verifier.errors import SoundnessError
from verifier.property.property import Boxes, Clause, ExactRow, Property, RoundedRows, Variable
from verifier.result.counterexample import Counterexample, number, replay

finite32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


class Identity:
    """A network that answers its input, and counts how often it was asked."""

    def __init__(self) -> None:
        self.asked: list[NDArray[np.float32]] = []

    def run(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        assert x.dtype == np.float32
        self.asked.append(x)
        return x.copy()


def boxed(low: list[float], high: list[float], bound: str, variables: tuple[Variable, ...] | None = None) -> Property:
    """y_0 >= bound is unsafe, over a box of float64 bounds."""
    lower, upper = np.array([low]), np.array([high])
    row = ExactRow(((0, Fraction(-1)),), (), -Fraction(bound), strict=False)
    rows = RoundedRows.of([row], len(low), len(low), (lower[0], upper[0]))
    boxes = Boxes.enclosed((lower, lower), (upper, upper))
    return Property(len(low), len(low), boxes, (Clause(0, rows),), variables)


def test_a_counterexample_cannot_be_made_by_hand() -> None:
    x = np.zeros(2, np.float32)
    with pytest.raises(SoundnessError):
        Counterexample(x, x, 0)


def test_a_candidate_outside_is_clipped_into_the_box_rounded_inward() -> None:
    # 0.1 is no float32; the nearest one, 0.10000000149, lies above 0.1 and so outside of [0, 0.1].
    found = replay(np.array([5.0, -3.0]), Identity(), boxed([0.0, 0.0], [0.1, 1.0], "0.05"), 0)
    assert found is not None
    assert float(found.x[0]) <= 0.1
    assert float(np.nextafter(found.x[0], np.float32(1))) > 0.1
    assert found.x[1] == 0.0
    assert found.x.dtype == np.float32
    np.testing.assert_array_equal(found.x, found.y)


def test_the_first_witness_of_several_candidates_is_taken() -> None:
    points = np.array([[0.1, 0.0], [0.6, 0.1], [0.9, 0.2]])
    found = replay(points, Identity(), boxed([0.0, 0.0], [1.0, 1.0], "0.5"), 0)
    assert found is not None
    assert found.x[1] == np.float32(0.1)


def test_the_border_belongs_to_the_unsafe_set_and_less_does_not() -> None:
    prop = boxed([0.0], [1.0], "0.5")
    assert replay(np.array([0.5]), Identity(), prop, 0) is not None
    assert replay(np.nextafter(np.array([0.5], np.float32), np.float32(0)), Identity(), prop, 0) is None


def test_candidates_that_are_no_numbers_are_left_out() -> None:
    model = Identity()
    assert replay(np.array([[np.nan], [np.inf]]), model, boxed([0.0], [1.0], "0.5"), 0) is None
    assert model.asked == []


def test_outputs_that_are_no_numbers_are_no_witness() -> None:
    class Broken(Identity):
        def run(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
            return np.full_like(x, np.inf)

    assert replay(np.array([0.7]), Broken(), boxed([0.0], [1.0], "0.5"), 0) is None


def test_a_box_without_float32_values_marks_its_witness() -> None:
    found = replay(np.array([0.1]), Identity(), boxed([0.1], [0.1], "0.05"), 0)
    assert found is not None
    assert found.exact is False


@given(finite32)
def test_numbers_read_back_exactly_in_both_precisions(value: float) -> None:
    for positional in (False, True):
        text = number(np.float32(value), positional)
        assert float(text) == value
        assert np.float32(text) == np.float32(value)
        assert np.signbit(np.float32(text)) == np.signbit(np.float32(value))
    assert "e" not in number(np.float32(value), positional=True)


def test_text_of_version_1() -> None:
    found = replay(np.array([0.75, 0.1]), Identity(), boxed([0.0, 0.0], [1.0, 1.0], "0.5"), 0)
    assert found is not None
    tenth = repr(float(np.float32(0.1)))
    assert found.text() == f"((X_0 0.75)\n (X_1 {tenth})\n (Y_0 0.75)\n (Y_1 {tenth}))\n"


def test_text_of_version_2() -> None:
    variables = (Variable("Y", "output", "real", (2,)), Variable("X", "input", "float32", (1, 2)))
    prop = boxed([0.0, 0.0], [1.0, 1.0], "0.5", variables)
    found = replay(np.array([0.75, 2.0**-20]), Identity(), prop, 0)
    assert found is not None
    tiny = "0.00000095367431640625"
    assert found.text() == f"Y real [2]\n0.75\n{tiny}\nX float32 [1,2]\n0.75\n{tiny}\n"
