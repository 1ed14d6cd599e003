"""Half precision in a graph: everything becomes float32, which holds all values of float16.

In real arithmetic a network is the same in any precision, so nothing is lost; and the graph that is left can be run in
float32, where it agrees with the lowered network to more digits than float16 has.
"""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, TensorProto, numpy_helper

from verifier.network.rewrite.graph import Graph, attributes, model_of, refuse

HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
_COARSEST_FIRST = (TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE)


def widen(graph: Graph) -> Graph:
    """The graph itself, once its constants are folded, with float32 in the place of half precision.

    `coarse` tells from now on in which precision the file rounds most.  Raises UnsupportedOperator for nodes that give
    bfloat16, which onnxruntime hardly computes with.
    """
    made = {graph.dtype}
    for node in graph.nodes:
        kinds = {graph.types.get(name, TensorProto.UNDEFINED) for name in node.output}
        if TensorProto.BFLOAT16 in kinds:
            refuse(node, "it computes in bfloat16")
        made |= kinds
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to":
                attribute.i = _wide(attribute.i)
    graph.coarse = next(kind for kind in _COARSEST_FIRST if kind in made)
    for name, tensor in graph.constants.items():
        if tensor.data_type in HALVES:
            values = graph.exact.get(name, numpy_helper.to_array(tensor))
            graph.constants[name] = numpy_helper.from_array(values.astype(np.float32), name)
    graph.dtype = _wide(graph.dtype)
    graph.types = {name: _wide(kind) for name, kind in graph.types.items()}
    return graph


def may_coarsen(model: ModelProto, kind: int) -> bool:
    """Whether a file with inputs of that type may compute in another one that has fewer digits; cheap to tell."""
    coarser = {TensorProto.FLOAT16, TensorProto.FLOAT} - {kind}
    return any(
        node.op_type == "CastLike" or (node.op_type == "Cast" and attributes(node).get("to") in coarser)
        for node in model.graph.node
    )


def wide_model(graph: Graph) -> ModelProto:
    """A widened graph as a file of its own, for onnxruntime."""
    model = model_of(graph, graph.opset)
    del model.graph.value_info[:]
    return model


def _wide(kind: int) -> int:
    return TensorProto.FLOAT if kind in HALVES else kind
