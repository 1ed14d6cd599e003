"""A run that is looked at while it goes on, and ended by who looks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from verifier.clock import Switch
from verifier.errors import InputError
from verifier.result.result import Result
from verifier.result.status import Snapshot, Status
from verifier.result.verdict import Reason, Verdict

INTERVAL = 0.2
"""Seconds between two calls of a callback."""
NAP = 0.02
"""Seconds after which a cancellation is noticed."""

Callback = Callable[[Snapshot], object]


@contextmanager
def watched(
    status: Status, progress: Callback | None, cancel: threading.Event | None
) -> Iterator[Callable[[Result], Result]]:
    """Inside, `progress` is called with snapshots, and the clock of the status runs out when it or `cancel` says so.

    Gives what turns the result of the run into that of its caller.  An error of `progress` is raised when the body
    ends.  Raises InputError for what cannot be called or asked.
    """
    if progress is not None and not callable(progress):
        raise InputError("progress must be a function of one argument")
    if cancel is not None and not callable(getattr(cancel, "is_set", None)):
        raise InputError("cancel must be a threading.Event")
    if progress is None and cancel is None:
        yield lambda result: result
        return
    watch = _Watch(status, progress, cancel)
    status.clock = replace(status.clock, switch=watch.switch)
    watch.thread.start()
    try:
        yield watch.ended
    finally:
        watch.over.set()
        watch.thread.join()
    if watch.error is not None:
        raise watch.error


class _Watch:
    """A thread that looks at a status until the run is over."""

    def __init__(self, status: Status, progress: Callback | None, cancel: threading.Event | None) -> None:
        self.status, self.progress, self.cancel = status, progress, cancel
        self.switch, self.over = Switch(), threading.Event()
        self.error: BaseException | None = None
        self.thread = threading.Thread(target=self._look, name="progress", daemon=True)

    def _look(self) -> None:
        naps, between = 0, round(INTERVAL / NAP)
        while not self.over.wait(NAP):
            naps += 1
            if (self.cancel is not None and self.cancel.is_set()) or (naps % between == 0 and not self._go_on()):
                self.switch.pull()
                return

    def _go_on(self) -> bool:
        try:
            return self.progress is None or self.progress(self.status.snapshot()) is not False
        except BaseException as error:  # of any kind: it is a function of the user
            self.error = error
            return False

    def ended(self, result: Result) -> Result:
        """What was ended by a cancellation did not run out of time."""
        if not self.switch.pulled or result.verdict.decided:
            return result
        return replace(result, verdict=Verdict.UNKNOWN, reason=Reason.INTERRUPTED, message="the run was cancelled")
