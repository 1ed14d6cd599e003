"""The archive of a proof, and numbers from its bytes.  Nothing is believed: what does not fit is rejected."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import IO, Any

import numpy as np

from .rationals import Array, Ints

TYPES = ((np.dtype("<u1"), 255.0), (np.dtype("<u2"), 65535.0), (np.dtype("<f4"), 1.0), (np.dtype("<f8"), 1.0))
"""How values are stored, and what they are divided by."""

_PIECE = 1 << 16
_LARGEST_HEADER = 1 << 20
_LONGEST_VARINT = 9


class Unreadable(Exception):
    """A file is not what it should be: nothing was judged."""


class Rejected(Exception):
    """The proof proves nothing, for the reason given."""


@dataclass(eq=False)
class Stream:
    """Reads a member of the archive once, from the front; `sets` holds those that are to be kept."""

    source: IO[bytes]
    sets: list[Array] = field(default_factory=list)
    _piece: bytes = b""
    _at: int = 0
    read: int = 0

    def at_end(self) -> bool:
        return self._at >= len(self._piece) and not self._more()

    def _more(self) -> bool:
        try:
            self._piece, self._at = self.source.read(_PIECE), 0
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            raise Rejected(f"the archive is damaged: {error}") from error
        return bool(self._piece)

    def take(self, count: int) -> bytes:
        """The next bytes."""
        parts = []
        while count > 0:
            if self.at_end():
                raise Rejected("the proof ends too early")
            part = self._piece[self._at : self._at + count]
            parts.append(part)
            self._at += len(part)
            self.read += len(part)
            count -= len(part)
        return b"".join(parts)

    def varint(self) -> int:
        number = 0
        for position in range(_LONGEST_VARINT):
            (byte,) = self.take(1)
            number |= (byte & 127) << (7 * position)
            if byte < 128:
                return number
        raise Rejected("a number has too many bytes")

    def below(self, limit: int, what: str) -> int:
        """A number that must be below `limit`."""
        number = self.varint()
        if number >= limit:
            raise Rejected(f"there is no {what} {number}, only {limit}")
        return number

    def double(self) -> float:
        (number,) = struct.unpack("<d", self.take(8))
        if not np.isfinite(number):
            raise Rejected("a number is not finite")
        return float(number)

    def values(self, count: int) -> Array:
        """Numbers of the type that the next byte names, as float64."""
        kind, scale = TYPES[self.below(len(TYPES), "type of values")]
        found: Array = np.frombuffer(self.take(count * kind.itemsize), kind).astype(np.float64) / scale
        if not np.isfinite(found).all():
            raise Rejected("a value is not finite")
        return found

    def set(self, n: int) -> Ints:
        """Some of the numbers 0..n-1, ascending."""
        kind = self.varint()
        if kind == 0:
            return np.arange(n)
        if kind in (1, 2):
            found = np.flatnonzero(self.bits(n))
        elif kind == 3:
            found = self._listed(n)
        elif kind - 4 < len(self.sets) and len(self.sets[kind - 4]) == n:
            return np.flatnonzero(self.sets[kind - 4])
        else:
            raise Rejected(f"there is no set {kind - 4} of {n} members")
        if kind == 2:
            kept = np.zeros(n, np.bool_)
            kept[found] = True
            self.sets.append(kept)
        return found

    def bits(self, n: int) -> Array:
        """n bits as booleans."""
        raw = np.frombuffer(self.take(-(-n // 8)), np.uint8)
        found = np.unpackbits(raw, bitorder="little").astype(np.bool_)
        if found[n:].any():
            raise Rejected("bits behind the last one are set")
        return found[:n]

    def _listed(self, n: int) -> Ints:
        count = self.below(n + 1, "count of members")
        found = np.zeros(count, np.int64)
        last = -1
        for place in range(count):
            last += 1 + self.below(n - last - 1, "distance")
            found[place] = last
        return found


@dataclass(frozen=True)
class Header:
    """What a proof says about itself."""

    network: str
    property: str
    settings: Any


@contextmanager
def opened(path: str) -> Iterator[tuple[Header, Stream | None, Stream]]:
    """The parts of a proof: its header, what it says of merged neurons, its trees.  Raises Unreadable if it is none."""
    try:
        with zipfile.ZipFile(path) as archive, ExitStack() as stack:
            names = sorted(archive.namelist())
            if names not in (["header.json", "proof.bin"], ["header.json", "merged.bin", "proof.bin"]):
                raise Unreadable("the archive does not hold header.json and proof.bin")
            header = _header(archive)
            *claims, trees = (Stream(stack.enter_context(archive.open(name))) for name in names[1:])
            yield header, claims[0] if claims else None, trees
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise Unreadable(f"the proof cannot be read: {error}") from error


def _header(archive: zipfile.ZipFile) -> Header:
    if archive.getinfo("header.json").file_size > _LARGEST_HEADER:
        raise Unreadable("the header is too large")
    try:
        found = json.loads(archive.read("header.json").decode())
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"the header is no JSON: {error}") from error
    if not isinstance(found, dict) or found.get("format") != "strata-proof":
        raise Unreadable("the header is not that of a proof")
    if found.get("version") != 1:
        raise Unreadable(f"proofs of version {found.get('version')!r} are not known")
    if not all(isinstance(found.get(key), str) for key in ("network", "property")):
        raise Unreadable("the header does not name the files by their digests")
    return Header(found["network"], found["property"], found.get("settings"))
