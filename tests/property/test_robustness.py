from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.errors import InputError
from verifier.property.robustness import LocalRobustness, Scaling, decimal_text
from verifier.property.vnnlib import parse

PIXELS = st.lists(st.floats(0, 1, width=32), min_size=6, max_size=6)


@given(PIXELS, st.sampled_from([0.0, 0.01, 2 / 255, "0.3"]), st.booleans(), st.booleans())
def test_the_box_read_back_contains_the_exact_one(pixels: list[float], eps: object, clip: bool, scaled: bool) -> None:
    centre = np.array(pixels, np.float32).reshape(3, 1, 2)
    scaling = Scaling((0.485, 0.456, 0.406), (0.225, 0.229, 0.225)) if scaled else Scaling()
    task = LocalRobustness(centre, 1, 4, eps, ("0", 1) if clip else None, scaling)  # type: ignore[arg-type]
    prop = parse(task.vnnlib())
    mean = [Fraction(str(m)) for m in scaling.mean] * (1 if scaled else 3)
    std = [Fraction(str(s)) for s in scaling.std] * (1 if scaled else 3)
    for i, pixel in enumerate(pixels):
        low, high = Fraction(pixel) - Fraction(str(eps)), Fraction(pixel) + Fraction(str(eps))
        if clip:
            low, high = max(low, Fraction(0)), min(high, Fraction(1))
        low, high = ((v - mean[i // 2]) / std[i // 2] for v in (low, high))
        assert Fraction(prop.boxes.lower[0, i]) <= low
        assert high <= Fraction(prop.boxes.upper[0, i])
        assert prop.boxes.lower[0, i] == pytest.approx(float(low), rel=1e-15, abs=1e-15)
        assert prop.boxes.upper[0, i] == pytest.approx(float(high), rel=1e-15, abs=1e-15)
    assert (prop.n_y, len(prop.boxes)) == (4, 1)


def test_the_unsafe_set_is_that_another_class_wins() -> None:
    prop = parse(LocalRobustness(np.array([0.5]), 1, 3, 0.25).vnnlib())
    assert prop.boxes.lower.tolist() == [[0.25]]
    assert prop.boxes.upper.tolist() == [[0.75]]
    assert [clause.rows.A.tolist() for clause in prop.clauses] == [[[-1, 1, 0]], [[0, 1, -1]]]
    x = np.full(1, 0.5, np.float32)
    assert prop.witnessed(x, np.array([1, 2, 2], np.float32)) == 1
    assert prop.witnessed(x, np.array([1, 2, 1], np.float32)) is None


def test_the_centre_of_a_ball_without_radius_stays_inside() -> None:
    centre = np.float32(1) / np.array([3, 7, 11], np.float32)
    prop = parse(LocalRobustness(centre, 0, 2, 0).vnnlib())
    assert prop.boxes.exact.all()
    assert (prop.boxes.lower_in[0] <= centre).all()
    assert (centre <= prop.boxes.upper_in[0]).all()


@given(st.fractions())
def test_decimals_are_rounded_to_the_side(value: Fraction) -> None:
    low, high = decimal_text(value, down=True), decimal_text(value, down=False)
    assert Fraction(low) <= value <= Fraction(high)
    assert abs(Fraction(high) - Fraction(low)) <= abs(value) * Fraction(1, 10**15)
    assert "e" not in (low + high).lower()


@pytest.mark.parametrize(("value", "text"), [(Fraction(1, 2), "0.5"), (Fraction(0), "0.0"), (Fraction(-300), "-300.0")])
def test_short_decimals_stay_as_they_are(value: Fraction, text: str) -> None:
    assert decimal_text(value, down=True) == decimal_text(value, down=False) == text


IMAGE = np.full((3, 2, 2), 0.5, np.float32)


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (LocalRobustness(IMAGE, 4, 4, 0.1), "label 4 is not one of 4 classes, of which there must be two"),
        (LocalRobustness(IMAGE, 0, 2, -0.1), "eps is -0.1, it must not be negative"),
        (LocalRobustness(IMAGE, 0, 2, "x"), "eps is 'x', which is not a finite number"),
        (LocalRobustness(IMAGE, 0, 2, float("nan")), "eps is 'nan', which is not a finite number"),
        (LocalRobustness(IMAGE * np.nan, 0, 2, 0.1), "the centre holds values that are not finite"),
        (LocalRobustness(np.array(["a"]), 0, 2, 0.1), "the centre must be a non-empty array of numbers"),
        (
            LocalRobustness(IMAGE, 0, 2, 0.1, (0.7, 1)),
            "value 0 of the centre, 0.5, is further than eps from the clipping range",
        ),
        (LocalRobustness(IMAGE, 0, 2, 0.1, None, Scaling((0,), (0,))), "std must be positive"),
        (
            LocalRobustness(IMAGE, 0, 2, 0.1, None, Scaling((0, 0))),
            "mean has 2 values, an input of shape [3, 2, 2] has 3 channels",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(task: LocalRobustness, message: str) -> None:
    with pytest.raises(InputError) as caught:
        task.vnnlib()
    assert str(caught.value) == message
