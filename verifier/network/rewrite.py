"""One rewriter per operator: from any opset (7 on) to the normal form in opset 17.

A rewriter returns the nodes that replace its node (the last one writes the node's first output), or the name
of the tensor that the output is equal to.  Everything that later opsets changed, or that onnx2torch gets
wrong or refuses, ends here: attributes against inputs, negative axes, `auto_pad`, asymmetric padding,
`output_shape`, `allowzero`, several outputs, left-out bounds.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from verifier.network.constants import exact_product
from verifier.network.graph import Array, Graph, attributes
from verifier.network.rewrite_windows import WINDOWS

Rewriter = Callable[[Graph, onnx.NodeProto], "list[onnx.NodeProto] | str"]

make = helper.make_node

_TO_THE_END = (2**31 - 1, 2**63 - 1)


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


# -- shapes --------------------------------------------------------------------------------------------------


def reshape(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto] | str:
    """Reshape and Flatten are one Reshape to the shape that is known by now."""
    return _reshaped(graph, node, graph.shape(node.output[0], node))


def squeeze(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto] | str:
    """Squeeze and Unsqueeze as a Reshape.  onnx's own inference of their shapes ignores negative axes in old opsets."""
    shape, axes = list(graph.shape(node.input[0], node)), graph.integers(node, 1, "axes")
    if axes is not None and not axes:
        graph.refuse(node, "its list of axes is empty, which ONNX and onnxruntime take differently")
    if node.op_type == "Unsqueeze":
        rank = len(shape) + len(axes or ())
        for axis in sorted(axis % rank for axis in axes or ()):
            shape.insert(axis, 1)
    else:
        gone = {axis % len(shape) for axis in axes} if axes else {i for i, n in enumerate(shape) if n == 1}
        shape = [n for i, n in enumerate(shape) if i not in gone]
    # What follows was given its shapes by the same inference.
    if graph.shape(node.output[0], node) != tuple(shape):
        graph.refuse(node, "its negative axes are not known to this operator set")
    return _reshaped(graph, node, tuple(shape))


def _reshaped(graph: Graph, node: onnx.NodeProto, shape: tuple[int, ...]) -> list[onnx.NodeProto] | str:
    if graph.shapes.get(node.input[0]) == shape:
        return str(node.input[0])
    return [make("Reshape", [node.input[0], graph.add_constant(shape)], [node.output[0]])]


def transpose(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto] | str:
    rank = len(graph.shape(node.input[0], node))
    if rank < 2:
        return str(node.input[0])
    perm = attributes(node).get("perm", list(range(rank))[::-1])
    return [make("Transpose", [node.input[0]], [node.output[0]], perm=perm)]


def _taken(graph: Graph, source: str, axis: int, positions: Array) -> onnx.NodeProto:
    return make("Gather", [source, graph.add_constant(positions.astype(np.int64))], [graph.fresh()], axis=axis)


def slices(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto] | str:
    """One Gather per axis that loses or reorders something."""
    shape = graph.shape(node.input[0], node)
    starts, ends = graph.integers(node, 1, "starts"), graph.integers(node, 2, "ends")
    if starts is None or ends is None:
        graph.refuse(node, "its bounds are missing")
    axes = [axis % len(shape) for axis in graph.integers(node, 3, "axes") or range(len(starts))]
    steps = graph.integers(node, 4, "steps") or [1] * len(starts)
    if len(set(axes)) < len(axes):
        graph.refuse(node, "it names an axis twice")
    if any(step < 0 and end in _TO_THE_END for end, step in zip(ends, steps, strict=True)):
        graph.refuse(node, "ONNX and onnxruntime differ in what a negative step to the largest integer means")
    wanted = {
        axis: _sliced(shape[axis], start, end, step)
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True)
    }
    return _gathered(graph, node, wanted)


def _sliced(n: int, start: int, end: int, step: int) -> Array:
    """Positions of a slice of an axis.

    ONNX, other than Python, moves a start that lies before the first entry to it also when the step is negative.
    """
    start, end = (bound + n if bound < 0 else bound for bound in (start, end))
    if step > 0:
        return np.arange(min(max(start, 0), n), min(max(end, 0), n), step)
    return np.arange(min(max(start, 0), n - 1), min(max(end, -1), n - 1), step)


def _gathered(graph: Graph, node: onnx.NodeProto, wanted: dict[int, Array]) -> list[onnx.NodeProto] | str:
    shape, source = graph.shape(node.input[0], node), str(node.input[0])
    parts: list[onnx.NodeProto] = []
    for axis, positions in wanted.items():
        if not np.array_equal(positions, np.arange(shape[axis])):
            parts.append(_taken(graph, source, axis, positions))
            source = str(parts[-1].output[0])
    if not parts:
        return source
    parts[-1].output[0] = node.output[0]
    return parts


