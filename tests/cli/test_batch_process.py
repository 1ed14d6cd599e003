"""Batches that are interrupted in every way: the same command then ends with every instance exactly once."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from batch.fakes import FAKE, benchmark
from speed import PATIENCE

# The command line as it is, with workers that need no torch.
SCRIPT = f"""
import functools
FAKE = {FAKE!r}
import verifier.batch.process as target
target.Launch = functools.partial(target.Launch, boot=FAKE)
from verifier.__main__ import main
main()
"""
NAMES = [f"slow_{k:02}" for k in range(8)]


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """A batch of eight instances of 0.3 s for two workers."""
    folder = benchmark(tmp_path / "family", *NAMES)
    return [sys.executable, "-c", SCRIPT, "batch", str(folder), "--out", str(tmp_path / "out"), "--jobs", "2"]


def start(command: list[str], limit: Callable[[], None] | None = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=limit,  # noqa: PLW1509
    )


def finish(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)


def lines(folder: Path) -> list[str]:
    path = folder / "out" / "results.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def wait_for_results(process: subprocess.Popen[str], folder: Path, count: int) -> None:
    limit = time.monotonic() + PATIENCE
    while len(lines(folder)) < count:
        assert process.poll() is None
        assert time.monotonic() < limit
        time.sleep(0.01)


def children_of(process: subprocess.Popen[str]) -> list[int]:
    tasks = Path(f"/proc/{process.pid}/task").iterdir()  # a child belongs to the thread that started it
    return [int(pid) for task in tasks for pid in (task / "children").read_text().split()]


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


def each_once(folder: Path, verdicts: dict[str, int]) -> None:
    records = [json.loads(line) for line in lines(folder)]
    assert sorted(r["vnnlib"] for r in records) == [f"{name}.vnnlib" for name in NAMES]
    assert Counter(r["verdict"] for r in records) == verdicts
    assert (folder / "out" / "results.csv").read_text().count("\n") == len(NAMES)


def test_the_parent_is_killed(command: list[str], tmp_path: Path) -> None:
    with start(command) as process:
        wait_for_results(process, tmp_path, 3)
        process.kill()
    kept = lines(tmp_path)
    (tmp_path / "out" / "results.jsonl").write_text("\n".join(kept) + "\n" + kept[-1][:100])  # killed in mid-write
    done = finish(command)
    assert (done.returncode, "was not finished" in done.stderr) == (0, True)
    assert lines(tmp_path)[: len(kept)] == kept
    each_once(tmp_path, {"unsat": len(NAMES)})


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_workers_do_not_outlive_their_parent(command: list[str], tmp_path: Path) -> None:
    benchmark(tmp_path / "family", "unsat", "stuck")
    with start(command) as process:
        wait_for_results(process, tmp_path, 1)
        workers = children_of(process)
        process.kill()
    assert workers
    limit = time.monotonic() + PATIENCE
    while not all(map(gone, workers)):
        assert time.monotonic() < limit
        time.sleep(0.05)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for processes in /proc")
def test_a_worker_is_killed(command: list[str], tmp_path: Path) -> None:
    with start(command) as process:
        wait_for_results(process, tmp_path, 3)
        os.kill(children_of(process)[0], signal.SIGKILL)
        out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1
    assert "the worker process died (SIGKILL)" in out
    each_once(tmp_path, {"unsat": len(NAMES) - 1, "error": 1})


def test_a_disk_that_takes_no_more(command: list[str], tmp_path: Path) -> None:
    """A limit of the size of every file that the parent writes stands in for it."""
    size = 7000  # between two and five lines

    with start(command, lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))) as process:
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, out) == (2, "")
    assert err.splitlines()[-1].startswith("error: ")
    assert "File too large; what is done is kept" in err
    kept = lines(tmp_path)
    assert 0 < len(kept) < len(NAMES)
    assert all(json.loads(line)["verdict"] == "unsat" for line in kept)
    assert finish(command).returncode == 0
    assert lines(tmp_path)[: len(kept)] == kept
    each_once(tmp_path, {"unsat": len(NAMES)})


def test_the_parent_loads_nothing_heavy(command: list[str]) -> None:
    told = "import sys; from verifier.cli.main import run; code = run(sys.argv[1:]); print(code, *sys.modules)"
    command[2] = command[2].replace("from verifier.__main__ import main\nmain()", told)
    code, *modules = finish(command).stdout.split("\n")[-2].split()
    assert code == "0"
    assert "verifier.batch.engine" in modules
    assert not {"torch", "onnx", "onnxruntime", "onnx2torch", "highspy", "ray"} & set(modules)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_keeps_what_is_done(command: list[str], tmp_path: Path, number: signal.Signals) -> None:
    with start(command) as process:
        wait_for_results(process, tmp_path, 3)
        os.killpg(process.pid, number)  # to all of them, as a terminal does
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 3
    assert "Traceback" not in err
    kept = lines(tmp_path)
    assert out.splitlines()[-1].startswith(f"{len(kept)} of 8 instances: {len(kept)} unsat; interrupted")
    assert finish(command).returncode == 0
    assert lines(tmp_path)[: len(kept)] == kept
    each_once(tmp_path, {"unsat": len(NAMES)})


def test_a_second_batch_in_the_same_folder_is_refused(command: list[str], tmp_path: Path) -> None:
    benchmark(tmp_path / "family", "unsat", "patient")
    with start(command) as process:
        wait_for_results(process, tmp_path, 1)
        second = finish(command)
        process.terminate()
    assert (second.returncode, second.stdout) == (2, "")
    assert f"another batch (process {process.pid}) is at work in this folder" in second.stderr
    assert len(lines(tmp_path)) == 1
