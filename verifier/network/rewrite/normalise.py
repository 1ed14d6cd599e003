"""Bring any ONNX model into the small form that onnx2torch converts without surprises.

Afterwards: one input and one output, opset 17, every constant an initializer, every shape static,
every padding explicit, one output per node, nodes named n0, n1, ...  Operators outside of the supported list
are refused here, by the name that the file gives them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper, inliner, numpy_helper, version_converter

from verifier.errors import InputError, UnsupportedOperator, VerifierError, one_line
from verifier.functions.names import FUNCTIONS
from verifier.network.rewrite.constants import fold
from verifier.network.rewrite.graph import (
    OPSET,
    REWRITERS,
    Graph,
    Names,
    Rewritten,
    describe,
    label,
    live_nodes,
    model_of,
    refuse,
)
from verifier.network.rewrite.smooth import same_function
from verifier.network.rewrite.widen import widen
from verifier.registry import import_rules

import_rules("verifier.network.rewrite", "rewrites")

_BUILT_IN = ("ai.onnx", "com.microsoft", "com.ms.", "org.pytorch.aten")
"""Beginnings of domains that have operators of their own."""

_OLDEST = 7  # before it, broadcasting and most attributes were different


@dataclass(frozen=True)
class Normalised:
    """A model in normal form, and for each module of its conversion the node and operator in the original file."""

    model: onnx.ModelProto
    labels: dict[str, tuple[str, str]]


def normalise(model: onnx.ModelProto, input_shapes: Sequence[tuple[int, ...]]) -> Normalised:
    """Rewrite `model` for inputs of these shapes (batch axis included).  The model itself is left as it is.

    Several inputs become parts of one vector, and several outputs one vector, in the order of the file.
    """
    return finished(folded(model, input_shapes))


def finished(graph: Graph) -> Normalised:
    """The normal form of a folded graph, which is changed by it."""
    _rewrite(graph)
    graph.nodes = live_nodes(graph.nodes, graph.output)
    _write_constants(graph)
    labels = {}
    for i, node in enumerate(graph.nodes):
        # onnx2torch calls its modules by the names of nodes, with their domain in front.
        labels[f"{node.domain}/n{i}" if node.domain else f"n{i}"] = graph.labels[node.name]
        node.name = f"n{i}"
    return Normalised(model_of(graph, OPSET), labels)


def refusals(model: onnx.ModelProto, input_shapes: Sequence[tuple[int, ...]]) -> list[UnsupportedOperator]:
    """All nodes that `normalise` cannot rewrite, not only the first; raises InputError as it does.

    What follows such a node may have no shape that is known; a node that fails for this is no fault of its own.  Of
    nodes from other domains than ONNX's own the first one ends the search.
    """
    try:
        graph = folded(model, input_shapes)
    except UnsupportedOperator as error:
        return [error]
    found: list[UnsupportedOperator] = []
    spoiled: set[str] = set()
    for node in graph.nodes:
        try:
            _replacement(graph, node)
        except UnsupportedOperator as error:
            found.append(error)
            spoiled.update(node.output)
        except InputError:
            if not spoiled.intersection(node.input):
                raise
            spoiled.update(node.output)
        else:
            spoiled.update(node.output if spoiled.intersection(node.input) else ())
    return found


def supported() -> list[str]:
    """All operators that can be lowered, as they are named in error messages."""
    return sorted({*REWRITERS, *FUNCTIONS.names()})


def folded(model: onnx.ModelProto, input_shapes: Sequence[tuple[int, ...]]) -> Graph:
    """The nodes that depend on the input, with all others folded into constants and static shapes found.

    Constants are folded in the precision of the file; what is left of half precision is float32 afterwards.
    """
    graph = _working_copy(_modern(model), input_shapes)
    graph.nodes = live_nodes(graph.nodes, graph.output)
    for node in graph.nodes:
        if node.domain not in {"", "ai.onnx"}:
            refuse(node, f"it belongs to the domain '{node.domain}'")
    fold(graph)
    graph.nodes = live_nodes(graph.nodes, graph.output)
    return widen(graph)


def default_opset(model: onnx.ModelProto) -> int:
    for entry in model.opset_import:
        if entry.domain in {"", "ai.onnx"}:
            return int(entry.version)
    raise InputError("the file does not say which operator set it uses")


def _modern(model: onnx.ModelProto) -> onnx.ModelProto:
    """Local functions inlined; the oldest operator sets lifted by onnx's own converter."""
    for function in model.functions:
        # onnxruntime prefers its own operator to a function of the same name, and the inliner the function.
        if function.domain.startswith(_BUILT_IN) or not function.domain.strip():
            where = f"'{function.domain}'" if function.domain else "of ONNX itself"
            raise InputError(
                f"the file defines a function '{function.name}' in the domain {where}, which has operators"
            )
    try:
        if model.functions:
            model = inliner.inline_local_functions(model)
        if default_opset(model) < _OLDEST:
            model = version_converter.convert_version(model, OPSET)
    except VerifierError:
        raise
    except Exception as error:  # onnx raises several unrelated types here
        raise InputError(f"the network cannot be brought to a newer operator set: {one_line(error)}") from error
    return model


