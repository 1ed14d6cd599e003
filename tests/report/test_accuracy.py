"""Data sets on a page: figures, classes, counterexamples."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from report.lines import folder, line

from verifier.errors import InputError
from verifier.files import digest
from verifier.report.page import page
from verifier.report.summary import read_runs
from verifier.robustness.neighbourhood import Neighbourhood

HOSTILE = '<img src=x onerror="alert(1)">'


def data(**changes: Any) -> dict[str, Any]:
    """Three images of 4 x 4 pixels: certified, falsified, misclassified."""
    images = [
        {"index": 0, "label": 0, "own": 0, "file": "properties/a.vnnlib.gz", "sha256": None},
        {"index": 1, "label": 1, "own": 1, "file": "properties/b.vnnlib.gz", "sha256": None},
        {"index": 2, "label": 1, "own": 0, "file": None, "sha256": None},
    ]
    question = {"eps": "0.25", "norm": "inf", "shape": [4, 4], "clip": None}
    return {"network": "net.onnx", "question": question, "images": images} | changes


def run(path: Path, listed: dict[str, Any]) -> str:
    """A folder with results about these images; the box of the counterexample is there."""
    text = Neighbourhood().ball(np.full((1, 16), 0.5), 1, 2, "0.25").vnnlib()
    packed = gzip.compress(text.encode(), mtime=0)
    (path / "properties").mkdir(parents=True)
    (path / "properties" / "b.vnnlib.gz").write_bytes(packed)
    witness = {"x": [0.25] * 8 + [0.75] * 8, "y": [2.0, 1.0]}
    about = {"property": str(path / "properties" / "b.vnnlib.gz"), "property_sha256": digest(packed)}
    lines = [
        line("a", "unsat", category="class 0") | {"vnnlib": "properties/a.vnnlib.gz"},
        line("b", "sat", category="class 1", counterexample=witness) | {"vnnlib": "properties/b.vnnlib.gz"} | about,
    ]
    folder(path, *lines)
    (path / "dataset.json").write_text(json.dumps(listed))
    return str(path)


def test_the_page_of_a_data_set(tmp_path: Path) -> None:
    text = page(read_runs([run(tmp_path / "run", data())]))
    for words in ("66.7 %", "33.3 %", "2 of 3: classified correctly", "1 of 3: proved within 0.25"):
        assert words in text
    assert "image 1: class 1 becomes 0" in text
    gallery = text.partition("Counterexamples")[2].partition("</section>")[0]
    assert gallery.count("data:image/png") == 3
    assert "difference: 16 pixels, by at most 0.25" in gallery


def test_images_that_are_not_done_are_left_out(tmp_path: Path) -> None:
    listed = data()
    listed["images"].append({"index": 3, "label": 0, "own": 0, "file": "properties/c.vnnlib.gz", "sha256": None})
    text = page(read_runs([run(tmp_path / "run", listed)]))
    assert "1 of 4 images are not done yet and not counted." in text
    assert "2 of 3: classified correctly" in text


def test_two_data_sets_are_compared_by_their_figures(tmp_path: Path) -> None:
    text = page(read_runs([run(tmp_path / "one", data()), run(tmp_path / "two", data())]))
    assert text.count("2 of 3: classified correctly") == 2
    assert "Counterexamples" not in text


def test_what_a_list_says_is_escaped(tmp_path: Path) -> None:
    question = data()["question"] | {"eps": HOSTILE, "norm": HOSTILE}
    text = page(read_runs([run(tmp_path / "run", data(network=HOSTILE, question=question))]))
    assert HOSTILE not in text


def test_a_batch_that_is_no_data_set_has_no_accuracy(tmp_path: Path) -> None:
    assert "Accuracy" not in page(read_runs([folder(tmp_path / "run", line("a"))]))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"network": 1}',
        '{"network": "n", "question": {}, "images": []}',
        '{"network": "n", "question": {}, "images": [{}]}',
    ],
)
def test_a_list_that_cannot_be_read_is_named(tmp_path: Path, text: str) -> None:
    path = folder(tmp_path / "run", line("a"))
    (tmp_path / "run" / "dataset.json").write_text(text)
    with pytest.raises(InputError, match=r"dataset\.json: this is not the list of a data set"):
        read_runs([path])
