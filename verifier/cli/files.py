"""Output files: checked and emptied of old answers before the work begins, and never half written."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from verifier.errors import InputError, Undelivered


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


def write_whole(path: str, text: str) -> None:
    """Writes a file so that a reader sees the old content or the new one, never a part of it.

    Devices and pipes cannot be replaced and are written to directly, as is a file whose folder takes no other.
    Raises Undelivered.
    """
    target = Path(os.path.realpath(path))
    data = text.encode(errors="backslashreplace")
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
