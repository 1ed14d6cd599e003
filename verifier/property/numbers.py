"""Decimals to floats with a known direction of rounding, one by one or by the million.

A decimal is a rational number.  All functions here are exact: the value that is returned is the nearest float on the
side asked for, and a decimal that is a float stays that float.
"""

from __future__ import annotations

import math
import re
import sys
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from verifier.errors import InputError

Doubles = NDArray[np.float64]
Floats = NDArray[np.floating]
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

MAX_CHARACTERS = 1000  # of one literal
MAX_EXPONENT = 400  # beyond the range of float64 on both sides; keeps the rationals small
MAX_PLACES = 22  # 10**22 is the largest power of ten that float64 holds exactly
PADDING = 32  # characters that `read_decimals` may look at behind a literal

_DECIMAL = re.compile(r"([+-]?)(?:(\d+)(?:\.(\d*))?|\.(\d+))(?:[eE]([+-]?\d+))?", re.ASCII)
_NOT_FINITE = re.compile(r"[+-]?(?:nan|inf|infinity)", re.IGNORECASE)
_TENS = np.array([float(10**k) for k in range(MAX_PLACES + 1)])
_INTEGER_TENS = np.array([10**k for k in range(19)], np.int64)
_SHIFTS = np.array([8 * k for k in range(9)], np.uint64)  # by the missing characters; numpy shifts by 64 to zero
_ZEROS = np.array([int.from_bytes(b"0" * k, byteorder="little") for k in range(9)], np.uint64)
_SIXES, _LOW, _HIGH = np.uint64(0x0606060606060606), np.uint64(0x0F0F0F0F0F0F0F0F), np.uint64(0xF0F0F0F0F0F0F0F0)


def decimal(word: str) -> tuple[int, int] | None:
    """Reads a literal as (mantissa, places), value = mantissa / 10**places; None if it is no number.

    Raises InputError for NaN, infinities and numbers that are too long or outside of the range of float64.
    """
    match = _DECIMAL.fullmatch(word)
    if match is None:
        if _NOT_FINITE.fullmatch(word):
            raise InputError(f"'{word}' is not a finite number")
        return None
    if len(word) > MAX_CHARACTERS:
        raise InputError(f"a number of {len(word)} characters is too long (at most {MAX_CHARACTERS})")
    sign, whole, fraction, bare, exponent = match.groups()
    fraction = bare or fraction or ""
    mantissa = int((whole or "") + fraction)
    if mantissa == 0:
        return 0, 0
    places = len(fraction) - int(exponent or 0)
    size = len(str(mantissa)) - places  # 10**(size-1) <= |value| < 10**size
    if abs(size) > MAX_EXPONENT or (size > 300 and Fraction(mantissa) * Fraction(10) ** -places >= 2**1024):
        raise InputError(f"the number {shorten(word)} is outside of the range of 64-bit floats")
    return (-mantissa if sign == "-" else mantissa), places


def rational(mantissa: int, places: int) -> Fraction:
    """The exact value mantissa / 10**places."""
    return Fraction(mantissa, 10**places) if places >= 0 else Fraction(mantissa * 10**-places)


def shorten(word: str, limit: int = 40) -> str:
    """A word for an error message: printable and of bounded length."""
    shown = word if len(word) <= limit else word[: limit - 3] + "..."
    return shown if shown.isprintable() else ascii(shown)[1:-1]


def enclosure(value: Fraction) -> tuple[float, float]:
    """The largest float64 at or below the value and the smallest one at or above it."""
    try:
        near = float(value)
    except OverflowError:
        raise InputError("a number of the property is outside of the range of 64-bit floats") from None
    numerator, denominator = near.as_integer_ratio()
    difference = numerator * value.denominator - value.numerator * denominator
    if difference == 0:
        return near + 0.0, near + 0.0
    pair = (math.nextafter(near, -math.inf), near) if difference > 0 else (near, math.nextafter(near, math.inf))
    if math.isinf(pair[0]) or math.isinf(pair[1]):
        raise InputError("a number of the property is outside of the range of 64-bit floats")
    return pair


def upward(value: Fraction) -> float:
    """The smallest float64 at or above the value."""
    return enclosure(value)[1]


def at_least(value: Fraction) -> float:
    """The smallest float64 at or above the value, also beyond the range of floats; infinity if there is no other."""
    largest = Fraction(sys.float_info.max)
    if abs(value) <= largest:
        return upward(value)
    return math.inf if value > 0 else -sys.float_info.max


def absorb(error: Fraction, low: float, high: float) -> Fraction:
    """The largest value of |error * x| for x in [low, high]."""
    return abs(error) * max(abs(Fraction(low)), abs(Fraction(high))) if error else Fraction(0)


def floats_up(values: Doubles, kind: np.dtype[Any]) -> Floats:
    """The smallest float of that precision at or above each value (infinity above the largest one)."""
    with np.errstate(over="ignore"):
        near = values.astype(kind)
        found: Floats = np.where(near < values, np.nextafter(near, kind.type(np.inf)), near) + kind.type(0)  # no -0
    return found