def gather_elements(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Constant indices, counted from the front."""
    shape, index = graph.shape(node.input[0], node), graph.array(node.input[1])
    if index is None:
        graph.refuse(node, "its indices depend on the input")
    axis = attributes(node).get("axis", 0) % len(shape)
    front = np.where(index < 0, index + shape[axis], index).astype(np.int64)
    return [make("GatherElements", [node.input[0], graph.add_constant(front)], [node.output[0]], axis=axis)]


def split(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """One Gather per part: no node is left with several outputs."""
    shape = graph.shape(node.input[0], node)
    axis = attributes(node).get("axis", 0) % len(shape)
    sizes = graph.integers(node, 1, "split")
    if sizes is None:
        count = attributes(node).get("num_outputs", len(node.output))
        width = -(-shape[axis] // count)  # the last part may be smaller
        sizes = [min(width, max(shape[axis] - i * width, 0)) for i in range(count)]
    parts = []
    starts = itertools.accumulate(sizes, initial=0)
    for start, size, output in zip(starts, sizes, node.output, strict=False):
        if output:
            part = _taken(graph, node.input[0], axis, np.arange(start, start + size))
            part.output[0] = output
            parts.append(part)
    return parts


def expand(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto] | str:
    shape = graph.shape(node.output[0], node)
    if graph.shapes.get(node.input[0]) == shape:
        return str(node.input[0])
    return [make("Expand", [node.input[0], graph.add_constant(shape)], [node.output[0]])]


def pad(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto] | str:
    shape = graph.shape(node.input[0], node)
    given = attributes(node)
    amounts = graph.integers(node, 1, "pads" if "pads" in given else "paddings") or []
    axes = graph.integers(node, 3, "axes") or list(range(len(shape)))
    half = len(amounts) // 2
    sides = {axis % len(shape): (amounts[i], amounts[half + i]) for i, axis in enumerate(axes)}
    mode = given.get("mode", "constant")
    if mode != "constant":
        return _gathered(graph, node, {axis: _reflected(shape[axis], *side, mode) for axis, side in sides.items()})
    value = graph.floats(given.get("value", 0.0))
    if len(node.input) > 2 and node.input[2]:
        value = node.input[2]
        if graph.array(value) is None:
            graph.refuse(node, "its padding value depends on the input")
    before, after = ([sides.get(axis, (0, 0))[end] for axis in range(len(shape))] for end in (0, 1))
    return [make("Pad", [node.input[0], graph.add_constant([*before, *after]), value], [node.output[0]])]


def _reflected(n: int, before: int, after: int, mode: str) -> Array:
    """Positions of a padded axis; negative amounts cut entries off."""
    kept = np.arange(n)[max(-before, 0) : n - max(-after, 0)]
    how: Any = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}[mode]
    return np.pad(kept, (max(before, 0), max(after, 0)), mode=how)


def blocks(graph: Graph, node: onnx.NodeProto) -> list[onnx.NodeProto]:
    """DepthToSpace and SpaceToDepth: a permutation between two reshapes."""
    batch, channels, height, width = graph.shape(node.input[0], node)
    b = attributes(node)["blocksize"]
    if node.op_type == "SpaceToDepth":
        inner, perm = [batch, channels, height // b, b, width // b, b], [0, 3, 5, 1, 2, 4]
    elif attributes(node).get("mode", "DCR") == "DCR":
        inner, perm = [batch, b, b, channels // (b * b), height, width], [0, 3, 4, 1, 5, 2]
    else:
        inner, perm = [batch, channels // (b * b), b, b, height, width], [0, 1, 4, 2, 5, 3]
    opened, turned = graph.fresh(), graph.fresh()
    final = graph.add_constant(graph.shape(node.output[0], node))
    return [
        make("Reshape", [node.input[0], graph.add_constant(inner)], [opened]),
        make("Transpose", [opened], [turned], perm=perm),
        make("Reshape", [turned, final], [node.output[0]]),
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
    "GatherElements": gather_elements,
    **dict.fromkeys(("Reshape", "Flatten"), reshape),
    **dict.fromkeys(("Squeeze", "Unsqueeze"), squeeze),
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
    "Transpose": transpose,
    "Slice": slices,
    "Split": split,
    "Expand": expand,
    "Pad": pad,
    "DepthToSpace": blocks,
    "SpaceToDepth": blocks,
    "GlobalAveragePool": global_pool,
    "GlobalMaxPool": global_pool,
    **WINDOWS,
}
