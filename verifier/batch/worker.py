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

from verifier.batch.records import Job
from verifier.clock import Clock
from verifier.errors import VerifierError
from verifier.result.ledger import Ledger
from verifier.result.result import Result
from verifier.result.verdict import Reason, Verdict

log = logging.getLogger(__name__)

READY = b"ready\n"
GRACE = 0.3
"""Seconds in which a run may still end by itself after its deadline."""

Solve = Callable[[Job, Ledger], Result]


class Message(msgspec.Struct, frozen=True):
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
        Desk(replies).answer(job, solve)
        gc.collect()  # after the answer: it costs nobody's time limit


class Desk:
    """Gives one reply to one request: that of the run, or that of the deadline."""

    def __init__(self, replies: BinaryIO) -> None:
        self._replies = replies
        self._lock = threading.Lock()
        self._given = False

    def answer(self, job: Job, solve: Solve) -> None:
        """Decides the instance.  A run that is inside of a long call at its deadline ends with the whole process."""
        ledger = Ledger(job.setting, Clock.begin(job.timeout))
        timer = threading.Timer(min(ledger.clock.remaining() + GRACE, threading.TIMEOUT_MAX), self._overdue, (ledger,))
        timer.daemon = True
        timer.start()
        try:
            result = solve(job, ledger)
        except Exception as error:  # of any kind: it is the answer for this instance, and the next one comes
            if not isinstance(error, VerifierError):
                log.exception("%s %s", job.network, job.prop)
            result = ledger.fail(error)
        timer.cancel()
        self._give(result)

    def _overdue(self, ledger: Ledger) -> None:
        if self._give(ledger.conclude(Verdict.TIMEOUT, Reason.TIMEOUT, "the time limit was reached"), leaving=True):
            os._exit(0)  # the main thread cannot be ended otherwise

    def _give(self, result: Result, leaving: bool = False) -> bool:
        with self._lock:
            if self._given:
                return False
            self._given = True
            message = Message(msgspec.Raw(result.as_json().encode()), leaving)
            _say(self._replies, msgspec.json.encode(message) + b"\n")
            return True


def _warm_up() -> Solve:
    """Loads everything, and runs it once on a network of two ReLUs: what libraries do on their first call is done."""
    from torch import nn

    from verifier import loading, run
    from verifier.config import Config

    net = nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 1))
    run.verify(net, lower=[-1.0], upper=[1.0], unsafe=[([[1.0]], [-100.0])], threads=1)

    def solve(job: Job, ledger: Ledger) -> Result:
        load = loading.from_files(job.network, job.prop)
        return run.decide(run.Task(load, Config.of(job.config), job.device, job.threads, job.seed), ledger)

    return solve


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
