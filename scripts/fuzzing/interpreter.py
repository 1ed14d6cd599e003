"""The nodes of an ONNX file in real arithmetic: every tensor is affine in the inputs, with rational coefficients.

At a kink the interpreter asks `Signs` which side it is on; a point answers by its value, a region by linear programs.
Follows the ONNX specification and nothing else; what it does not know it refuses (`Unknown`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol

import numpy as np
import onnx
from onnx import numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]
Expression = tuple[Fraction, ...]  # the constant, then one coefficient per input


class Unknown(Exception):
    """A node that the interpreter has no meaning for."""


class Signs(Protocol):
    """Answers at kinks."""

    def positive(self, expression: Expression) -> bool:
        """Whether the expression is nowhere negative on the region at hand; if not, it is nowhere positive."""


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """`parts[0]` is the constant, `parts[i]` the coefficients of input i - 1; all of the tensor's shape."""

    parts: Array  # [1 + n, *shape], rationals

    @property
    def shape(self) -> tuple[int, ...]:
        return self.parts.shape[1:]

    def linear(self, function: Callable[[Array], Array]) -> Tensor:
        """A linear map, applied to each part."""
        return Tensor(stacked([function(part) for part in self.parts]))

    def plus(self, constant: Array) -> Tensor:
        first = self.parts[0] + constant
        rest = [np.broadcast_to(part, first.shape) for part in self.parts[1:]]
        return Tensor(stacked([first, *rest]))

    def entry(self, index: tuple[int, ...]) -> Expression:
        return tuple(self.parts[(slice(None), *index)].tolist())


Value = Tensor | Array


@dataclass(frozen=True, slots=True, eq=False)
class Call:
    """One node with its operands: None stands for an input that is left out."""

    node: onnx.NodeProto
    values: tuple[Value | None, ...]
    signs: Signs
    opset: int

    def option(self, name: str, default: Any = None) -> Any:
        for attribute in self.node.attribute:
            if attribute.name == name:
                return onnx.helper.get_attribute_value(attribute)
        return default

    def number(self, name: str, default: float) -> Fraction:
        """A float attribute: the float32 value that the file holds."""
        return Fraction(float(np.float32(self.option(name, default))))

    def given(self, position: int) -> bool:
        return len(self.values) > position and self.values[position] is not None

    def constant(self, position: int) -> Array:
        value = self.values[position]
        if not isinstance(value, np.ndarray):
            raise Unknown(f"{self.node.op_type}: input {position} is no constant")
        return value

    def integers(self, position: int, name: str) -> list[int] | None:
        """Integers that older opsets keep in an attribute and newer ones in an input."""
        if self.given(position):
            return [int(v) for v in self.constant(position).ravel()]
        found = self.option(name)
        return None if found is None else [int(v) for v in found]


Rule = Callable[[Call], "Value | Sequence[Value]"]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers the meaning of operators."""

    def register(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        return function

    return register


def stacked(parts: Iterable[Array]) -> Array:
    """np.stack that keeps rationals (and arrays without axes) as they are."""
    arrays = [np.asarray(part, dtype=object) for part in parts]
    whole = np.empty((len(arrays), *arrays[0].shape), dtype=object)
    for i, array in enumerate(arrays):
        whole[i] = array
    return whole


def exact(array: Array) -> Array:
    """Rationals of floats; integers and truth values stay as they are."""
    if array.dtype.kind != "f":
        return array
    whole = np.empty(array.shape, dtype=object)
    for index in np.ndindex(array.shape):
        whole[index] = Fraction(float(array[index]))
    return whole


def lifted(value: Value, parts: int) -> Tensor:
    """A constant as a tensor that depends on nothing."""
    if isinstance(value, Tensor):
        return value
    zero = np.full(value.shape, Fraction(0), dtype=object)
    return Tensor(stacked([value, *[zero] * (parts - 1)]))


def choose(first: Tensor, second: Tensor, signs: Signs) -> Tensor:
    """The larger of two tensors of one shape, entry by entry."""
    parts = second.parts.copy()
    for index in np.ndindex(first.shape):
        gap = tuple(a - b for a, b in zip(first.entry(index), second.entry(index), strict=True))
        if signs.positive(gap):
            parts[(slice(None), *index)] = first.parts[(slice(None), *index)]
    return Tensor(parts)


def run(nodes: Sequence[onnx.NodeProto], values: Mapping[str, Value], signs: Signs, opset: int) -> dict[str, Value]:
    """All values after the nodes have been run in their order."""
    known = dict(values)
    for node in nodes:
        known.update(run_node(node, known, signs, opset))
    return known


def run_node(node: onnx.NodeProto, known: Mapping[str, Value], signs: Signs, opset: int) -> dict[str, Value]:
    """The outputs of one node; nodes of constants go the same way."""
    function = RULES.get(node.op_type)
    if function is None:
        raise Unknown(f"operator {node.op_type}")
    found = function(Call(node, tuple(known[name] if name else None for name in node.input), signs, opset))
    outputs = found if isinstance(found, list | tuple) else [found]
    return {name: value for name, value in zip(node.output, outputs, strict=False) if name}


def initial(model: onnx.ModelProto) -> dict[str, Value]:
    """The constants that a file holds."""
    return {tensor.name: exact(numpy_helper.to_array(tensor)) for tensor in model.graph.initializer}


def inlined(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    """The nodes of the graph with calls of the file's own functions replaced by their bodies."""
    bodies = {(f.domain, f.name): f for f in model.functions}
    nodes: list[onnx.NodeProto] = []
    for position, node in enumerate(model.graph.node):
        body = bodies.get((node.domain, node.op_type)) if node.domain not in {"", "ai.onnx"} else None
        if body is None:
            nodes.append(node)
            continue
        names = dict(zip(body.input, node.input, strict=False)) | dict(zip(body.output, node.output, strict=False))
        for inner in body.node:
            copy = onnx.NodeProto()
            copy.CopyFrom(inner)
            copy.input[:] = [names.setdefault(n, f"call{position}/{n}") if n else n for n in inner.input]
            copy.output[:] = [names.setdefault(n, f"call{position}/{n}") if n else n for n in inner.output]
            nodes.append(copy)
    return nodes
