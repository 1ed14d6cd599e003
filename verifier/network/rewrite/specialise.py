"""A network with inputs of which only integers count, as a family of networks without integers.

Everything that is computed of those integers alone is a *mask*: a tensor of numbers that are known exactly for every
choice of the integers, and that becomes an input.  An ArgMax of activations becomes a constant, a *choice*, and what it
chooses from becomes an output: bounds of that output tell whether the choice is right.

guarantees: for the integers that a mask was made of, and wherever the choices are right, the network has the outputs of
            the file in real arithmetic
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from verifier.network.rewrite.constants import fold, quiet_session
from verifier.network.rewrite.graph import Array, Graph, attributes, live_nodes, make, model_of, refuse
from verifier.network.rewrite.integers import INTEGERS, integer_entries
from verifier.network.rewrite.normalise import Normalised, finished, folded, part_inputs

EXACT = frozenset(
    """Identity Reshape Flatten Squeeze Unsqueeze Transpose Slice Gather GatherND GatherElements Split Concat Shape Size
    ConstantOfShape Range Expand Tile Where Equal Greater Less GreaterOrEqual LessOrEqual And Or Not ScatterND
    ScatterElements OneHot Pad""".split()
)
"""Operators that make no new number; sums and products of integers are exact as well."""

ARITHMETIC = frozenset("Add Sub Mul Neg Abs Min Max".split())


@dataclass(frozen=True, slots=True)
class ArgMaxNode:
    """An ArgMax: the value that it chooses from, its shape, the axis, and the shape of the answer."""

    output: str
    source: str
    shape: tuple[int, ...]
    axis: int
    answer: tuple[int, ...]

    def certain(self, low: Array, high: Array) -> Array | None:
        """What is chosen for all values between two flat vectors; None if that is not always the same."""
        below, above = (np.moveaxis(ends.reshape(self.shape), self.axis, -1) for ends in (low, high))
        best: Array = below.argmax(axis=-1)
        others = np.where(np.arange(self.shape[self.axis]) == np.expand_dims(best, -1), -np.inf, above).max(axis=-1)
        if not (below.max(axis=-1) > others).all():
            return None
        return np.asarray(best.reshape(self.answer), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Specialised:
    """The family: what makes the masks, and the rest of the graph."""

    graph: Graph
    integer_part: tuple[onnx.NodeProto, ...]  # what makes the masks, from the input on
    made: frozenset[str]  # what it makes of integers
    masks: tuple[str, ...]
    mask_shapes: tuple[tuple[int, ...], ...]
    choices: tuple[ArgMaxNode, ...]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Of the inputs of the networks: the file's input as a vector, then the masks."""
        return ((int(np.prod(self.graph.input_shape)),), *self.mask_shapes)

    def masks_at(self, points: Array) -> Array:
        """The masks [B, m] of points [B, n], flat and one after the other.  Raises ValueError if a shape differs."""
        part = Graph(
            self.graph.input,
            self.graph.input_shape,
            "",
            self.graph.dtype,
            self.graph.opset,
            list(self.integer_part),
            self.graph.constants,
        )
        model = model_of(part, part.opset)
        del model.graph.output[:]
        model.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in self.masks)
        session = quiet_session(model.SerializeToString(), threads=1)
        rows = []
        for point in points:
            found = session.run(list(self.masks), {self.graph.input: point.reshape(self.graph.input_shape)})
            if tuple(tuple(np.shape(mask)) for mask in found) != self.mask_shapes:
                raise ValueError("the shape of a mask depends on the integers")
            rows.append(np.concatenate([np.asarray(mask).reshape(-1) for mask in found]))
        return np.stack(rows)

    def normalised(self, chosen: Sequence[Array]) -> Normalised:
        """The network of some choices.  Its outputs are those of the file, then what the choices are made from.

        Raises UnsupportedOperator for what cannot be bounded.
        """
        graph = copy.deepcopy(self.graph)
        gone = self.made | {choice.output for choice in self.choices}
        graph.nodes = [node for node in graph.nodes if not gone.intersection(node.output)]
        for choice, answer in zip(self.choices, chosen, strict=True):
            graph.constants[choice.output] = numpy_helper.from_array(answer, choice.output)
        whole, shape = graph.input, graph.input_shape
        flat = graph.fresh()
        part_inputs(graph, [flat, *self.masks], self.shapes)
        at = next(i for i, node in enumerate(graph.nodes) if flat in node.output)
        graph.nodes.insert(at + 1, make("Reshape", [flat, graph.add_constant(shape)], [whole], name="input"))
        ends = [graph.output, *(choice.source for choice in self.choices)]
        parts = [graph.fresh() for _ in ends]
        graph.output = graph.fresh()
        graph.nodes += [
            *(
                make("Reshape", [end, graph.add_constant([-1])], [part], name="output")
                for end, part in zip(ends, parts, strict=True)
            ),
            make("Concat", parts, [graph.output], name="outputs", axis=0),
        ]
        graph.nodes = live_nodes(graph.nodes, graph.output)
        fold(graph)
        graph.nodes = live_nodes(graph.nodes, graph.output)
        return finished(graph)

    def extended(self, model: onnx.ModelProto) -> onnx.ModelProto:
        """The file with the same further outputs."""
        found = onnx.ModelProto()
        found.CopyFrom(model)
        for choice in self.choices:
            name = self.graph.names.theirs(choice.source)
            found.graph.output.append(helper.make_tensor_value_info(name, self.graph.dtype, None))
        return found


