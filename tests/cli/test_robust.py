"""`verify robust` with balls: what is decided without a file, and what is refused."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from verifier.cli.main import run
from verifier.property.ball import Ball


@pytest.fixture
def asked(root: Path, tmp_path: Path) -> list[str]:
    """y = |x0| + |x1| - |x0 + x1| has one output; the digits have ten: the middle of a bundled box."""
    from verifier.property.vnnlib import load_property

    boxes = load_property(root / "properties/vnnlib/fc_branch_1442.vnnlib").boxes
    np.save(tmp_path / "x.npy", (boxes.lower[0] + boxes.upper[0]) / 2)
    net = str(root / "properties/onnx/digits_fc.onnx")
    return ["robust", net, "--input", str(tmp_path / "x.npy"), "--label", "7", "--threads", "1"]


@pytest.mark.parametrize(("norm", "eps", "expected"), [("2", "0.1", 0), ("1", "0.3", 0), ("2", "2", 1), ("1", "8", 1)])
def test_balls_are_decided_without_a_file(asked: list[str], tmp_path: Path, norm: str, eps: str, expected: int) -> None:
    out = tmp_path / "out.json"
    how = ["--norm", norm, "--eps", eps, "--clip", "0", "1", "--mean", "0.1", "--std", "1", "--verify"]
    assert run([*asked, *how, "--json", str(out)]) == expected
    found = json.loads(out.read_text())
    assert found["property"] is None
    if expected == 1:
        centre = [Fraction(v) - Fraction("0.1") for v in np.load(tmp_path / "x.npy").tolist()]
        x = [Fraction(v) for v in found["counterexample"]["x"]]
        assert Ball(int(norm), tuple(centre), (Fraction(1),) * 64, Fraction(eps)).holds(x)
        assert all(Fraction("-0.1") <= v <= Fraction("0.9") for v in x)


def test_what_does_not_go_together(asked: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*asked, "--eps", "0.1", "--norm", "2", "-o", str(tmp_path / "p.vnnlib")]) == 2
    assert "--norm 2: a ball has no form in VNN-LIB 1.0" in capsys.readouterr().err
    assert run([*asked, "--eps", "0.1"]) == 2
    assert "give -o P.vnnlib for the property, --verify for the answer, or both" in capsys.readouterr().err
    assert run([*asked, "--eps", "0.1", "--norm", "3", "--verify"]) == 2
    assert "--norm" in capsys.readouterr().err
