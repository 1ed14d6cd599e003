"""Rewriters of operators that only move entries: every one becomes a Reshape, a Transpose, a Gather or a Pad."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import onnx

from verifier.network.rewrite.graph import Array, Graph, Rewritten, attributes, make, refuse, rewrites

_TO_THE_END = (2**31 - 1, 2**63 - 1)


@rewrites("Reshape", "Flatten")
def reshape(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    """Reshape and Flatten are one Reshape to the shape that is known by now."""
    return _reshaped(graph, node, graph.shape(node.output[0], node))


@rewrites("Squeeze", "Unsqueeze")
def squeeze(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    """Squeeze and Unsqueeze as a Reshape.  onnx's own inference of their shapes ignores negative axes in old opsets."""
    shape, axes = list(graph.shape(node.input[0], node)), graph.integers(node, 1, "axes")
    if axes is not None and not axes:
        refuse(node, "its list of axes is empty, which ONNX and onnxruntime take differently")
    if node.op_type == "Unsqueeze":
        rank = len(shape) + len(axes or ())
        for axis in sorted(axis % rank for axis in axes or ()):
            shape.insert(axis, 1)
    else:
        gone = {axis % len(shape) for axis in axes} if axes else {i for i, n in enumerate(shape) if n == 1}
        shape = [n for i, n in enumerate(shape) if i not in gone]
    # What follows was given its shapes by the same inference.
    if graph.shape(node.output[0], node) != tuple(shape):
        refuse(node, "its negative axes are not known to this operator set")
    return _reshaped(graph, node, tuple(shape))


def _reshaped(graph: Graph, node: onnx.NodeProto, shape: tuple[int, ...]) -> Rewritten:
    if graph.shapes.get(node.input[0]) == shape:
        return str(node.input[0])
    return [make("Reshape", [node.input[0], graph.add_constant(shape)], [node.output[0]])]


@rewrites("Transpose")
def transpose(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    rank = len(graph.shape(node.input[0], node))
    if rank < 2:
        return str(node.input[0])
    perm = attributes(node).get("perm", list(range(rank))[::-1])
    return [make("Transpose", [node.input[0]], [node.output[0]], perm=perm)]


def _taken(graph: Graph, source: str, axis: int, positions: Array) -> onnx.NodeProto:
    return make("Gather", [source, graph.add_constant(positions.astype(np.int64))], [graph.fresh()], axis=axis)


@rewrites("Slice")
def slices(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    """One Gather per axis that loses or reorders something."""
    shape = graph.shape(node.input[0], node)
    starts, ends = graph.integers(node, 1, "starts"), graph.integers(node, 2, "ends")
    if starts is None or ends is None:
        refuse(node, "its bounds are missing")
    axes = [axis % len(shape) for axis in graph.integers(node, 3, "axes") or range(len(starts))]
    steps = graph.integers(node, 4, "steps") or [1] * len(starts)
    if len(set(axes)) < len(axes):
        refuse(node, "it names an axis twice")
    if any(step < 0 and end in _TO_THE_END for end, step in zip(ends, steps, strict=True)):
        refuse(node, "ONNX and onnxruntime differ in what a negative step to the largest integer means")
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


def _gathered(graph: Graph, node: onnx.NodeProto, wanted: dict[int, Array]) -> Rewritten:
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


@rewrites("GatherElements")
def gather_elements(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    """Constant indices, counted from the front."""
    shape, index = graph.shape(node.input[0], node), graph.array(node.input[1])
    if index is None:
        refuse(node, "its indices depend on the input")
    axis = attributes(node).get("axis", 0) % len(shape)
    front = np.where(index < 0, index + shape[axis], index).astype(np.int64)
    return [make("GatherElements", [node.input[0], graph.add_constant(front)], [node.output[0]], axis=axis)]


@rewrites("Split")
def split(graph: Graph, node: onnx.NodeProto) -> Rewritten:
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


@rewrites("Expand")
def expand(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    shape = graph.shape(node.output[0], node)
    if graph.shapes.get(node.input[0]) == shape:
        return str(node.input[0])
    return [make("Expand", [node.input[0], graph.add_constant(shape)], [node.output[0]])]


@rewrites("Pad")
def pad(graph: Graph, node: onnx.NodeProto) -> Rewritten:
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
            refuse(node, "its padding value depends on the input")
    before, after = ([sides.get(axis, (0, 0))[end] for axis in range(len(shape))] for end in (0, 1))
    return [make("Pad", [node.input[0], graph.add_constant([*before, *after]), value], [node.output[0]])]


def _reflected(n: int, before: int, after: int, mode: str) -> Array:
    """Positions of a padded axis; negative amounts cut entries off."""
    kept = np.arange(n)[max(-before, 0) : n - max(-after, 0)]
    how: Any = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}[mode]
    return np.pad(kept, (max(before, 0), max(after, 0)), mode=how)


@rewrites("DepthToSpace", "SpaceToDepth")
def blocks(graph: Graph, node: onnx.NodeProto) -> Rewritten:
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
