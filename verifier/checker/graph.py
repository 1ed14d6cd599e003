"""An ONNX file as affine layers and groups of ReLUs.

The nodes are run once, in the order of the file, on expressions; what does not depend on the input is a constant.
Every ReLU of a value that may be negative is a new group, in this order; docs/proofs.md says what the other
piecewise-linear operators become.  An operator or attribute that is not known is refused.
"""

from __future__ import annotations

import math
from typing import Any

import onnx

from . import compositions, operators, windows
from .expression import Expression, variable
from .network import Network, pruned
from .rules import OPERATORS, Graph
from .stream import Unreadable

RULES = (operators, windows, compositions)
"""Where the rules are."""


def read_network(data: bytes) -> tuple[Network, tuple[int, ...]]:
    """The network of a file, and the shape of its input.  Raises Unreadable."""
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # protobuf's own errors have no common base
        raise Unreadable(f"the network is no ONNX file: {error}") from error
    opset, *others = {entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")} or {0}
    if not 7 <= opset <= 24 or others or model.functions:
        raise Unreadable(f"networks of operator set {opset}, or with functions of their own, are not read")
    values: dict[str, Any] = {tensor.name: operators.array_of(tensor) for tensor in model.graph.initializer}
    if len(values) != len(model.graph.initializer):
        raise Unreadable("a constant of the network is given twice")
    inputs = [value for value in model.graph.input if value.name not in values]
    if len(inputs) != 1 or len(model.graph.output) != 1:
        raise Unreadable("the network does not have one input and one output")
    shape = _input_shape(inputs[0])
    values[inputs[0].name] = variable(0, shape)
    graph = Graph(opset)
    for node in _live(model.graph):
        _run(graph, node, values, opset)
    result = values.get(model.graph.output[0].name)
    if not isinstance(result, Expression):
        raise Unreadable("the output does not depend on the input")
    return pruned(math.prod(shape), [*graph.layers, result.layer()]), shape


def _input_shape(value: Any) -> tuple[int, ...]:
    """With one for a first axis that is left open."""
    kind = value.type.tensor_type
    if kind.elem_type not in (onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE):
        raise Unreadable("the input is no tensor of floats")
    sizes = [int(axis.dim_value) if axis.HasField("dim_value") else 0 for axis in kind.shape.dim]
    if sizes and sizes[0] <= 0:
        sizes[0] = 1
    if min(sizes, default=1) < 1 or math.prod(sizes) > 1 << 24 or not kind.HasField("shape"):
        raise Unreadable(f"the input has the shape {sizes}")
    return tuple(sizes)


def _live(graph: Any) -> list[Any]:
    """The nodes on which the output depends, in order."""
    wanted = {graph.output[0].name}
    kept = []
    for node in reversed(graph.node):
        if wanted.intersection(node.output):
            wanted.update(node.input)
            kept.append(node)
    return kept[::-1]


def _run(graph: Graph, node: Any, values: dict[str, Any], opset: int) -> None:
    """Sets the outputs of a node."""
    if node.domain not in ("", "ai.onnx") or node.op_type not in OPERATORS:
        raise Unreadable(f"the operator '{node.op_type}' of node '{node.name}' is not known")
    if any(name and name not in values for name in node.input) or values.keys() & set(node.output):
        raise Unreadable(f"node '{node.name}' reads or writes a value at the wrong time")
    attributes = _attributes(node, opset)
    graph.outputs = len(node.output)
    try:
        found = OPERATORS[node.op_type](graph, [values[name] if name else None for name in node.input], attributes)
    except Unreadable as error:
        raise Unreadable(f"node '{node.name}' ({node.op_type}): {error}") from error
    except (KeyError, ValueError, TypeError, IndexError, AttributeError, ArithmeticError) as error:
        raise Unreadable(f"node '{node.name}' ({node.op_type}) is malformed: {error!r}") from error
    for name, value in zip(node.output, found if isinstance(found, list) else [found], strict=False):
        values[name] = value


def _attributes(node: Any, opset: int) -> dict[str, Any]:
    """By name.  An attribute or a number of inputs that the operator does not have in this operator set is refused."""
    schema: Any = onnx.defs.get_schema(node.op_type, opset)
    known = {name: entry.type.value for name, entry in schema.attributes.items()}
    found = {entry.name: _attribute(entry) for entry in node.attribute if entry.type == known.get(entry.name)}
    if len(found) != len(node.attribute) or not schema.min_input <= len(node.input) <= schema.max_input:
        raise Unreadable(f"node '{node.name}' ({node.op_type}) has an attribute or an input that is not known")
    return found


def _attribute(entry: Any) -> Any:
    if entry.ref_attr_name:
        raise Unreadable("an attribute refers to another one")
    value = onnx.helper.get_attribute_value(entry)
    return value.decode() if isinstance(value, bytes) else list(value) if entry.type >= 6 else value
