"""What only a whole process shows: time limits, signals, pipes, start-up."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cli.stuck import CLUMSY, PATIENT, STUCK, command
from speed import ATTEMPTS, PATIENCE, soon


@pytest.mark.parametrize("script", [STUCK, PATIENT], ids=["stuck", "patient"])
def test_the_time_limit_holds_inside_of_a_long_call(tiny: Any, tmp_path: Path, script: str) -> None:
    argv = command(
        tiny.net, tiny.sat, "--timeout", 3, "--result", tmp_path / "r", "--json", tmp_path / "j", script=script
    )
    run = partial(subprocess.run, argv, capture_output=True, text=True, timeout=PATIENCE)
    done, took = soon(run, 4.0, lambda done: "stuck" in done.stderr)
    assert (done.returncode, done.stdout) == (3, "timeout\n")
    assert done.stderr.startswith("stuck\nundecided: the time limit was reached\n")
    assert 3.0 <= took <= 4.0
    assert (tmp_path / "r").read_text() == "timeout\n"
    data = json.loads((tmp_path / "j").read_text())
    assert (data["verdict"], data["reason"], data["lower_bound"]) == ("timeout", "timeout", -2.5)
    assert data["time"]["root"] > 0
    assert 3.0 <= data["time"]["total"] <= took + 0.02  # the start of a process is known to a hundredth of a second


def test_a_limit_that_is_over_before_anything_is_loaded(tiny: Any) -> None:
    argv = command(tiny.net, tiny.sat, "--timeout", 0)
    done, took = soon(lambda: subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE), 2.0)
    assert (done.returncode, done.stdout) == (3, "timeout\n")
    assert "a longer --timeout: most of it went by before anything was read" in done.stderr
    assert took <= 2.0


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("script", [STUCK, PATIENT, CLUMSY], ids=["stuck", "patient", "clumsy"])
def test_a_signal_ends_with_what_is_known(tiny: Any, tmp_path: Path, script: str, number: signal.Signals) -> None:
    argv = command(tiny.net, tiny.sat, "--result", tmp_path / "r", "--json", tmp_path / "j", script=script)
    for _ in range(ATTEMPTS):  # other programs may hold up some
        with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            assert process.stderr is not None
            assert process.stderr.readline() == "stuck\n"
            process.send_signal(number)
            begun = time.monotonic()
            out, err = process.communicate(timeout=PATIENCE)
            took = time.monotonic() - begun
        assert (process.returncode, out) == (3, "unknown\n")
        assert err.startswith("undecided: the run was interrupted\n")
        if took < 1.5:
            break
    assert took < 1.5
    assert (tmp_path / "r").read_text() == "unknown\n"
    data = json.loads((tmp_path / "j").read_text())
    assert (data["verdict"], data["reason"], data["lower_bound"]) == ("unknown", "interrupted", -2.5)


FOUND = """
import sys, time, types
from verifier.__main__ import main
def decide(request, status):
    import numpy as np
    from verifier.result import counterexample
    from verifier.result.verdict import Verdict
    time.sleep(0.5)  # a reader that goes away has gone
    x, y = np.zeros(2, np.float32), np.zeros(1, np.float32)
    witness = counterexample.Counterexample(x, y, 0, sharp=True, token=counterexample._REPLAYED)
    return status.conclude(Verdict.SAT, counterexample=witness)
