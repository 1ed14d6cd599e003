"""Output files: checked before the work begins, and never half written."""

from __future__ import annotations

import os
from pathlib import Path

from verifier.errors import InputError


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


def write_whole(path: str, text: str) -> None:
    """Writes a file so that a reader sees the old content or the new one, never a part of it.

    Devices and pipes cannot be replaced and are written to directly.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        with target.open("w", encoding="utf-8") as stream:
            stream.write(text)
        return
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("w", encoding="utf-8") as stream:
            stream.write(text)
        os.replace(temporary, target)
    finally:
        temporary.unlink(missing_ok=True)
