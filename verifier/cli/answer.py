"""The answer of a run, given exactly once: stdout, and the files that were asked for."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from verifier.cli.files import check_writable, write_whole
from verifier.result.result import Result
from verifier.result.verdict import Verdict

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sinks:
    """Where the answer goes besides stdout; `json` may be '-' for stdout."""

    json: str | None = None
    result: str | None = None
    counterexample: str | None = None
    quiet: bool = False

    def check(self) -> None:
        """Raises InputError if a file cannot be written."""
        for path in (self.json, self.result, self.counterexample):
            if path not in (None, "-"):
                check_writable(path)


class Answer:
    """Gives one answer; whoever comes second (the deadline, an interrupt, the run itself) finds it given."""

    def __init__(self, sinks: Sinks) -> None:
        self._sinks = sinks
        self._lock = threading.Lock()
        self._given = False

    def give(self, result: Result) -> bool:
        """Writes all sinks.  False if another answer came first."""
        with self._lock, _undisturbed():
            if self._given:
                return False
            self._given = True
            witness = result.witness
            body = f"{result.verdict.value}\n{witness or ''}"
            files = {self._sinks.result: body, self._sinks.json: result.as_json() + "\n"}
            if witness is not None:
                files[self._sinks.counterexample] = witness
            for path, text in files.items():
                self._write(path, text, loud=result.verdict is not Verdict.ERROR)
            if result.verdict is not Verdict.ERROR:
                self._print(result, body)
            return True

    def _print(self, result: Result, body: str) -> None:
        if self._sinks.json == "-":
            say(result.as_json())
        elif self._sinks.quiet:
            say(result.verdict.value)
        else:
            say(body.rstrip("\n"))

    @staticmethod
    def _write(path: str | None, text: str, loud: bool) -> None:
        """One file that cannot be written must not cost the others, nor the answer on stdout."""
        if path is None or path == "-":
            return
        try:
            write_whole(path, text)
        except OSError as error:
            # After an error the user hears about that one only; this may even be its cause.
            log.log(logging.ERROR if loud else logging.DEBUG, "%s cannot be written: %s", path, error.strerror or error)


def say(text: str) -> None:
    """A line on stdout, out at once.  A reader that has gone away (`verify ... | head`) is no error."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        # What is left in the buffer would raise again at exit: point the descriptor elsewhere.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """Ctrl-C must not tear an answer that is being written; signals can only be set by the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
