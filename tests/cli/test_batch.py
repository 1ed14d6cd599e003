"""`verify batch` with real workers: one small batch, and what can be asked of its results."""

from __future__ import annotations

import csv
import functools
import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from batch.fakes import FAKE, benchmark

from verifier.batch.process import Launch

ANSWERS = {"sat": "sat", "unsat": "unsat", "sin": "error", "missing": "error"}


@dataclass(frozen=True)
class Batch:
    """A family of four instances, the folder with its results, and the run that made them."""

    family: Path
    out: Path
    code: int
    stdout: str
    stderr: str

    def expected(self, **verdicts: str) -> str:
        lines = ["onnx,vnnlib,expected", *(f"net.onnx,{name}.vnnlib,{verdict}" for name, verdict in verdicts.items())]
        (self.family / "expected.csv").write_text("\n".join(lines) + "\n")
        return str(self.family / "expected.csv")

    def records(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in (self.out / "results.jsonl").read_text().splitlines()]


@pytest.fixture(scope="module")
def finished(tiny: Any, tmp_path_factory: pytest.TempPathFactory) -> Batch:
    """Run once; the tests then go on from its results, for which no worker is needed."""
    family = tmp_path_factory.mktemp("lists") / "tiny"
    shutil.copytree(tiny.folder, family)
    rows = [
        "net.onnx,sat.vnnlib,30",
        "net.onnx,unsat.vnnlib,30",
        "odd.onnx,unsat.vnnlib,30",
        "net.onnx,missing.vnnlib,30",
    ]
    (family / "instances.csv").write_text("\n".join(rows) + "\n")
    out = tmp_path_factory.mktemp("out") / "results"
    argv = ["batch", str(family), "--out", str(out), "--jobs", "1", "--threads", "1"]
    done = subprocess.run([sys.executable, "-m", "verifier", *argv], capture_output=True, text=True, timeout=120)
    return Batch(family, out, done.returncode, done.stdout, done.stderr)


@pytest.fixture
def batch(finished: Batch, tmp_path: Path) -> Batch:
    """A copy of the results to go on from."""
    shutil.copytree(finished.out, tmp_path / "out")
    return Batch(finished.family, tmp_path / "out", 0, "", "")


