"""Rewriters of operators that put entries into others or pick them by lists of indices, if these are constants.

onnxruntime itself does the same with numbers that stand for entries; its answer says where each entry comes from.
"""

from __future__ import annotations

import numpy as np
import onnx

from verifier.network.rewrite.constants import evaluated
from verifier.network.rewrite.graph import Array, Graph, Rewritten, attributes, make, refuse, rewrites


@rewrites("ScatterND", "ScatterElements")
def scatter(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    """The entries of both, in one vector, of which some are taken."""
    index = graph.array(node.input[1])
    if index is None:
        refuse(node, "its indices depend on the input")
    if attributes(node).get("reduction", "none") != "none":
        refuse(node, f"it combines entries by {attributes(node)['reduction']}")
    shape, given = graph.shape(node.input[0], node), graph.shape(node.input[2], node)
    size, more = int(np.prod(shape)), int(np.prod(given))
    found = _moved(graph, node, {0: np.arange(size).reshape(shape), 2: np.arange(size, size + more).reshape(given)})
    if len(np.unique(found[found >= size])) != more:
        refuse(node, "its indices name an entry twice")
    flat = [graph.fresh(), graph.fresh()]
    parts = [
        make("Reshape", [node.input[place], graph.add_constant([-1])], [name])
        for place, name in zip((0, 2), flat, strict=True)
    ]
    whole = graph.fresh()
    return [*parts, make("Concat", flat, [whole], axis=0), *_taken(graph, node, whole, found)]


@rewrites("GatherND")
def gather_nd(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    if graph.array(node.input[1]) is None:
        refuse(node, "its indices depend on the input")
    shape, flat = graph.shape(node.input[0], node), graph.fresh()
    found = _moved(graph, node, {0: np.arange(int(np.prod(shape))).reshape(shape)})
    return [
        make("Reshape", [node.input[0], graph.add_constant([-1])], [flat]),
        *_taken(graph, node, flat, found),
    ]


def _moved(graph: Graph, node: onnx.NodeProto, places: dict[int, Array]) -> Array:
    """What onnxruntime makes of numbers in the place of some inputs."""
    copied = onnx.NodeProto()
    copied.CopyFrom(node)
    for position, values in places.items():
        copied.input[position] = graph.add_constant(values.astype(np.int64))
    return evaluated(graph, copied)


def _taken(graph: Graph, node: onnx.NodeProto, source: str, index: Array) -> list[onnx.NodeProto]:
    taken = graph.fresh()
    return [
        make("Gather", [source, graph.add_constant(index.reshape(-1))], [taken], axis=0),
        make("Reshape", [taken, graph.add_constant(index.shape)], [node.output[0]]),
    ]
