"""`verify report` on the command line."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from report.lines import folder, line


def test_a_page_is_written(verify: Callable, tmp_path: Path) -> None:
    source = folder(tmp_path / "night", line("a"), line("b", "sat"))
    target = tmp_path / "report.html"
    found = verify("report", source, "-o", target)
    assert (found.code, found.err) == (0, "")
    assert found.out == f"{target}: 2 results of 1 run(s)\n"
    text = target.read_text()
    assert text.startswith("<!DOCTYPE html>")
    assert text.endswith("</html>\n")


def test_quiet_and_stdout(verify: Callable, tmp_path: Path) -> None:
    source = folder(tmp_path / "night", line("a"))
    target = tmp_path / "report.html"
    assert verify("report", source, "-o", target, "-q").out == ""
    found = verify("report", source, "--title", "A & B", "-o", "-")
    assert found.out == target.read_text().replace("Verification report", "A &amp; B")


def test_two_folders(verify: Callable, tmp_path: Path) -> None:
    sources = [folder(tmp_path / name, line("a")) for name in ("one", "two")]
    found = verify("report", *sources, "-o", tmp_path / "r.html")
    assert (found.code, found.out) == (0, f"{tmp_path / 'r.html'}: 2 results of 2 run(s)\n")


@pytest.mark.parametrize("kind", ["missing", "empty", "no results"])
def test_folders_without_results_end_in_one_sentence(verify: Callable, tmp_path: Path, kind: str) -> None:
    source = tmp_path / "night"
    if kind != "missing":
        source.mkdir()
    if kind == "no results":
        (source / "results.jsonl").write_text('{"verdict": "s')
    old = tmp_path / "report.html"
    old.write_text("an older page")
    found = verify("report", source, "-o", old)
    assert (found.code, found.out) == (2, "")
    assert found.err.startswith(f"error: {source}")
    assert found.err.count("\n") == 1
    assert old.read_text() == "an older page"


@pytest.mark.parametrize("words", [["-o", "r.html"], ["night"], ["night", "-o", "/no/such/folder/r.html"]])
def test_bad_usage(verify: Callable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str]) -> None:
    folder(tmp_path / "night", line("a"))
    monkeypatch.chdir(tmp_path)
    assert verify("report", *words).code == 2


def test_torch_is_not_loaded(tmp_path: Path, root: Path) -> None:
    files = [str(root / "properties" / name) for name in ("onnx/digits_conv.onnx", "vnnlib/conv_sat_1440.vnnlib")]
    image = {"x": [0.5] * 64, "y": [0.0] * 10}
    source = folder(tmp_path / "a", line("p", "sat", network=files[0], property=files[1], counterexample=image))
    code = f"""
import sys
from verifier.cli.main import run
assert run(["report", {source!r}, "-o", {str(tmp_path / "r.html")!r}]) == 0
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True)
    assert "data:image/png" in (tmp_path / "r.html").read_text()
