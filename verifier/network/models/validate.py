"""Reading an ONNX file safely: whatever is wrong with it ends in one sentence."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import TensorProto, external_data_helper, numpy_helper

from verifier.errors import InputError, one_line
from verifier.network.models.identity import tensors_of
from verifier.network.rewrite.constants import constant_tensor
from verifier.network.rewrite.graph import describe

TYPES: dict[int, np.dtype[Any]] = {
    TensorProto.FLOAT16: np.dtype(np.float16),
    TensorProto.FLOAT: np.dtype(np.float32),
    TensorProto.DOUBLE: np.dtype(np.float64),
}


def parsed(path: Path, data: bytes) -> onnx.ModelProto:
    try:
        model = onnx.load_model_from_string(data)
    except (DecodeError, ValueError, RuntimeError) as error:
        raise InputError("is not a valid ONNX file: its bytes cannot be decoded", path) from error
    if not model.HasField("graph") or not (model.graph.node or model.graph.output):
        raise InputError("is not a valid ONNX file: it holds no graph", path)
    if not all(isinstance(name, str) for name in _names(model.graph)):  # protobuf then hands out bytes
        raise InputError("is not a valid ONNX file: a name in it is not UTF-8", path)
    return model


def _names(graph: onnx.GraphProto) -> Iterator[object]:
    for value in (*graph.input, *graph.output, *graph.initializer):
        yield value.name
    for node in graph.node:
        yield from (node.name, node.op_type, node.domain, *node.input, *node.output)
        yield from (attribute.name for attribute in node.attribute)


def inputs_and_outputs(
    model: onnx.ModelProto,
) -> tuple[tuple[onnx.ValueInfoProto, ...], tuple[onnx.ValueInfoProto, ...]]:
    """What the file asks for and what it gives, in its order; inputs are tensors of one floating-point type."""
    if model.graph.sparse_initializer:
        raise InputError("sparse initializers are not supported")
    given = {tensor.name for tensor in model.graph.initializer}
    sources = tuple(value for value in model.graph.input if value.name not in given)
    targets = tuple(model.graph.output)
    for kind, values in (("input", sources), ("output", targets)):
        if not values:
            raise InputError(f"the network has no {kind}")
    for source in sources:
        code = source.type.tensor_type.elem_type
        if code == TensorProto.BFLOAT16:
            raise InputError(
                "the network computes in bfloat16, which onnxruntime does not run on a CPU; convert it to float32, "
                "which holds all of its weights"
            )
        if code not in TYPES:
            kind = TensorProto.DataType.Name(code) if code in TensorProto.DataType.values() else str(code)
            raise InputError(
                f"the network's input '{source.name}' is of type {kind}, but must be float16, float32 or float64"
            )
    kinds = sorted({str(TYPES[source.type.tensor_type.elem_type]) for source in sources})
    if len(kinds) > 1:
        raise InputError(f"the network's inputs are of different types: {' and '.join(kinds)}")
    return sources, targets


def load_external(model: onnx.ModelProto, path: Path) -> bool:
    """Read weights that are kept in other files next to the model; False if there are none."""
    if not any(external_data_helper.uses_external_data(tensor) for tensor in tensors_of(model)):
        return False
    try:
        external_data_helper.load_external_data_for_model(model, str(path.parent))
    except Exception as error:  # onnx raises several unrelated types for missing, unsafe and short files
        raise InputError(f"the weights in its external data file cannot be read: {one_line(error)}", path) from error
    require_finite(model)
    return True


def require_sane(model: onnx.ModelProto) -> None:
    """Reject settings that no real network has.  onnxruntime computes with some of them unchecked and
    dies.
    """
    positive = {"strides", "dilations", "kernel_shape", "blocksize", "group", "num_outputs"}
    unlimited = {"starts", "ends", "value_int", "value_ints"}
    for node in model.graph.node:
        for attribute in node.attribute:
            values = list(attribute.ints) or ([attribute.i] if attribute.HasField("i") else [])
            least = 1 if attribute.name in positive else -(2**31)
            if attribute.name not in unlimited and any(not least <= value < 2**31 for value in values):
                raise InputError(f"node {describe(node)} has the attribute {attribute.name} = {values}")


def require_finite(model: onnx.ModelProto) -> None:
    held = [(tensor.name, tensor) for tensor in model.graph.initializer]
    for node in model.graph.node:
        if node.op_type == "Constant" and any(
            a.name in {"value", "value_float", "value_floats"} for a in node.attribute
        ):
            held.append((node.output[0] if node.output else node.name, constant_tensor(node)))
    for name, tensor in held:
        if external_data_helper.uses_external_data(tensor):
            continue  # checked when its file has been read
        try:
            values = numpy_helper.to_array(tensor)
        except Exception as error:  # a damaged tensor fails in many ways
            raise InputError(f"initializer '{name}' is damaged: {one_line(error)}") from error
        if values.dtype.kind == "V":  # bfloat16 and the like
            values = values.astype(np.float32)
        if values.dtype.kind == "f" and not np.isfinite(values).all():
            raise InputError(f"initializer '{name}' holds values that are not finite")
