"""Small ONNX models, built node by node."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper


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
        [*held, *extra.get("tensors", ())],
    )
    ir_version = 4 if opset < 12 else 8 if opset < 19 else 10
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)
