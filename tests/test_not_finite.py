"""Networks whose own outputs are no numbers somewhere in the box: `sat` or `unknown`, never `unsat`, and no error."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from network.protos import proto
from onnx import TensorProto, helper

import verifier
from verifier.errors import NetworkMismatch
from verifier.loading import GivenFiles
from verifier.network.models.onnx import OnnxModel
from verifier.network.network import Network
from verifier.pipeline import problem_of
from verifier.result.result import Result
from verifier.result.verdict import Reason, Verdict

make = helper.make_node
TOTAL = make("ReduceSum", ["b"], ["y"], keepdims=1)
TWICE = [make("Mul", ["x", "c"], ["a"]), make("Mul", ["a", "c"], ["b"])]
LARGE = {"c": np.float32(1e18)}
NETWORKS = {
    "no logarithm": (proto([make("Log", ["x"], ["b"]), TOTAL], [1, 2]), (-1.0, 2.0)),
    "overflow": (proto([*TWICE, TOTAL], [1, 2], LARGE), (-1e5, 1e5)),
    "a pole": (proto([make("Div", ["c", "x"], ["b"]), TOTAL], [1, 2], {"c": np.ones((1, 2), np.float32)}), (0.0, 1.0)),
    "half": (
        proto([make("Mul", ["x", "c"], ["b"]), TOTAL], [1, 2], {"c": np.float16(1e3)}, dtype=TensorProto.FLOAT16),
        (-100.0, 100.0),
    ),
}  # fmt: skip


def decided(path: Path, name: str, least: float) -> Result:
    """Whether the sum can be at least that."""
    model, (low, high) = NETWORKS[name]
    onnx.save(model, path)
    lower, upper = (np.full((1, 2), end) for end in (low, high))
    return verifier.verify(path, lower=lower, upper=upper, unsafe=[([[-1.0]], [-least])], threads=1, timeout=60)


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_easily_seen_is_sat(tmp_path: Path, name: str) -> None:
    result = decided(tmp_path / "net.onnx", name, 0.5)
    assert result.verdict is Verdict.SAT
    assert result.counterexample is not None
    assert np.isfinite(result.counterexample.y).all()


@pytest.mark.parametrize("name", NETWORKS)
def test_what_no_number_reaches_is_unknown_with_the_reason(tmp_path: Path, name: str) -> None:
    """In real arithmetic the sum of the second one stays below 1e42; nothing is proved all the same."""
    result = decided(tmp_path / "net.onnx", name, 1e42)
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, Reason.NUMERICS)
    assert result.message == "the network's outputs are not finite inside of the input box"


def test_no_bound_is_finite(tmp_path: Path) -> None:
    onnx.save(NETWORKS["overflow"][0], tmp_path / "net.onnx")
    lower, upper = np.full((1, 2), -1e5), np.full((1, 2), 1e5)
    unsafe = [([[-1.0]], [-1e42])]
    found = verifier.lower_bounds(tmp_path / "net.onnx", lower=lower, upper=upper, unsafe=unsafe, threads=1)
    assert [row.lower for row in found.rows] == [None]


def test_points_with_numbers_are_still_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network that is read wrongly is refused, also if its outputs overflow elsewhere."""
    onnx.save(NETWORKS["no logarithm"][0], tmp_path / "net.onnx")
    lines = ["(declare-const X_0 Real)", "(declare-const X_1 Real)", "(declare-const Y_0 Real)"]
    lines += [f"(assert (>= X_{i} -1.0))\n(assert (<= X_{i} 2.0))" for i in range(2)]
    prop = tmp_path / "p.vnnlib"
    prop.write_text("\n".join([*lines, "(assert (>= Y_0 0.5))\n"]))
    given = GivenFiles(str(tmp_path / "net.onnx"), str(prop))
    assert problem_of(given.load(), seed=0).beyond is not None
    read = OnnxModel.network

    def misread(model: OnnxModel, far_bounds: bool = False) -> Network:
        found = read(model, far_bounds)
        return replace(found, output=replace(found.output, bias=found.output.bias + torch.ones(1)))

    monkeypatch.setattr(OnnxModel, "network", misread)
    with pytest.raises(NetworkMismatch):
        problem_of(given.load(), seed=0)
