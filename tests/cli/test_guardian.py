"""The process that waits for the one that does the work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from cli.stuck import PATIENT, STUCK, command

from verifier.cli.guardian import guarded, note

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes are guarded on Linux only")


def dying(how: str) -> str:
    """A run that ends as `how` says."""
    return STUCK.replace("libc.usleep(60_000_000)", f"import os, signal; {how}")


def state(pid: int) -> str:
    """As in /proc: T is stopped; empty if there is no such process, or nobody has waited for it."""
    try:
        found = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return ""
    return "" if found == "Z" else found


def worker_of(process: subprocess.Popen[str]) -> int:
    (pid,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return int(pid)


def wait_until(pids: list[int], states: str) -> None:
    limit = time.monotonic() + 20
    while not all((state(pid) or "-") in states for pid in pids):
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("how", "name"),
    [
        ("os.abort()", "SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
    ],
)
def test_a_death_is_answered(tiny: Any, tmp_path: Path, how: str, name: str) -> None:
    for file in ("r", "j", "c"):
        (tmp_path / file).write_text("unsat\n")
    files = ["--result", tmp_path / "r", "--json", tmp_path / "j", "--counterexample", tmp_path / "c"]
    argv = command(tiny.net, tiny.sat, *files, script=dying(how))
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
    text = f"the process was ended by {name}; most likely the memory did not suffice"
    assert (done.returncode, done.stdout, done.stderr) == (4, "", f"stuck\nerror: {text}\n")
    assert (tmp_path / "r").read_text() == "error\n"
    assert json.loads((tmp_path / "j").read_text()) == {"verdict": "error", "reason": text}
    assert not (tmp_path / "c").exists()


def test_exit_codes_are_passed_on(tiny: Any) -> None:
    for code in (0, 1, 3, 77):
        argv = command(tiny.net, tiny.sat, script=dying(f"os._exit({code})"))
        assert subprocess.run(argv, capture_output=True, timeout=60).returncode == code


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_before_the_worker_listens(tmp_path: Path, number: signal.Signals) -> None:
    """The handlers of a run are not set yet: the guardian answers instead."""
    script = (
        "import os, signal, sys, time\nfrom verifier.cli.guardian import guarded\n"
        "code = guarded(sys.argv[1:])\nif code is None:\n    signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
        "    print('here', file=sys.stderr, flush=True)\n    time.sleep(60)\nos._exit(code)\n"
    )
    argv = command("n", "p", "--result", tmp_path / "r", script=script)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "here\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=20)
    assert (process.returncode, out, err) == (3, "unknown\n", "")
    assert (tmp_path / "r").read_text() == "unknown\n"


def test_the_worker_dies_with_its_guardian_and_stops_with_it(tiny: Any) -> None:
    argv = command(tiny.net, tiny.sat, script=PATIENT)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "stuck\n"
        both = [process.pid, worker_of(process)]
        try:
            process.send_signal(signal.SIGTSTP)
            wait_until(both, "T")
            process.send_signal(signal.SIGCONT)
            wait_until(both, "SR")
        finally:
            process.kill()
        process.wait(timeout=20)
        wait_until(both[1:], "-")


def test_without_another_process_the_work_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", none)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, set())
    assert guarded(["n", "p"]) is None
    assert signal.pthread_sigmask(signal.SIG_BLOCK, set()) == before


def test_an_answer_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "r").write_text("unsat\n")
    note(["n", "p", "--result", str(tmp_path / "r"), "--json", str(tmp_path / "j")], "error", "of some kind")
    assert (tmp_path / "r").read_text() == "unsat\n"
    assert json.loads((tmp_path / "j").read_text()) == {"verdict": "error", "reason": "of some kind"}
    note(["n", "p", "--json", "-", "--result", str(tmp_path / "none" / "r")], "error", "of some kind")


@pytest.mark.slow
def test_a_limit_of_memory_that_libraries_do_not_survive(tiny: Any, tmp_path: Path) -> None:
    for kilobytes in (300_000, 600_000):
        limited = f'ulimit -v {kilobytes}; exec "$@"'
        argv = ["bash", "-c", limited, "bash", *command(tiny.net, tiny.unsat, "--result", tmp_path / "r")]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=60)
        assert done.returncode in (2, 3, 4)
        assert (tmp_path / "r").read_text() in ("error\n", "unknown\n")
        assert "Traceback" not in done.stderr
