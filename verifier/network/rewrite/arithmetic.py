"""One rewriter per operator: from any opset (7 on) to the normal form in opset 17.

A rewriter returns the nodes that replace its node (the last one writes the node's first output), or the name
of the tensor that the output is equal to.  Everything that later opsets changed, or that onnx2torch gets
wrong or refuses, ends here: attributes against inputs, negative axes, `auto_pad`, asymmetric padding,
`output_shape`, `allowzero`, several outputs, left-out bounds.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper

from verifier.network.rewrite.constants import exact_product
from verifier.network.rewrite.graph import Array, Graph, attributes
from verifier.network.rewrite.moves import MOVES
from verifier.network.rewrite.windows import WINDOWS

Rewriter = Callable[[Graph, onnx.NodeProto], "list[onnx.NodeProto] | str"]

make = helper.make_node


def as_it_is(*kept: str) -> Rewriter:
    """The same operator with only the attributes that still exist in opset 17."""

    def rewrite(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        given = {name: value for name, value in attributes(node).items() if name in kept}
        return [make(node.op_type, list(node.input), [node.output[0]], **given)]

    return rewrite


# -- entrywise -----------------------------------------------------------------------------------------------


def with_floats(**defaults: float) -> Rewriter:
    """Attributes made explicit, at the float32 values that ONNX prescribes for them."""

    def rewrite(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto]:
        given = {name: attributes(node).get(name, value) for name, value in defaults.items()}
        return [make(node.op_type, list(node.input), [node.output[0]], **given)]

    return rewrite


def unchanged_value(graph: Graph, node: onnx.NodeProto) -> str:
    return str(node.input[0])


def dropout(graph: Graph, node: onnx.NodeProto) -> str:
    training = graph.array(node.input[2]) if len(node.input) > 2 and node.input[2] else None
    if len(node.input) > 2 and node.input[2] and (training is None or bool(training.any())):
        graph.refuse(node, "it is random in training mode")
    return str(node.input[0])


def cast(graph: Graph, node: onnx.NodeProto) -> str:
    """The identity if no digit is lost: to the same type, or from float32 to float64."""
    source = graph.types.get(node.input[0], TensorProto.UNDEFINED)
    target = attributes(node)["to"] if node.op_type == "Cast" else graph.types.get(node.input[1], TensorProto.UNDEFINED)
    widens = (source, target) == (TensorProto.FLOAT, TensorProto.DOUBLE)
    if not widens and (source != target or source not in {TensorProto.FLOAT, TensorProto.DOUBLE}):
        kinds = [TensorProto.DataType.Name(kind) for kind in (source, target)]
        graph.refuse(node, f"it rounds from {kinds[0]} to {kinds[1]}")
    return str(node.input[0])


def chained(op_type: str) -> Rewriter:
    """Sum and Mean: a chain of additions, and a division."""

    def rewrite(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto] | str:
        parts: list[onnx.NodeProto] = []
        total = str(node.input[0])
        for name in node.input[1:]:
            parts.append(make("Add", [total, name], [graph.fresh()]))
            total = str(parts[-1].output[0])
        if op_type == "Mean":
            parts.append(make("Div", [total, graph.floats(len(node.input))], [graph.fresh()]))
        if not parts:
            return total
        parts[-1].output[0] = node.output[0]
        return parts

    return rewrite


def extremum(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto] | str:
    if len(node.input) == 1:
        return str(node.input[0])
    return [make(node.op_type, list(node.input), [node.output[0]])]


def clip(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto] | str:
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


def hard_sigmoid(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    given = attributes(node)
    defaults = (("alpha", float(np.float32(0.2))), ("beta", 0.5))  # attributes are float32 in float64 networks too
    slope, offset = (graph.floats(given.get(key, value)) for key, value in defaults)
    scaled, moved = graph.fresh(), graph.fresh()
    return [
        make("Mul", [node.input[0], slope], [scaled]),
        make("Add", [scaled, offset], [moved]),
        make("Clip", [moved, graph.floats(0.0), graph.floats(1.0)], [node.output[0]]),
    ]


def prelu(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """ONNX broadcasts the slope to the input; onnxruntime also does it the other way round."""
    shape, slope = graph.shape(node.input[0], node), graph.shape(node.input[1], node)
    if len(slope) > len(shape) or np.broadcast_shapes(shape, slope) != shape:
        graph.refuse(node, f"its slope of shape {slope} does not fit into an input of shape {shape}")
    return [make("PRelu", list(node.input), [node.output[0]])]


# -- products ------------------------------------------------------------------------------------------------


def gemm(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Factors other than 1 are pulled out: onnx2torch would fold them into the weights in float32."""
    given = attributes(node)
    alpha, beta = given.get("alpha", 1.0), given.get("beta", 1.0)
    turned = {name: given.get(name, 0) for name in ("transA", "transB")}
    if all(graph.array(name) is not None for name in node.input[:2]):
        graph.refuse(node, "it multiplies two constants, and only what it adds depends on the input")
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
        graph.refuse(node, f"its constant times beta = {factor:g} has more digits than float64")
    return graph.add_constant(scaled)


def batch_norm(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    given = attributes(node)
    if given.get("training_mode", 0) or not given.get("spatial", 1):
        graph.refuse(node, "it normalises with the statistics of the batch, or per entry")
    return [
        make(
            "BatchNormalization",
            list(node.input[:5]),
            [node.output[0]],
            epsilon=given.get("epsilon", float(np.float32(1e-5))),
        )
    ]


# -- reductions ----------------------------------------------------------------------------------------------


def reduce(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto] | str:
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


def global_pool(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    rank = len(graph.shape(node.input[0], node))
    return [reduction(graph, node, list(range(2, rank)), 1)]


REWRITERS: dict[str, Rewriter] = {
    **{op: as_it_is() for op in "Add Sub Mul Div Neg MatMul Relu Abs Where Tile".split()},
    **{op: as_it_is("axis") for op in ("Concat", "Gather")},
    **dict.fromkeys("ReduceSum ReduceMean ReduceMax ReduceMin".split(), reduce),
    **{op: chained(op) for op in ("Sum", "Mean")},
    "Max": extremum,
    "Min": extremum,
    "LeakyRelu": with_floats(alpha=float(np.float32(0.01))),
    "PRelu": prelu,
    "Identity": unchanged_value,
    "Dropout": dropout,
    "Cast": cast,
    "CastLike": cast,
    "Clip": clip,
    "HardSigmoid": hard_sigmoid,
    "Gemm": gemm,
    "BatchNormalization": batch_norm,
    "GlobalAveragePool": global_pool,
    "GlobalMaxPool": global_pool,
    **MOVES,
    **WINDOWS,
}
