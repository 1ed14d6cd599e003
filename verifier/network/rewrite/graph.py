"""A working copy of an ONNX graph: nodes in order, constants by name, shapes by name; and the register of rewriters."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import onnx
from onnx import helper, numpy_helper

from verifier.errors import InputError, UnsupportedOperator

Array = np.ndarray[Any, np.dtype[Any]]

Rewritten = list[onnx.NodeProto] | str
"""Nodes that replace a node (the last one writes its first output), or the name of the value that it is equal to."""

Rewriter = Callable[["Graph", onnx.NodeProto], Rewritten]

REWRITERS: dict[str, Rewriter] = {}
"""By operator.  Operators that are functions of one number (`verifier.functions`) need none."""

make = helper.make_node

_SMALL = 256  # entries of a constant that may be a shape, an axis list or padding

OPSET = 17
"""Every graph is written in this opset: onnx2torch knows all operators of it that we use."""


DOMAIN = "functions"
"""Where the rewritten graph has operators for functions of one number: those of `FUNCTIONS`, by their names there."""


def rewrites(*operators: str) -> Callable[[Rewriter], Rewriter]:
    """Decorates the rewriter of these operators."""

    def keep(rewriter: Rewriter) -> Rewriter:
        REWRITERS.update(dict.fromkeys(operators, rewriter))
        return rewriter

    return keep


class Names:
    """Names of our own for the values of a file: v1, v2, ...

    No name of the file is kept, so none that rewriting invents can meet one of them.
    """

    def __init__(self) -> None:
        self._ours: dict[str, str] = {}
        self._theirs: dict[str, str] = {}
        self._count = 0

    def fresh(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def ours(self, theirs: str) -> str:
        """Our name for a value of the file; the empty name stands for no value and stays."""
        if theirs and theirs not in self._ours:
            self._ours[theirs] = self.fresh()
            self._theirs[self._ours[theirs]] = theirs
        return self._ours.get(theirs, "")

    def theirs(self, ours: str) -> str:
        """What the file calls a value, for messages."""
        return self._theirs.get(ours, ours)


@dataclass(eq=False)
class Graph:
    """A graph that is being rewritten.  Nodes are in topological order; `labels` remembers what they were
    called.

    `exact` holds constants that the file's own precision would round, in float64, where they are exact.  `coarse` is
    the floating-point type with the fewest digits that the file computes in, once that is known.
    """

    input: str
    input_shape: tuple[int, ...]
    output: str
    dtype: int
    opset: int
    nodes: list[onnx.NodeProto]
    constants: dict[str, onnx.TensorProto]
    names: Names = field(default_factory=Names)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    types: dict[str, int] = field(default_factory=dict)
    exact: dict[str, Array] = field(default_factory=dict)
    labels: dict[str, tuple[str, str]] = field(default_factory=dict)
    coarse: int = onnx.TensorProto.UNDEFINED

    def fresh(self) -> str:
        return self.names.fresh()

    def add_constant(self, values: Array | Iterable[int]) -> str:
        """A new constant: an array as it is, or a list of integers."""
        array = values if isinstance(values, np.ndarray) else np.asarray([int(v) for v in values], dtype=np.int64)
        name = self.fresh()
        self.constants[name] = numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name)
        self.shapes[name] = array.shape
        return name

    def floats(self, values: Any) -> str:
        """A constant of the graph's own floating-point type."""
        return self.add_constant(np.asarray(values, dtype=helper.tensor_dtype_to_np_dtype(self.dtype)))

    def array(self, name: str) -> Array | None:
        """The value of a constant; None for everything else."""
        if name in self.exact:
            return self.exact[name]
        tensor = self.constants.get(name)
        return None if tensor is None else numpy_helper.to_array(tensor)

    def shape(self, name: str, node: onnx.NodeProto) -> tuple[int, ...]:
        if name not in self.shapes:
            raise InputError(
                f"the shape of '{self.names.theirs(name)}' at node {describe(node)} "
                "cannot be found without running the network"
            )
        return self.shapes[name]

    def integers(self, node: onnx.NodeProto, position: int, attribute: str) -> list[int] | None:
        """A list that older opsets give as an attribute and newer ones as a constant input."""
        found = attributes(node).get(attribute)
        if found is None and len(node.input) > position and node.input[position]:
            values = self.array(node.input[position])
            if values is None:
                refuse(node, f"its input '{attribute}' depends on the input")
            found = values.reshape(-1).tolist()
        return None if found is None else [int(v) for v in ([found] if isinstance(found, int) else found)]


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    found = {a.name: helper.get_attribute_value(a) for a in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}


def label(node: onnx.NodeProto) -> tuple[str, str]:
    """What a user calls the node: its name, or failing that its first output; and its operator."""
    return node.name or next(iter(node.output), "") or "unnamed", node.op_type


def describe(node: onnx.NodeProto) -> str:
    name, op_type = label(node)
    return f"'{name}' of type {op_type}"


def refuse(node: onnx.NodeProto, why: str) -> NoReturn:
    name, op_type = label(node)
    from verifier.functions.names import FUNCTIONS  # a graph can be looked at without torch

    raise UnsupportedOperator(name, op_type, why, sorted({*REWRITERS, *FUNCTIONS.names()}))


def live_nodes(nodes: Iterable[onnx.NodeProto], *outputs: str) -> list[onnx.NodeProto]:
    """The nodes that the outputs depend on, in their order (which ONNX demands to be topological)."""
    wanted, kept = set(outputs), []
    for node in reversed(list(nodes)):
        if wanted.intersection(node.output) - {""}:
            kept.append(node)
            wanted.update(node.input)
            for sub in (a.g for a in node.attribute if a.HasField("g")):
                wanted.update(name for inner in sub.node for name in inner.input)
    return kept[::-1]


def model_of(graph: Graph, opset: int, weights: bool = True) -> onnx.ModelProto:
    """The graph as a model; constants that no node reads are left out.

    Without `weights`, large constants become inputs: enough to infer shapes, and nothing big is copied.
    """
    used = {name for node in graph.nodes for name in node.input} | {graph.output}
    proto = onnx.GraphProto(name="network")
    proto.node.extend(graph.nodes)
    proto.input.append(helper.make_tensor_value_info(graph.input, graph.dtype, graph.input_shape))
    for name, tensor in graph.constants.items():
        if name in used and not weights and math.prod(tensor.dims) > _SMALL:
            proto.input.append(helper.make_tensor_value_info(name, tensor.data_type, list(tensor.dims)))
        elif name in used:
            held = proto.initializer.add()
            held.CopyFrom(tensor)
            held.name = name
    proto.output.append(helper.make_empty_tensor_value_info(graph.output))
    known = {name for node in graph.nodes for name in node.output} - {graph.output} if weights else set()
    proto.value_info.extend(
        helper.make_tensor_value_info(name, graph.dtype, graph.shapes[name])
        for name in sorted(known)
        if name in graph.shapes
    )
    sets = [helper.make_opsetid("", opset), helper.make_opsetid(DOMAIN, 1)]
    return helper.make_model(proto, opset_imports=sets, ir_version=10 if opset > 18 else 8)
