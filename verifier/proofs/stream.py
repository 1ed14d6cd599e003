"""The words of a proof as bytes (docs/proofs.md): numbers, arrays, sets, and nodes that are made of them.

Sets that many nodes name are written once and referred to afterwards.  Which of them come first is only known when the
whole proof is put in order, so until then a node is a list of pieces: bytes, and sets that wait for their place.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Iterable, Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]


class Node(IntEnum):
    """What stands at the beginning of a node."""

    SPLIT = 1
    CUT = 2
    DEFAULT = 3
    IMPROVE = 4
    SHRINK = 5
    EMPTY = 6
    CLOSE = 7
    PART = 8
    KEEP = 9
    RECALL = 10
    IMPLY = 11
    DIVIDE = 12


Kept = tuple[int, bytes]
"""A set of numbers below the first one that the proof keeps, as packed bits."""

Piece = bytes | Kept


SHORT = [bytes([number]) for number in range(0x80)]
"""Numbers of one byte."""


def varint(number: int) -> bytes:
    """Seven bits per byte, lowest first; the top bit says that another byte follows."""
    if number < 0x80:
        return SHORT[number]
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def varints(numbers: Ints) -> tuple[bytes, Ints]:
    """Many of them, one after the other, and where each of them ends."""
    widths = np.sum([numbers >> bits > 0 for bits in range(7, 63, 7)], axis=0, dtype=np.int64) + 1
    ends = np.cumsum(widths)
    found = np.zeros(int(ends[-1]) if len(ends) else 0, dtype=np.uint8)
    for byte in range(int(widths.max(initial=0))):
        some = widths > byte
        more = np.where(widths[some] > byte + 1, 0x80, 0)
        found[ends[some] - widths[some] + byte] = (numbers[some] >> 7 * byte & 0x7F) | more
    return found.tobytes(), ends


def sets(masks: Bools, keep: bool = False) -> list[Piece]:
    """One set for each row [rows, n] of masks, in the shortest form unless they are to be kept."""
    n, counts = masks.shape[1], masks.sum(axis=1)
    every, many = counts == n, counts > (2 if keep else n)
    thin = ~every & ~many & ((2 + 2 * counts < n / 8) | (counts == 0))
    bits, listed = np.packbits(masks, axis=1, bitorder="little"), iter(_listed(masks[thin]) if thin.any() else ())
    found: list[Piece] = []
    for row in range(len(masks)):
        if every[row]:
            found.append(b"\0")
        elif many[row]:
            found.append((n, bits[row].tobytes()))
        else:
            found.append(next(listed) if thin[row] else b"\1" + bits[row].tobytes())
    return found


def _listed(masks: Bools) -> list[bytes]:
    """Sets as their count, their first member, and the gaps between the others."""
    rows, places = np.nonzero(masks)
    counts = masks.sum(axis=1)
    ends = np.cumsum(counts + 2)
    starts = ends - counts - 2
    first = np.diff(rows, prepend=-1) > 0
    numbers = np.empty(len(places) + 2 * len(masks), dtype=np.int64)
    numbers[starts], numbers[starts + 1] = 3, counts
    numbers[np.arange(len(places)) + 2 * (rows + 1)] = np.where(first, places, np.diff(places, prepend=0) - 1)
    data, stops = varints(numbers)
    edges = [0, *(int(stops[end - 1]) for end in ends)]
    return [data[start:stop] for start, stop in itertools.pairwise(edges)]


class Pieces:
    """A node, or a part of one, while it is written."""

    def __init__(self) -> None:
        self._done: list[Piece] = []
        self._bytes = bytearray()

    def numbers(self, *numbers: int) -> Pieces:
        for number in numbers:
            self._bytes += varint(number)
        return self

    def doubles(self, *values: float) -> Pieces:
        self._bytes += struct.pack(f"<{len(values)}d", *values)
        return self

    def members(self, mask: Bools) -> Pieces:
        """A set, in the shortest form."""
        return self.add(sets(mask[np.newaxis]))

    def raw(self, data: bytes) -> Pieces:
        self._bytes += data
        return self

    def add(self, pieces: Iterable[Piece]) -> Pieces:
        """What was written elsewhere."""
        for piece in pieces:
            if isinstance(piece, bytes):
                self._bytes += piece
            else:
                self._flush()
                self._done.append(piece)
        return self

    def _flush(self) -> None:
        if self._bytes:
            self._done.append(bytes(self._bytes))
            self._bytes.clear()

    def done(self) -> list[Piece]:
        self._flush()
        return self._done


class SetTable:
    """The sets that a proof keeps, in the order in which it names them."""

    def __init__(self) -> None:
        self._known: dict[Kept, int] = {}

    def written(self, pieces: Sequence[Piece]) -> bytes:
        """The pieces with every set in its place: the first time as it is, then as a number."""
        return b"".join([piece if isinstance(piece, bytes) else self._set(piece) for piece in pieces])

    def _set(self, kept: Kept) -> bytes:
        known = self._known.get(kept)
        if known is not None:
            return varint(4 + known)
        self._known[kept] = len(self._known)
        return varint(2) + kept[1]


def chosen(n: int, places: Iterable[int]) -> Bools:
    """The set of some numbers below n, as a mask."""
    mask = np.zeros(n, dtype=bool)
    mask[list(places)] = True
    return mask
