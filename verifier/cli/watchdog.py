"""Keeps the time limit and Ctrl-C, also while the main thread is inside of a long call.

Python delivers signals between two instructions of the main thread, and a run checks its clock now and then.  Both
wait for calls into torch or HiGHS.  A second thread does not.
"""

from __future__ import annotations

import contextlib
import math
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator

from verifier.clock import Clock
from verifier.result.verdict import Reason

GRACE = 0.3
"""Seconds in which the run may still end by itself, after the deadline or a signal."""


@contextlib.contextmanager
def watched(clock: Clock, overdue: Callable[[Reason], None], heard: list[int]) -> Iterator[None]:
    """Calls `overdue` from another thread if the body outlives the deadline, or a signal, by more than `GRACE`.

    SIGINT and SIGTERM are noted in `heard` and raise KeyboardInterrupt in the body.  A library may turn that into
    an error of its own, so the list counts, not the exception.  Requires: called from the main thread.
    """

    def interrupt(number: int, frame: object) -> None:
        heard.append(number)
        raise KeyboardInterrupt

    ear, mouth = socket.socketpair()
    mouth.setblocking(False)
    stop = threading.Event()
    thread = threading.Thread(target=_watch, args=(ear, clock, stop, overdue), name="watchdog", daemon=True)
    wakeup = signal.set_wakeup_fd(mouth.fileno(), warn_on_full_buffer=False)
    handlers = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    thread.start()
    try:
        yield
    finally:
        stop.set()
        signal.set_wakeup_fd(wakeup)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        with contextlib.suppress(OSError):
            mouth.send(b"\0")  # wakes the thread
        thread.join()
        ear.close()
        mouth.close()


def _watch(ear: socket.socket, clock: Clock, stop: threading.Event, overdue: Callable[[Reason], None]) -> None:
    reason, limit = Reason.TIMEOUT, clock.deadline + GRACE
    while not stop.is_set():
        wait = limit - time.monotonic()
        if wait <= 0:
            overdue(reason)
            return
        heard, _, _ = select.select([ear], [], [], None if math.isinf(wait) else wait)
        if heard and set(ear.recv(64)) & {signal.SIGINT, signal.SIGTERM} and reason is Reason.TIMEOUT:
            reason, limit = Reason.INTERRUPTED, min(limit, time.monotonic() + GRACE)
