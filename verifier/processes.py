"""Work in a forked copy of this process: it knows all that is known here, and sends back what it finds.

Nothing has to be sent to a fork, because it begins as a copy; torch's own threads scale badly on many small
operations, whole processes scale well (docs/search.md).  A fork has no other threads than the one it begins with, so it
must keep to libraries that are told to use a single one; torch is told here.
"""

from __future__ import annotations

import ctypes
import math
import os
import pickle
import signal
import sys
import warnings
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from typing import Generic, NoReturn, TypeVar, cast

from verifier.cgroups import ControlGroups

T = TypeVar("T")
R = TypeVar("R")

Send = Callable[[object], None]

NAP = 0.05
"""Seconds after which whoever waits for a fork looks around."""

PIPE_BYTES = 2**20
"""What fits into the pipe of a fork before it has to wait for a reader."""

MOST_TICKETS = 2**63 - 1
"""What tensors and offsets of files hold."""

_F_SETPIPE_SZ, _PR_SET_PDEATHSIG = 1031, 1  # fcntl(2), prctl(2)


class Fork:
    """A forked process, as its parent sees it."""

    def __init__(self, pid: int, inbox: Connection) -> None:
        self._pid, self.inbox = pid, inbox
        self.ended = False

    @classmethod
    def start(cls, work: Callable[[Send], object]) -> Fork:
        """Runs `work` in a fork.  What it sends, and last what it returns, arrives here as messages.

        Require: `forkable()`; what is sent can be pickled.  The fork dies with its parent.  Raises MemoryError if there
        is no room for another process.
        """
        inbox, outbox = Pipe(duplex=False)
        parent, usual = os.getpid(), signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
        pid = -1
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # newer Pythons warn if there are other threads
                pid = os.fork()
        except OSError as error:
            raise MemoryError("no further process can be started") from error
        finally:
            if pid:  # a fork must not hear them before it is detached
                signal.pthread_sigmask(signal.SIG_SETMASK, usual)
        if not pid:
            inbox.close()
            _labour(work, outbox, parent)
        outbox.close()
        return cls(pid, inbox)

    def messages(self) -> list[object]:
        """What has arrived since the last call, without waiting for more.

        Raises what `work` has raised, and MemoryError if the fork was killed: that is what a machine without memory
        does to processes.
        """
        found: list[object] = []
        while not self.ended and self.inbox.poll():
            message = self._received()
            if isinstance(message, BaseException):
                raise message
            found.append(message)
        return found

    def _received(self) -> object:
        """The next message; the fork is buried after its last one."""
        try:
            self.ended, message = pickle.loads(self.inbox.recv_bytes())
        except (EOFError, OSError):  # before a message, or in the middle of one
            self.ended = True
            raise MemoryError("a part of this process was killed") from None
        finally:
            if self.ended:
                self._bury()
        return message

    def stop(self) -> None:
        """Ends the fork, whatever it is doing."""
        if not self.ended:
            self.ended = True
            os.kill(self._pid, signal.SIGKILL)
            self._bury()

    def _bury(self) -> None:
        self.inbox.close()
        os.waitpid(self._pid, 0)


class Forked(Generic[T]):
    """What one piece of work in a fork returns.  Leaving the `with` block ends the fork."""

    def __init__(self, work: Callable[[Send], T]) -> None:
        self._fork = Fork.start(work)
        self._found: list[object] = []

    def __enter__(self) -> Forked[T]:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        """Nobody needs the answer any more."""
        self._fork.stop()

    def now(self) -> T | None:
        """The answer; None if it is not there yet, or will never be.  Raises what the work has raised."""
        self._found += self._fork.messages()
        return cast("T", self._found[-1]) if self._fork.ended and self._found else None

    def ready(self) -> bool:
        """Whether the answer is there, and is not None."""
        return self.now() is not None

    def nap(self) -> None:
        """Wait for the answer, but not for long."""
        wait_for([self._fork], NAP)

    def wait(self) -> T:
        """The answer, as soon as it is there."""
        while not self._fork.ended:
            self.nap()
            self.now()
        return cast("T", self._found[-1])