def specialise(
    model: onnx.ModelProto, input_shapes: Sequence[tuple[int, ...]], fixed: dict[int, float]
) -> Specialised | None:
    """The family of a network; None if no input is an integer.  `fixed` are inputs that have one value only.

    Raises UnsupportedOperator if integers themselves are read by what may round them.
    """
    graph = folded(model, input_shapes)
    whole, moved, moves = integer_entries(graph)
    if not len(whole):
        return None
    for name, entries in moved.items():
        values = [fixed.get(int(entry)) for entry in entries.reshape(-1)]
        if name != graph.input and all(value is not None for value in values):
            kind = helper.tensor_dtype_to_np_dtype(graph.dtype)
            graph.constants[name] = numpy_helper.from_array(np.array(values, kind).reshape(entries.shape), name)
    graph.nodes = live_nodes([n for n in graph.nodes if not set(n.output) <= graph.constants.keys()], graph.output)
    numbers = set(whole.tolist())
    integers: set[str] = set()
    part: list[onnx.NodeProto] = []
    for node in graph.nodes:
        start = node.op_type == "Cast" and set(moved.get(node.input[0], np.array([-1])).reshape(-1).tolist()) <= numbers
        depends = [name for name in node.input if name and name not in graph.constants]
        if start or (depends and integers.issuperset(depends) and _is_exact(graph, node)):
            part.append(node)
            integers.update(node.output)
    rest = [node for node in graph.nodes if not integers.intersection(node.output)]
    read = {name for node in rest for name in node.input} | {graph.output}
    masks = tuple(sorted(integers & read))
    needed = live_nodes([*(n for n in moves if not set(n.output) <= graph.constants.keys()), *part], *masks)
    floats = {TensorProto.FLOAT, TensorProto.DOUBLE}
    for node in part:
        if set(node.output) & set(masks) and graph.types.get(node.output[0]) not in floats:
            refuse(node, "what it makes of integers is read by others")
        if set(node.output) & set(masks):
            graph.shape(node.output[0], node)
    shapes = tuple(graph.shapes[name] for name in masks)
    choices = tuple(_choice(graph, node) for node in rest if node.op_type == "ArgMax")
    return Specialised(graph, tuple(needed), frozenset(integers), masks, shapes, choices)


def _is_exact(graph: Graph, node: onnx.NodeProto) -> bool:
    """Whether what a node makes of integers and constants cannot be rounded."""
    kind = graph.types.get(node.output[0])
    if node.op_type == "Cast":
        return kind in INTEGERS | {TensorProto.BOOL}
    return node.op_type in EXACT or (node.op_type in ARITHMETIC and kind in INTEGERS)


def _choice(graph: Graph, node: onnx.NodeProto) -> ArgMaxNode:
    given, shape = attributes(node), graph.shape(node.input[0], node)
    axis = given.get("axis", 0) % len(shape)
    answer = tuple(1 if i == axis else n for i, n in enumerate(shape) if i != axis or given.get("keepdims", 1))
    return ArgMaxNode(node.output[0], node.input[0], shape, axis, answer)
