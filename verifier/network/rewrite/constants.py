"""Constants and shapes of a graph: what does not depend on the input becomes a constant.

The arithmetic is onnxruntime's own, in the precision of the file, so that folding cannot change what the
network computes there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

from verifier.errors import InputError, one_line
from verifier.network.rewrite.graph import Array, Graph, attributes, describe, model_of, refuse

_LARGE, _SMALL = 2.0**500, 2.0**-400  # in between, neither a product nor its error term overflows or underflows
_HALF = 2.0**27 + 1.0  # Veltkamp's constant: splits 53 digits into 26 and 26

_MOVES = frozenset("Identity Reshape Flatten Squeeze Unsqueeze".split())


def exact_product(first: Array, second: Array) -> Array | None:
    """The entrywise product in float64, or None if an entry of it would be rounded."""
    a, b = (np.asarray(v, dtype=np.float64) for v in np.broadcast_arrays(first, second))
    for values in (a, b):
        size = np.abs(values)
        if not bool(((size == 0) | ((size > _SMALL) & (size < _LARGE))).all()):
            return None
    product: Array = np.asarray(a * b)
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product if not bool(error.any()) else None


def exact_sum(first: Array, second: Array) -> Array | None:
    """The entrywise sum in float64, or None if an entry of it would be rounded."""
    a, b = (np.asarray(v, dtype=np.float64) for v in np.broadcast_arrays(first, second))
    if not bool((np.abs(a) < _LARGE).all() and (np.abs(b) < _LARGE).all()):
        return None
    total: Array = np.asarray(a + b)
    other = total - a
    error = (a - (total - other)) + (b - other)
    return total if not bool(error.any()) else None


def exact_values(
    nodes: list[onnx.NodeProto], known: Mapping[str, Array], rounded: Mapping[str, Array]
) -> dict[str, Array]:
    """Results of constant nodes in float64, of those that are exact there.

    Requires the nodes in topological order; `known` holds the file's constants, `rounded` what onnxruntime gives for
    the results of the nodes.
    """
    found: dict[str, Array] = {}
    for node in nodes:
        operands = [found.get(name, known.get(name)) for name in node.input if name]
        if len(node.output) == 1 and node.output[0] in rounded and operands and all(v is not None for v in operands):
            value = _exact_value(node, [v for v in operands if v is not None], rounded[node.output[0]].shape)
            if value is not None:
                found[node.output[0]] = value
    return found


def _halves(values: Array) -> tuple[Array, Array]:
    scaled = _HALF * values
    high = scaled - (scaled - values)
    return high, values - high


def _exact_value(node: onnx.NodeProto, operands: list[Array], shape: tuple[int, ...]) -> Array | None:
    kinds = {np.dtype(v.dtype).kind for v in operands[:1]}
    if node.op_type in _MOVES and kinds == {"f"}:
        return operands[0].astype(np.float64).reshape(shape)
    if node.op_type == "Transpose" and kinds == {"f"}:
        return np.transpose(operands[0].astype(np.float64), attributes(node).get("perm"))
    if node.op_type == "Cast" and attributes(node)["to"] == TensorProto.DOUBLE and kinds == {"f"}:
        return operands[0].astype(np.float64)
    if node.op_type == "DequantizeLinear":
        return _dequantized(node, operands, shape)
    rule = _ARITHMETIC.get(node.op_type)
    return rule(*operands) if rule is not None and kinds == {"f"} else None


def _dequantized(node: onnx.NodeProto, operands: list[Array], shape: tuple[int, ...]) -> Array | None:
    """(values - zero) * scale, with one scale for all entries, one per index of an axis, or one per block along it."""
    values, *others = operands
    axis, block = attributes(node).get("axis", 1), attributes(node).get("block_size", 0)
    if block:
        n = values.shape[axis]
        others = [np.repeat(other, block, axis=axis).take(range(n), axis=axis) for other in others]
    elif others[0].size > 1:
        place = [-1 if i == axis % values.ndim else 1 for i in range(values.ndim)]
        others = [other.reshape(place) for other in others]
    scale, *zero = (other.astype(np.float64) for other in others)
    steps = values.astype(np.float64) - (zero[0] if zero else 0.0)  # exact: 32 bits each
    product = exact_product(steps, scale)
    return None if product is None else product.reshape(shape)


_ARITHMETIC: dict[str, Callable[..., Array | None]] = {
    "Neg": lambda value: -value.astype(np.float64),
    "Mul": exact_product,
    "Add": exact_sum,
    "Sub": lambda first, second: exact_sum(first, -second.astype(np.float64)),
}


MADE_EXACTLY = _MOVES | _ARITHMETIC.keys() | {"Transpose", "Cast", "DequantizeLinear"}
"""Operators whose results on constants `exact_values` can give."""


def array_of(tensor: onnx.TensorProto) -> Array:
    """The value of a constant; what numpy has no type for (bfloat16, four bits) as float32, which holds it."""
    values: Array = numpy_helper.to_array(tensor)
    kind: Any = values.dtype.kind
    return values.astype(np.float32) if kind == "V" or values.dtype.name == "bfloat16" else values


_RANDOM = frozenset("RandomNormal RandomUniform RandomNormalLike RandomUniformLike Bernoulli Multinomial".split())


def quiet_session(source: bytes | str, threads: int) -> ort.InferenceSession:
    """An onnxruntime session on the CPU that writes nothing: stdout belongs to the answer.

    Nodes are run as the file has them, one by one.  What onnxruntime fuses by default may change values: weights of 8
    bits are then multiplied with activations that were rounded to 8 bits.
    Without `enable_fallback=0` a failing session is announced on stdout and built a second time.
    """
    settings = ort.SessionOptions()
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    settings.log_severity_level = 4
    settings.intra_op_num_threads = threads
    settings.inter_op_num_threads = 1
    return ort.InferenceSession(source, settings, providers=["CPUExecutionProvider"], enable_fallback=0)


def fold(graph: Graph) -> None:
    """Fold constants and find static shapes, until nothing changes: a shape may itself feed a Reshape."""
    for _ in range(len(graph.nodes) + 2):
        _fold_constants(graph)
        _infer_shapes(graph)
        if not _fold_shapes(graph):
            return


def constant_tensor(node: onnx.NodeProto) -> onnx.TensorProto:
    """The value of a Constant node."""
    given = attributes(node)
    value = given.get("value")
    if isinstance(value, TensorProto):
        return value
    kinds = {
        "value_float": np.float32,
        "value_floats": np.float32,
        "value_int": np.int64,
        "value_ints": np.int64,
    }
    for name, kind in kinds.items():
        if name in given:
            return numpy_helper.from_array(np.asarray(given[name], dtype=kind))
    return refuse(node, "its value is neither a dense tensor nor a list of numbers")


def _fold_constants(graph: Graph) -> None:
    kept: list[onnx.NodeProto] = []
    ready: list[onnx.NodeProto] = []
    foldable: set[str] = set(graph.constants)
    for node in graph.nodes:
        if node.op_type in _RANDOM:
            refuse(node, "it is random")
        if node.op_type == "Constant" and node.domain in {"", "ai.onnx"}:
            graph.constants[node.output[0]] = constant_tensor(node)
            foldable.add(node.output[0])
        elif all(name in foldable for name in node.input if name) and not _has_subgraph(node):
            ready.append(node)
            foldable.update(node.output)
        else:
            kept.append(node)
    graph.nodes = kept
    if ready:
        needed = {name for node in kept for name in node.input} | {graph.output}
        known = dict(graph.constants)
        produced = [name for node in ready for name in node.output if name in needed or node.op_type in MADE_EXACTLY]
        graph.constants.update(_evaluate(graph, ready, produced))
        graph.exact.update(_more_exact(graph, ready, known))
        _forget(graph, set(produced) - needed)
    for name, tensor in graph.constants.items():
        graph.shapes.setdefault(name, tuple(tensor.dims))
        graph.types.setdefault(name, tensor.data_type)


def _more_exact(graph: Graph, nodes: list[onnx.NodeProto], known: dict[str, onnx.TensorProto]) -> dict[str, Array]:
    """Those results of constant nodes that the file's precision rounds and float64 holds exactly."""
    read = {name for node in nodes for name in node.input if name in known}
    inputs = {name: graph.exact[name] if name in graph.exact else array_of(known[name]) for name in read}
    made = [name for node in nodes if node.op_type in MADE_EXACTLY for name in node.output]
    rounded = {name: array_of(graph.constants[name]) for name in made if name in graph.constants}
    found = exact_values(nodes, inputs, rounded)
    return {name: value for name, value in found.items() if not np.array_equal(value, rounded[name])}