fake, loading = types.ModuleType("verifier.pipeline"), types.ModuleType("verifier.loading")
fake.decide, fake.Request = decide, lambda *a: None
loading.GivenFiles = lambda *a: None
sys.modules["verifier.pipeline"] = sys.modules["verifier"].pipeline = fake
sys.modules["verifier.loading"] = loading
main()
"""
UNDELIVERED = "error: the answer cannot be written to stdout: "


def shell(redirect: str, *argv: object, script: str | None = None, **environment: str) -> tuple[int, str, str]:
    """Runs a command with the redirections of a shell: exit code, stdout, stderr."""
    line = f"{shlex.join(command(*argv, script=script))} {redirect}"
    everything = os.environ | environment
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60, env=everything)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("redirect", "code", "reason"),
    [
        ("> /dev/full", 4, "No space left on device"),
        (">&-", 4, "Bad file descriptor"),
        (">&- 2>&-", 4, None),
        (">&- 2>&- <&-", 4, None),
        (">&- 2>/dev/full", 4, None),
        ("2>&-", 1, None),
        ("2>/dev/full", 1, None),
        ("<&-", 1, None),
        ("| true; exit ${PIPESTATUS[0]}", 4, "Broken pipe"),
    ],
)
def test_an_answer_that_cannot_be_written(
    tiny: Any, tmp_path: Path, redirect: str, code: int, reason: str | None
) -> None:
    """No other exit code than 4, and the files have the answer nevertheless."""
    files = ["--result", tmp_path / "r", "--json", tmp_path / "j"]
    found, out, err = shell(redirect, tiny.net, tiny.sat, *files, script=FOUND)
    assert found == code
    assert err == ("" if reason is None else f"{UNDELIVERED}{reason}\n")
    assert (tmp_path / "r").read_text().startswith("sat\n((X_0 0")
    assert json.loads((tmp_path / "j").read_text())["verdict"] == "sat"
    assert ("sat" in out) == (code == 1)


@pytest.mark.parametrize("argv", [["--help"], ["--version"], ["show", "NET"]])
def test_nothing_counts_as_written_that_is_not(tiny: Any, argv: list[str]) -> None:
    words = [tiny.net if word == "NET" else word for word in argv]
    code, _, err = shell("> /dev/full", *words)
    assert (code, err.count("\n"), err[:7]) == (4, 1, "error: ")


@pytest.mark.parametrize(
    ("redirect", "bad"),
    [
        ("2>&-", "file"),
        ("2>/dev/full", "option"),
        (">&- 2>&-", "file"),
        ("", "file"),
        ("", "option"),
        pytest.param("2>&-", "option", marks=pytest.mark.slow),
        pytest.param("2>/dev/full", "file", marks=pytest.mark.slow),
        pytest.param(">&- 2>&-", "option", marks=pytest.mark.slow),
    ],
)
def test_bad_input_stays_bad_input(tiny: Any, tmp_path: Path, redirect: str, bad: str) -> None:
    argv = ["none.onnx", tiny.sat] if bad == "file" else [tiny.net, tiny.sat, "--seed", "-1"]
    (tmp_path / "r").write_text("unsat\n")
    code, out, err = shell(redirect, *argv, "--result", tmp_path / "r")
    assert (code, out, (tmp_path / "r").read_text()) == (2, "", "error\n")
    assert bool(err) == (not redirect)


@pytest.mark.parametrize("name", ["torch", "onnx2torch", "click", "msgspec"])
@pytest.mark.parametrize("how", ["raise ImportError('broken')", "raise SystemExit(1)"])
def test_a_library_that_cannot_be_imported(tiny: Any, tmp_path: Path, name: str, how: str) -> None:
    (tmp_path / f"{name}.py").write_text(how + "\n")
    (tmp_path / "r").write_text("unsat\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    code, out, err = shell("", tiny.net, tiny.unsat, "--result", tmp_path / "r", PYTHONPATH=path)
    assert (code, out) == (4, "")
    assert err.startswith("error: ")
    assert (err.count("\n"), "Traceback" in err) == (1, False)
    assert (tmp_path / "r").read_text() == "error\n"


@pytest.mark.parametrize("variable", ["PYTHONIOENCODING", "LC_ALL"])
def test_terminals_that_know_few_characters(tiny: Any, tmp_path: Path, variable: str) -> None:
    folder = tmp_path / "gr\u00f6\u00dfe"
    folder.mkdir()
    net = shutil.copy(tiny.net, folder / "net.onnx")
    environment = {variable: "ascii" if variable == "PYTHONIOENCODING" else "C", "PYTHONUTF8": "0"}
    code, out, err = shell("", "show", net, **environment)
    assert (code, err) == (0, "")
    assert "ReLU groups" in out
    code, out, err = shell("", net, folder / "none.vnnlib", **environment)
    assert (code, out) == (2, "")
    assert "does not exist" in err


HEAVY = {"torch", "onnx", "onnxruntime", "onnx2torch", "highspy", "numpy"}


@pytest.mark.parametrize(
    "argv", [["--help"], ["--version"], ["show", "--help"], ["bounds", "--help"], ["x", "y", "--help"], []]
)
def test_help_and_version_load_nothing_heavy(argv: list[str]) -> None:
    script = (
        "import sys\nfrom verifier.cli.main import run\ncode = run(sys.argv[1:])\n"
        "print(code, *sorted(m for m in sys.modules if '.' not in m), file=sys.stderr)"
    )
    done = subprocess.run(command(*argv, script=script), capture_output=True, text=True, check=True, timeout=PATIENCE)
    code, *modules = done.stderr.split("\n")[-2].split()
    assert code == ("0" if argv else "2")
    assert not HEAVY & set(modules)
    if argv:
        assert "erif" in done.stdout


def test_an_unreadable_command_line_loads_nothing_heavy() -> None:
    done = subprocess.run(command("--nonsense"), capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 2
    assert "--nonsense" in done.stderr


def test_python_dash_m_and_the_exit_code(tiny: Any) -> None:
    done = subprocess.run(command(tiny.net, tiny.unsat), capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "unsat\n", "")


@pytest.mark.slow
def test_a_trivial_instance_costs_little_more_than_the_imports(tiny: Any) -> None:
    """At most 1.5 times the import of torch, onnx and onnxruntime; both in turn, medians."""
    runs = {
        "imports": [sys.executable, "-c", "import torch, onnx, onnxruntime"],
        "verify": command(tiny.net, tiny.unsat),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(7):
        for name, argv in runs.items():
            begun = time.monotonic()
            subprocess.run(argv, capture_output=True, check=True, timeout=120)
            seconds[name].append(time.monotonic() - begun)
    imports, verify = (statistics.median(seconds[name]) for name in ("imports", "verify"))
    assert verify <= 1.5 * imports, seconds


def test_waiting_threads_sleep_unless_the_user_wants_otherwise(tiny: Any) -> None:
    script = "import os\nfrom verifier.__main__ import _prepare\n_prepare([])\nprint(os.environ['OMP_WAIT_POLICY'])\n"
    for given, expected in (({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE")):
        clean = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
        argv = [sys.executable, "-c", script]
        done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=PATIENCE, env=clean | given)
        assert done.stdout.endswith(f"{expected}\n")
