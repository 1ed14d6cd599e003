"""Files that are never half written."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from verifier.output import unseen


@pytest.fixture(params=["nameless", "hidden"])
def system(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file system with files that have no name, and one without."""
    if request.param == "hidden":
        monkeypatch.delattr(os, "O_TMPFILE", raising=False)
    elif not hasattr(os, "O_TMPFILE"):
        pytest.skip("this system has no files without a name")
    return str(request.param)


def test_a_file_appears_as_a_whole_and_takes_the_place_of_an_old_one(system: str, tmp_path: Path) -> None:
    target = tmp_path / "proof"
    target.write_bytes(b"old")
    with unseen(str(target)) as stream:
        stream.write(b"new")
        stream.flush()
        assert target.read_bytes() == b"old"
        assert (system == "hidden") == (len(list(tmp_path.iterdir())) == 2)
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("proof", b"new")]
    usual = tmp_path / "usual"
    usual.write_bytes(b"")
    assert stat.S_IMODE(target.stat().st_mode) == stat.S_IMODE(usual.stat().st_mode)


def write_half(path: str) -> None:
    with unseen(path) as stream:
        stream.write(b"half")
        raise ZeroDivisionError


@pytest.mark.usefixtures("system")
def test_an_error_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        write_half(str(tmp_path / "proof"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("system")
def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "proof")
    with unseen(str(tmp_path / "link")) as stream:
        stream.write(b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "proof").read_bytes() == b"new"
