"""Damaged texts: the fast reader gives what the general one gives, or leaves them to it."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from property.oracles import assert_same, declared

from verifier.errors import InputError
from verifier.property.vnnlib import scan
from verifier.property.vnnlib.fast import parse_fast
from verifier.property.vnnlib.general import parse_general

NUMBERS = ("0", "-1", "0.5", "-0.25", "3.", ".5", "1e-3", "-2.5E+0", "0.1666666666666667", "123456789.5", "-0.0")
# Whole words and signs that a slip of the hand or of a program may leave in a file.
PIECES = (
    b"(",
    b")",
    b" ",
    b"\n",
    b"\r\n",
    b";",
    b"\0",
    b"or",
    b"and",
    b"assert",
    b"X_0",
    b"Y_0",
    b"0",
    b"-",
    b".",
    b"e9",
)
PIECES += (
    b"\t",
    b"\v",
    b"\f",
    b"\x1c",
    b"\x85",
    b"\xc2\xa0",
    b"\xe2\x80\x83",
    b"[",
    b"]",
    b"|",
    b'"',
    b"\x7f",
    b"\xff",
)


def valid_text(draw: random.Random) -> bytes:
    """A property of the common form, in one of the usual layouts."""
    n_x, n_y, cases = draw.randint(1, 3), draw.randint(1, 2), draw.choice((0, 0, 1, 3))
    bounds = []
    for i in range(n_x):
        low, high = sorted((draw.choice(NUMBERS) for _ in range(2)), key=float)
        bounds += [f"(>= X_{i} {low})", f"(<= X_{i} {high})"]
    rows = [f"({draw.choice(('<=', '>='))} Y_{draw.randrange(n_y)} {draw.choice(NUMBERS)})" for _ in range(cases + 1)]
    asserts = [f"(assert {atom})" for atom in (*bounds, rows[0])]
    if cases:
        joined = " ".join(row if draw.random() < 0.5 else f"(and {row} {row})" for row in rows[1:])
        asserts.append(f"(assert (or {joined}))")
    return (declared(n_x, n_y) + draw.choice(("\n", "\r\n", " ", "\n; note\n")).join(asserts) + "\n").encode()


def damaged(draw: random.Random, text: bytes) -> bytes:
    """One to three changes: a byte replaced, a piece inserted, a stretch removed or repeated, two bytes swapped."""
    found = bytearray(text)
    for _ in range(draw.choice((1, 1, 1, 2, 3))):
        at = draw.randrange(len(found))
        end = min(at + draw.randint(1, 6), len(found))
        kind = draw.randrange(5)
        if kind == 0:
            found[at] = draw.choice((draw.randrange(256), draw.randrange(32, 127), draw.choice(text)))
        elif kind == 1:
            found[at:at] = draw.choice(PIECES)
        elif kind == 2:
            del found[at:end]
        elif kind == 3:
            found[at:at] = found[at:end]
        else:
            found[at], found[end - 1] = found[end - 1], found[at]
        if not found:
            return b"("
    return bytes(found)


def texts(seed: int, count: int) -> Iterator[bytes]:
    draw = random.Random(seed)
    for _ in range(count):
        yield damaged(draw, valid_text(draw))


def compared(text: bytes) -> bool | None:
    """None if the text is not UTF-8 or is left to the general reader; otherwise both must have accepted it."""
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        return None
    found = parse_fast(text)
    if found is None:
        return None
    try:
        expected = parse_general(decoded)
    except InputError as error:
        raise AssertionError(f"only the fast reader accepts {text!r}: {error}") from error
    assert_same(found, expected)
    return True


@pytest.mark.parametrize("seed", range(4))
def test_damaged_texts_are_read_alike(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    if seed % 2:
        monkeypatch.setattr(scan, "CHUNK", 64)
    answers = [compared(text) for text in texts(seed, 750)]
    accepted = sum(answer is True for answer in answers)
    assert 50 < accepted < 700  # damage that changes nothing, a number or a comment; the rest is refused or general


def test_every_byte_behind_every_word() -> None:
    """All 256 bytes at the end of each kind of word, and in its middle."""
    text = declared(1, 1) + "(assert (>= X_0 -1.5))\n(assert (<= X_0 1))\n(assert (or (and (<= Y_0 0)) (>= Y_0 1)))\n"
    words = ("declare-const", "X_0", "Real", "assert", ">=", "-1.5", "or", "and", "Y_0")
    for word in words:
        place = text.index(word)
        for at in (place + 1, place + len(word)):
            for byte in range(256):
                compared(text[:at].encode() + bytes([byte]) + text[at:].encode())


def test_a_null_behind_a_word_is_refused() -> None:
    text = declared(1, 1) + "(assert (>= X_0 0))(assert (<= X_0 1))(assert (or\0 (<= Y_0 0) (>= Y_0 1)))"
    assert parse_fast(text.encode()) is None
    with pytest.raises(InputError):
        parse_general(text)
