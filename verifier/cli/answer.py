"""The answer of a command, given exactly once: stdout, and the files that were asked for."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from verifier.cli.files import prepare, write_whole
from verifier.errors import Undelivered
from verifier.result.result import Result
from verifier.result.verdict import Verdict
from verifier.streams import say

log = logging.getLogger(__name__)

AnswerT = TypeVar("AnswerT")


class Answer(Generic[AnswerT]):
    """Gives one answer; whoever comes second (the deadline, an interrupt, the run itself) finds it given."""

    def __init__(self, write: Callable[[AnswerT], None]) -> None:
        self._write = write
        self._lock = threading.Lock()
        self._given = False

    def give(self, answer: AnswerT) -> bool:
        """Writes the answer.  False if another one came first.  What goes wrong in writing is raised."""
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

    def prepare(self, *inputs: str) -> None:
        """Takes old answers away.  Raises InputError if a file cannot be written."""
        prepare((self.json, self.result, self.counterexample), inputs)

    def write(self, result: Result) -> None:
        """All files, then stdout; an error goes to the files only.

        Raises Undelivered, after all others were written, if one of them could not be.  After an error that is not
        said: the user hears of that one, and this may even be its consequence.
        """
        witness = result.witness
        body = f"{result.verdict.value}\n{witness or ''}"
        files = {self.result: body, self.json: result.as_json() + "\n"}
        if witness is not None:
            files[self.counterexample] = witness
        if result.note is not None:
            log.warning("%s", result.note)
        attempts = [partial(write_file, path, text) for path, text in files.items()]
        if result.verdict is not Verdict.ERROR:
            attempts.append(partial(say, self._text(result, body)))
        failed = all_of(attempts)
        if failed and result.verdict is not Verdict.ERROR:
            raise Undelivered("; ".join(failed))

    def _text(self, result: Result, body: str) -> str:
        if self.json == "-":
            return result.as_json()
        return result.verdict.value if self.quiet else body.rstrip("\n")


def write_file(path: str | None, text: str) -> None:
    """Nothing for None and '-'.  Raises Undelivered."""
    if path is not None and path != "-":
        write_whole(path, text)


def all_of(attempts: Iterable[Callable[[], None]]) -> list[str]:
    """Makes every attempt: one place that cannot be written to must not cost the others.  What went wrong, in words."""
    failed = []
    for attempt in attempts:
        try:
            attempt()
        except Undelivered as error:
            failed.append(str(error))
    return failed


@contextlib.contextmanager
def _undisturbed() -> Iterator[None]:
    """No signal may tear an answer that is being written; they can only be set by the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