def _forget(graph: Graph, names: set[str]) -> None:
    for name in names:
        graph.constants.pop(name, None)
        graph.exact.pop(name, None)


def _has_subgraph(node: onnx.NodeProto) -> bool:
    return any(a.HasField("g") or a.graphs for a in node.attribute)


def _evaluate(graph: Graph, nodes: list[onnx.NodeProto], outputs: list[str]) -> dict[str, onnx.TensorProto]:
    if not outputs:
        return {}
    part = Graph(graph.input, (), "", graph.dtype, graph.opset, nodes, graph.constants)
    model = model_of(part, graph.opset)
    del model.graph.input[:], model.graph.output[:]
    model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in outputs)
    try:
        values = quiet_session(model.SerializeToString(), threads=1).run(outputs, {})
    except Exception as error:  # onnxruntime's exceptions have no common base of their own
        first = describe(nodes[0])
        raise InputError(f"the constant part of the network (from node {first}) cannot be evaluated") from error
    arrays = zip(outputs, values, strict=True)
    return {name: numpy_helper.from_array(np.asarray(value), name) for name, value in arrays}


def evaluated_nodes(
    graph: Graph, nodes: list[onnx.NodeProto], names: list[str], constants: dict[str, onnx.TensorProto]
) -> dict[str, Array]:
    """The outputs of some nodes, given constants in the place of all that they read."""
    part = Graph(graph.input, (), "", graph.dtype, graph.opset, nodes, constants)
    return {name: numpy_helper.to_array(tensor) for name, tensor in _evaluate(part, nodes, names).items()}


