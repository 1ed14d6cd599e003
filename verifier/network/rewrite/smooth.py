"""Rewriters of functions that are not piecewise linear, and of what is composed of them."""

from __future__ import annotations

import onnx

from verifier.network.rewrite.graph import Graph, Rewritten, make, rewrites


@rewrites("Sigmoid", "Tanh")
def same_function(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    return [make(node.op_type, [node.input[0]], [node.output[0]])]
