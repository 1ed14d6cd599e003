"""Monotonicity of a bundled network, from VNN-LIB 2.0 files: proved near the origin, refuted where it saturates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import verifier
from verifier.network.models.onnx import load_onnx
from verifier.result.verdict import Verdict

HEAD = """(vnnlib-version <2.0>)
(declare-network f (declare-input X_f float32 [1,4]) (declare-output Y_f float32 [1,1]))
(declare-network g (equal-to f) (declare-input X_g float32 [1,4]) (declare-output Y_g float32 [1,1]))
"""
ANGLE = 2


def monotone(radius: float, step: float) -> str:
    """The controller does not push harder although the pole leans more, by at least a step; all else is equal."""
    lines = [HEAD]
    for i in range(4):
        lines.append(f"(assert (and (>= X_f[0,{i}] {-radius}) (<= X_f[0,{i}] {radius})))")
        lines.append(f"(assert (== X_f[0,{i}] X_g[0,{i}]))" if i != ANGLE else f"(assert (>= X_g[0,{i}] {-radius}))")
    lines.append(f"(assert (>= X_f[0,{ANGLE}] (+ X_g[0,{ANGLE}] {step})))")
    return "\n".join([*lines, "(assert (<= Y_f[0,0] Y_g[0,0]))"])


@pytest.mark.parametrize(("radius", "step", "expected"), [(0.3, 0.1, Verdict.UNSAT), (1.0, 0.1, Verdict.SAT)])
def test_monotonicity(root: Path, tmp_path: Path, radius: float, step: float, expected: Verdict) -> None:
    net = root / "properties" / "onnx" / "cart_controller.onnx"
    path = tmp_path / "monotone.vnnlib"
    path.write_text(monotone(radius, step))
    result = verifier.verify(net, path, threads=1, timeout=60)
    assert result.verdict is expected
    if result.counterexample is None:
        return
    x, y = result.counterexample.declared
    assert (len(x), len(y)) == (8, 2)
    assert np.delete(x[:4], ANGLE).tolist() == np.delete(x[4:], ANGLE).tolist()
    assert float(x[ANGLE]) >= float(x[4 + ANGLE]) + step - 1e-7
    model = load_onnx(net)
    assert [model.run(x[:4])[0], model.run(x[4:])[0]] == y.tolist()
    assert y[0] <= y[1]
    assert result.witness is not None
    heads = [line for line in result.witness.splitlines() if "[" in line]
    assert heads == ["X_f float32 [1,4]", "Y_f float32 [1,1]", "X_g float32 [1,4]", "Y_g float32 [1,1]"]
