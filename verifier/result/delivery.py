"""One answer by the deadline, or the process ends: what stands around every run, of the command line or of a worker.

Python delivers signals between two instructions of the main thread, and a run checks its clock now and then.  Both
wait for calls into torch or HiGHS.  A second thread does not.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Generic, TypeVar

from verifier.clock import Clock
from verifier.output import tell
from verifier.result.status import sentence
from verifier.result.verdict import Reason

GRACE = 0.3
"""Seconds in which the run may still end by itself, after the deadline or a signal."""

AnswerT = TypeVar("AnswerT")
DeliveryT = TypeVar("DeliveryT", bound="Delivery[Any]")


class Delivery(ABC, Generic[AnswerT]):
    """Gives exactly one answer: that of the `with` block, or what is known when it must end.

    The block sets `answer`.  From `watch` on, if it outlives the deadline or a signal by more than `GRACE`, another
    thread gives the answer and ends the process.  `signals` raise KeyboardInterrupt in the block.  Requires: used in
    the main thread if there are any.
    """

    signals: tuple[int, ...] = (signal.SIGINT, signal.SIGTERM)

    def __init__(self) -> None:
        self.answer: AnswerT | None = None  # in the end the one that was given
        self.code = 0  # the exit code of the answer that was given
        self.around = contextlib.ExitStack()  # what is to end before the answer is given
        self._lock = threading.Lock()
        self._given = False
        self._heard: list[int] = []

    @abstractmethod
    def early(self, reason: Reason) -> AnswerT:
        """What is known now.  Nothing may be imported here: the main thread may be in the midst of importing it."""

    @abstractmethod
    def write(self, answer: AnswerT, last: bool) -> int:
        """Writes an answer, the only one; its exit code.  After the `last` one the process ends."""

    @abstractmethod
    def failed(self, error: BaseException) -> bool:
        """The block has ended in an error.  Whether that is dealt with here; else it is raised again."""

    def __enter__(self: DeliveryT) -> DeliveryT:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.around.close()
        # A library may turn an interrupt into an error of its own, so what was heard counts, not the exception.
        if isinstance(error, KeyboardInterrupt) or (isinstance(error, Exception) and self._heard):
            self.give(self.early(Reason.INTERRUPTED))
            return True
        if error is not None:
            return self.failed(error)
        assert self.answer is not None
        self.give(self.answer)
        return True

    def give(self, answer: AnswerT, last: bool = False) -> bool:
        """Writes the answer.  False if another one came first.  What goes wrong in writing is raised."""
        with self._lock, undisturbed():
            if self._given:
                return False
            self._given = True
            self.answer = answer
            self.code = self.write(answer, last)
            return True

    def watch(self, clock: Clock) -> None:
        """Keeps the deadline and hears signals until the block ends."""
        ear, mouth = socket.socketpair()
        mouth.setblocking(False)
        self.around.callback(ear.close)
        self.around.callback(mouth.close)
        thread = threading.Thread(target=self._wait, args=(ear, clock), name="watch", daemon=True)
        thread.start()
        self.around.callback(_stop, thread, mouth)
        if self.signals:
            self.around.callback(signal.set_wakeup_fd, signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False))
            for number in self.signals:
                self.around.callback(signal.signal, number, signal.signal(number, self._interrupt))

    def _interrupt(self, number: int, frame: object) -> None:
        self._heard.append(number)
        raise KeyboardInterrupt

    def _wait(self, ear: socket.socket, clock: Clock) -> None:
        """What a second thread does until the other end is shut: it waits for the deadline and for signals."""
        reason, limit = Reason.TIMEOUT, clock.deadline + GRACE
        while (wait := limit - time.monotonic()) > 0:
            heard, _, _ = select.select([ear], [], [], min(wait, threading.TIMEOUT_MAX))
            said = ear.recv(64) if heard else None
            if said == b"":
                return
            if set(said or b"") & set(self.signals) and reason is Reason.TIMEOUT:
                reason, limit = Reason.INTERRUPTED, min(limit, time.monotonic() + GRACE)
        self.overdue(reason)

    def overdue(self, reason: Reason) -> None:
        """Gives the answer in place of the main thread, which is inside of a long call, and ends the process."""
        try:
            given = self.give(self.early(reason), last=True)
            code = self.code
        except Exception as error:  # of any kind: nobody else can end this process
            tell(f"error: {sentence(error)}")
            given, code = True, 4
        if given:
            os._exit(code)  # the main thread cannot be ended otherwise


def _stop(thread: threading.Thread, mouth: socket.socket) -> None:
    mouth.shutdown(socket.SHUT_WR)
    thread.join()


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """No signal may tear an answer that is being written; they can only be set by the main thread."""
    with handled(signal.SIG_IGN):
        yield


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """SIGTERM ends the body as Ctrl-C does."""
    with handled(signal.default_int_handler):
        yield


@contextlib.contextmanager
def handled(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> Iterator[None]:
    """Both signals that end a process are treated in this way; only the main thread can say so."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, usual in before.items():
            signal.signal(number, usual)