def shared_file(owner: object, name: str) -> int | None:
    """A file in memory that forks share, for as long as its owner lives; None where there are no forks either."""
    if not hasattr(os, "memfd_create"):
        return None
    file = os.memfd_create(name)
    weakref.finalize(owner, os.close, file)
    return file


class Tickets:
    """Numbers that are given once, to this process or to any fork of it.

    The next number is the offset of a file in memory, which all of them share.  It is locked while it moves: recent
    kernels do not move the offset of such a file atomically.
    """

    def __init__(self) -> None:
        self._next, self._stop = 0, MOST_TICKETS
        self._file = shared_file(self, "tickets")

    def confine(self, block: range) -> None:
        """From now on, give the numbers of a block and no others: those around it are given elsewhere."""
        self._next, self._stop = block.start, block.stop
        if self._file is not None:
            os.lseek(self._file, block.start, os.SEEK_SET)

    def take(self, count: int) -> range:
        if self._file is None:
            end = self._next = self._next + count
        else:
            import fcntl

            fcntl.lockf(self._file, fcntl.LOCK_EX)  # a process that is killed leaves it open to the next one
            try:
                end = os.lseek(self._file, count, os.SEEK_CUR)
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)
        if end > self._stop:
            raise OverflowError("all numbers of this process are given")
        return range(end - count, end)


@dataclass(frozen=True)
class Forks:
    """As many processes, this one and forks of it, which share work."""

    count: int

    def map(
        self, work: Callable[[T], R], items: Sequence[T], stop: Callable[[], bool] = lambda: False
    ) -> list[R | None]:
        """The result of every item; None for items that were not reached before `stop`."""
        found: list[R | None] = [None] * len(items)
        count = min(self.count, len(items)) if forkable() else 1
        forks = [Forked(partial(_some, work, items[i::count])) for i in range(1, count)]
        try:
            for i in range(0, len(items), max(1, count)):
                if stop():
                    return found
                found[i] = work(items[i])
            for i, fork in enumerate(forks, 1):
                while (answer := fork.now()) is None:
                    if stop():
                        return found
                    fork.nap()
                found[i::count] = answer
            return found
        finally:
            for fork in forks:
                fork.end()


def _some(work: Callable[[T], R], items: Sequence[T], send: Send) -> list[R]:
    return [work(item) for item in items]


def wait_for(forks: Sequence[Fork], seconds: float) -> None:
    """Returns when a message of one of them is there, and after so many seconds at the latest."""
    wait([fork.inbox for fork in forks], seconds)


def forkable() -> bool:
    """Whether forks work here: elsewhere than on Linux, system libraries do not survive them."""
    return sys.platform == "linux"


def cores(groups: ControlGroups | None = None) -> int:
    """How many cores this process may use: those that it is bound to, and no more than its control groups allow.

    A part of a core counts as one: two processes make more of one and a half cores than one does.
    """
    bound = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    allowed = (groups or ControlGroups()).cpus()
    return bound if allowed is None else max(1, min(bound, math.ceil(allowed)))


def _labour(work: Callable[[Send], object], outbox: Connection, parent: int) -> NoReturn:
    """What a fork does, from its first instruction to its end."""
    try:
        _detach(outbox)
        if os.getppid() != parent:
            os._exit(1)

        def send(message: object, last: bool = False) -> None:
            outbox.send_bytes(pickle.dumps((last, message), protocol=5))

        try:
            result = work(send)
        except Exception as error:  # whatever it is, the parent must hear of it
            result = error
        send(result, last=True)
    finally:  # without any of the parent's clean-up: its files and threads are not ours
        os._exit(0)


def _detach(outbox: Connection) -> None:
    """The signals of the terminal are for the parent, which then ends its forks; torch's other threads stay there."""
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT, signal.SIGTERM})
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    try:
        import fcntl

        fcntl.fcntl(outbox.fileno(), _F_SETPIPE_SZ, PIPE_BYTES)
    except OSError:
        pass  # a smaller pipe only makes forks wait more often
