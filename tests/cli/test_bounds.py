"""`verify bounds`: tables, JSON, figures, bad command lines, time limits."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from speed import PATIENCE, soon

from verifier.cli.survey import MOST, table_lines
from verifier.report import curves
from verifier.result.lower_bounds import LowerBounds, RowBound
from verifier.result.verdict import Reason


@pytest.fixture(scope="module")
def digits(root: Path) -> tuple[str, str]:
    folder = root / "properties"
    return str(folder / "onnx/digits_fc.onnx"), str(folder / "vnnlib/fc_branch_1438.vnnlib")


def test_a_table_and_a_summary(verify: Any, tiny: Any) -> None:
    """By hand: 0 <= relu(h) <= h / 2 + 1 for both ReLUs, so CROWN has y >= x_0 / 2 - x_1 / 2 - 1 >= -2."""
    outcome = verify("bounds", tiny.net, tiny.unsat, "--method", "crown")
    assert (outcome.code, outcome.err) == (0, "")
    head, row, summary = outcome.out.splitlines()
    assert head.split() == ["clause", "rows", "lower", "bound"]
    assert row.split() == ["0", "1", "2", "closed"]
    assert re.fullmatch(r"1 of 1 clauses closed; worst bound 2; \d+\.\d s", summary)
    outcome = verify("bounds", tiny.net, tiny.sat, "--method", "crown")
    assert outcome.code == 0
    assert outcome.out.splitlines()[1].split() == ["0", "1", "-1.25", "open"]
    assert "0 of 1 clauses closed; worst bound -1.25" in outcome.out


def test_quiet_is_the_summary_only(verify: Any, tiny: Any) -> None:
    assert verify("bounds", tiny.net, tiny.unsat, "--method", "crown", "-q").out.startswith("1 of 1 clauses closed")


def test_json_replaces_the_table(verify: Any, digits: tuple[str, str], tmp_path: Path) -> None:
    argv = ["--method", "alpha_crown", "--iterations", "7", "--intermediate", "paper", "--seed", "2"]
    outcome = verify("bounds", *digits, *argv, "--json", "-", "--set", "bounding.alpha_crown.first_step=0.1")
    assert (outcome.code, outcome.err) == (0, "")
    data = json.loads(outcome.out)
    assert (data["method"], data["iterations"], data["seed"]) == ("alpha_crown", 7, 2)
    assert (data["network"], data["property"]) == digits
    assert [row["clause"] for row in data["rows"]] == list(range(9))
    assert data["best_per_clause"] == [row["lower"] for row in data["rows"]]
    options = data["config"]["bounding"]
    assert (options["intermediate"], options["alpha_crown"]["first_step"]) == ("paper", 0.1)
    outcome = verify("bounds", *digits, *argv, "--json", tmp_path / "j")
    assert outcome.out.splitlines()[-1].startswith(f"{len(data['closed'])} of 9 clauses closed")
    assert set(json.loads((tmp_path / "j").read_text())) == set(data)


def test_several_methods_are_compared_and_drawn(verify: Any, digits: tuple[str, str], tmp_path: Path) -> None:
    methods = ["interval", "crown", "alpha_crown", "lp", "lp_cuts", "crown"]
    argv = [word for name in methods for word in ("--method", name)]
    outcome = verify(
        "bounds", *digits, *argv, "--iterations", "2", "--json", tmp_path / "j", "--plot", tmp_path / "f.png"
    )
    assert (outcome.code, outcome.err) == (0, "")
    head, *rows, note, rounds, summary = outcome.out.splitlines()
    assert head.split() == ["method", "worst", "bound", "closed", "iterations", "seconds"]
    assert [row.split()[0] for row in rows] == methods[:5]
    table = {row.split()[0]: row.split() for row in rows}
    assert float(table["interval"][1]) < float(table["crown"][1]) <= float(table["alpha_crown"][1]) + 1e-4
    assert [table[name][3] for name in methods[1:5]] == ["-", "2", "-", "2"]
    assert table["lp"][2].endswith("/9*")
    assert note.startswith("* ")
    assert rounds == "iterations of lp_cuts are rounds of cuts"
    assert re.match(r"\d of 9 clauses closed; best certified worst bound -\S+ by alpha_crown; ", summary)
    lines = [json.loads(line) for line in (tmp_path / "j").read_text().splitlines()]
    assert [(data["method"], data["iterations"]) for data in lines] == list(
        zip(methods[:5], [0, 0, 2, 0, 2], strict=True)
    )
    assert lines[2]["curve"][-1][1] == lines[2]["lower_bound"]
    assert (tmp_path / "f.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], ["--method"]),
        (
            ["--method", "planet"],
            ["planet", "active_set, alpha_crown, as_sp, bdd_plus, big_m, crown, interval, lp, lp_cuts"],
        ),
        (["--method", "crown", "--intermediate", "planet"], ["planet", "wong_kolter"]),
        (["--method", "big_m", "--iterations", "-1"], ["--iterations"]),
    ],
)
def test_command_lines_that_cannot_be_understood(
    verify: Any, tiny: Any, tmp_path: Path, options: list[str], words: list[str]
) -> None:
    outcome = verify("bounds", tiny.net, tiny.sat, *options, "--json", tmp_path / "j")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("Usage: ")
    assert all(word in outcome.err for word in words)


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--iterations", "3"], "alpha_crown, as_sp, bdd_plus, big_m, lp_cuts, propagated"),
        (["--set", "bounding.big_m.steps=3"], "bounding.big_m.steps"),
        (["--plot", "/nowhere/f.png"], "/nowhere"),
        (["--plot", "f.bmpx"], "'bmpx'"),
        (["--plot", "f.pgf"], "png, svg"),
        (["--timeout", "-1"], "--timeout"),
        (["--device", "cuda:99"], "cuda:99"),
    ],
)
def test_options_with_bad_values(verify: Any, tiny: Any, tmp_path: Path, options: list[str], word: str) -> None:
    (tmp_path / "j").write_text("old")
    outcome = verify("bounds", tiny.net, tiny.sat, "--method", "crown", *options, "--json", tmp_path / "j")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ")
    assert word in outcome.err
    assert json.loads((tmp_path / "j").read_text())["verdict"] == "error"


def test_bad_files(verify: Any, tiny: Any, tmp_path: Path) -> None:
    outcome = verify("bounds", tmp_path / "none.onnx", tiny.sat, "--method", "crown", "--json", "-")
    assert (outcome.code, outcome.out) == (2, "")
    assert "none.onnx" in outcome.err
    outcome = verify("bounds", tiny.folder / "odd.onnx", tiny.sat, "--method", "crown")
    assert outcome.code == 2
    assert "Hardmax" in outcome.err


def test_without_matplotlib_nothing_is_begun(verify: Any, tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(curves, "find_spec", lambda name: None)
    monkeypatch.setattr("verifier.survey.Survey.run", None)
    outcome = verify("bounds", tiny.net, tiny.sat, "--method", "crown", "--plot", "f.png")
    assert (outcome.code, outcome.out) == (2, "")
    assert "pip install matplotlib" in outcome.err


def test_internal_errors(verify: Any, tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("verifier.survey.Survey.run", broken)
    outcome = verify("bounds", tiny.net, tiny.sat, "--method", "crown")
    assert (outcome.code, outcome.out) == (4, "")
    assert outcome.err == "error: internal error: ZeroDivisionError: a bug\n"


def bounded(values: Sequence[float | None], **changes: Any) -> LowerBounds:
    rows = tuple(RowBound(k, 0, value) for k, value in enumerate(values))
    return LowerBounds("crown", rows, len(values), time={"total": 1.26}, **changes)


def test_a_long_table_shows_the_worst_first() -> None:
    found = bounded([float(k % 50) - 2 for k in range(100)] + [None])
    lines = table_lines([found], whole=False)
    assert len(lines) == MOST + 3
    assert lines[1].split() == ["100", "1", "-", "open"]
    assert [line.split()[2] for line in lines[2:6]] == ["-2", "-2", "-1", "-1"]
    assert lines[-2] == f"and {101 - MOST} clauses with larger bounds (-v lists all)"
    assert lines[-1] == "94 of 101 clauses closed; worst bound -; 1.3 s"
    whole = table_lines([found], whole=True)
    assert [int(line.split()[0]) for line in whole[1:-1]] == list(range(101))


def test_summaries() -> None:
    assert table_lines([bounded([0.0, 1e-9])], whole=False)[-1] == "1 of 2 clauses closed; worst bound 0; 1.3 s"
    (nothing,) = table_lines([bounded([])], whole=False)
    assert nothing == "the property has no clause; 1.3 s"
    (early,) = table_lines([bounded([], reason=Reason.TIMEOUT)], whole=False)
    assert early == "no bounds; 1.3 s; the time limit was reached"
    last = table_lines([bounded([1.0], rigorous=False, reason=Reason.MEMORY)], whole=False)
    assert last[1].endswith("above 0")
    assert last[-1].startswith("1 of 1 clauses above 0 (not certified")
    assert last[-1].endswith("the memory did not suffice")


# The survey is replaced by one that finds two rows and never ends.
STUCK = """
import ctypes, sys, types
from verifier.__main__ import main
from verifier.result.lower_bounds import LowerBounds, RowBound
libc = ctypes.CDLL(None)
class Survey:
    @classmethod
    def of(cls, *args, **kwargs):
        return cls()
    def run(self):
        print("stuck", file=sys.stderr, flush=True)
        while True:
            libc.usleep(60_000_000)  # no Python instruction is reached in here
    def results(self, reason):
        rows = (RowBound(0, 0, 1.5), RowBound(1, 0, None))
        return (LowerBounds("crown", rows, 2, reason=reason),)
