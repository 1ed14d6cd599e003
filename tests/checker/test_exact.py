"""`--exact` on the bundled properties: it accepts whatever float64 accepts, and finds the same."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from verifier.checker.check import check
from verifier.config import load_config
from verifier.loading import GivenFiles
from verifier.machine import Machine
from verifier.pipeline import Request, decide
from verifier.result.verdict import Verdict

BUNDLED = Path(__file__).resolve().parents[2] / "properties"
with (BUNDLED / "expected.csv").open() as _file:
    UNSAT = [(net, prop) for net, prop, verdict, *_ in csv.reader(_file) if verdict == "unsat"]
QUICK = ("fc_crown", "cart_push", "cart_cases", "pool_crown")


def _marked(net: str, prop: str) -> object:
    quick = any(name in prop for name in QUICK)
    return pytest.param(net, prop, id=Path(prop).stem, marks=() if quick else pytest.mark.slow)


def test_there_are_such_properties() -> None:
    assert len(UNSAT) >= 25


@pytest.mark.parametrize(("net", "prop"), [_marked(*files) for files in UNSAT])
def test_rationals_accept_what_floats_accept(tmp_path: Path, net: str, prop: str) -> None:
    files, proof = GivenFiles(str(BUNDLED / net), str(BUNDLED / prop)), str(tmp_path / "proof")
    request = Request(files, load_config("auto", ()), Machine("cpu", 1, 120.0), proof=proof)
    assert decide(request, request.status()).verdict is Verdict.UNSAT
    rounded, exact = (check(files.network, files.prop, proof, way) for way in (False, True))
    assert rounded.verdict == exact.verdict == "accepted", (rounded, exact)
    assert (rounded.nodes, rounded.closed) == (exact.nodes, exact.closed)
    assert exact.margin == pytest.approx(rounded.margin, rel=1e-6)  # sums of many rows round otherwise than sums of one
