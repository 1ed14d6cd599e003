"""VNN-LIB files to properties: reads plain and gzipped files, and picks the fast reader where it applies."""

from __future__ import annotations

import os

from verifier.errors import InputError
from verifier.files import read_stored, unpacked
from verifier.property.property import Property
from verifier.property.vnnlib.fast import parse_fast
from verifier.property.vnnlib.general import parse_general

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def load_property(path: str | os.PathLike[str]) -> Property:
    """Reads a VNN-LIB 1.0 or 2.0 file, plain or gzipped; `name.gz` is taken where `name` does not exist.

    Raises InputError, one sentence that names the file and, inside of the text, the line.
    """
    return parse(unpacked(read_stored(path), path), path)


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
