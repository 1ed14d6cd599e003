"""A small classifier as a file: three classes, y_k = x_k over one pixel of three channels."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IMAGES = np.array([[0.75, 0.25, 0], [0.5, 0.625, 0], [0, 0.25, 1], [1, 0, 0.5]], np.float32).reshape(-1, 3, 1, 1)
LABELS = np.array([0, 1, 2, 1])
"""The last one is misclassified.  Robust in the maximum norm below 1/4, 1/16 and 3/8."""


def classifier(folder: Path, scale: float = 1.0) -> str:
    weight = numpy_helper.from_array(scale * np.eye(3, dtype=np.float32), "W")
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["X"], ["f"], "flat"), helper.make_node("MatMul", ["f", "W"], ["Y"], "mul")],
        "classes",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [1, 3, 1, 1])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [1, 3])],
        [weight],
    )
    path = str(folder / "classes.onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path
