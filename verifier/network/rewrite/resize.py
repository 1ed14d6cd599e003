"""Rewriters of Resize and Upsample: the nearest entry is a Gather, linear interpolation a matrix along every axis.

The coefficients of an interpolation are those of ONNX's formula in rational numbers, with the scales that the file
gives: whole numbers, divided by a common one.  What onnxruntime computes must agree with them.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import onnx

from verifier.network.rewrite.constants import evaluated
from verifier.network.rewrite.graph import Array, Graph, Rewritten, attributes, make, refuse, rewrites

_EXACT = 2**24  # float32 numbers no more entries
_DIGITS = 2**53  # up to which whole numbers are floats


@rewrites("Upsample", "Resize")
def resize(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    mode = attributes(node).get("mode", "nearest")
    if any(name and graph.array(name) is None for name in node.input[1:]):
        refuse(node, "its sizes depend on the input")
    shape = graph.shape(node.input[0], node)
    if math.prod(shape) > _EXACT:
        refuse(node, f"its input has {math.prod(shape)} entries")
    if mode == "nearest":
        return _nearest(graph, node, shape)
    if mode not in {"linear", "bilinear"}:
        refuse(node, f"its interpolation is {mode}")
    return _linear(graph, node, shape)


def _onnxruntimes(graph: Graph, node: onnx.NodeProto, values: Array) -> Array:
    """What onnxruntime makes of a constant in the place of the input."""
    copied = onnx.NodeProto()
    copied.CopyFrom(node)
    copied.input[0] = graph.add_constant(values)
    return evaluated(graph, copied)


def _nearest(graph: Graph, node: onnx.NodeProto, shape: tuple[int, ...]) -> Rewritten:
    """To the nearest entry: onnxruntime itself resizes the positions, whatever the attributes say."""
    places = np.arange(1, math.prod(shape) + 1, dtype=np.float32).reshape(shape)
    found = _onnxruntimes(graph, node, places).astype(np.int64) - 1
    if bool((found < 0).any()) or not found.size:
        refuse(node, "it leaves nothing of its input, or asks for more than there is")
    flat, taken = graph.fresh(), graph.fresh()
    return [
        make("Reshape", [node.input[0], graph.add_constant([-1])], [flat]),
        make("Gather", [flat, graph.add_constant(found.reshape(-1))], [taken], axis=0),
        make("Reshape", [taken, graph.add_constant(found.shape)], [node.output[0]]),
    ]


def _linear(graph: Graph, node: onnx.NodeProto, shape: tuple[int, ...]) -> Rewritten:
    """One product with a matrix of whole numbers, and a division, for every axis that changes."""
    given = attributes(node)
    for name, usual in (("antialias", 0), ("axes", None), ("keep_aspect_ratio_policy", "stretch")):
        if given.get(name, usual) not in (usual, None):
            refuse(node, f"its attribute {name} is not known")
    sample = np.random.default_rng(0).integers(-64, 65, shape).astype(np.float32)
    expected = _onnxruntimes(graph, node, sample)
    if not expected.size:
        refuse(node, "it leaves nothing of its input")
    parts: list[onnx.NodeProto] = []
    source, value = str(node.input[0]), sample.astype(np.float64)
    rank = len(shape)
    how = str(given.get("coordinate_transformation_mode", "half_pixel" if graph.opset >= 11 else "asymmetric"))
    for axis, (n, m, scale) in enumerate(zip(shape, expected.shape, _scales(graph, node, expected.shape), strict=True)):
        whole, below = _matrix(node, how, (n, m), scale)
        if n == m and below == 1 and np.array_equal(whole, np.eye(n)):
            continue
        value = np.moveaxis(np.moveaxis(value, axis, -1) @ whole.T / below, -1, axis)
        perm = [*range(axis), rank - 1, *range(axis + 1, rank - 1), axis] if axis < rank - 1 else None
        for step in ("turn", "multiply", "divide", "turn"):
            if step == "turn" and perm is not None:
                parts.append(make("Transpose", [source], [graph.fresh()], perm=perm))
            elif step == "multiply":
                parts.append(make("MatMul", [source, graph.add_constant(whole.T.copy())], [graph.fresh()]))
            elif step == "divide" and below != 1:
                parts.append(make("Div", [source, graph.add_constant(np.asarray(float(below)))], [graph.fresh()]))
            source = str(parts[-1].output[0]) if parts else source
    if not np.allclose(value, expected, rtol=1e-4, atol=1e-2):
        refuse(node, "its coefficients are not those that onnxruntime computes")
    if not parts:
        return source
    parts[-1].output[0] = node.output[0]
    return parts


def _scales(graph: Graph, node: onnx.NodeProto, sizes: tuple[int, ...]) -> list[Fraction]:
    """By how much every axis grows: the file's float32 numbers, or the quotient of the sizes that it asks for."""
    shape = graph.shape(node.input[0], node)
    scales = attributes(node).get("scales")  # of the oldest operator sets
    if scales is None:
        place = 1 if node.op_type == "Upsample" or graph.opset < 11 else 2
        held = graph.array(node.input[place]) if len(node.input) > place and node.input[place] else None
        scales = None if held is None or not held.size else held.reshape(-1).tolist()
    if scales is None:
        return [Fraction(m, n) for n, m in zip(shape, sizes, strict=True)]
    if len(scales) != len(shape) or min(scales) <= 0:
        refuse(node, f"its scales are {scales} for an input of shape {shape}")
    return [Fraction(float(np.float32(scale))) for scale in scales]


def _matrix(node: onnx.NodeProto, how: str, sizes: tuple[int, int], scale: Fraction) -> tuple[Array, int]:
    """The coefficients [m, n] of an interpolation along one axis, as whole numbers over a common one."""
    n, m = sizes
    rows = []
    for i in range(m):
        place = _place(node, how, i, (n, m), scale)
        place = min(max(place, Fraction(0)), Fraction(n - 1))
        first = min(int(place), max(n - 2, 0))
        row = [Fraction(0)] * n
        row[first] += 1 - (place - first)
        row[min(first + 1, n - 1)] += place - first
        rows.append(row)
    below = math.lcm(*(value.denominator for row in rows for value in row))
    whole = [[value * below for value in row] for row in rows]
    if below >= _DIGITS:
        refuse(node, "its coefficients have more digits than float64")
    return np.array([[float(value) for value in row] for row in whole]), below


def _place(node: onnx.NodeProto, how: str, i: int, sizes: tuple[int, int], scale: Fraction) -> Fraction:
    """Where entry i of the result lies among the entries of the input."""
    n, m = sizes
    if scale == 1 and n == m:
        return Fraction(i)
    if how == "asymmetric":
        return i / scale
    if how == "align_corners":
        return Fraction(i * (n - 1), m - 1) if m > 1 else Fraction(0)
    if how == "half_pixel" or (how == "pytorch_half_pixel" and m > 1):
        return (i + Fraction(1, 2)) / scale - Fraction(1, 2)
    if how == "pytorch_half_pixel":
        return Fraction(0)
    return refuse(node, f"its coordinates are of the kind {how}")
