"""Reads the beginning of a VNN-LIB 1.0 file line by line, by array operations, as far as it is written plainly.

Most files start with one declaration or one bound per line, in exactly one spelling:

    (declare-const X_0 Real)
    (assert (<= X_0 0.5))

Such lines need no tokens.  The rest of the file, from the first other line on, is left to `vnnlib_scan`.
"""

from __future__ import annotations

import numpy as np

from verifier.property.numbers import PADDING, Bools, Bytes, Ints, digits, eight_bytes
from verifier.property.vnnlib_scan import (
    INPUT,
    NUMBER,
    OUTPUT,
    Indices,
    Scan,
    SmallInts,
    Triples,
    first_eight,
    packed,
    read_numbers,
)

WINDOW = 1 << 25  # characters that are looked at
MIN_LINES = 64  # below that it does not pay

_SPACES = np.uint64(0x2020202020202020)
_ONES, _HIGHS = np.uint64(0x0101010101010101), np.uint64(0x8080808080808080)
_MARKS = np.array([0x80 << (8 * k) for k in range(8)], np.uint64)  # the first space is character k


def scan_lines(data: bytes) -> tuple[Scan, int] | None:
    """What the plain lines at the beginning say, and where they end; None if there are few, or if one is odd."""
    stop = data.rfind(b"\n", 0, WINDOW) + 1
    text = np.frombuffer(data[:stop] + b" " * PADDING, np.uint8)
    newline = np.flatnonzero(text == ord("\n"))
    if len(newline) < MIN_LINES:
        return None
    begin = np.concatenate([np.zeros(1, np.int64), newline[:-1] + 1])
    end = newline - (text[newline - 1] == ord("\r"))
    word = eight_bytes(text, begin)
    bound, declaration = word == packed(b"(assert "), word == packed(b"(declare")
    relation = first_eight(text, begin + 8, np.full(1, 6))
    upper = relation == packed(b"(<= X_")
    bound &= upper | (relation == packed(b"(>= X_"))
    plain = bound | declaration | (begin >= end) | (text[begin] == ord(";"))
    count = len(plain) if plain.all() else int(np.argmin(plain))
    bounds, declarations = np.flatnonzero(bound[:count]), np.flatnonzero(declaration[:count])
    if len(bounds) + len(declarations) < MIN_LINES or declarations.max(initial=-1) > bounds.min(initial=count):
        return None
    declared = _declarations(text, begin[declarations], end[declarations])
    triples = _bounds(text, begin[bounds], end[bounds], upper[bounds])
    if declared is None or triples is None:
        return None
    letters = b"d" * len(declarations) + b"(st)" * len(bounds)
    return Scan(letters, declared, triples), int(newline[count - 1]) + 1


def _index(text: Bytes, begin: Ints) -> tuple[Ints, Indices, Bools]:
    """The number of a variable, which ends at a space: how many digits, which number, and whether it is one."""
    spaces = eight_bytes(text, begin) ^ _SPACES
    found = (spaces - _ONES) & ~spaces & _HIGHS
    length = np.searchsorted(_MARKS, found & (~found + np.uint64(1)))
    value, good = digits(text, begin, length)
    good &= (found != 0) & (length > 0) & ((length == 1) | (text[begin] != ord("0")))
    return length, value.astype(np.int32), good


def _declarations(text: Bytes, begin: Ints, end: Ints) -> tuple[SmallInts, Indices] | None:
    """Kind and index of `(declare-const X_0 Real)`; None for any other form."""
    words = eight_bytes(text, begin + 8)
    is_input = words == packed(b"-const X")
    length, index, good = _index(text, begin + 17)
    good &= (is_input | (words == packed(b"-const Y"))) & (text[begin + 16] == ord("_"))
    tail = begin + 17 + length
    good &= (first_eight(text, tail, np.full(1, 6)) == packed(b" Real)")) & (tail + 6 == end)
    return (np.where(is_input, INPUT, OUTPUT).astype(np.int8), index) if good.all() else None


def _bounds(text: Bytes, begin: Ints, end: Ints, upper: Bools) -> Triples | None:
    """The comparisons `(assert (<= X_0 0.5))`; None for any other form."""
    length, index, good = _index(text, begin + 14)
    number = begin + 15 + length
    good &= (text[end - 1] == ord(")")) & (text[end - 2] == ord(")")) & (number < end - 2)
    if not good.all():
        return None
    values = read_numbers(text, number, end - 2)
    if values is None:
        return None
    mantissa, places, low, high = values
    n = len(begin)
    left, right = np.full(n, INPUT, np.int8), np.full(n, NUMBER, np.int8)
    zeros = np.zeros(n, np.int32)
    return Triples(upper, left, right, index, zeros, mantissa, places.astype(np.int16), low, high)
