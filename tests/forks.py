"""Watching the processes that a test forks."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from speed import PATIENCE


def notebook() -> int:
    """A file in memory to which several processes may write: what one of them writes is never overwritten."""
    book = os.memfd_create("notebook")
    fcntl.fcntl(book, fcntl.F_SETFL, os.O_APPEND)
    return book


class Forks:
    """Who forked whom, in this process and in all that come from it."""

    def __init__(self) -> None:
        self._book = notebook()
        self._home = os.getpid()

    def __del__(self) -> None:
        os.close(self._book)

    def born(self, child: int) -> None:
        os.write(self._book, f"{os.getpid()} {child}\n".encode())

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Parents and children, in the order of their births."""
        lines = os.pread(self._book, 2**20, 0).decode().splitlines()
        return [(int(parent), int(child)) for parent, child in (line.split() for line in lines)]

    @property
    def children(self) -> list[int]:
        """Those of this process."""
        return [child for parent, child in self.pairs if parent == self._home]

    @property
    def grandchildren(self) -> list[int]:
        """The forks of forks."""
        return [child for parent, child in self.pairs if parent != self._home]


@contextmanager
def watched() -> Iterator[Forks]:
    """All forks inside are written down.  At the end none may be left over, not even as a zombie."""
    fork, forks = os.fork, Forks()

    def noted() -> int:
        child = fork()
        if child:
            forks.born(child)
        return child

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fork", noted)
        yield forks
    for child in forks.children:
        with pytest.raises(ChildProcessError):
            os.waitpid(child, os.WNOHANG)
    for child in forks.grandchildren:
        assert vanished(child)


def alive(process: int) -> bool:
    """Whether it still runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rsplit(")", 1)[1].split()[0] != "Z"


def vanished(process: int) -> bool:
    """Whether it ends soon."""
    end = time.monotonic() + PATIENCE
    while alive(process):
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True
