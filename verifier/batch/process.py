"""The parent's side of a worker process: start it, ask it, watch it, end it."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from verifier.batch.jobs import Job, Reply
from verifier.batch.worker import READY, Envelope
from verifier.errors import VerifierError
from verifier.result.status import Status
from verifier.result.verdict import Reason, Verdict

# The child looks for modules where its parent does.  Not `-m`: that would look into the current folder first.
BOOT = "import sys; sys.path[:] = sys.argv[1:]; from verifier.batch.worker import main; main()"
STARTS = 3
"""Attempts to start a process before the batch gives up."""
START_SECONDS = 300.0
GRACE = 2.0
"""Seconds after the deadline in which the worker may still answer; its own grace is shorter."""
POLL = 0.1
"""Seconds between two looks at the memory of a process."""


class WorkerLost(VerifierError):
    """A worker process ended by itself before it answered."""


@dataclass(frozen=True, slots=True)
class Launch:
    """How worker processes are started, and how much memory each of them may use."""

    threads: int = 1
    memory_bytes: int | None = None
    verbose: bool = False  # what they write to stderr is shown rather than kept for error messages
    boot: str = BOOT

    def process(self) -> Process:
        environment = os.environ | {"OMP_NUM_THREADS": str(self.threads)}
        environment.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # threads that wait must not keep others from working
        return Process([sys.executable, "-c", self.boot, *sys.path], environment, self.verbose)


class Process:
    """A running worker process.  A thread reads what it says, so that waiting for it can have a limit."""

    def __init__(self, argv: list[str], environment: dict[str, str], verbose: bool) -> None:
        self._log = None if verbose else tempfile.TemporaryFile()  # noqa: SIM115 (closed in `end`)
        self._popen = subprocess.Popen(
            argv, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, bufsize=0
        )
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="replies", daemon=True)
        self._reader.start()

    def say(self, line: bytes) -> None:
        assert self._popen.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # it has ended; `hear` will tell
            self._popen.stdin.write(line + b"\n")
            self._popen.stdin.flush()

    def hear(self, seconds: float) -> bytes | None:
        """The next line, empty if the process has ended, None if there is nothing yet."""
        try:
            return self._lines.get(timeout=max(seconds, 0.0))
        except queue.Empty:
            return None

    def alive(self) -> bool:
        return self._popen.poll() is None

    def resident_bytes(self) -> int:
        """The memory it holds now; 0 where the system does not tell."""
        try:
            pages = Path(f"/proc/{self._popen.pid}/statm").read_text().split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")

    def kill(self) -> None:
        """Ends it at once; may be called by any thread."""
        self._popen.kill()

    def end(self) -> str:
        """Ends it if it still runs, and tells how it ended, with its last words."""
        self._popen.kill()
        code = self._popen.wait()
        self._reader.join()
        how = f"exit code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                how = signal.Signals(-code).name
        words = "" if how == "SIGKILL" else self._last_words()  # nobody speaks before that one
        for stream in (self._popen.stdin, self._popen.stdout, self._log):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        return f"{how}: {words}" if words else how

    def _last_words(self) -> str:
        if self._log is None:
            return ""
        try:
            self._log.seek(max(self._log.seek(0, os.SEEK_END) - 4096, 0))
            lines = self._log.read().decode(errors="replace").strip().splitlines()
        except OSError:
            return ""
        return " ".join(lines[-1].split())[:300] if lines else ""

    def _read(self) -> None:
        assert self._popen.stdout is not None
        rest = b""
        while chunk := self._popen.stdout.read(1 << 16):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._lines.put(line + b"\n")
        self._lines.put(b"")  # what stands after the last end of a line is torn


def _nothing() -> None: ...


@dataclass(slots=True)
class Supervisor:
    """One warm worker process, replaced when it dies or overruns."""

    launch: Launch
    _process: Process | None = None
    _closed: threading.Event = field(default_factory=threading.Event)

    def solve(self, job: Job, begun: Callable[[], None] = _nothing) -> Reply:
        """The worker's reply, or a `timeout` or `unknown` in its place if it had to be killed for time or memory.

        `begun` is called when the worker has the instance.  Raises WorkerLost if the worker died on its own, and
        VerifierError if none can be started.
        """
        start = time.monotonic()
        process = self._warm()
        begin = time.monotonic()
        process.say(msgspec.json.encode(job))
        begun()
        result = self._wait(process, job.status(begin))
        return Reply(result, time.monotonic() - begin, begin - start)

    def stop(self) -> None:
        """Makes `solve`, which runs in another thread, fail soon."""
        self._closed.set()
        process = self._process
        if process is not None:
            process.kill()

    def close(self) -> None:
        """Ends the worker for good."""
        self._closed.set()
        if self._process is not None:
            self._discard(self._process)

    def _wait(self, process: Process, status: Status) -> bytes:
        limit = self.launch.memory_bytes
        while True:
            line = process.hear(min(POLL, status.clock.remaining() + GRACE))
            if line == b"":
                raise WorkerLost(f"the worker process died ({self._discard(process)})")
            if line is not None:
                message = msgspec.json.decode(line, type=Envelope)
                if message.leaving:
                    self._discard(process)
                return bytes(message.result)
            if status.clock.remaining() < -GRACE:
                self._discard(process)
                return _replace(
                    status, Verdict.TIMEOUT, Reason.TIMEOUT, "the time limit was reached, the worker killed"
                )
            if limit is not None and process.resident_bytes() > limit:
                self._discard(process)
                text = f"the worker was killed: it used more than {limit / 1e6:.0f} MB of memory"
                return _replace(status, Verdict.UNKNOWN, Reason.MEMORY, text)

    def _warm(self) -> Process:
        """The worker, started if there is none."""
        how = "the batch was ended"
        if self._process is not None and self._process.alive():
            return self._process
        if self._process is not None:
            self._discard(self._process)
        for _ in range(STARTS):
            if self._closed.is_set():
                break
            process = self._process = self.launch.process()
            if self._closed.is_set():  # by another thread that has not seen this process
                process.kill()
            if process.hear(START_SECONDS) == READY:
                return process
            how = self._discard(process)
        raise VerifierError(f"a worker process cannot be started ({how})")

    def _discard(self, process: Process) -> str:
        self._process = None
        return process.end()


def _replace(status: Status, verdict: Verdict, reason: Reason, message: str) -> bytes:
    """The answer in place of one that a worker could not give."""
    return status.conclude(verdict, reason, message).as_json().encode()


def lost(job: Job, error: WorkerLost, seconds: float) -> Reply:
    """The reply for an instance whose worker died."""
    status = job.status(time.monotonic() - seconds)
    return Reply(status.fail(error).as_json().encode(), seconds)
