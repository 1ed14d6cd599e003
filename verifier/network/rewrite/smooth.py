"""Rewriters of functions that are not piecewise linear, and of what is composed of them."""

from __future__ import annotations

import onnx

from verifier.network.rewrite.graph import DOMAIN, Graph, Rewritten, attributes, make


def same_function(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    """A function of one number, with its attributes."""
    return [make(node.op_type, [node.input[0]], [node.output[0]], domain=DOMAIN, **attributes(node))]
