"""Lines of results are read with patience, and nothing is read into them."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report.lines import line

from verifier.batch.records import StoredProof, StoredWitness, parse
from verifier.result.result import Setting
from verifier.result.status import Status
from verifier.result.verdict import Reason, Verdict

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def test_a_whole_line() -> None:
    record = parse(json.dumps(line("p", "sat", 2.5)))
    assert record is not None
    assert record.names == ("family", "onnx/net.onnx", "vnnlib/p.vnnlib")
    assert record.verdict is Verdict.SAT
    assert (record.run_time, record.timeout, record.domains, record.lower_bound) == (2.5, 10.0, 7, -0.5)
    assert record.phases == {"load": 0.1, "attack": 0.2, "root": 0.3, "search": 0.0}
    assert record.witness == StoredWitness((0.5, -1.0), (2.0,))
    assert record.command == "verify /there/net.onnx /there/p.vnnlib --timeout 10"
    assert record.versions == {"strata-verifier": "0.1.0"}


def test_points_at_which_arithmetics_differ_are_told_apart() -> None:
    point = {"x": [0.5], "y": [2.0], "exact": False}
    real, run = (parse(json.dumps(line("p", "sat", counterexample=point, arithmetic=a))) for a in ("real", "run"))
    proved = parse(json.dumps(line("p", "unsat", arithmetic="real", rounding_witness=point)))
    assert real is not None
    assert run is not None
    assert proved is not None
    assert (real.witness, real.rounding_witness) == (StoredWitness((0.5,), (2.0,), False, True), None)
    assert run.witness == StoredWitness((0.5,), (2.0,), False, False)
    assert (proved.witness, proved.rounding_witness) == (None, run.witness)


def test_proofs_are_those_of_unsat() -> None:
    proof = {"file": "/p", "bytes": 7, "sha256": "ab", "leaves": 3, "seconds": 0.5}
    told = parse(json.dumps(line("p", proof=proof, proof_wanted=True)))
    untold = parse(json.dumps(line("p", proof=None, proof_wanted=True, message="no proof was written: a hole")))
    other = parse(json.dumps(line("p", "sat", proof=proof, proof_wanted=True)))
    torn = parse(json.dumps(line("p", proof={"file": "/p"}, proof_wanted=True)))
    assert told is not None
    assert untold is not None
    assert other is not None
    assert torn is not None
    assert (told.proof, told.unproved) == (StoredProof("/p", "ab", 7, 3, 0.5), None)
    assert (untold.proof, untold.unproved) == (None, "no proof was written: a hole")
    assert (other.proof, other.unproved) == (None, None)
    assert (torn.proof, torn.unproved) == (None, "no proof was written")


def test_what_a_single_run_writes_is_a_line_too() -> None:
    status = Status(Setting("a b/family/onnx/n.onnx", "q.vnnlib", 5.0, {"x": 1}, 3))
    record = parse(status.conclude(Verdict.TIMEOUT, Reason.TIMEOUT, "the time limit was reached").as_json())
    assert record is not None
    assert (record.category, record.onnx, record.vnnlib) == ("family", "a b/family/onnx/n.onnx", "q.vnnlib")
    assert shlex.split(record.command) == ["verify", "a b/family/onnx/n.onnx", "q.vnnlib", "--timeout", "5"]
    assert record.reason == "the time limit was reached"
    assert record.seed == 3


def test_a_line_with_a_verdict_only() -> None:
    record = parse('{"verdict": "unknown"}')
    assert record is not None
    assert (record.run_time, record.timeout, record.domains, record.command) == (0.0, None, None, "")


@pytest.mark.parametrize("text", ["", "7", "[]", "{}", '{"verdict": "maybe"}', '{"verdict": []}', "[" * 100_000])
def test_what_is_no_result(text: str) -> None:
    assert parse(text) is None


@given(st.dictionaries(st.sampled_from(sorted(line())), JSON), st.sampled_from(["sat", "timeout"]))
def test_any_value_of_any_key_is_survived(keys: dict[str, Any], verdict: str) -> None:
    record = parse(json.dumps(line("p", verdict) | keys | {"verdict": verdict}))
    assert record is not None
    assert record.run_time >= 0


@given(st.integers(0, len(json.dumps(line("p", "sat"))) - 1))
def test_a_torn_line_is_no_result(length: int) -> None:
    assert parse(json.dumps(line("p", "sat"))[:length].encode()) is None
