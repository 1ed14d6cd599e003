"""`verify radius`: one input, a data set, files, and what is refused."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from robustness.cases import IMAGES, LABELS, classifier

from verifier.cli.radius_session import OneRadius
from verifier.result.verdict import Reason


@pytest.fixture
def net(tmp_path: Path) -> str:
    np.save(tmp_path / "x.npy", IMAGES[0])
    np.savez(tmp_path / "d.npz", images=IMAGES, labels=LABELS)
    return classifier(tmp_path)


def test_the_radius_of_an_input(verify: Any, net: str, tmp_path: Path) -> None:
    """y_0 - y_1 = 1/2 at the centre, so the class is lost at 1/4."""
    files = ("--json", tmp_path / "r.json", "--counterexample", tmp_path / "c.txt")
    outcome = verify("radius", net, "--input", tmp_path / "x.npy", "--threads", "1", *files)
    assert outcome.code == 0, outcome.err
    data = json.loads((tmp_path / "r.json").read_text())
    assert data["certified"] < 0.25 <= data["falsified"] <= 1.01 * data["certified"] + 1e-6
    assert (data["label"], data["norm"], data["reason"]) == (0, "inf", None)
    assert outcome.out.splitlines() == [
        f"certified  {data['certified']:<12g} no input within it, in the maximum norm, leaves class 0",
        f"falsified  {data['falsified']:<12g} a counterexample has class 1",
    ]
    assert max(map(len, (outcome.out + outcome.err).splitlines())) <= 80
    x = [float(v) for v in re.findall(r"\(X_\d ([^)]*)\)", (tmp_path / "c.txt").read_text())]
    assert x == data["counterexample"]["x"]
    assert abs(np.array(x) - IMAGES[0].reshape(-1)).max() <= data["falsified"]
    assert re.fullmatch(r"( +[\d.]+ s  (certified|falsified) +[\d.]+ +by \w+\n)+", outcome.err)


def test_json_on_stdout_and_silence(verify: Any, net: str, tmp_path: Path) -> None:
    outcome = verify("radius", net, "--input", tmp_path / "x.npy", "--label", 0, "--json", "-", "-q", "--threads", "1")
    assert json.loads(outcome.out)["falsified"] >= 0.25
    assert outcome.err == ""


def test_without_time_there_is_no_answer(verify: Any, net: str, tmp_path: Path) -> None:
    outcome = verify("radius", net, "--input", tmp_path / "x.npy", "--timeout", "0", "--threads", "1")
    assert outcome.code in (0, 3)
    assert "certified  nothing" in outcome.out
    assert "the time limit was reached after" in outcome.out


def test_an_early_answer_before_anything_is_loaded(net: str, tmp_path: Path) -> None:
    names = ("data", "inputs", "labels", "json", "counterexample", "plot", "label")
    options = dict.fromkeys(names) | {"net": net, "source": "x.npy", "norm": "inf", "quiet": True, "verbose": False}
    found = OneRadius(options).early(Reason.INTERRUPTED)
    assert (found.certified, found.falsified, found.answered) == (None, None, False)


def test_a_data_set(verify: Any, net: str, tmp_path: Path) -> None:
    options = ("--threads", "1", "--plot", tmp_path / "p.svg", "--json", tmp_path / "r.json")
    outcome = verify("radius", net, tmp_path / "d.npz", *options)
    assert outcome.code == 0, outcome.err
    assert outcome.err.splitlines()[3] == "image 3, class 1: misclassified as 0"
    data = json.loads((tmp_path / "r.json").read_text())
    exact = [0.25, 0.0625, 0.375]
    for image, radius in zip(data["images"], exact, strict=False):
        assert image["certified"] < radius <= image["falsified"] * (1 + 1e-6)
    assert data["images"][3]["certified"] is None
    shares = [share for _, share, _ in data["curve"]]
    assert shares == sorted(shares, reverse=True)
    assert (shares[0], shares[-1]) == (0.75, 0.0)
    assert all(certified <= attacked for _, certified, attacked in data["curve"][::2])
    assert outcome.out.splitlines()[1].split() == ["0", "75.0", "%", "75.0", "%"]
    assert "</svg>" in (tmp_path / "p.svg").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "give either --input X.npy, or a data set"),
        (("d.npz", "--input", "x.npy"), "give either --input X.npy, or a data set"),
        (("--input", "x.npy", "--plot", "p.png"), "--plot and --limit are for a data set"),
        (("d.npz", "--label", "1"), "--label and --counterexample are for a single --input"),
        (("--input", "x.npy", "--label", "3"), "label 3 is not one of 3 classes"),
        (("--input", "d.npz"), "d.npz: the file holds 2 arrays (images, labels); one is expected"),
        (("--input", "none.npy"), "none.npy: the input cannot be read"),
        (("--input", "x.npy", "--max-eps", "0"), "--max-eps is 0, it must be positive"),
        (("--input", "x.npy", "--max-eps", "wide"), "--max-eps is 'wide', which is not a finite number"),
        (("--input", "x.npy", "--norm", "3"), "'3' is not one of 'inf', '2', '1'"),
    ],
)
def test_bad_usage(
    verify: Any, net: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    outcome = verify("radius", net, *options)
    assert (outcome.code, outcome.out) == (2, "")
    assert message in outcome.err


def test_an_input_of_another_size(verify: Any, net: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(4))
    outcome = verify("radius", net, "--input", tmp_path / "x.npy")
    assert (outcome.code, outcome.out) == (2, "")
    assert "x.npy: the network takes inputs of shape (1, 3, 1, 1), 3 numbers; (4,) does not fit" in outcome.err