@pytest.fixture
def again(verify: Callable[..., Any], batch: Batch, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """The same command with more options; no worker may be started for it."""

    def none(*_: object) -> None:
        raise AssertionError("all results are there already")

    monkeypatch.setattr("verifier.batch.process.Launch.process", none)

    def call(*options: object) -> Any:
        return verify("batch", str(batch.family), "--out", str(batch.out), "--jobs", "1", "--threads", "1", *options)

    return call


def test_all_instances_are_decided(finished: Batch) -> None:
    assert finished.code == 1  # an error
    records = finished.records()
    assert [r["verdict"] for r in records] == ["sat", "unsat", "unknown", "error"]
    assert [(r["category"], r["onnx"], r["vnnlib"]) for r in records][2] == ("tiny", "odd.onnx", "unsat.vnnlib")
    assert records[0]["counterexample"]["x"][0] <= -0.75
    assert records[2]["reason"] == "unsupported"
    assert "does not exist" in records[3]["reason"]
    assert records[0]["threads"] == 1
    assert all(r["run_time"] > 0 and r["timeout"] == 30 for r in records)
    assert records[0]["prepare_time"] > 0.1 > records[1]["prepare_time"]


def test_the_table_and_the_lines_tell_it(finished: Batch) -> None:
    head, row, *findings, last = finished.stdout.splitlines()
    assert head.split() == "family instances sat unsat unknown timeout error seconds PAR-2".split()
    assert row.split()[:7] == ["tiny", "4", "1", "1", "1", "0", "1"]
    assert [line.split(": ")[:2] for line in findings] == [
        ["ERROR", "tiny net.onnx missing.vnnlib"],
    ]
    assert last == "4 of 4 instances: 1 sat, 1 unsat, 1 unknown, 1 error"
    assert [line[:14] for line in finished.stderr.splitlines()] == [
        "[1/4] sat     ",
        "[2/4] unsat   ",
        "[3/4] unknown ",
        "[4/4] error   ",
    ]
    with open(finished.out / "results.csv", newline="") as stream:
        rows = list(csv.reader(stream))
    assert [(r[0], r[2], r[4]) for r in rows][:2] == [("tiny", "sat.vnnlib", "sat"), ("tiny", "unsat.vnnlib", "unsat")]
    assert all(len(r) == 6 for r in rows)


def test_the_command_of_an_instance_repeats_it(finished: Batch, verify: Callable[..., Any]) -> None:
    for record in finished.records():
        program, *words = record["command"]
        assert program == "verify"
        assert verify(*words).code == {"sat": 1, "unsat": 0, "unknown": 3, "error": 2}[record["verdict"]]


def test_nothing_is_done_twice(batch: Batch, again: Callable[..., Any]) -> None:
    before = (batch.out / "results.jsonl").read_bytes()
    outcome = again("--limit", 2)
    assert outcome.code == 0
    assert "2 of 2 instances are done already" in outcome.err
    assert (batch.out / "results.jsonl").read_bytes() == before
    assert again("--filter", "unsat*", "--limit", 1).out.splitlines()[-1] == "1 of 1 instances: 1 unsat"
    assert again("--limit", 2, "-q").out == "2 of 2 instances: 1 sat, 1 unsat\n"


def test_a_wrong_expectation_fails_and_names_the_instance(batch: Batch, again: Callable[..., Any]) -> None:
    right = again("--limit", 2, "--expected", batch.expected(sat="sat", unsat="unsat"))
    assert (right.code, "CONTRADICTION" in right.out) == (0, False)
    wrong = again("--limit", 2, "--expected", batch.expected(sat="sat", unsat="sat"), "-q")
    assert wrong.code == 1
    assert wrong.out.splitlines() == [
        "CONTRADICTION: tiny net.onnx unsat.vnnlib: unsat, but sat is expected",
        "2 of 2 instances: 1 sat, 1 unsat, 1 contradictions",
    ]
    assert (
        again("--limit", 2, "--expected", batch.expected(other="sat")).err.count("warning: --expected names none") == 1
    )


def test_a_lost_verdict_is_a_regression(batch: Batch, again: Callable[..., Any], tmp_path: Path) -> None:
    baseline = tmp_path / "baseline.jsonl"
    records = batch.records()[:2]
    baseline.write_text("".join(json.dumps(r | {"network": "elsewhere"}) + "\n" for r in records))
    assert again("--limit", 2, "--baseline", baseline, "--fail-on-regression").code == 0
    records[1]["verdict"] = "sat"
    baseline.write_text("".join(json.dumps(r) + "\n" for r in records))
    lost = again("--limit", 2, "--baseline", baseline)
    assert (lost.code, lost.out.count("REGRESSION: tiny net.onnx unsat.vnnlib: unsat, but the baseline has sat")) == (
        0,
        1,
    )
    assert again("--limit", 2, "--baseline", baseline, "--fail-on-regression").code == 1


@pytest.mark.parametrize(("wanted", "code"), [("decided", 0), ("unsat", 1)])
def test_requirements(again: Callable[..., Any], wanted: str, code: int) -> None:
    outcome = again("--limit", 2, "--require", wanted)
    assert outcome.code == code
    assert ("NOT MET: tiny net.onnx sat.vnnlib: sat, but unsat is required" in outcome.out) == bool(code)


@pytest.fixture
def faked(verify: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """A batch of instances of these names, decided by workers that need no torch."""
    monkeypatch.setattr("verifier.batch.staff.Launch", functools.partial(Launch, boot=FAKE))

    def call(names: list[str], *options: object) -> Any:
        family = benchmark(tmp_path / "family", *names)
        return verify("batch", str(family), "--out", str(tmp_path / "out"), "--jobs", "1", "--threads", "1", *options)

    return call


def test_junit(faked: Callable[..., Any], tmp_path: Path) -> None:
    options = ("--require", "unsat", "--junit", tmp_path / "junit.xml")
    assert faked(["unknown", "unsat", "wrong_1", "wrong_2"], *options).code == 1
    suite = ElementTree.parse(tmp_path / "junit.xml").getroot().find("testsuite")
    assert suite is not None
    assert [suite.get(name) for name in ("name", "tests", "failures", "errors")] == ["family", "4", "1", "2"]
    assert [[child.tag for child in case] for case in suite] == [
        ["failure", "system-out"],
        ["system-out"],
        ["error", "system-out"],
        ["error", "system-out"],
    ]


def test_errors_are_tried_again(faked: Callable[..., Any], tmp_path: Path) -> None:
    """The worker dies on an instance, but only the first time."""
    lines = tmp_path / "out" / "results.jsonl"
    first = faked(["unsat", "once"])
    assert first.code == 1
    assert [json.loads(line)["verdict"] for line in lines.read_text().splitlines()] == ["unsat", "error"]
    second = faked(["unsat", "once"])
    assert (second.code, second.out.splitlines()[-1]) == (0, "2 of 2 instances: 2 unsat")
    assert "1 instances ended in an error; they are tried again" in second.err
    assert [json.loads(line)["verdict"] for line in lines.read_text().splitlines()] == ["unsat", "unsat"]
    assert (tmp_path / "out" / "results.csv").read_text().count(",unsat,") == 2
    third = faked(["unsat", "once"])
    assert (third.code, third.err) == (0, "2 of 2 instances are done already\n")


def test_older_summaries_do_not_outlive_a_batch_that_fails(
    faked: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    junit, table = tmp_path / "junit.xml", tmp_path / "out" / "results.csv"
    assert faked(["unsat"], "--junit", junit).code == 0

    there: list[bool] = []

    def broken(*_: object) -> None:
        there.extend(path.exists() for path in (junit, table))
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("verifier.batch.run._decide", broken)
    assert faked(["unsat", "unsat_2"], "--junit", junit).code == 4
    assert there == [False, False]
    assert not junit.exists()
    assert table.read_text().count(",unsat,") == 1  # what is done is told


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--timeout", 31], "timeout 30 instead of 31; --fresh starts anew"),
        (["--seed", 1], "seed 0 instead of 1"),
        (["--set", "search.batch=9"], "search.batch"),
        (["--set", "search.bathc=9"], "did you mean 'batch'"),
        (["--filter", "nothing*"], "no instance is left"),
        (["--fail-on-regression"], "needs a --baseline"),
        (["--address", "auto"], "add --engine ray"),
        (["--expected", "/nowhere.csv"], "/nowhere.csv"),
        (["--baseline", "/nowhere.jsonl"], "/nowhere.jsonl"),
        (["--junit", "/nowhere/junit.xml"], "/nowhere/junit.xml"),
    ],
)
def test_what_cannot_be_followed_is_refused(again: Callable[..., Any], options: list[object], words: str) -> None:
    outcome = again(*options)
    assert (outcome.code, outcome.out) == (2, "")
    assert words in outcome.err
    assert outcome.err.splitlines()[-1].startswith("error: ")
    assert "Traceback" not in outcome.err


@pytest.mark.slow
def test_two_batches_of_a_family_agree_with_each_other_and_with_what_is_known(benchmarks: Path, tmp_path: Path) -> None:
    family = benchmarks / "rl_benchmarks"
    found = []
    for name in ("first", "second"):
        argv = ["batch", str(family), "--out", str(tmp_path / name), "--limit", "40", "--threads", "1", "--jobs", "2"]
        argv += ["--expected", str(family / "expected.csv"), "-q"]
        done = subprocess.run([sys.executable, "-m", "verifier", *argv], capture_output=True, text=True, timeout=600)
        assert (done.returncode, "CONTRADICTION" in done.stdout) == (0, False)
        with open(tmp_path / name / "results.csv", newline="") as stream:
            found.append([row[:3] + row[4:5] for row in csv.reader(stream)])
    assert len(found[0]) == 40
    assert found[0] == found[1]
