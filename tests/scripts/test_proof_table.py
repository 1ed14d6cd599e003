"""The table of proofs: an instance is measured once, whatever interrupts it, and the columns say what was measured."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from scripted import script

proof_table = script("proof_table")


@pytest.fixture
def family(tmp_path: Path, root: Path) -> Path:
    """One instance that holds, one that does not, and one whose network is not there."""
    folder = tmp_path / "toys"
    folder.mkdir()
    net, prop = (root / "properties" / kind for kind in ("onnx/toy.onnx", "vnnlib/toy_{}.vnnlib"))
    names = [(net, Path(str(prop).format("positive"))), (net, Path(str(prop).format("negative")))]
    names.append((folder / "gone.onnx", names[0][1]))
    (folder / "instances.csv").write_text("".join(f"{a},{b},60\n" for a, b in names))
    lines = [f"{a},{b},{verdict}\n" for (a, b), verdict in zip(names, ("unsat", "sat", "unsat"), strict=True)]
    (folder / "expected.csv").write_text("onnx,vnnlib,expected\n" + "".join(lines))
    return folder


def run(monkeypatch: pytest.MonkeyPatch, *words: str) -> None:
    monkeypatch.setattr(sys, "argv", ["proof_table.py", *words])
    proof_table.main()


@pytest.mark.slow
def test_a_family_is_measured_once(
    family: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    run(monkeypatch, str(family), "--out", str(out))
    good, bad = (json.loads(line) for line in (out / "toys.jsonl").read_text().splitlines())
    assert good["plain"]["verdict"] == good["proved"]["verdict"] == "unsat"
    assert good["check"]["verdict"] == "accepted"
    assert all(good[kind]["cpu"] > 0 for kind in ("plain", "proved", "check"))
    assert "error" in bad
    titles, _, row = (_cells(line) for line in capsys.readouterr().out.splitlines())
    assert len(titles) == len(row)
    assert row[:5] == ["toys", "2", "1", "1", "1"]
    assert row[titles.index("bytes")] == f"{next((out / 'toys').glob('*.proof')).stat().st_size:,}"

    with pytest.raises(SystemExit):
        run(monkeypatch, str(family), "--out", str(out))
    with (out / "toys.jsonl").open("a") as stream:
        stream.write('{"network": "a line that was not fin')
    again: list[str] = []
    monkeypatch.setattr(proof_table.Wanted, "_one", lambda wanted, one, proof: again.append(one.onnx) or bad)
    run(monkeypatch, str(family), "--out", str(out), "--resume")
    assert _cells(capsys.readouterr().out.splitlines()[-1]) == row
    assert again == [str(family / "gone.onnx")]  # what has failed is tried again
    assert len((out / "toys.jsonl").read_text().splitlines()) == 3


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_ratios_are_medians_over_what_both_have_proved() -> None:
    def line(plain: float, proved: float, check: float, verdict: str = "accepted") -> dict[str, Any]:
        times = [{"cpu": seconds, "wall": 2 * seconds, "domains": 10} for seconds in (plain, proved, check)]
        proof = {"leaves": 4, "bytes": 400}
        found = dict(zip(("plain", "proved", "check"), times, strict=True))
        found["plain"] |= {"verdict": "unsat"}
        found["proved"] |= {"verdict": "unsat", "proof": proof}
        found["check"] |= {"verdict": verdict, "margin": plain}
        return found

    lines = [line(1.0, 2.0, 3.0), line(2.0, 2.0, 8.0), line(1.0, 5.0, 2.0), line(9.0, 0.1, 0.1, "rejected")]
    row = proof_table.cells("family", lines)
    titles = ["family", *proof_table.TITLES, *proof_table.TIMES]
    assert row[:5] == ["family", "4", "4", "4", "3"]
    assert row[titles.index("leaves") :][:3] == ["16", "1,600", "100"]
    assert row[titles.index("search") :][:5] == ["4.00 s", "9.00 s", "2.00", "13.00 s", "3.00"]
    assert row[titles.index("wall") :] == ["8.00 s", "18.00 s", "26.00 s", "1.0e+00"]
