"""What a proof is made of, as notes one after the other in a file.

The file has no name, so that a run that is killed leaves nothing behind; or it is one that another run goes on with.
Such a run is told how far the file counts, and its checksum; whatever follows was written too late, and is cut off.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import marshal
import os
import struct
import tempfile
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO

from verifier.errors import InputError
from verifier.files import blamed
from verifier.proofs.stream import Piece

log = logging.getLogger(__name__)

Place = tuple[int | float, ...]
Written = list[Piece]


@dataclass(frozen=True)
class Born:
    """A domain, where it differs from its parent, and its clause; a whole one may finish a domain of another search."""

    number: int
    parent: int  # -1: it is a whole one
    clause: int
    places: tuple[Place, ...]
    boxes: bool = False
    finishes: int = -1


@dataclass(frozen=True)
class Said:
    """Nodes of a domain; after the last ones it is closed."""

    number: int
    pieces: Written
    last: bool


@dataclass(frozen=True)
class Covered:
    """Nodes that close all children of a domain which differ from it at these places, and maybe at further ones."""

    number: int
    places: tuple[Place, ...]
    pieces: Written


@dataclass(frozen=True)
class Dropped:
    """Domains that others cover."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Sharper:
    """Better bounds of hidden neurons of one group, on a whole box of the property.

    Those of the root were there before anything was closed; with the others a search has gone on.
    """

    box: int
    group: int
    pieces: Written
    root: bool = False


@dataclass(frozen=True)
class Rooted:
    """What closes clauses at the root, and the boxes whose bounds a search by signs begins with."""

    closings: dict[int, Written]
    boxes: tuple[int, ...]


@dataclass(frozen=True)
class Anew:
    """A run goes on with these domains as they were: what they were split into since then is told again."""

    numbers: tuple[int, ...]


Note = Born | Said | Covered | Dropped | Sharper | Rooted | Anew

KINDS: tuple[type[Note], ...] = (Born, Said, Covered, Dropped, Sharper, Rooted, Anew)
"""In the file a note is the place of its class here, and its fields."""

SIZE = struct.Struct("<Q")
"""Of what follows it in the file."""

FORMAT = 4
"""Of marshal, which all versions of Python read."""

BLOCK = 2**20
"""Bytes that are read at a time."""


class NoteLog:
    """Appends notes to a file, and gives them back by their places.

    A disk that takes no more ends the log, not the search: then nothing counts any more, and nothing is given back.
    """

    def __init__(self, path: str | None = None, counted: tuple[int, str] = (0, "")) -> None:
        """`counted` says how much of the file counts, and its SHA-256.  Raises InputError if it is not there."""
        self._digest, self._end = hashlib.sha256(), counted[0]
        self._failure: OSError | None = None
        if path is None:
            self._file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 (open as long as the log)
        else:
            with blamed("notes for the proof cannot be kept here", path):
                self._file = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o666), "r+b")
        weakref.finalize(self, _close, self._file)
        if path is not None:
            self._begin(path, counted[1])

    def _begin(self, path: str, sha256: str) -> None:
        """Read what counts, and cut off the rest."""
        left = self._end
        while left and (block := self._file.read(min(left, BLOCK))):
            self._digest.update(block)
            left -= len(block)
        if left or (self._end and self._digest.hexdigest() != sha256):
            raise InputError(
                "the notes for the proof are truncated or damaged; remove the checkpoint to begin anew", path
            )
        self._file.truncate(self._end)
        self._file.seek(self._end)

    def known(self) -> Iterator[tuple[int, Note]]:
        """All notes of earlier runs, with their places.  Require: nothing was put there yet."""
        place = 0
        while place < self._end:
            data = self._read(place)
            yield place, _note(data)
            place += SIZE.size + len(data)
        self._file.seek(self._end)

    def put(self, note: Note) -> int:
        """The place of the note.  Require: nothing is read before the last note."""
        place, data = self._end, marshal.dumps((KINDS.index(type(note)), *vars(note).values()), FORMAT)
        if self._failure is None:
            self._write(SIZE.pack(len(data)) + data)
        return place

    def _write(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            log.warning("there will be no proof, because notes for it cannot be kept: %s", error.strerror or error)
            self._failure = error
        self._digest.update(data)
        self._end += len(data)

    def counted(self) -> tuple[int, str]:
        """How many bytes count now, and their SHA-256.  Guarantee: they are on disk.  Raises OSError."""
        self._check()
        self._file.flush()
        os.fsync(self._file.fileno())
        return self._end, self._digest.hexdigest()

    def pieces(self, place: int) -> Written:
        """The nodes of the note at a place.  Raises OSError."""
        self._check()
        note = _note(self._read(place))
        assert isinstance(note, Said | Covered | Sharper)
        return note.pieces

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _read(self, place: int) -> bytes:
        self._file.seek(place)
        (size,) = SIZE.unpack(self._file.read(SIZE.size))
        return self._file.read(size)


def _close(file: IO[bytes]) -> None:
    with contextlib.suppress(OSError):  # what could not be written is known
        file.close()


def _note(data: bytes) -> Note:
    kind, *fields = marshal.loads(data)
    note: Note = KINDS[kind](*fields)
    return note
