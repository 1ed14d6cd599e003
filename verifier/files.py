"""Files that are read: plain or compressed, and what goes wrong with them in one sentence."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import os
import zlib
from collections.abc import Iterator
from os import PathLike
from pathlib import Path

from verifier.errors import InputError

GZIP = b"\x1f\x8b"


def stored(path: str | PathLike[str]) -> Path:
    """The file itself, or `name.gz` where only that is there."""
    packed = f"{os.fspath(path)}.gz"
    return Path(packed if not os.path.exists(path) and os.path.exists(packed) else path)


def read_stored(path: str | PathLike[str]) -> bytes:
    """The bytes of a file, or of `name.gz` where only that is there, as they lie there.  Raises InputError."""
    try:
        return stored(path).read_bytes()
    except FileNotFoundError:
        raise InputError("the file does not exist", path) from None
    except IsADirectoryError:
        raise InputError("this is a directory, not a file", path) from None
    except PermissionError:
        raise InputError("the file may not be read (permission denied)", path) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"the file cannot be read ({reason})", path) from None


def unpacked(raw: bytes, path: str | PathLike[str]) -> bytes:
    """What the bytes of a plain or gzipped file hold; the path is for messages.  Raises InputError."""
    if not raw.startswith(GZIP):
        return raw
    try:
        return gzip.decompress(raw)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError("the gzip file is truncated or damaged", path) from None


def digest(raw: bytes) -> str:
    """What names the bytes of a file in results."""
    return hashlib.sha256(raw).hexdigest()


@contextlib.contextmanager
def blamed(what: str, path: str | PathLike[str]) -> Iterator[None]:
    """An error of the system inside becomes an InputError that says what went wrong with which file, and why."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{what}: {error.strerror or error}", path) from error
