"""Rewriters of operators that slide a window: convolutions and pools, with every padding made explicit.

An average pool is a depth-wise convolution with ones, divided by the number of entries that each window
counts.  In that form asymmetric padding, dilation and overhanging windows need no operator of their own.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from verifier.network.rewrite.graph import Graph, Rewritten, attributes, make, refuse, rewrites
from verifier.operators import WindowAxis


def window(graph: Graph, node: onnx.NodeProto, kernel: list[int]) -> list[WindowAxis]:
    """The spatial axes of a node, with `auto_pad` resolved and `ceil_mode` turned into padding."""
    given = attributes(node)
    spatial = graph.shape(node.input[0], node)[2:]
    rank = len(spatial)
    if len(kernel) != rank or min((*kernel, *spatial), default=0) < 1:
        refuse(node, f"its kernel {kernel} does not fit an input of {rank} spatial axes")
    strides, dilations = given.get("strides") or [1] * rank, given.get("dilations") or [1] * rank
    pads = given.get("pads") or [0] * (2 * rank)
    how = given.get("auto_pad", "NOTSET")
    axes = []
    for i, (n, k, s, d) in enumerate(zip(spatial, kernel, strides, dilations, strict=True)):
        before, after = pads[i], pads[rank + i]
        if how == "VALID":
            before = after = 0
        elif how in {"SAME_UPPER", "SAME_LOWER"}:
            if d > 1 and node.op_type in {"MaxPool", "AveragePool"}:  # onnxruntime pads as if there were no dilation
                refuse(node, f"its auto_pad {how} with dilations has no agreed meaning")
            total = (-(-n // s) - 1) * s + d * (k - 1) + 1 - n
            if total < -1:  # ONNX pads by nothing then, onnxruntime moves the windows: no meaning is safe
                refuse(node, f"its auto_pad {how} leaves out entries between windows")
            before, after = _shared(max(total, 0), how == "SAME_UPPER")
        if min(s, d) < 1 or before < 0 or after < 0:
            refuse(node, "its strides and dilations must be positive, its padding not negative")
        axes.append(WindowAxis(n, k, s, d, before, after))
    return [axis.overhanging() for axis in axes] if given.get("ceil_mode", 0) else axes


def _shared(total: int, rest_at_end: bool) -> tuple[int, int]:
    small = total // 2
    return (small, total - small) if rest_at_end else (total - small, small)


def _settings(axes: list[WindowAxis]) -> dict[str, Any]:
    return {
        "kernel_shape": [a.kernel for a in axes],
        "strides": [a.stride for a in axes],
        "dilations": [a.dilation for a in axes],
        "pads": [a.before for a in axes] + [a.after for a in axes],
    }


@rewrites("Conv")
def conv(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    if any(name and graph.array(name) is None for name in node.input[1:]):
        refuse(node, "its weights depend on the input")
    axes = window(graph, node, list(graph.shape(node.input[1], node)[2:]))
    operands = [name for name in node.input if name]
    return [make("Conv", operands, [node.output[0]], group=attributes(node).get("group", 1), **_settings(axes))]


@rewrites("ConvTranspose")
def conv_transpose(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    """Where ONNX cuts differently at both ends, which torch cannot: the full image, of which the middle is
    taken.
    """
    if any(name and graph.array(name) is None for name in node.input[1:]):
        refuse(node, "its weights depend on the input")
    given = attributes(node)
    spatial = graph.shape(node.input[0], node)[2:]
    kernel, rank = list(graph.shape(node.input[1], node)[2:]), len(spatial)
    strides, dilations = given.get("strides") or [1] * rank, given.get("dilations") or [1] * rank
    extra, pads = given.get("output_padding") or [0] * rank, given.get("pads") or [0] * (2 * rank)
    how = given.get("auto_pad", "NOTSET")
    sides = []
    full = [
        (n - 1) * s + d * (k - 1) + 1 + e
        for n, s, d, k, e in zip(spatial, strides, dilations, kernel, extra, strict=True)
    ]
    for i, (n, s) in enumerate(zip(spatial, strides, strict=True)):
        before, after = pads[i], pads[rank + i]
        if given.get("output_shape") or how in {"SAME_UPPER", "SAME_LOWER"}:
            wanted = given["output_shape"][i - rank] if given.get("output_shape") else n * s
            before, after = _shared(full[i] - wanted, how == "SAME_UPPER")
        elif how == "VALID":
            before = after = 0
        if min(before, after) < 0 or before + after >= full[i]:
            refuse(node, f"its output would be cut by {before} and {after} of {full[i]} entries")
        sides.append((before, after))
    settings = {
        "kernel_shape": kernel,
        "strides": strides,
        "dilations": dilations,
        "group": given.get("group", 1),
    }
    operands = [name for name in node.input if name]
    if all(before == after for before, after in sides):
        pads = [before for before, _ in sides] * 2
        return [make("ConvTranspose", operands, [node.output[0]], output_padding=extra, pads=pads, **settings)]
    parts = [make("ConvTranspose", operands, [graph.fresh()], output_padding=extra, **settings)]
    for axis, (n, (before, after)) in enumerate(zip(full, sides, strict=True), start=2):
        kept = graph.add_constant(list(range(before, n - after)))
        parts.append(make("Gather", [parts[-1].output[0], kept], [graph.fresh()], axis=axis))
    parts[-1].output[0] = node.output[0]
    return parts


@rewrites("MaxPool")
def max_pool(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    axes = window(graph, node, list(attributes(node)["kernel_shape"]))
    return [make("MaxPool", [node.input[0]], [node.output[0]], **_settings(axes))]


@rewrites("AveragePool")
def average_pool(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    given = attributes(node)
    axes = window(graph, node, list(given["kernel_shape"]))
    plain = window(graph, _without_ceil(node), list(given["kernel_shape"]))
    channels = graph.shape(node.input[0], node)[1]
    counts = np.ones(())
    for axis, declared in zip(axes, plain, strict=True):
        # Padding counts if asked for, but the part that ceil_mode adds never does.
        inside = (-axis.before, axis.size + declared.after) if given.get("count_include_pad", 0) else (0, axis.size)
        counts = counts[..., None] * axis.counts(*inside).numpy()
    ones = graph.floats(np.ones((channels, 1, *(a.kernel for a in axes))))
    summed = graph.fresh()
    return [
        make("Conv", [node.input[0], ones], [summed], group=channels, **_settings(axes)),
        make("Div", [summed, graph.floats(counts)], [node.output[0]]),
    ]


def _without_ceil(node: onnx.NodeProto) -> onnx.NodeProto:
    copied = onnx.NodeProto()
    copied.CopyFrom(node)
    kept = [a for a in node.attribute if a.name != "ceil_mode"]
    del copied.attribute[:]
    copied.attribute.extend(kept)
    return copied
