"""Small ONNX files, built node by node."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from verifier.network.judge import check_against
from verifier.network.models.onnx import OnnxModel, load_onnx
from verifier.network.network import Network

Build = Callable[..., OnnxModel]


def proto(
    nodes: Sequence[onnx.NodeProto],
    shape: Sequence[int | str | None],
    constants: dict[str, Any] | None = None,
    opset: int = 17,
    **extra: Any,
) -> onnx.ModelProto:
    """A model from input "x" to output "y"."""
    held = [numpy_helper.from_array(np.asarray(value), name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(
        list(nodes),
        "test",
        [helper.make_tensor_value_info("x", extra.get("dtype", TensorProto.FLOAT), shape)],
        [helper.make_tensor_value_info("y", extra.get("dtype", TensorProto.FLOAT), None)],
        held,
    )
    ir_version = 4 if opset < 12 else 8 if opset < 19 else 10
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Write a model and load it again: `build(nodes, shape, constants, opset)`."""

    def make(*args: Any, **kwargs: Any) -> OnnxModel:
        path = tmp_path / "net.onnx"
        path.write_bytes(proto(*args, **kwargs).SerializeToString())
        return load_onnx(path)

    return make


@pytest.fixture
def agree() -> Callable[..., Network]:
    """Lower a model, compare it with the original on [-2, 2] and hand the network on."""

    def check(model: OnnxModel, tolerance: float = 2e-6) -> Network:
        network = model.network()
        ends = np.full(network.n_in, 2.0)
        assert check_against(model, network, (-ends, ends), seed=1, count=12) <= tolerance
        return network

    return check