def _working_copy(model: onnx.ModelProto, input_shapes: Sequence[tuple[int, ...]]) -> Graph:
    """The graph with all values renamed; every node carries the name that messages call it by."""
    proto, names = model.graph, Names()
    given = {tensor.name for tensor in proto.initializer}
    sources = [value for value in proto.input if value.name not in given]
    nodes = []
    for node in proto.node:
        copied = onnx.NodeProto()
        copied.CopyFrom(node)
        copied.name = label(node)[0]
        copied.input[:] = [names.ours(name) for name in node.input]
        copied.output[:] = [names.ours(name) for name in node.output]
        nodes.append(copied)
    graph = Graph(
        input=names.ours(sources[0].name),
        input_shape=input_shapes[0],
        output=names.ours(proto.output[0].name),
        dtype=sources[0].type.tensor_type.elem_type,
        opset=default_opset(model),
        nodes=nodes,
        constants={names.ours(tensor.name): tensor for tensor in proto.initializer},
        names=names,
    )
    if len(sources) > 1:
        part_inputs(graph, [names.ours(source.name) for source in sources], input_shapes)
    if len(proto.output) > 1:
        _join_outputs(graph, proto.output)
    return graph


def part_inputs(graph: Graph, sources: list[str], shapes: Sequence[tuple[int, ...]]) -> None:
    """One vector takes the place of several inputs; each of them is a part of it."""
    graph.input, graph.input_shape = graph.fresh(), (sum(map(math.prod, shapes)),)
    parts, start = [], 0
    for source, shape in zip(sources, shapes, strict=True):
        end, name = start + math.prod(shape), graph.names.theirs(source)
        index, size, flat = graph.add_constant(range(start, end)), graph.add_constant(shape), graph.fresh()
        parts.append(helper.make_node("Gather", [graph.input, index], [flat], name=name, axis=0))
        parts.append(helper.make_node("Reshape", [flat, size], [source], name=name))
        start = end
    graph.nodes = [*parts, *graph.nodes]


def _join_outputs(graph: Graph, targets: Sequence[onnx.ValueInfoProto]) -> None:
    """One vector takes the place of several outputs."""
    floats = {TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE}
    flat = []
    for target in targets:
        if target.type.tensor_type.elem_type not in floats:
            raise UnsupportedOperator(target.name, "output", "it is no tensor of floats")
        flat.append(graph.fresh())
        whole = graph.add_constant([-1])
        graph.nodes.append(
            helper.make_node("Reshape", [graph.names.ours(target.name), whole], [flat[-1]], name=target.name)
        )
    graph.output = graph.fresh()
    graph.nodes.append(helper.make_node("Concat", flat, [graph.output], name="outputs", axis=0))


def _rewrite(graph: Graph) -> None:
    """Replace every node by its normal form."""
    aliases: dict[str, str] = {}
    written: list[onnx.NodeProto] = []
    for node in graph.nodes:
        for i, name in enumerate(node.input):
            node.input[i] = aliases.get(name, name)
        found = _replacement(graph, node)
        if isinstance(found, str):
            aliases[node.output[0]] = found
            continue
        for part in found:
            part.name = f"{len(graph.labels)}"
            graph.labels[part.name] = label(node)
            written.append(part)
    final = aliases.get(graph.output, graph.output)
    produced = {name for node in written for name in node.output}
    if final != graph.output or final not in produced:
        # The output is the input, a constant or shared with another name: give it a node of its own.
        last = helper.make_node("Identity", [final], [graph.fresh()], name=f"{len(graph.labels)}")
        graph.labels[last.name] = (graph.names.theirs(graph.output), "Identity")
        graph.output = last.output[0]
        written.append(last)
    graph.nodes = written


def _replacement(graph: Graph, node: onnx.NodeProto) -> Rewritten:
    """The normal form of one node."""
    rewriter = REWRITERS.get(node.op_type, same_function if node.op_type in FUNCTIONS.names() else None)
    if rewriter is None:
        refuse(node, "it is not known")
    try:
        return rewriter(graph, node)
    except VerifierError:
        raise
    except Exception as error:  # a damaged node may break any assumption about its attributes
        raise InputError(f"node {describe(node)} is malformed: {one_line(error)}") from error


def _write_constants(graph: Graph) -> None:
    """Constants as torch can hold them exactly: what is known in float64 in float64."""
    for name, values in graph.exact.items():
        graph.constants[name] = numpy_helper.from_array(values, name)
