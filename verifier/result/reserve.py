"""A witness in reserve: the network's own run confirms it, real arithmetic does not.

A proof outweighs it, and so does a witness that real arithmetic confirms; it is the answer where neither is found.  Any
process of a run may come across one, so it is kept in memory that forks share.
"""

from __future__ import annotations

import os
import pickle
import weakref

from verifier.result.counterexample import Counterexample

HEADER = 8
"""Bytes that tell the length of what follows them."""


class Reserve:
    """Keeps the first witness that it is given, by this process or any fork of it."""

    def __init__(self) -> None:
        self._own: Counterexample | None = None
        self._file: int | None = None
        if hasattr(os, "memfd_create"):  # where there is none, there are no forks either
            self._file = os.memfd_create("reserve")
            weakref.finalize(self, os.close, self._file)

    def keep(self, witness: Counterexample) -> None:
        """Takes a witness, unless there is one already."""
        if self.found() is not None:
            return
        self._own = witness
        if self._file is None:
            return
        import fcntl

        fcntl.lockf(self._file, fcntl.LOCK_EX)  # a process that is killed leaves it open to the next one
        try:
            if not self._length():
                data = pickle.dumps(witness, protocol=5)
                _write(self._file, data, HEADER)
                _write(self._file, len(data).to_bytes(HEADER, "little"), 0)  # last: now it is whole
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def found(self) -> Counterexample | None:
        """The witness, whichever process found it; it stays the same from then on."""
        if self._own is None and self._file is not None and (length := self._length()):
            self._own = pickle.loads(_read(self._file, length, HEADER))
        return self._own

    def _length(self) -> int:
        assert self._file is not None
        return int.from_bytes(os.pread(self._file, HEADER, 0), "little")


def _write(file: int, data: bytes, place: int) -> None:
    while data:
        done = os.pwrite(file, data, place)
        data, place = data[done:], place + done


def _read(file: int, length: int, place: int) -> bytes:
    data = b""
    while len(data) < length:
        data += os.pread(file, length - len(data), place + len(data))
    return data
