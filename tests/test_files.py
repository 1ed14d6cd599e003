"""Files that are read: which one is taken, and what is said of those that cannot be read."""

from __future__ import annotations

import gzip
import hashlib
import os
from pathlib import Path

import pytest

from verifier.errors import InputError
from verifier.files import blamed, digest, read_stored, stored, unpacked


def test_a_packed_file_counts_only_where_there_is_no_other(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.txt", tmp_path / "a.txt.gz"
    assert stored(plain) == plain
    packed.write_bytes(gzip.compress(b"packed"))
    assert stored(str(plain)) == packed
    assert unpacked(read_stored(plain), plain) == b"packed"
    plain.write_bytes(b"plain")
    assert stored(plain) == plain
    assert unpacked(read_stored(plain), plain) == b"plain"


def test_a_digest_is_that_of_the_bytes_as_they_lie_there(tmp_path: Path) -> None:
    packed = tmp_path / "a.gz"
    packed.write_bytes(gzip.compress(b"x"))
    assert digest(read_stored(tmp_path / "a")) == hashlib.sha256(packed.read_bytes()).hexdigest()


def test_what_cannot_be_read_is_one_sentence_with_the_file(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none", "does not exist"), (tmp_path, "directory"), ("a\0b", "null byte")):
        with pytest.raises(InputError, match=why) as caught:
            read_stored(path)
        assert caught.value.path == str(path)
    with pytest.raises(InputError, match="truncated"):
        unpacked(gzip.compress(b"x" * 1000)[:-9], "cut.gz")


def test_errors_of_the_system_name_what_was_done_and_the_reason() -> None:
    with pytest.raises(InputError) as caught, blamed("the list cannot be read", "list.csv"):
        os.stat("/none/such")
    assert str(caught.value) == "list.csv: the list cannot be read: No such file or directory"