def evaluated(graph: Graph, node: onnx.NodeProto) -> Array:
    """The output of one node whose inputs are constants."""
    output = node.output[0]
    return numpy_helper.to_array(_evaluate(graph, [node], [output])[output])


def _infer_shapes(graph: Graph) -> None:
    if not graph.nodes:
        return
    try:
        skeleton = model_of(graph, graph.opset, weights=False)
        found = onnx.shape_inference.infer_shapes(skeleton, data_prop=True).graph
    except Exception as error:  # onnx raises InferenceError, but also plain RuntimeError and decode errors
        raise InputError(f"the shapes inside the network are inconsistent: {one_line(error)}") from error
    for info in (*found.value_info, *found.output):
        kind = info.type.tensor_type
        graph.types[info.name] = kind.elem_type
        if kind.HasField("shape") and all(d.HasField("dim_value") and d.dim_value >= 0 for d in kind.shape.dim):
            graph.shapes[info.name] = tuple(d.dim_value for d in kind.shape.dim)
    graph.shapes[graph.input], graph.types[graph.input] = graph.input_shape, graph.dtype


def _fold_shapes(graph: Graph) -> bool:
    """Turn Shape and Size of tensors with a known shape into constants; True if there were any."""
    kept, changed = [], False
    for node in graph.nodes:
        shape = graph.shapes.get(node.input[0]) if node.input else None
        if node.op_type in {"Shape", "Size"} and shape is not None:
            given = attributes(node)
            part = shape[given.get("start", 0) : given.get("end", len(shape))]
            value = np.asarray(part if node.op_type == "Shape" else int(np.prod(shape)), dtype=np.int64)
            graph.constants[node.output[0]] = numpy_helper.from_array(value, node.output[0])
            changed = True
        else:
            kept.append(node)
    graph.nodes = kept
    return changed
