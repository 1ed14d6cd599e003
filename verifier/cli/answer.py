"""The answer of a command, given exactly once: stdout, and the files that were asked for."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from verifier.cli.files import check_writable, write_whole
from verifier.result.result import Result
from verifier.result.verdict import Verdict

log = logging.getLogger(__name__)


AnswerT = TypeVar("AnswerT")


class Answer(Generic[AnswerT]):
    """Gives one answer; whoever comes second (the deadline, an interrupt, the run itself) finds it given."""

    def __init__(self, write: Callable[[AnswerT], None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._given = False

    def give(self, answer: AnswerT) -> bool:
        """Writes the answer.  False if another one came first."""
        with self._lock, _undisturbed():
            if self._given:
                return False
            self._given = True
            self._write(answer)
            return True


@dataclass(frozen=True, slots=True)
class Sinks:
    """Where a verdict goes: stdout, and the files that are given; `json` may be '-' for stdout."""

    json: str | None = None
    result: str | None = None
    counterexample: str | None = None
    quiet: bool = False

    def check(self) -> None:
        """Raises InputError if a file cannot be written."""
        for path in (self.json, self.result, self.counterexample):
            if path not in (None, "-"):
                check_writable(path)

    def write(self, result: Result) -> None:
        """All files, then stdout; an error goes to the files only."""
        witness = result.witness
        body = f"{result.verdict.value}\n{witness or ''}"
        files = {self.result: body, self.json: result.as_json() + "\n"}
        if witness is not None:
            files[self.counterexample] = witness
        for path, text in files.items():
            write_file(path, text, loud=result.verdict is not Verdict.ERROR)
        if result.note is not None:
            log.warning("%s", result.note)
        if result.verdict is not Verdict.ERROR:
            self._print(result, body)

    def _print(self, result: Result, body: str) -> None:
        if self.json == "-":
            say(result.as_json())
        elif self.quiet:
            say(result.verdict.value)
        else:
            say(body.rstrip("\n"))


def write_file(path: str | None, text: str, loud: bool = True) -> None:
    """Nothing for None and '-'.  One file that cannot be written must not cost the others, nor the answer on stdout."""
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
