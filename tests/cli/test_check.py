"""`verify batch --proofs`, `verify check --batch` and the page about both, with real workers on a small family."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from verifier.proofs.witness import CONVERSIONS


@pytest.fixture(scope="module")
def finished(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a batch with two `unsat`, by boxes and at the root, and one `sat`."""
    given = tmp_path_factory.mktemp("proved")
    (given / "family").mkdir()
    rows = [
        f"{root}/properties/onnx/{net}.onnx,{root}/properties/vnnlib/{prop}.vnnlib,30"
        for net, prop in (("toy", "toy_positive"), ("toy", "toy_peak"), ("digits_fc", "fc_crown_1439"))
    ]
    (given / "family" / "instances.csv").write_text("\n".join(rows) + "\n")
    done = subprocess.run(argv(given), capture_output=True, text=True, timeout=120, check=True)
    assert "NO PROOF" not in done.stdout
    return given


def argv(given: Path, *more: str) -> list[str]:
    words = ["batch", str(given / "family"), "--out", str(given / "out"), "--proofs", str(given / "out" / "proofs")]
    return [sys.executable, "-m", "verifier", *words, "--jobs", "1", "--threads", "1", *more]


def records(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (out / "results.jsonl").read_text().splitlines()]


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    """A copy of the results; the proofs that they speak of are copies too."""
    shutil.copytree(finished / "out", tmp_path / "out")
    text = (tmp_path / "out" / "results.jsonl").read_text()
    (tmp_path / "out" / "results.jsonl").write_text(text.replace(str(finished / "out"), str(tmp_path / "out")))
    return tmp_path / "out"


def proof(out: Path) -> Path:
    """That of the first result."""
    return Path(records(out)[0]["proof"]["file"])


def test_every_unsat_has_its_proof(finished: Path) -> None:
    found = records(finished / "out")
    assert [(r["verdict"], r["proof"] is not None, r["proof_wanted"]) for r in found] == [
        ("unsat", True, True),
        ("sat", False, True),
        ("unsat", True, True),
    ]
    files = sorted((finished / "out" / "proofs").iterdir())
    assert sorted(r["proof"]["file"] for r in found if r["proof"]) == [str(file) for file in files]
    assert [r["proof"]["bytes"] for r in found if r["proof"]] == [
        Path(r["proof"]["file"]).stat().st_size for r in found if r["proof"]
    ]
    assert [file.name.rpartition("-")[0] for file in files] == [
        "family-digits_fc-fc_crown_1439",
        "family-toy-toy_positive",
    ]


def test_all_proofs_are_accepted(out: Path, verify: Callable[..., Any], tmp_path: Path) -> None:
    found = verify("check", "--batch", out, "--json", tmp_path / "checks.json")
    assert found.code == 0
    assert found.out.startswith("2 of 2 proofs: 2 accepted; least margin ")
    assert [line.split()[3] for line in found.err.splitlines()] == ["accepted", "accepted"]
    lines = [json.loads(line) for line in (out / "checks.jsonl").read_text().splitlines()]
    told = json.loads((tmp_path / "checks.json").read_text())
    assert told == {"exit_code": 0, "checks": lines}
    assert [(line["verdict"], line["sha256"]) for line in lines] == [
        ("accepted", r["proof"]["sha256"]) for r in records(out) if r["proof"]
    ]
    assert verify("check", "--batch", out, "-q").err == ""


def test_the_page_shows_a_column(out: Path, verify: Callable[..., Any], tmp_path: Path) -> None:
    def cells() -> list[str]:
        assert verify("report", out, "-o", tmp_path / "r.html").code == 0
        text = (tmp_path / "r.html").read_text()
        return [piece.partition("<")[0] for piece in text.split('<td class="proof">')[1:]]

    assert sorted(cells()) == ["not checked", "not checked", "\N{EN DASH}"]
    proof(out).write_bytes(b"another")
    verify("check", "--batch", out)
    assert sorted(cells()) == ["accepted", "rejected", "\N{EN DASH}"]
    assert "1 proof of out: not accepted by the checker." in (tmp_path / "r.html").read_text()


def forged(out: Path) -> None:
    """A proof of the one instance, in place of that of the other, and a record that knows it."""
    found = records(out)
    shutil.copy(found[2]["proof"]["file"], found[0]["proof"]["file"])
    found[0]["proof"]["sha256"] = found[2]["proof"]["sha256"]
    (out / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in found))


def unreadable(out: Path) -> None:
    found = records(out)
    found[0]["network"] = "/nowhere.onnx"
    (out / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in found))


@pytest.mark.parametrize(
    ("harm", "code", "words"),
    [
        (lambda out: proof(out).unlink(), 1, "missing family"),
        (lambda out: proof(out).write_bytes(b"x"), 1, "not the file that the batch has written"),
        (forged, 1, "a proof about another network"),
        (unreadable, 2, "unreadable family"),
    ],
)
def test_what_is_not_accepted_is_said(
    out: Path, verify: Callable[..., Any], harm: Callable[[Path], None], code: int, words: str
) -> None:
    harm(out)
    found = verify("check", "--batch", out)
    first, last = found.out.splitlines()
    assert (found.code, words in first) == (code, True)
    assert last.startswith("2 of 2 proofs: 1 accepted, 1 ")


def test_a_batch_without_proofs_fails(out: Path, verify: Callable[..., Any]) -> None:
    lines = [line | {"proof": None, "proof_wanted": False} for line in records(out)]
    (out / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = verify("check", "--batch", out, "-q")
    assert (found.code, found.out.splitlines()[-1]) == (1, "2 of 2 proofs: 2 missing")


@pytest.mark.parametrize("words", [["a", "b"], [], ["a", "b", "c", "--batch", "d"], ["--batch", "/nowhere"]])
def test_what_cannot_be_followed_is_refused(verify: Callable[..., Any], words: list[str]) -> None:
    found = verify("check", *words)
    assert (found.code, found.out) == (2, "")


def test_proofs_that_no_search_can_write_are_refused_at_once(
    finished: Path, tmp_path: Path, verify: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All tiers have a form in proofs; so one is taken away."""
    monkeypatch.delitem(CONVERSIONS, "saddle")
    words = ["batch", finished / "family", "--out", tmp_path / "out", "--proofs", tmp_path / "proofs"]
    found = verify(*words, "--config", "paper/saddle_point_1000")
    assert (found.code, list(tmp_path.iterdir())) == (2, [])
    assert "cannot be written down" in found.err


def test_nothing_is_done_twice(finished: Path) -> None:
    before = {path: path.read_bytes() for path in (finished / "out").rglob("*") if path.is_file()}
    done = subprocess.run(argv(finished), capture_output=True, text=True, timeout=120, check=True)
    assert "3 of 3 instances are done already" in done.stderr
    after = {path: path.read_bytes() for path in (finished / "out").rglob("*") if path.is_file()}
    lock = finished / "out" / ".lock"
    assert before | {lock: b""} == after | {lock: b""}
