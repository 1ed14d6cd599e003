"""Rewriters of entrywise operators, matrix products and reductions, from any opset (7 on) to opset 17.

Everything that later opsets changed, or that onnx2torch gets
wrong or refuses, ends here: attributes against inputs, negative axes, `auto_pad`, asymmetric padding,
`output_shape`, `allowzero`, several outputs, left-out bounds.
"""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from verifier.network.rewrite.constants import exact_product
from verifier.network.rewrite.graph import Array, Graph, Rewritten, attributes, make, refuse, rewrites


@rewrites(*"Add Sub Mul Div Neg MatMul Relu Abs Where Tile".split())
def as_it_is(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    """The same operator without the attributes of older opsets."""
    return [make(node.op_type, list(node.input), [node.output[0]])]


@rewrites("Concat", "Gather")
def along_axis(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    given = {name: value for name, value in attributes(node).items() if name == "axis"}
    return [make(node.op_type, list(node.input), [node.output[0]], **given)]


# -- entrywise -----------------------------------------------------------------------------------------------


@rewrites("LeakyRelu")
def leaky_relu(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    slope = attributes(node).get("alpha", float(np.float32(0.01)))  # ONNX prescribes a float32 value
    return [make("LeakyRelu", list(node.input), [node.output[0]], alpha=slope)]


@rewrites("Identity")
def unchanged_value(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    return str(node.input[0])


@rewrites("Dropout")
def dropout(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    training = graph.array(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if len(node.input) > 2 and node.input[2] and (training is None or bool(training.any())):
        refuse(node, "it is random in training mode")
    return str(node.input[0])


@rewrites("Cast", "CastLike")
def cast(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    """The identity between float32 and float64: what it rounds is rounding as that of any operator."""
    source = graph.types.get(node.input[0], TensorProto.UNDEFINED)
    target = attributes(node)["to"] if node.op_type == "Cast" else graph.types.get(node.input[1], TensorProto.UNDEFINED)
    if not {source, target} <= {TensorProto.FLOAT, TensorProto.DOUBLE}:
        kinds = [TensorProto.DataType.Name(kind) for kind in (source, target)]
        refuse(node, f"it rounds from {kinds[0]} to {kinds[1]}")
    return str(node.input[0])


@rewrites("Sum", "Mean")
def chained(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    """A chain of additions, and a division."""
    parts: list[onnx.NodeProto] = []
    total = str(node.input[0])
    for name in node.input[1:]:
        parts.append(make("Add", [total, name], [graph.fresh()]))
        total = str(parts[-1].output[0])
    if node.op_type == "Mean":
        parts.append(make("Div", [total, graph.floats(len(node.input))], [graph.fresh()]))
    if not parts:
        return total
    parts[-1].output[0] = node.output[0]
    return parts


@rewrites("Max", "Min")
def extremum(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    if len(node.input) == 1:
        return str(node.input[0])
    return [make(node.op_type, list(node.input), [node.output[0]])]


@rewrites("Clip")
def clip(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    """Constant bounds stay a Clip; bounds that are computed become Max and Min, and those left out nothing."""
    given = attributes(node)
    bounds: list[tuple[str, str, Array | None]] = []
    for position, key, extremum in ((1, "min", "Max"), (2, "max", "Min")):
        if len(node.input) > position and node.input[position]:
            bounds.append((key, extremum, graph.array(node.input[position])))
        elif key in given:
            bounds.append((key, extremum, np.asarray(given[key], dtype=np.float32)))
    if all(value is not None and value.size == 1 for _, _, value in bounds):
        known = {key: value for key, _, value in bounds if value is not None}
        ends = [known.get(key, np.asarray(default)) for key, default in (("min", -np.inf), ("max", np.inf))]
        scalars = [graph.add_constant(np.asarray(end, dtype=np.float64).reshape(())) for end in ends]
        return [make("Clip", [node.input[0], *scalars], [node.output[0]])]
    parts, value = [], str(node.input[0])
    for key, extremum, _ in bounds:  # a bound that is no constant is an input
        parts.append(make(extremum, [value, node.input[1 if key == "min" else 2]], [graph.fresh()]))
        value = str(parts[-1].output[0])
    parts[-1].output[0] = node.output[0]
    return parts


@rewrites("HardSigmoid")
def hard_sigmoid(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    given = attributes(node)
    defaults = (("alpha", float(np.float32(0.2))), ("beta", 0.5))  # attributes are float32 in float64 networks too
    slope, offset = (graph.floats(given.get(key, value)) for key, value in defaults)
    scaled, moved = graph.fresh(), graph.fresh()
    return [
        make("Mul", [node.input[0], slope], [scaled]),
        make("Add", [scaled, offset], [moved]),
        make("Clip", [moved, graph.floats(0.0), graph.floats(1.0)], [node.output[0]]),
    ]


@rewrites("PRelu")
def prelu(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    """ONNX broadcasts the slope to the input; onnxruntime also does it the other way round."""
    shape, slope = graph.shape(node.input[0], node), graph.shape(node.input[1], node)
    if len(slope) > len(shape) or np.broadcast_shapes(shape, slope) != shape:
        refuse(node, f"its slope of shape {slope} does not fit into an input of shape {shape}")
    return [make("PRelu", list(node.input), [node.output[0]])]


# -- products ------------------------------------------------------------------------------------------------


@rewrites("Gemm")
def gemm(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    """Factors other than 1 are pulled out: onnx2torch would fold them into the weights in float32."""
    given = attributes(node)
    alpha, beta = given.get("alpha", 1.0), given.get("beta", 1.0)
    turned = {name: given.get(name, 0) for name in ("transA", "transB")}
    if all(graph.array(name) is not None for name in node.input[:2]):
        refuse(node, "it multiplies two constants, and only what it adds depends on the input")
    addend = node.input[2] if len(node.input) > 2 and node.input[2] and beta != 0 else None
    if alpha == 1 and (addend is None or beta == 1):
        operands = [*node.input[:2], *([addend] if addend else [])]
        return [make("Gemm", operands, [node.output[0]], **turned)]
    parts = [make("Gemm", list(node.input[:2]), [graph.fresh()], **turned)]
    parts.append(make("Mul", [parts[-1].output[0], graph.floats(alpha)], [graph.fresh()]))
    if addend is not None:
        product = parts[-1].output[0]
        constant = graph.array(addend)
        if constant is None:
            parts.append(make("Mul", [addend, graph.floats(beta)], [graph.fresh()]))
            addend = parts[-1].output[0]
        else:
            addend = _scaled_constant(graph, node, constant, beta)
        parts.append(make("Add", [product, addend], [graph.fresh()]))
    parts[-1].output[0] = node.output[0]
    return parts


def _scaled_constant(graph: Graph, node: onnx.NodeProto, values: Array, factor: float) -> str:
    scaled = exact_product(values, np.asarray(factor))
    if scaled is None:
        refuse(node, f"its constant times beta = {factor:g} has more digits than float64")
    return graph.add_constant(scaled)


@rewrites("BatchNormalization")
def batch_norm(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    given = attributes(node)
    if given.get("training_mode", 0) or not given.get("spatial", 1):
        refuse(node, "it normalises with the statistics of the batch, or per entry")
    return [
        make(
            "BatchNormalization",
            list(node.input[:5]),
            [node.output[0]],
            epsilon=given.get("epsilon", float(np.float32(1e-5))),
        )
    ]


# -- reductions ----------------------------------------------------------------------------------------------


@rewrites("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")
def reduce(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    rank = len(graph.shape(node.input[0], node))
    given = attributes(node)
    axes = graph.integers(node, 1, "axes")
    if not rank:
        return str(node.input[0])
    if not axes:
        if given.get("noop_with_empty_axes", 0):
            return str(node.input[0])
        axes = list(range(rank))
    return [reduction(graph, node, [axis % rank for axis in axes], given.get("keepdims", 1))]


def reduction(graph: Graph, node: onnx.NodeProto, axes: list[int], keepdims: int) -> onnx.NodeProto:
    kind = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}.get(node.op_type, node.op_type)
    if kind == "ReduceSum":
        return make(kind, [node.input[0], graph.add_constant(axes)], [node.output[0]], keepdims=keepdims)
    return make(kind, [node.input[0]], [node.output[0]], axes=axes, keepdims=keepdims)


@rewrites("GlobalAveragePool", "GlobalMaxPool")
def global_pool(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    rank = len(graph.shape(node.input[0], node))
    return [reduction(graph, node, list(range(2, rank)), 1)]
