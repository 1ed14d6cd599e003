"""Reading an ONNX file safely: whatever is wrong with it ends in one sentence."""

from __future__ import annotations

import math
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

_MAX_INPUTS = 1 << 22  # beyond it no property could be stated, and a damaged file may ask for any size

TYPES: dict[int, np.dtype[Any]] = {
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


def single_input_output(model: onnx.ModelProto) -> tuple[onnx.ValueInfoProto, onnx.ValueInfoProto]:
    if model.graph.sparse_initializer:
        raise InputError("sparse initializers are not supported")
    given = {tensor.name for tensor in model.graph.initializer}
    sources = [value for value in model.graph.input if value.name not in given]
    for kind, values in (("input", sources), ("output", list(model.graph.output))):
        if len(values) != 1:
            names = ", ".join(f"'{value.name}'" for value in values) or "none"
            raise InputError(f"the network must have exactly one {kind}, but it has {len(values)}: {names}")
    if sources[0].type.tensor_type.elem_type not in TYPES:
        code = sources[0].type.tensor_type.elem_type
        kind = TensorProto.DataType.Name(code) if code in TensorProto.DataType.values() else str(code)
        raise InputError(f"the network's input is of type {kind}, but must be float32 or float64")
    return sources[0], model.graph.output[0]


def static_shape(source: onnx.ValueInfoProto) -> tuple[tuple[int, ...], bool]:
    """The input's shape with an open first axis taken as 1, and whether it was open."""
    kind = source.type.tensor_type
    if not kind.HasField("shape"):
        raise InputError(f"the shape of input '{source.name}' is not given")
    dims = list(kind.shape.dim)
    fixed = [d.dim_value if d.HasField("dim_value") and d.dim_value >= 0 else None for d in dims]
    open_batch = bool(fixed) and fixed[0] is None
    if open_batch:
        fixed[0] = 1
    sizes = [size for size in fixed if size is not None]
    if len(sizes) != len(fixed):
        names = [d.dim_param or "?" for d, size in zip(dims, fixed, strict=True) if size is None]
        raise InputError(f"input '{source.name}' leaves axes other than the first open: {', '.join(names)}")
    if 0 in sizes or math.prod(sizes) > _MAX_INPUTS:
        raise InputError(f"input '{source.name}' has the unusable shape {sizes}")
    return tuple(sizes), open_batch


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