fake, pipeline = types.ModuleType("verifier.survey"), types.ModuleType("verifier.pipeline")
loading = types.ModuleType("verifier.loading")
fake.Survey = Survey
pipeline.Request = loading.GivenFiles = lambda *a: None
sys.modules |= {"verifier.survey": fake, "verifier.pipeline": pipeline, "verifier.loading": loading}
main()
"""


def command(*argv: object, script: str | None = None) -> list[str]:
    start = ["-c", script] if script else ["-m", "verifier"]
    return [sys.executable, *start, "bounds", *(str(word) for word in argv)]


def test_the_time_limit_holds_inside_of_a_long_call(tiny: Any, tmp_path: Path) -> None:
    argv = command(tiny.net, tiny.sat, "--method", "crown", "--timeout", 3, "--json", tmp_path / "j", script=STUCK)
    run = partial(subprocess.run, argv, capture_output=True, text=True, timeout=PATIENCE)
    done, took = soon(run, 4.0, lambda done: "stuck" in done.stderr)
    assert 3.0 <= took <= 4.0
    assert (done.returncode, done.stderr) == (0, "stuck\n")
    assert "1 of 2 clauses closed; worst bound -" in done.stdout
    assert done.stdout.endswith("the time limit was reached\n")
    data = json.loads((tmp_path / "j").read_text())
    assert (data["reason"], data["best_per_clause"]) == ("timeout", [1.5, None])


def test_a_limit_that_is_over_before_anything_is_loaded(tiny: Any) -> None:
    argv = command(tiny.net, tiny.sat, "--method", "crown", "--timeout", 0, "--json", "-")
    done, took = soon(lambda: subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE), 2.0)
    assert took <= 2.0
    assert (done.returncode, done.stderr) == (0, "")
    data = json.loads(done.stdout)
    assert (data["method"], data["reason"], data["rows"]) == ("crown", "timeout", [])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_with_what_is_known(tiny: Any, number: signal.Signals) -> None:
    argv = command(tiny.net, tiny.sat, "--method", "crown", script=STUCK)
    with subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "stuck\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=PATIENCE)
    assert (process.returncode, err) == (3, "")
    assert out.endswith("the run was interrupted\n")
    assert "1 of 2 clauses closed" in out
