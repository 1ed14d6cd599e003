"""Puts ONNX files together: names of all kinds, constants in all places, weights of all sizes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]
NAMES = ("t{}", "strata:{}", "größe {}", "n{}", "a/b.{}", "网{}", "Relu_{}", "input.{}")
STYLES = ("ordinary", "grid", "ties", "double", "extreme", "huge")
OPSETS = (9, 11, 12, 13, 14, 15, 17, 18, 20)
DOMAIN = "fuzz.functions"


@dataclass(slots=True)
class Weights:
    """Random numbers of one style: ordinary, of a coarse grid, with ties among rows, or of extreme sizes."""

    rng: random.Random
    style: str

    def number(self) -> float:
        rng = self.rng
        if self.style in {"grid", "ties"}:
            return rng.choice((0, 0, 1, -1, 2, -2, 0.5, -0.5, 0.25, 1.5, -3))
        value = rng.gauss(0, 1)
        if self.style == "extreme" and rng.random() < 0.2:
            value *= 10.0 ** rng.choice((-45, -42, -40, -38, -30, -20, -8, 8, 20, 30, 35))
        if self.style == "huge" and rng.random() < 0.2:
            value *= 10.0 ** rng.choice((-320, -310, -300, -200, -30, 30, 150, 200, 300))
        return value

    def array(self, shape: Sequence[int], dtype: Any) -> Array:
        """Numbers of the file's type; rows may repeat, mirror each other or be zero."""
        size = int(np.prod(shape, dtype=np.int64))
        whole = np.array([self.number() for _ in range(size)]).astype(dtype).reshape(shape)
        if self.style == "ties" and len(shape) > 1 and shape[0] > 1:
            for _ in range(self.rng.randint(1, shape[0])):
                i, j = self.rng.sample(range(shape[0]), 2)
                whole[i] = self.rng.choice((1, -1, 0, 2)) * whole[j]
        return np.nan_to_num(whole)

    def divisor(self) -> float:
        return self.rng.choice((0.5, 2.0, 4.0, -1.0, 3.0, -0.75))


@dataclass(slots=True)
class Builder:
    """A graph that grows at its end.  `value` names the last tensor, `shape` is its shape."""

    rng: random.Random
    weights: Weights
    dtype: Any
    opset: int
    value: str = ""
    shape: tuple[int, ...] = ()
    kinks: int = 0
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)
    functions: list[onnx.FunctionProto] = field(default_factory=list)
    earlier: list[tuple[str, tuple[int, ...]]] = field(default_factory=list)
    pattern: str = "t{}"
    counter: int = 0
    taken: frozenset[str] = frozenset()  # names that are not to be given
    first: int | None = None  # the type of the input, where a Cast has changed it since

    def fresh(self) -> str:
        """A name that no other tensor of the file has."""
        self.counter += 1
        name = self.pattern.format(self.counter)
        return self.fresh() if name in self.taken else name

    def constant(self, array: Array) -> str:
        """A constant as an initializer, as a node, or behind an Identity."""
        name, place = self.fresh(), self.rng.random()
        if place < 0.7:
            self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        else:
            tensor = numpy_helper.from_array(np.ascontiguousarray(array))
            self.nodes.append(helper.make_node("Constant", [], [name], name=self._node_name(), value=tensor))
        if place > 0.95:
            copy = self.fresh()
            self.nodes.append(helper.make_node("Identity", [name], [copy], name=self._node_name()))
            return copy
        return name

    def floats(self, shape: Sequence[int]) -> str:
        return self.constant(self.weights.array(shape, self.dtype))

    def bias(self, shape: Sequence[int]) -> str:
        """Small numbers, so that neurons behind it are often of both signs."""
        array = self.weights.array(shape, self.dtype)
        return self.constant(array if self.weights.style in {"grid", "ties"} else (array / 4).astype(self.dtype))

    def scalar(self, value: float) -> str:
        return self.constant(np.array(value, dtype=self.dtype))

    def integers(self, values: Sequence[int]) -> str:
        return self.constant(np.array(values, dtype=np.int64))

    def apply(self, op_type: str, inputs: Sequence[str], shape: Sequence[int], **options: Any) -> None:
        """Appends a node that reads the given tensors; its first output is the new end."""
        self.earlier.append((self.value, self.shape))
        output = self.fresh()
        self._append(op_type, list(inputs), [output], options)
        self.value, self.shape = output, tuple(shape)

    def several(self, op_type: str, inputs: Sequence[str], count: int, **options: Any) -> list[str]:
        """Appends a node with several outputs."""
        outputs = [self.fresh() for _ in range(count)]
        self._append(op_type, list(inputs), outputs, options)
        return outputs

    def _append(self, op_type: str, inputs: list[str], outputs: list[str], options: dict[str, Any]) -> None:
        if self.rng.random() < 0.04 and len(outputs) == 1 and all(inputs):
            self._call(op_type, inputs, outputs, options)
        else:
            self.nodes.append(helper.make_node(op_type, inputs, outputs, name=self._node_name(), **options))

    def _call(self, op_type: str, inputs: list[str], outputs: list[str], options: dict[str, Any]) -> None:
        """The same node as the body of a function of another domain, named like the operator or otherwise."""
        name = self.rng.choice((op_type, "Act")) + (str(len(self.functions)) if self.functions else "")
        parameters = [f"p{i}" for i in range(len(inputs))]
        body = [
            helper.make_node(op_type, parameters, ["inner"], **options),
            helper.make_node("Identity", ["inner"], ["result"]),
        ]
        opsets = [helper.make_opsetid("", self.opset)]
        self.functions.append(helper.make_function(DOMAIN, name, parameters, ["result"], body, opsets))
        self.nodes.append(helper.make_node(name, inputs, outputs, name=self._node_name(), domain=DOMAIN))

    def _node_name(self) -> str:
        return self.rng.choice(
            ("", "", f"node {len(self.nodes)}", f"strata:{len(self.nodes)}", f"节 {len(self.nodes)}")
        )

    def model(self, source: str, shape: Sequence[int | str]) -> onnx.ModelProto:
        """The file; the last tensor becomes its output.  Axes may be open: then they have names."""
        kind = TensorProto.FLOAT if self.dtype == np.float32 else TensorProto.DOUBLE
        first = kind if self.first is None else self.first
        graph = helper.make_graph(
            self.nodes,
            "fuzz",
            [helper.make_tensor_value_info(source, first, list(shape))],
            [helper.make_tensor_value_info(self.value, kind, None)],
            self.constants,
        )
        opsets = [helper.make_opsetid("", self.opset)]
        if self.functions:
            opsets.append(helper.make_opsetid(DOMAIN, 1))
        versions = {9: 4, 11: 6, 12: 7, 13: 7, 14: 7, 15: 8}
        model = helper.make_model(graph, opset_imports=opsets, functions=self.functions)
        model.ir_version = 8 if self.functions else versions.get(self.opset, 8)
        return model
