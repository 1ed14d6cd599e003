"""Rewriters of functions that are not piecewise linear, and of what is composed of them."""

from __future__ import annotations

import numpy as np
import onnx

from verifier.network.rewrite.graph import DOMAIN, Graph, Rewritten, attributes, make, refuse, rewrites


def same_function(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    """A function of one number, with its attributes."""
    return [make(node.op_type, [node.input[0]], [node.output[0]], domain=DOMAIN, **attributes(node))]


@rewrites("Pow")
def power(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    """The exponent in float64, which holds all numbers that a network has for it."""
    exponent = graph.array(node.input[1])
    if exponent is None:
        refuse(node, "its exponent depends on the input")
    return [make("Pow", [node.input[0], graph.add_constant(exponent.astype(np.float64))], [node.output[0]])]


@rewrites("Softmax", "LogSoftmax")
def softmax(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    """Along one axis; before operator set 13 all axes from the given one on count as one."""
    shape = graph.shape(node.input[0], node)
    if not shape:
        refuse(node, "its input has no axis")
    axis = attributes(node).get("axis", -1 if graph.opset >= 13 else 1)
    if not -len(shape) <= axis < len(shape) + (graph.opset < 13):
        refuse(node, f"its axis {axis} does not exist in the shape {shape}")
    if graph.opset >= 13:
        return [make(node.op_type, [node.input[0]], [node.output[0]], axis=axis % len(shape))]
    axis = axis + len(shape) if axis < 0 else axis
    flat = graph.add_constant([int(np.prod(shape[:axis])), int(np.prod(shape[axis:]))])
    opened, found = graph.fresh(), graph.fresh()
    return [
        make("Reshape", [node.input[0], flat], [opened]),
        make(node.op_type, [opened], [found], axis=1),
        make("Reshape", [found, graph.add_constant(shape)], [node.output[0]]),
    ]


@rewrites("LayerNormalization")
def layer_norm(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    """(x - mean) (variance + epsilon)^(-1/2) scale + bias, over all axes from the given one on."""
    if any(node.output[1:]):
        refuse(node, "its mean and deviation are asked for")
    given, rank = attributes(node), len(graph.shape(node.input[0], node))
    axes = list(range(given.get("axis", -1) % max(rank, 1), rank))
    epsilon = graph.floats(given.get("epsilon", float(np.float32(1e-5))))
    middle, centred, squares, variance, spread, inverse, found, scaled = (graph.fresh() for _ in range(8))
    parts = [
        make("ReduceMean", [node.input[0]], [middle], axes=axes, keepdims=1),
        make("Sub", [node.input[0], middle], [centred]),
        make("Mul", [centred, centred], [squares]),
        make("ReduceMean", [squares], [variance], axes=axes, keepdims=1),
        make("Add", [variance, epsilon], [spread]),
        make("Pow", [spread, graph.add_constant(np.asarray(-0.5))], [inverse]),
        make("Mul", [centred, inverse], [found]),
        make("Mul", [found, node.input[1]], [scaled]),
    ]
    if len(node.input) > 2 and node.input[2]:
        return [*parts, make("Add", [scaled, node.input[2]], [node.output[0]])]
    parts[-1].output[0] = node.output[0]
    return parts
