"""Inputs that reach a network only through a cast to integers: all that counts of them is their integer part.

The graph is followed from its input through everything that merely moves entries, with numbers that stand for entries;
whatever then reads an entry is a cast to an integer type, or it is not.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from verifier.network.rewrite.constants import evaluated_nodes
from verifier.network.rewrite.graph import Array, Graph, attributes
from verifier.network.rewrite.normalise import folded

MOVES = frozenset("Identity Reshape Flatten Squeeze Unsqueeze Transpose Slice Gather Split".split())
INTEGERS = {
    TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64,
    TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64,
}  # fmt: skip


def integer_inputs(model: onnx.ModelProto, input_shapes: Sequence[tuple[int, ...]]) -> Array:
    """The numbers of all entries of the input that nothing reads but casts to integers, in order.

    An entry that nobody reads at all is none of them.
    """
    return integer_entries(folded(model, input_shapes))[0]


def integer_entries(graph: Graph) -> tuple[Array, dict[str, Array], list[onnx.NodeProto]]:
    """The same for a folded graph; also the entries of every value that is a moved input, and the nodes that move."""
    moved, moves = _moved(graph)
    whole: set[int] = set()
    otherwise: set[int] = set()
    for node in graph.nodes:
        if set(node.output) & moved.keys():
            continue
        truncates = node.op_type == "Cast" and attributes(node)["to"] in INTEGERS
        for name in node.input:
            if name in moved:
                (whole if truncates else otherwise).update(moved[name].reshape(-1).tolist())
    if graph.output in moved:
        otherwise.update(moved[graph.output].reshape(-1).tolist())
    return np.array(sorted(whole - otherwise), dtype=np.int64), moved, moves


def _moved(graph: Graph) -> tuple[dict[str, Array], list[onnx.NodeProto]]:
    """Which entries of the input every value holds that consists of such entries; and the nodes in between."""
    places = np.arange(int(np.prod(graph.input_shape)), dtype=np.int64).reshape(graph.input_shape)
    found = {graph.input: places}
    nodes = []
    for node in graph.nodes:
        fixed = all(name in graph.constants for name in node.input[1:] if name)
        if node.op_type in MOVES and node.domain in {"", "ai.onnx"} and node.input[0] in found and fixed:
            nodes.append(node)
            found.update(dict.fromkeys((name for name in node.output if name), places))
    if nodes:
        names = [name for node in nodes for name in node.output if name]
        constants = {**graph.constants, graph.input: numpy_helper.from_array(places, graph.input)}
        found.update(evaluated_nodes(graph, nodes, names, constants))
    return found, nodes
