"""Output files: what stands in them before, during and after a run."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from cli.stuck import PATIENT, command

from verifier.errors import InputError, Undelivered
from verifier.output import clear, clear_named, option_value, prepare, write_whole

OUTPUTS = {"--result": "r", "--json": "j", "--counterexample": "c"}


def outputs(folder: Path) -> list[str]:
    """The options of all output files, each of which holds an older answer."""
    for name in OUTPUTS.values():
        (folder / name).write_text("unsat\n")
    return [word for option, name in OUTPUTS.items() for word in (option, str(folder / name))]


def test_a_run_that_is_killed_leaves_no_older_answer(tiny: Any, tmp_path: Path) -> None:
    argv = command(tiny.net, tiny.sat, *outputs(tmp_path), script=PATIENT)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "stuck\n"
        process.send_signal(signal.SIGKILL)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("prop", ["sat", "unsat"])
def test_only_a_witness_leaves_a_counterexample(verify: Any, tiny: Any, tmp_path: Path, prop: str) -> None:
    verify(tiny.net, getattr(tiny, prop), *outputs(tmp_path))
    assert (tmp_path / "r").read_text().split("\n")[0] == prop
    assert json.loads((tmp_path / "j").read_text())["verdict"] == prop
    assert (tmp_path / "c").exists() == (prop == "sat")


@pytest.mark.parametrize("option", OUTPUTS)
def test_a_disk_that_is_full(
    verify: Any, tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str
) -> None:
    """The other files and stdout have the answer; the exit code says that something is missing."""
    name, usual = OUTPUTS[option], Path.write_bytes

    def full(path: Path, data: bytes) -> int:
        usual(path, data[:3])
        if path.name.endswith(f".{name}"):
            raise OSError(28, "No space left on device")
        return usual(path, data)

    monkeypatch.setattr(Path, "write_bytes", full)
    outcome = verify(tiny.net, tiny.sat, *outputs(tmp_path))
    assert (outcome.code, outcome.out.split("\n")[0]) == (4, "sat")
    assert outcome.err == f"error: {tmp_path / name} cannot be written: No space left on device\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(set("cjr") - {name})
    assert "sat" in (tmp_path / ("j" if name == "r" else "r")).read_text()


def test_bounds_that_fail_leave_no_older_ones(verify: Any, tiny: Any, tmp_path: Path) -> None:
    for prop, verdict in (("none.vnnlib", "error"), (tiny.sat, None)):
        (tmp_path / "j").write_text("an older answer")
        verify("bounds", tiny.net, prop, "--method", "interval", "--json", tmp_path / "j")
        assert json.loads((tmp_path / "j").read_text()).get("verdict") == verdict


def test_an_output_is_no_input_and_no_other_output(verify: Any, tiny: Any, tmp_path: Path) -> None:
    net = shutil.copy(tiny.net, tmp_path / "net.onnx")
    os.symlink(net, tmp_path / "link")
    for pair in (
        ["--json", net],
        ["--result", tmp_path / "link"],
        ["--json", tmp_path / "a", "--result", tmp_path / "a"],
    ):
        outcome = verify(net, tiny.sat, *pair)
        assert (outcome.code, outcome.out) == (2, "")
        assert "is named twice" in outcome.err
        assert Path(net).read_bytes() == Path(tiny.net).read_bytes()
    assert verify(net, tiny.unsat, "--json", "/dev/null", "--result", "/dev/null").code == 0


def test_a_link_keeps_its_place(tmp_path: Path) -> None:
    os.symlink(tmp_path / "target", tmp_path / "link")
    write_whole(str(tmp_path / "link"), "first")
    assert (tmp_path / "target").read_text() == "first"
    clear(str(tmp_path / "link"))
    assert not (tmp_path / "target").exists()
    assert (tmp_path / "link").is_symlink()


def test_what_is_checked_first(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(InputError, match="does not exist"):
        prepare([str(tmp_path / "a"), str(tmp_path / "none" / "b")])
    assert (tmp_path / "a").read_text() == "old"
    prepare([None, "-", str(tmp_path / "a")])
    assert not (tmp_path / "a").exists()


def test_a_folder_that_takes_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file itself may be written: it is emptied at first, and then written in place."""

    def refused(path: Path, missing_ok: bool = False) -> None:
        raise PermissionError(13, "Permission denied")

    path = tmp_path / "r"
    path.write_text("unsat\n")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refused)
        patch.setattr("verifier.output.os.access", lambda place, mode: Path(place) == path)
        prepare([str(path)])
        assert path.read_text() == ""
        write_whole(str(path), "sat\n")
    assert path.read_text() == "sat\n"
    with pytest.raises(Undelivered, match="cannot be written"):
        write_whole(str(tmp_path / "none" / "r"), "sat\n")


def test_files_of_a_command_line_that_is_not_understood(tmp_path: Path) -> None:
    old, net = tmp_path / "r", tmp_path / "net"
    for path in (old, net):
        path.write_text("old")
    words = [str(net), f"--result={old}", "--json", str(net), "--counterexample"]
    assert [option_value(words, option) for option in OUTPUTS] == [str(old), str(net), None]
    clear_named(words, OUTPUTS)
    assert not old.exists()
    assert net.exists()
