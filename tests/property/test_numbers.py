from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from verifier.errors import InputError
from verifier.property.numbers import (
    PADDING,
    decimal,
    enclose,
    enclosure,
    floats_down,
    floats_up,
    rational,
    read_decimals,
)

MANTISSAS = st.one_of(
    st.integers(-9 * 10**18, 9 * 10**18),
    st.integers(-(10**6), 10**6),
    st.integers(2**53 - 40, 2**53 + 40),
    st.integers(0, 2**30).map(lambda k: k * 5**12),  # many of these are floats after division by a power of ten
)


def tight(low: float, high: float, value: Fraction) -> bool:
    """Whether low and high are the nearest float64 values on both sides, and equal if the value is one."""
    if not Fraction(low) <= value <= Fraction(high):
        return False
    return low == high or (high == math.nextafter(low, math.inf) and Fraction(low) < value < Fraction(high))


@given(st.lists(st.tuples(MANTISSAS, st.integers(0, 22)), min_size=1, max_size=30))
def test_arrays_are_enclosed_tightly(pairs: list[tuple[int, int]]) -> None:
    mantissa, places = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    low, high = enclose(mantissa, places)
    for k, pair in enumerate(pairs):
        assert tight(low[k], high[k], rational(*pair))
        assert (low[k], high[k]) == enclosure(rational(*pair))


@given(st.fractions() | st.fractions().map(lambda f: f * Fraction(10) ** -300))
def test_rationals_are_enclosed_tightly(value: Fraction) -> None:
    assert tight(*enclosure(value), value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_stays_itself(value: float) -> None:
    assert enclosure(Fraction(value)) == (value, value)
    assert math.copysign(1, enclosure(Fraction(-0.0))[0]) == 1


@pytest.mark.parametrize("name", ["float16", "float32"])
@given(st.floats(allow_nan=False, allow_infinity=False), st.integers(-3, 3))
def test_neighbours(name: str, value: float, steps: int) -> None:
    kind = np.dtype(name)
    with np.errstate(over="ignore"):
        near = float(kind.type(value))
    for v in (value, near if math.isfinite(near) else value, math.nextafter(value, math.inf * steps)):
        if not math.isfinite(v):
            continue
        up, down = floats_up(np.array([v]), kind)[0], floats_down(np.array([v]), kind)[0]
        assert float(down) <= v <= float(up)
        with np.errstate(over="ignore"):
            if float(kind.type(v)) == v:
                assert down == up
            else:
                assert np.nextafter(down, kind.type(np.inf)) == up


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**30), max_value=10**30), st.booleans())
def test_decimal_is_the_value_of_the_text(number: object, plain: bool) -> None:
    word = format(number, "f") if plain else str(number)
    found = decimal(word)
    assert found is not None
    assert rational(*found) == Fraction(word)


@given(
    st.lists(st.from_regex(r"[+-]?[0-9]{0,10}(\.[0-9]{0,19})?(e-?[0-9])?x?", fullmatch=True).filter(bool), min_size=1)
)
def test_reading_by_arrays_agrees_with_reading_one_by_one(words: list[str]) -> None:
    text = " ".join(words) + " " * PADDING
    lengths = np.array([len(word) for word in words], np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths + 1)[:-1]]).astype(np.int64)
    mantissa, places, read = read_decimals(np.frombuffer(text.encode(), np.uint8), starts, lengths)
    for k, word in enumerate(words):
        found = decimal(word)
        if read[k]:
            assert found is not None
            assert rational(int(mantissa[k]), int(places[k])) == rational(*found)
        digits = word.lstrip("+-").replace(".", "")
        if found is not None and digits.isdigit() and len(digits) <= 8:
            assert read[k], word


@pytest.mark.parametrize("word", ["0.5", "-1", "0", "+3", ".25", "5.", "123456.789", "-0.0", "0.152941182255744934"])
def test_common_literals_take_the_fast_way(word: str) -> None:
    text = np.frombuffer((word + " " * PADDING).encode(), np.uint8)
    mantissa, places, read = read_decimals(text, np.array([0]), np.array([len(word)]))
    assert read[0]
    assert rational(int(mantissa[0]), int(places[0])) == Fraction(word)


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("nan", "'nan' is not a finite number"),
        ("-Inf", "'-Inf' is not a finite number"),
        ("infinity", "'infinity' is not a finite number"),
        ("1e309", "the number 1e309 is outside of the range of 64-bit floats"),
        ("1e999999999999", "the number 1e999999999999 is outside of the range of 64-bit floats"),
        ("1e-999999999999", "the number 1e-999999999999 is outside of the range of 64-bit floats"),
        ("1" * 1001, "a number of 1001 characters is too long (at most 1000)"),
    ],
)
def test_numbers_that_are_refused(word: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        decimal(word)
    assert str(caught.value) == message


@pytest.mark.parametrize("word", ["", "-", ".", "1e", "e5", "0x10", "1.2.3", "--1", "1_000", "٣"])
def test_words_that_are_no_numbers(word: str) -> None:
    assert decimal(word) is None


def test_the_largest_numbers() -> None:
    assert decimal("1.7976931348623157e308") is not None
    assert decimal("0e999999999999") == (0, 0)
    with pytest.raises(InputError, match="outside of the range"):
        enclosure(Fraction(2) ** 1024)
    with pytest.raises(InputError, match="outside of the range"):
        enclosure(Fraction(2) ** 1024 - Fraction(2) ** 900)
