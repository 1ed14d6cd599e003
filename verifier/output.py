"""Where answers go: the standard streams, and files that are never half written.

stdout carries the answer, so that a failure to write it is an error; stderr is for people.  Output files are checked
and emptied of old answers before the work begins.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, TextIO

from verifier.errors import InputError, Undelivered


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


class LiveLine:
    """The last line of a terminal, written over again and again, until there is an answer."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._shown = self._over = False

    def show(self, text: str) -> None:
        """Puts a text there, as much of it as fits."""
        with self._own() as own, contextlib.suppress(OSError, ValueError):
            if own and not self._over:
                width = os.get_terminal_size(sys.stderr.fileno()).columns or 80
                sys.stderr.write(f"\r{text[: width - 1]}\x1b[K")
                sys.stderr.flush()
                self._shown = True

    def erase(self, for_good: bool = False) -> None:
        """Makes room for another text.  After the last one nothing is shown any more."""
        with self._own(), contextlib.suppress(OSError, ValueError):
            self._over = self._over or for_good
            if self._shown:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
                self._shown = False

    @contextlib.contextmanager
    def _own(self) -> Iterator[bool]:
        """Whether nobody else writes: a terminal that takes nothing more must not hold the answer back for long."""
        own = self._lock.acquire(timeout=0.2)
        try:
            yield own
        finally:
            if own:
                self._lock.release()


LINE = LiveLine()


def say(text: str) -> None:
    """A line on stdout, out at once.  Raises Undelivered if it cannot be written."""
    LINE.erase(for_good=True)
    with _delivered("answer"):
        sys.stdout.write(text + "\n")
        sys.stdout.flush()


def say_document(text: str) -> None:
    """A whole file on stdout: in UTF-8 as on disk, whatever the terminal knows.  Raises Undelivered as `say` does."""
    lower = getattr(sys.stdout, "buffer", None)
    if lower is None:
        say(text.removesuffix("\n"))
        return
    with _delivered("file"):
        sys.stdout.flush()
        lower.write(text.encode(errors="backslashreplace"))
        lower.flush()


@contextlib.contextmanager
def _delivered(what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # a full disk, a reader that has gone, a closed stream
        reason = error.strerror if isinstance(error, OSError) else None
        raise Undelivered(f"the {what} cannot be written to stdout: {reason or error}") from error


def tell(text: str) -> None:
    """A line on stderr, if it can be written: nothing depends on it."""
    LINE.erase()
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(text + "\n")
        sys.stderr.flush()


def check_writable(path: str) -> None:
    """Raises InputError now, rather than after an hour of work, if the file cannot be written."""
    target = Path(os.path.realpath(path))
    folder = target.parent
    if target.is_dir():
        raise InputError("this is a directory, not a file to write to", path)
    if not folder.is_dir():
        raise InputError("the folder of this output file does not exist", path)
    if not os.access(target if target.exists() else folder, os.W_OK):
        raise InputError("this output file cannot be written: permission denied", path)


def prepare(outputs: Iterable[str | None], inputs: Iterable[str] = ()) -> None:
    """Makes sure that all outputs can be written, and that no old answer stands in them while there is no new one.

    None and '-' are no files.  Raises InputError, before anything is removed, for an output that cannot be written,
    that is also an input, or that is named twice.
    """
    taken = {os.path.realpath(path) for path in inputs}
    wanted = [path for path in outputs if path is not None and path != "-"]
    for path in wanted:
        check_writable(path)
        place = os.path.realpath(path)
        device = os.path.exists(place) and not os.path.isfile(place)
        if place in taken and not device:
            raise InputError("this output file is named twice on the command line", path)
        taken.add(place)
    for path in wanted:
        try:
            clear(path)
        except OSError as error:
            raise InputError(f"the old file cannot be removed: {error.strerror or error}", path) from error


def clear(path: str) -> None:
    """Removes a file, or empties it where nothing can be removed; devices and pipes stay as they are."""
    target = Path(os.path.realpath(path))
    if not target.is_file():
        return
    try:
        target.unlink()
    except PermissionError:
        os.truncate(target, 0)


def clear_named(words: Sequence[str], options: Iterable[str]) -> None:
    """Removes the files that a command line names as values of these options, unless it names them elsewhere too.

    What goes wrong is passed over: this comes before anything is checked.
    """
    with contextlib.suppress(OSError, ValueError):
        places = [os.path.realpath(word) for word in words]
        places += [os.path.realpath(word.partition("=")[2]) for word in words if "=" in word]
        for option in options:
            path = option_value(words, option)
            if path not in (None, "-") and places.count(os.path.realpath(str(path))) == 1:
                clear(str(path))


def option_value(words: Sequence[str], option: str) -> str | None:
    """The value of an option in `--option VALUE` or `--option=VALUE`."""
    for i, word in enumerate(words):
        if word == option and i + 1 < len(words):
            return words[i + 1]
        if word.startswith(f"{option}="):
            return word.partition("=")[2]
    return None


def unanswered(words: Sequence[str]) -> dict[str, str]:
    """The files for the verdict that a command line names and that do not exist: `json`, which may be '-', `result`."""
    named = {option: option_value(words, f"--{option}") for option in ("json", "result")}
    return {option: path for option, path in named.items() if path and not os.path.exists(path)}


def write_whole(path: str, text: str) -> None:
    """Writes a file so that a reader sees the old content or the new one, never a part of it.

    Devices and pipes cannot be replaced and are written to directly, as is a file whose folder takes no other.
    Raises Undelivered.
    """
    write_bytes(path, text.encode(errors="backslashreplace"))


def write_bytes(path: str, data: bytes) -> None:
    """The same for what is no text."""
    target = Path(os.path.realpath(path))
    try:
        if target.exists() and not (target.is_file() and os.access(target.parent, os.W_OK)):
            target.write_bytes(data)
            return
        with aside(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise Undelivered(f"{path} cannot be written: {error.strerror or error}") from error


@contextlib.contextmanager
def aside(path: str) -> Iterator[Path]:
    """A file beside `path`, with the same suffix, that takes its place when the body is done."""
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{os.getpid()}.{target.name}")
    try:
        yield temporary
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def unseen(path: str) -> Iterator[BinaryIO]:
    """A file without a name, which gets this one when the body is done and all is on disk.

    Guarantees: a process that is killed leaves nothing behind (Linux); elsewhere, or where the file system has no such
    files, a hidden file beside `path` may be left.  An error in the body leaves nothing.
    """
    target = Path(os.path.realpath(path))
    try:
        number = os.open(target.parent, os.O_TMPFILE | os.O_RDWR, 0o666)
    except (AttributeError, OSError):
        with aside(path) as temporary, temporary.open("w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        return
    with open(number, "w+b") as stream:
        yield stream
        stream.flush()
        os.fsync(number)
        target.unlink(missing_ok=True)  # a link takes no name that is taken
        # The descriptor of the folder makes Python follow the link of /proc to the file itself.
        os.link(f"/proc/self/fd/{number}", target, src_dir_fd=number, follow_symlinks=True)


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


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of text with aligned columns, the first one to the left and all others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("   ".join([first.ljust(widths[0]), *cells]).rstrip())
    return lines


def wrapped(text: str, width: int, first: str, others: str) -> list[str]:
    """A sentence in lines of at most that width, as far as its words allow, each behind its indent."""
    lines, line = [], first
    for word in text.split():
        if len(line) + len(word) > width and line.strip():
            lines.append(line.rstrip())
            line = others
        line += f"{word} "
    return [*lines, line.rstrip()]
