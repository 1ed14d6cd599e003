"""The bundled instances through the public entry point: no verdict contradicts the one that was confirmed."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

import verifier

FOLDER = Path(__file__).resolve().parents[1] / "properties"
SECONDS = 60
# Decided in every run: one of each network and of each kind of property, a second or two each at most.
QUICK = {
    "fc_crown_1439", "fc_branch_1442", "fc_sat_1443", "fc_joint_1440", "fc_minimal_1440", "fc_boxes_1447",
    "conv_v2_1446", "res_sat_1443", "pool_sat_1444", "cart_push", "cart_range", "cart_v2_strict", "pendulum_origin",
    "toy_positive", "toy_peak",
}  # fmt: skip
# Of these, what takes too long where shapes are checked.
LONGER = {"conv_v2_1446"}


def instances(longer: bool) -> list[object]:
    """Those that are decided in every run, shapes checked or not; or all the others."""
    with open(FOLDER / "expected.csv", newline="") as stream:
        table = list(csv.DictReader(stream))
    names = [Path(row["vnnlib"]).stem for row in table]
    assert set(names) >= QUICK
    return [
        pytest.param(
            row["onnx"], row["vnnlib"], row["expected"], id=name, marks=[] if name in QUICK else pytest.mark.slow
        )
        for name, row in zip(names, table, strict=True)
        if (name in QUICK - LONGER) != longer
    ]


@pytest.mark.parametrize(("onnx", "vnnlib", "expected"), instances(longer=False))
def test_verdict(onnx: str, vnnlib: str, expected: str) -> None:
    check(onnx, vnnlib, expected)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("onnx", "vnnlib", "expected"), instances(longer=True))
def test_verdict_of_a_longer_run(onnx: str, vnnlib: str, expected: str) -> None:
    check(onnx, vnnlib, expected)


def check(onnx: str, vnnlib: str, expected: str) -> None:
    result = verifier.verify(FOLDER / onnx, FOLDER / vnnlib, timeout=SECONDS, threads=1)
    assert result.verdict.value == expected
    assert (result.counterexample is not None) == (expected == "sat")
