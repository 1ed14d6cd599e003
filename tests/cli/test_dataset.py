"""`verify dataset` with a real worker: one small data set, and what can be asked of its results."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from robustness.cases import IMAGES, LABELS, classifier

import verifier


@dataclass(frozen=True)
class Finished:
    """Network and images, the folder with the results, and the run that made them."""

    net: str
    data: str
    out: Path
    code: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """At eps 1/8: image 0 and 2 certified, 1 falsified, 3 misclassified."""
    folder = tmp_path_factory.mktemp("data")
    net = classifier(folder)
    np.savez(folder / "d.npz", images=IMAGES, labels=LABELS)
    out = folder / "out"
    argv = ["dataset", net, str(folder / "d.npz"), "--eps", "1/8", "--out", str(out), "--jobs", "1", "--threads", "1"]
    done = subprocess.run([sys.executable, "-m", "verifier", *argv], capture_output=True, text=True, timeout=300)
    return Finished(net, str(folder / "d.npz"), out, done.returncode, done.stdout, done.stderr)


@pytest.fixture
def again(
    verify: Callable[..., Any], finished: Finished, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Any]:
    """The same command on a copy of the results, with other options; no worker may be started for it."""

    def none(*_: object) -> None:
        raise AssertionError("all results are there already")

    monkeypatch.setattr("verifier.batch.process.Launch.process", none)
    shutil.copytree(finished.out, tmp_path / "out")
    text = (tmp_path / "out" / "results.jsonl").read_text()
    (tmp_path / "out" / "results.jsonl").write_text(text.replace(str(finished.out), str(tmp_path / "out")))

    def call(*options: object, eps: str = "1/8") -> Any:
        fixed = ("--out", tmp_path / "out", "--jobs", "1", "--threads", "1")
        return verify("dataset", finished.net, finished.data, "--eps", eps, *fixed, *options)

    return call


def test_the_accuracies(finished: Finished) -> None:
    assert finished.code == 0, finished.stderr
    assert finished.stdout.splitlines() == [
        "class   images   correct   certified   falsified   undecided   seconds",
        *finished.stdout.splitlines()[1:5],
        "",
        "clean accuracy       75.0 %       3  of 4 images",
        "certified accuracy   50.0 %       2  proved within 1/8 in the norm inf",
        "attacked accuracy    50.0 %       2  no counterexample is known",
        "undecided             0.0 %       0",
        f"report: {finished.out / 'report.html'}",
    ]
    rows = [line.split()[:6] for line in finished.stdout.splitlines()[1:5]]
    assert rows == [list("011100"), list("121010"), list("211100"), ["all", *"43210"]]


def test_progress_tells_the_score(finished: Finished) -> None:
    lines = finished.stderr.splitlines()
    assert lines[0] == "4 images, 3 of them classified correctly (clean accuracy 75.0 %)"
    assert [line.split()[1] for line in lines[1:4]] == ["certified", "falsified", "certified"]
    # Of the images up to the last one: 1 of 1, 1 of 2, 2 of 3.
    assert [line.partition("; ")[2] for line in lines[1:4]] == [
        "certified 100 %, attacked 100 %",
        "certified 50 %, attacked 50 %",
        "certified 67 %, attacked 67 %",
    ]
    assert max(map(len, lines)) <= 80


def test_a_counterexample_lies_in_its_ball(finished: Finished) -> None:
    records = [json.loads(line) for line in (finished.out / "results.jsonl").read_text().splitlines()]
    (sat,) = [record for record in records if record["verdict"] == "sat"]
    assert sat["category"] == "class 1"
    moved = np.array(sat["counterexample"]["x"]) - IMAGES[1].reshape(-1)
    assert abs(moved).max() <= 0.125 + 1e-7
    assert int(np.argmax(sat["counterexample"]["y"])) != 1


def test_the_page(finished: Finished) -> None:
    text = (finished.out / "report.html").read_text()
    for words in ("Accuracy", "75.0 %", "50.0 %", "3 of 4: classified correctly", "proved within 1/8", "misclassified"):
        assert words in text


def test_the_same_command_goes_on(again: Callable[..., Any]) -> None:
    outcome = again()
    assert outcome.code == 0
    assert "3 of 3 instances are done already" in outcome.err
    assert "certified accuracy   50.0 %" in outcome.out


def test_fewer_images(again: Callable[..., Any]) -> None:
    outcome = again("--limit", 1)
    assert "certified accuracy  100.0 %       1" in outcome.out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"eps": "0.1"}, "the folder holds results with eps 1/8 instead of 0.1; --fresh starts anew"),
        ({"options": ("--clip", "0", "1")}, "the folder holds results with clip none instead of 0 1"),
        ({"options": ("--norm", "2")}, "the folder holds results with norm inf instead of 2"),
        ({"options": ("--timeout", "7")}, "the folder holds results with timeout none instead of 7"),
    ],
)
def test_another_question_is_refused(again: Callable[..., Any], options: dict[str, Any], message: str) -> None:
    outcome = again(*options.get("options", ()), eps=options.get("eps", "1/8"))
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_other_images_are_refused(again: Callable[..., Any], finished: Finished, verify: Any, tmp_path: Path) -> None:
    np.savez(tmp_path / "other.npz", images=IMAGES + 1, labels=LABELS)
    outcome = verify("dataset", finished.net, tmp_path / "other.npz", "--eps", "1/8", "--out", tmp_path / "out")
    assert outcome.code == 2
    assert "the folder holds results about other images" in outcome.err


def test_a_property_that_was_edited_is_written_again(again: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "out" / "properties" / "image_00000.vnnlib.gz"
    before = path.read_bytes()
    path.write_bytes(b"nonsense")
    assert again().code == 0
    assert path.read_bytes() == before


def test_json_and_junit(again: Callable[..., Any], tmp_path: Path) -> None:
    outcome = again("--json", "-", "--junit", tmp_path / "junit.xml", "--require", "unsat")
    assert outcome.code == 1
    data = json.loads(outcome.out)
    assert (data["clean_accuracy"], data["certified_accuracy"], data["attacked_accuracy"]) == (0.75, 0.5, 0.5)
    assert [image["outcome"] for image in data["outcomes"]] == ["certified", "falsified", "certified", "misclassified"]
    root = ElementTree.parse(tmp_path / "junit.xml").getroot()
    assert [suite.get("name") for suite in root] == ["class 0", "class 1", "class 2"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels": np.array([0, 1, 2, 3])}, "d.npz: label 3 is not one of the network's 3 classes"),
        ({"images": np.zeros((4, 5))}, "d.npz: the network takes inputs of shape (1, 3, 1, 1), 3 numbers"),
        ({"labels": LABELS[:2]}, "d.npz: there are 4 images and 2 labels"),
    ],
)
def test_bad_input(verify: Any, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    np.savez(tmp_path / "d.npz", **({"images": IMAGES, "labels": LABELS} | change))
    outcome = verify("dataset", classifier(tmp_path), tmp_path / "d.npz", "--eps", "0.1", "--out", tmp_path / "out")
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_proofs_are_about_boxes(verify: Any, finished: Finished, tmp_path: Path) -> None:
    options = ("--eps", "1", "--norm", "2", "--out", tmp_path / "out", "--proofs", tmp_path / "proofs")
    outcome = verify("dataset", finished.net, finished.data, *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert "--proofs needs --norm inf" in outcome.err


def test_from_python_in_the_norm_2(finished: Finished, capfd: pytest.CaptureFixture[str]) -> None:
    """The distances from the nearest border are 0.354, 0.088 and 0.53."""
    found = verifier.dataset(finished.net, IMAGES, LABELS, 0.36, norm=2, jobs=1, threads=1, progress=False)
    assert [outcome.word for outcome in found.outcomes] == ["falsified", "falsified", "certified", "misclassified"]
    assert capfd.readouterr().err == ""
    point = found.outcomes[0].counterexample
    assert point is not None
    assert np.linalg.norm(np.array(point) - IMAGES[0].reshape(-1)) <= 0.36
    assert (found.folder, found.interrupted) == (None, False)


def test_modules_are_refused() -> None:
    with pytest.raises(verifier.errors.InputError, match="worker processes need an ONNX file"):
        verifier.dataset(torch.nn.Linear(3, 3), IMAGES, LABELS, 0.1)  # type: ignore[arg-type]
