"""The words of a proof as bytes (docs/proofs.md): numbers, arrays, sets, and nodes that are made of them.

Sets that many nodes name are written once and referred to afterwards.  Which of them come first is only known when the
whole proof is put in order, so until then a node is a list of pieces: bytes, and sets that wait for their place.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]


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


@dataclass(frozen=True)
class Kept:
    """A set of numbers below n that the proof keeps, as packed bits."""

    n: int
    bits: bytes


Piece = bytes | Kept


def varint(number: int) -> bytes:
    """Seven bits per byte, lowest first; the top bit says that another byte follows."""
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


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

    def grid(self, values: NDArray[np.float64], steps: int) -> Pieces:
        """Numbers that are multiples of 1 / steps, in [0, 1]: one or two bytes each."""
        kind, dtype = (0, "u1") if steps == 255 else (1, "<u2")
        self._bytes.append(kind)
        self._bytes += np.rint(values * steps).astype(dtype).tobytes()
        return self

    def floats(self, values: NDArray[np.float64], single: bool) -> Pieces:
        """Any numbers; `single` says that each is a float32."""
        self._bytes.append(2 if single else 3)
        self._bytes += values.astype("<f4" if single else "<f8").tobytes()
        return self

    def members(self, mask: Bools, keep: bool = False) -> Pieces:
        """A set, in the shortest form unless it is to be kept."""
        n, places = len(mask), np.flatnonzero(mask)
        if len(places) == n:
            return self.numbers(0)
        if keep and len(places) > 2:
            return self.add([Kept(n, np.packbits(mask, bitorder="little").tobytes())])
        if 2 + 2 * len(places) < n / 8 or not len(places):
            self.numbers(3, len(places))
            return self.numbers(*places[:1].tolist(), *(np.diff(places) - 1).tolist())
        self.numbers(1)
        self._bytes += np.packbits(mask, bitorder="little").tobytes()
        return self

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
        return b"".join(piece if isinstance(piece, bytes) else self._set(piece) for piece in pieces)

    def _set(self, kept: Kept) -> bytes:
        known = self._known.get(kept)
        if known is not None:
            return varint(4 + known)
        self._known[kept] = len(self._known)
        return varint(2) + kept.bits


def chosen(n: int, places: Iterable[int]) -> Bools:
    """The set of some numbers below n, as a mask."""
    mask = np.zeros(n, dtype=bool)
    mask[list(places)] = True
    return mask
