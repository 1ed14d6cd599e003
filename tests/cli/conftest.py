"""A tiny instance of each kind: y = relu(x_0 + x_1) - relu(x_0 + x_1) + x_0, over [-1, 1] x [-1, 1].

The two ReLUs cancel, so y = x_0; linear bounds do not see that and stay below the true minimum by 2.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from verifier.cli.main import run

BOX = "(declare-const X_0 Real)\n(declare-const X_1 Real)\n(declare-const Y_0 Real)\n" + "".join(
    f"(assert (>= X_{i} -1.0))\n(assert (<= X_{i} 1.0))\n" for i in range(2)
)


@dataclass(frozen=True)
class Tiny:
    """Paths of the network and of properties by the answer that they get."""

    net: str
    sat: str
    unsat: str
    unknown: str
    folder: Path


def model(op: str = "Relu") -> onnx.ModelProto:
    weight = np.array([[1.0, 1.0, 1.0], [0.9375, 1.0, 0.0]], np.float32)  # two neurons are almost the same
    bias = np.array([0.0, 0.0, 2.0], np.float32)  # x_0 + 2 >= 0 passes the ReLU unchanged
    last = np.array([[1.0], [-1.0], [1.0]], np.float32)
    nodes = [
        helper.make_node("Gemm", ["X", "W", "b"], ["h"], "gemm"),
        helper.make_node(op, ["h"], ["a"], "act"),
        helper.make_node("Gemm", ["a", "V", "c"], ["Y"], "out"),
    ]
    constants = {"W": weight, "b": bias, "V": last, "c": np.array([-2.0], np.float32)}
    graph = helper.make_graph(
        nodes,
        "tiny",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [1, 2])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [1, 1])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    folder = tmp_path_factory.mktemp("tiny")
    onnx.save(model(), str(folder / "net.onnx"))
    onnx.save(model("Hardmax"), str(folder / "odd.onnx"))  # onnxruntime runs it, and nothing here reads it
    for name, bound in {"sat": "-0.75", "unsat": "-4.0", "unknown": "-1.5"}.items():
        (folder / f"{name}.vnnlib").write_text(f"{BOX}(assert (<= Y_0 {bound}))\n")
    paths = {name: str(folder / f"{name}.vnnlib") for name in ("sat", "unsat", "unknown")}
    return Tiny(str(folder / "net.onnx"), **paths, folder=folder)


@dataclass(frozen=True)
class Outcome:
    code: int
    out: str
    err: str


@pytest.fixture
def verify(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Runs one command line inside of this process, which is older than any time limit: each call starts its own."""
    monkeypatch.setattr("verifier.cli.options.process_start", time.monotonic)

    def call(*argv: str) -> Outcome:
        capfd.readouterr()
        code = run([str(word) for word in argv])
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return call
