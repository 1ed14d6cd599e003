"""Workers of a real Ray cluster, one of this machine; they are killed, and replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from verifier.cli.main import run as command

SLOW = ("search.batch=4", "search.fill=2", "search.sharpen.after=null", "falsify.enabled=false")


def words(root: Path, *more: str) -> list[str]:
    files = [str(root / "properties/onnx/digits_fc.onnx"), str(root / "properties/vnnlib/fc_branch_1438.vnnlib")]
    return [*files, "--config", "no_cuts", *(word for key in SLOW for word in ("--set", key)), *more]


def test_without_ray_one_sentence_says_what_to_install(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    assert command(words(root, "--engine", "ray")) == 2
    found = capsys.readouterr()
    assert (found.out, found.err) == ("", "error: --engine ray needs Ray: pip install 'strata-verifier[ray]'\n")


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--address", "auto"], "--address is that of a Ray cluster: add --engine ray"),
    ],
)
def test_what_does_not_go_together_is_refused(
    root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command(words(root, *more)) == 2
    found = capsys.readouterr()
    assert found.out == ""
    assert said in found.err


def actors(ancestor: int) -> list[int]:
    """The processes of Ray that hold a worker and come from that process."""
    parents, named = {}, []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit():
                stat = (folder / "stat").read_text().rsplit(")", 1)[1].split()
                parents[int(folder.name)] = int(stat[1])
                named += [int(folder.name)] if "ray::Actor" in (folder / "cmdline").read_text() else []
        except OSError:  # it has just ended
            continue
    return [process for process in named if ancestor in _line(process, parents)]


def _line(process: int, parents: dict[int, int]) -> list[int]:
    """Its parent, the parent of that, and so on."""
    found = []
    while process in parents:
        process = parents[process]
        found.append(process)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kills", [0, 2])
def test_workers_of_ray_prove_what_one_process_proves(root: Path, tmp_path: Path, kills: int) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (pip install ray)")
    out, log = tmp_path / "answer.json", tmp_path / "log"
    more = words(root, "--engine", "ray", "--threads", "2", "--json", str(out), "-v")
    argv = [sys.executable, "-m", "verifier", *more]
    with log.open("w") as stderr:
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=stderr)
        killed = 0
        while process.poll() is None:
            time.sleep(0.5)
            if killed < kills and (some := actors(process.pid)):
                os.kill(some[0], signal.SIGKILL)
                killed += 1
                time.sleep(2.0)
    found = json.loads(out.read_text())
    assert found["verdict"] == "unsat", log.read_text()
    assert process.returncode == 0
