"""The standard streams: stdout carries the answer, so that a failure to write it is an error; stderr is for people."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TextIO

from verifier.errors import Undelivered


def stand_ins() -> None:
    """Puts something in the place of standard streams that are closed, and lets stdout take all characters.

    Files that are opened later would get their descriptors, and whatever a library prints.  What stands in for stdout
    can only be read: to write an answer there fails as it must.  Requires: called before anything is opened.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            # The lowest free descriptor is taken, hence this one.
            os.set_inheritable(os.open(os.devnull, os.O_WRONLY if name == "stderr" else os.O_RDONLY), True)
            mode = "r" if name == "stdin" else "w"
            setattr(sys, name, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115 (open for good)
    _lenient(sys.stdout)


def _lenient(stream: TextIO) -> None:
    """Characters that the terminal does not know are written as escapes, which stderr does by itself."""
    with contextlib.suppress(AttributeError, ValueError):  # not a stream of Python's own
        stream.reconfigure(errors="backslashreplace")  # type: ignore[attr-defined]


def say(text: str) -> None:
    """A line on stdout, out at once.  Raises Undelivered if it cannot be written."""
    try:
        sys.stdout.write(text + "\n")
        sys.stdout.flush()
    except (OSError, ValueError) as error:  # a full disk, a reader that has gone, a closed stream
        reason = error.strerror if isinstance(error, OSError) else None
        raise Undelivered(f"the answer cannot be written to stdout: {reason or error}") from error


def say_document(text: str) -> None:
    """A whole file on stdout: in UTF-8 as on disk, whatever the terminal knows.  Raises Undelivered as `say` does."""
    lower = getattr(sys.stdout, "buffer", None)
    if lower is None:
        say(text.removesuffix("\n"))
        return
    try:
        sys.stdout.flush()
        lower.write(text.encode(errors="backslashreplace"))
        lower.flush()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise Undelivered(f"the file cannot be written to stdout: {reason or error}") from error


def tell(text: str) -> None:
    """A line on stderr, if it can be written: nothing depends on it."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