def floats_down(values: Doubles, kind: np.dtype[Any]) -> Floats:
    """The largest float of that precision at or below each value (minus infinity below the smallest one)."""
    found: Floats = -floats_up(-values, kind) + kind.type(0)
    return found


def nearest(below: Floats, above: Floats, lower: Doubles, upper: Doubles) -> Floats:
    """Of two neighbouring floats the one nearest to the interval [lower, upper] between them."""
    down = lower - below.astype(np.float64) <= above.astype(np.float64) - upper
    return np.where(down, below, above)


def enclose(mantissa: Ints, places: Ints) -> tuple[Doubles, Doubles]:
    """The same as `enclosure` for arrays: value = mantissa / 10**places.

    Requires: |mantissa| < 9.1e18 and 0 <= places <= MAX_PLACES.  A quotient is corrected by its exact residual (an
    error-free product, then an integer difference), so the sign of the last residual says on which side it lies.
    """
    size, tens = np.abs(mantissa), _TENS[places]
    near = size.astype(np.float64) / tens
    near = near + _residual(size, near, tens) / tens
    rest = _residual(size, near, tens)
    low = np.where(rest < 0, np.nextafter(near, -np.inf), near)
    high = np.where(rest > 0, np.nextafter(near, np.inf), near)
    negative = mantissa < 0
    return np.where(negative, -high, low) + 0.0, np.where(negative, -low, high) + 0.0


def _residual(size: Ints, near: Doubles, tens: Doubles) -> Doubles:
    """size - near * tens with the sign of the exact value (Dekker's product; Sterbenz makes the difference exact)."""
    product = near * tens
    a_high, a_low = _halves(near)
    b_high, b_low = _halves(tens)
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    whole = np.floor(product)
    return ((size - whole.astype(np.int64)).astype(np.float64) - (product - whole)) - error


def _halves(value: Doubles) -> tuple[Doubles, Doubles]:
    """Veltkamp's split of a float64 into two parts of at most 26 bits."""
    scaled = value * 134217729.0
    high = scaled - (scaled - value)
    return high, value - high


def read_decimals(text: Bytes, starts: Ints, lengths: Ints) -> tuple[Ints, Ints, Bools]:
    """Reads literals (sign, digits, point) at the given places of a text: mantissas, places, and which were read.

    Requires: at least PADDING characters behind the last literal.  What is not read, such as an exponent, more than 8
    digits in front of the point or more than 18 in all, is left to `decimal`.
    """
    first, stops = text[starts], starts + lengths
    negative = first == ord("-")
    begin = starts + (negative | (first == ord("+")))
    points = np.append(np.flatnonzero(text == ord(".")), len(text))
    point = np.minimum(points[np.searchsorted(points, begin)], stops)
    wholes = point - begin
    places = np.maximum(stops - point - 1, 0)
    whole, good = digits(text, begin, wholes)
    mantissa = whole * _INTEGER_TENS[np.minimum(places, 18)]
    for k in range(0, min(int(places.max(initial=0)), 18), 8):
        count = np.clip(places - k, 0, 8)
        value, fine = digits(text, point + 1 + k, count)
        mantissa += value * _INTEGER_TENS[np.clip(places - k - 8, 0, 18)]
        good &= fine
    good &= (wholes <= 8) & (places <= 18) & ((whole == 0) | (wholes + places <= 18)) & (wholes + places > 0)
    return np.where(negative, -mantissa, mantissa), places, good


def eight_bytes(text: Bytes, starts: Ints) -> NDArray[np.uint64]:
    """Eight characters from each of the places, the first one in the lowest byte."""
    if not len(starts):
        return np.zeros(0, np.uint64)
    rows = np.ascontiguousarray(sliding_window_view(text, 8)[starts])
    return rows.view("<u8")[:, 0]


def digits(text: Bytes, starts: Ints, counts: Ints) -> tuple[Ints, Bools]:
    """Numbers of up to eight digits, and whether all their characters are digits; wrong for longer ones.

    All eight characters are handled at once: zeros are shifted in from the front, then neighbouring digits are joined
    into pairs, pairs into fours, fours into the result.
    """
    missing = 8 - np.minimum(counts, 8)
    values = ((eight_bytes(text, starts) << _SHIFTS[missing]) | _ZEROS[missing]) ^ _ZEROS[8]
    good = (((values + _SIXES) | values) & _HIGH) == 0
    values = ((values & _LOW) * np.uint64(2561)) >> np.uint64(8)
    values = ((values & np.uint64(0x00FF00FF00FF00FF)) * np.uint64(6553601)) >> np.uint64(16)
    values = ((values & np.uint64(0x0000FFFF0000FFFF)) * np.uint64(42949672960001)) >> np.uint64(32)
    return values.astype(np.int64), good
