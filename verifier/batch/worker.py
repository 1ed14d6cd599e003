"""A worker process: it loads torch once and then decides one instance after the other.

Requests come on stdin, replies go to stdout, one JSON text per line; the first line out is `READY`.  Whatever a
library prints goes to stderr instead.
"""

from __future__ import annotations

import gc
import logging
import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import msgspec

from verifier.batch.jobs import Job
from verifier.errors import VerifierError
from verifier.result.delivery import Delivery
from verifier.result.result import Result
from verifier.result.status import Status
from verifier.result.verdict import Reason, Verdict

log = logging.getLogger(__name__)

READY = b"ready\n"

Solve = Callable[[Job, Status], Result]


class Envelope(msgspec.Struct, frozen=True):
    """A reply: the JSON of a run.  A worker that is `leaving` takes no further request."""

    result: msgspec.Raw
    leaving: bool = False


def main(warm_up: Callable[[], Solve] | None = None) -> None:
    """Answers requests until stdin ends.  `warm_up` loads what is needed and returns what decides an instance."""
    replies = _own_stdout()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the parent says what happens
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(requests,), name="requests", daemon=True).start()
    solve = (warm_up or _warm_up)()
    gc.collect()
    gc.freeze()  # what is loaded by now stays; later collections need not look at it
    _say(replies, READY)
    while True:
        job = msgspec.json.decode(requests.get(), type=Job)
        _forget_peak()
        with Desk(job, replies) as desk:
            desk.watch(desk.status.clock)
            desk.answer = solve(job, desk.status)
        gc.collect()  # after the answer: it costs nobody's time limit


class Desk(Delivery[Result]):
    """Gives one reply to one request: that of the run, or that of the deadline, with which the whole process ends.

    The parent says what signals mean.
    """

    signals = ()

    def __init__(self, job: Job, replies: BinaryIO) -> None:
        super().__init__()
        self.status = job.status()
        self._job = job
        self._replies = replies

    def early(self, reason: Reason) -> Result:
        return self.status.conclude(Verdict.TIMEOUT, Reason.TIMEOUT, "the time limit was reached")

    def write(self, answer: Result, last: bool) -> int:
        message = Envelope(msgspec.Raw(answer.as_json().encode()), leaving=last)
        _say(self._replies, msgspec.json.encode(message) + b"\n")
        return 0

    def failed(self, error: BaseException) -> bool:
        """An error of any kind is the answer for this instance, and the next one comes."""
        if not isinstance(error, Exception):
            return False
        if not isinstance(error, VerifierError):
            log.error("%s %s", self._job.network, self._job.prop, exc_info=error)
        self.give(self.status.fail(error))
        return True


def _warm_up() -> Solve:
    """Loads everything, and runs it once on a network of two ReLUs: what libraries do on their first call is done."""
    from torch import nn

    from verifier.api import verify

    net = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
    verify(net, lower=[-1.0], upper=[1.0], unsafe=[([[1.0]], [-100.0])], threads=1)
    return _solve


def _solve(job: Job, status: Status) -> Result:
    from verifier.config import Config
    from verifier.loading import GivenFiles
    from verifier.pipeline import Request, decide

    given = GivenFiles(job.network, job.prop)
    return decide(Request(given, Config.of(job.config), job.machine, job.seed, proof=job.proof), status)


def _own_stdout() -> BinaryIO:
    """The pipe to the parent, which from now on nobody else writes to."""
    sys.stdout.flush()
    private = os.dup(1)
    os.dup2(2, 1)
    return os.fdopen(private, "wb")


def _say(replies: BinaryIO, line: bytes) -> None:
    replies.write(line)
    replies.flush()


def _listen(requests: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        requests.put(line)
    os._exit(0)  # the parent has closed the pipe, or is no more


def _forget_peak() -> None:
    """Starts the peak of the resident memory anew, so that it is that of one instance; Linux only."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return
