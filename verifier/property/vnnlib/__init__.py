"""VNN-LIB files to properties: reads plain and gzipped files, and picks the fast reader where it applies."""

from __future__ import annotations

import gzip
import os
import zlib
from pathlib import Path

from verifier.errors import InputError
from verifier.property.property import Property
from verifier.property.vnnlib.fast import parse_fast
from verifier.property.vnnlib.general import parse_general

_GZIP = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def load_property(path: str | os.PathLike[str]) -> Property:
    """Reads a VNN-LIB 1.0 or 2.0 file, plain or gzipped; `name.gz` is taken where `name` does not exist.

    Raises InputError, one sentence that names the file and, inside of the text, the line.
    """
    return parse(read_bytes(path), path)


def parse(text: str | bytes, path: str | os.PathLike[str] | None = None) -> Property:
    """Reads the text of a property.  `path` only serves the messages of errors."""
    data = text.encode() if isinstance(text, str) else text
    data = data.removeprefix(_BYTE_ORDER_MARK)
    try:
        if not data.isascii():
            _check_encoding(data)
        found = parse_fast(data)
        return parse_general(data.decode()) if found is None else found
    except InputError as error:
        if path is not None:
            error.located(path)
        raise


def _check_encoding(data: bytes) -> None:
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError("the file is not text in UTF-8", line=line) from None


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The bytes of a plain or gzipped file.  Raises InputError if that is not possible."""
    place = Path(path)
    try:
        if not place.exists() and place.with_name(place.name + ".gz").exists():
            place = place.with_name(place.name + ".gz")
        data = place.read_bytes()
    except FileNotFoundError:
        raise InputError("the file does not exist", path) from None
    except IsADirectoryError:
        raise InputError("this is a directory, not a file", path) from None
    except PermissionError:
        raise InputError("the file may not be read (permission denied)", path) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InputError(f"the file cannot be read ({reason})", path) from None
    if not data.startswith(_GZIP):
        return data
    try:
        return gzip.decompress(data)
    except (EOFError, zlib.error, gzip.BadGzipFile):
        raise InputError("the gzip file is truncated or damaged", path) from None
