"""Splits the text of a VNN-LIB 1.0 file with array operations: no Python object per token.

The text is cut into chunks in front of an opening parenthesis.  In each chunk every `(word word word)` is a triple:
a declaration, or a comparison of variables and numbers.  What is left are the few words and parentheses that hold
the triples together; they become one letter each:

    ( )  parentheses     s  assert     &  and     |  or     d  declaration     t  comparison
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from verifier.errors import InputError
from verifier.property.numbers import (
    PADDING,
    Bools,
    Bytes,
    Doubles,
    Ints,
    decimal,
    digits,
    eight_bytes,
    enclose,
    enclosure,
    rational,
    read_decimals,
)

CHUNK = 1 << 18  # small enough for the arrays of one chunk to stay in the cache
MAX_INDEX_DIGITS = 8

NUMBER, INPUT, OUTPUT = 0, 1, 2

_COMMENT = re.compile(rb";[^\n]*")
_SPACE, _OPEN, _CLOSE, _WORD = 0, 1, 2, 3
_CLASSES = {**dict.fromkeys(b"\t\n\v\f\r ", _SPACE), ord("("): _OPEN, ord(")"): _CLOSE}
_CLASS = bytes(_CLASSES.get(character, _WORD) for character in range(256))
_MASKS = np.array([(1 << (8 * k)) - 1 for k in range(9)], np.uint64)

SmallInts = NDArray[np.int8]
Indices = NDArray[np.int32]
Packed = NDArray[np.uint64]


def packed(word: bytes) -> np.uint64:
    value: np.uint64 = np.uint64(int.from_bytes(word, byteorder="little"))
    return value


@dataclass(frozen=True, slots=True, eq=False)
class Triples:
    """Comparisons in the order of the file.  One side is a variable; the other one too, or a number.

    `left` and `right` are the kinds of the two words, `left_index` and `right_index` the numbers of variables.  The
    number is mantissa / 10**places; `low` and `high` are the float64 values around it.
    """

    upper: Bools  # [n] the operator is <=, otherwise >=
    left: SmallInts  # [n]
    right: SmallInts  # [n]
    left_index: Indices  # [n]
    right_index: Indices  # [n]
    mantissa: Ints  # [n]
    places: NDArray[np.int16]  # [n]
    low: Doubles  # [n]
    high: Doubles  # [n]

    @staticmethod
    def joined(parts: list[Triples]) -> Triples:
        return Triples(*(np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Triples)))


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """A whole file: its letters, its declarations (kind, index) and its comparisons."""

    letters: bytes
    declared: tuple[SmallInts, Indices]
    triples: Triples

    @staticmethod
    def joined(parts: list[Scan]) -> Scan:
        kinds, indices = (np.concatenate([part.declared[k] for part in parts]) for k in (0, 1))
        triples = Triples.joined([part.triples for part in parts])
        return Scan(b"".join(part.letters for part in parts), (kinds, indices), triples)


def scan(data: bytes) -> Scan | None:
    """Splits a file; None if it holds anything that the letters above cannot express."""
    if b";" in data:
        data = _COMMENT.sub(b"", data)
    parts = []
    for chunk in _chunks(data):
        found = _scan_chunk(chunk)
        if found is None:
            return None
        parts.append(found)
    return Scan.joined(parts) if parts else None


def _chunks(data: bytes) -> Iterator[bytes]:
    """Pieces of the text with a padding of blanks, cut where no triple can be split."""
    position = 0
    while position < len(data):
        end = min(position + CHUNK, len(data))
        if end < len(data):
            cut = data.rfind(b"(", position + 1, end)
            end = cut if cut > position else len(data)
        yield data[position:end] + b" " * PADDING
        position = end


def _scan_chunk(chunk: bytes) -> Scan | None:
    text = np.frombuffer(chunk, np.uint8)
    begin, end, kind = _tokens(np.frombuffer(chunk.translate(_CLASS), np.uint8))
    n = len(begin)
    shape = np.concatenate([kind, np.zeros(4, np.uint8)])
    is_triple = (shape[:n] == _OPEN) & (shape[4 : n + 4] == _CLOSE)
    for k in (1, 2, 3):
        is_triple &= shape[k : n + k] == _WORD
    taken = np.concatenate([np.zeros(4, np.bool_), is_triple])
    loose = ~(taken[4:] | taken[3:-1] | taken[2:-2] | taken[1:-3] | taken[:-4])
    letters = np.array([0, ord("("), ord(")"), 0], np.uint8)[kind] * loose
    words = np.flatnonzero(loose & (kind == _WORD))
    letters[words] = _loose_letters(text, begin[words], end[words])
    if not letters[words].all():
        return None
    at = np.flatnonzero(is_triple)
    head = at + 1  # the word after '('; its two successors follow
    key = first_eight(text, begin[head], end[head] - begin[head])
    declaration = key == packed(b"declare-")
    letters[at] = np.where(declaration, np.uint8(ord("d")), np.uint8(ord("t")))
    declared = _declarations(text, begin, end, head[declaration])
    if declaration.any():
        head, key = head[~declaration], key[~declaration]
    triples = _comparisons(text, begin, end, head, key)
    if declared is None or triples is None:
        return None
    return Scan(letters[letters > 0].tobytes(), declared, triples)


def _tokens(kind_of: Bytes) -> tuple[Ints, Ints, Bytes]:
    """From the classes of all characters: where the tokens begin, where they end, what they are."""
    word = kind_of == _WORD
    apart = ~(word[:-1] & word[1:])  # whether a character and its successor are in different tokens, if in any
    first = kind_of != _SPACE
    last = first.copy()
    first[1:] &= apart
    last[:-1] &= apart
    begin = np.flatnonzero(first)
    return begin, np.flatnonzero(last) + 1, kind_of[begin]


def first_eight(text: Bytes, begin: Ints, length: Ints) -> Packed:
    """Words as numbers: their first eight characters."""
    return eight_bytes(text, begin) & _MASKS[np.minimum(length, 8)]


def _loose_letters(text: Bytes, begin: Ints, end: Ints) -> Bytes:
    """The letters of words that belong to no triple; 0 for a word that is unknown."""
    letters = np.zeros(len(begin), np.uint8)
    key = first_eight(text, begin, end - begin)
    for name, letter in ((b"assert", "s"), (b"and", "&"), (b"or", "|")):
        letters[key == packed(name)] = ord(letter)
    return letters


def _declarations(text: Bytes, begin: Ints, end: Ints, head: Ints) -> tuple[SmallInts, Indices] | None:
    """Kind and index of `(declare-const X_0 Real)`; None for any other form."""
    length = end[head] - begin[head]
    rest = first_eight(text, begin[head] + 8, length - 8)
    real = first_eight(text, begin[head + 2], end[head + 2] - begin[head + 2])
    side, index, good = _variables(text, begin[head + 1], end[head + 1])
    fine = good & (side != NUMBER) & (length == 13) & (rest == packed(b"const")) & (real == packed(b"Real"))
    return (side, index) if fine.all() else None


def _comparisons(text: Bytes, begin: Ints, end: Ints, head: Ints, operator: Packed) -> Triples | None:
    """The triples that are no declarations; None unless each compares a variable by <= or >=."""
    upper = operator == packed(b"<=")
    left, left_index, left_good = _variables(text, begin[head + 1], end[head + 1])
    right, right_index, right_good = _variables(text, begin[head + 2], end[head + 2])
    left_number, right_number = left == NUMBER, right == NUMBER
    bad = ~(left_good & right_good & (upper | (operator == packed(b">=")))) | (left_number & right_number)
    if bad.any():
        return None
    size = len(head)
    mantissa, places = np.zeros(size, np.int64), np.zeros(size, np.int16)
    low, high = np.zeros(size), np.zeros(size)
    rows = np.flatnonzero(left_number | right_number)
    word = head[rows] + np.where(left_number[rows], 1, 2)
    values = read_numbers(text, begin[word], end[word])
    if values is None:
        return None
    mantissa[rows], places[rows], low[rows], high[rows] = values
    return Triples(upper, left, right, left_index, right_index, mantissa, places, low, high)


def _variables(text: Bytes, begin: Ints, end: Ints) -> tuple[SmallInts, Indices, Bools]:
    """For words: the kind, the index of a variable, and False for a word that looks like a variable but is none."""
    letter, length = text[begin], end - begin - 2
    variable = (text[begin + 1] == ord("_")) & (length > 0)
    side = np.zeros(len(begin), np.int8)
    side[variable & (letter == ord("X"))] = INPUT
    side[variable & (letter == ord("Y"))] = OUTPUT
    index = np.zeros(len(begin), np.int32)
    good = np.ones(len(begin), np.bool_)
    chosen = np.flatnonzero(side)
    start, count = begin[chosen] + 2, length[chosen]
    value, fine = digits(text, start, count)
    fine &= (count <= MAX_INDEX_DIGITS) & ((count == 1) | (text[start] != ord("0")))
    index[chosen], good[chosen] = value, fine
    return side, index, good


def read_numbers(text: Bytes, begin: Ints, end: Ints) -> tuple[Ints, Ints, Doubles, Doubles] | None:
    """Mantissa, places and the enclosing float64 values of literals; None if some word is no such number."""
    mantissa, places, read = read_decimals(text, begin, end - begin)
    low, high = np.zeros(len(begin)), np.zeros(len(begin))
    low[read], high[read] = enclose(mantissa[read], places[read])
    for k in np.flatnonzero(~read).tolist():
        try:
            number = decimal(text[begin[k] : end[k]].tobytes().decode("latin-1"))
            if number is None or number[0].bit_length() > 62 or abs(number[1]) > 1000:
                return None
            low[k], high[k] = enclosure(rational(*number))
        except InputError:
            return None
        mantissa[k], places[k] = number
    return mantissa, places, low, high
