"""`verify show`: what is inside of a network and a property."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from verifier.cli.options import Common, common, instance_paths, start_logging
from verifier.errors import UnsupportedOperator
from verifier.output import say

if TYPE_CHECKING:
    import numpy as np

    from verifier.network.models.onnx import OnnxModel
    from verifier.network.network import Network
    from verifier.property.joining import JointModel
    from verifier.property.property import Property


@click.command(short_help="Show layers, operators, boxes, clauses, what is unsupported.")
@click.argument("files", nargs=-1, required=True, metavar="NET [PROP]")
@common
def show(files: tuple[str, ...], **options: Any) -> int:
    """Show layers, operators, input box, clauses, and all that is unsupported.

    Exit code 2 if the network cannot be bounded or does not fit the property; what was found out is shown all the same.
    """
    net, prop = (files[0], None) if len(files) == 1 else instance_paths(files, ())
    start_logging(options["quiet"], options["verbose"])
    Common.of(options)
    from verifier.loading import load_networks
    from verifier.network.models.onnx import load_onnx
    from verifier.property.joining import JointModel
    from verifier.property.problem import check_counts
    from verifier.property.vnnlib import load_property
    from verifier.result.counterexample import precision

    if prop is None:
        lines, usable = network_lines(load_onnx(net))
        say("\n".join(lines))
        return 0 if usable else 2
    stated = load_property(prop)
    model = load_networks(net, stated)
    lines, usable = joint_lines(model) if isinstance(model, JointModel) else network_lines(model)
    say("\n".join([*lines, "", *property_lines(prop, stated, precision(model))]))
    check_counts((model.n_in, model.n_out), stated)
    return 0 if usable else 2


def network_lines(model: OnnxModel) -> tuple[list[str], bool]:
    """The network: its file, then its layers or the reason why it has none; whether it has."""
    lines = _file_lines(model)
    try:
        return lines + _layer_lines(model.network()), True
    except UnsupportedOperator as error:  # what `show` is asked to tell
        return lines + _refused_lines(model, error), False


def joint_lines(model: JointModel) -> tuple[list[str], bool]:
    """All files of a property, then the layers of the network that they are together."""
    lines: list[str] = []
    for part in model.parts:
        lines += [f"called      {part.name}", *_file_lines(part.model), ""]
    declared = len(model.joint.shared)
    lines.append(f"together    {model.n_in} inputs for {declared} declared ones, {model.n_out} outputs")
    if model.joint.products:
        lines.append(f"products    {len(model.joint.products)}, which are the last outputs")
    try:
        return lines + _layer_lines(model.network()), True
    except UnsupportedOperator as error:
        files = {id(part.model): part.model for part in model.parts}
        return lines + [line for file in files.values() for line in _refused_lines(file, error)], False


def _file_lines(model: OnnxModel) -> list[str]:
    counts = Counter(node.op_type for node in model.proto.graph.node)
    lines = [f"network     {model.path}", f"sha256      {model.sha256}", f"opset       {model.opset}"]
    for word, names, shapes in (
        ("input", model.input_names, model.input_shapes),
        ("output", model.output_names, model.output_shapes),
    ):
        kind = f" {model.dtype}" if word == "input" else ""
        for name, shape in zip(names, shapes, strict=True):
            called = f" '{name}'" if len(names) > 1 else ""
            lines.append(f"{word:<12}{_shape(shape)}{kind}, {math.prod(shape)} values{called}")
    return [*lines, f"operators   {_counted(counts)}"]


def _refused_lines(model: OnnxModel, error: UnsupportedOperator) -> list[str]:
    """Every node that stands in the way, each with its reason, and what will be done with the file."""
    found = model.refusals() or [error]
    texts = [refused.message for refused in found]
    lines = [f"{'unsupported' if k == 0 else '':<12}{text}" for k, text in enumerate(texts)]
    lines.append(f"            {len(found)} in all: the network can be attacked, but not bounded")
    return [*lines, f"supported   {', '.join(error.supported)}"]


def _layer_lines(network: Network) -> list[str]:
    """One line per affine layer: its size, what it reads, what it does."""
    lines = [f"parameters  {network.parameters}", f"layers      {_kinds(network)}, and the output"]
    for number, layer in enumerate(network.layers, start=1):
        is_group = number <= len(network.groups)
        name = f"group {number}" if is_group else "output"
        kind = f"{layer.function.name} of " if is_group and not layer.function.is_relu else ""
        sources = ["input" if source == 0 else f"group {source}" for source, _ in layer.terms]
        terms = [term.describe() for _, term in layer.terms]
        reads = "; ".join(f"{term} of {source}" for term, source in zip(terms, sources, strict=True)) or "constant"
        lines.append(f"  {name:<10}{_shape(layer.shape):<16}{layer.size:>7}  {kind}{reads}  ({layer.name})")
    if network.head is not None:
        lines.append(f"head        {network.head.name}, which properties that only compare outputs do not need")
    return lines + _cut_lines(network) + _merged_lines(network)


def _kinds(network: Network) -> str:
    """How many groups and neurons there are of each function."""
    groups: Counter[str] = Counter()
    neurons: Counter[str] = Counter()
    for group in network.groups:
        name = "ReLU" if group.function.is_relu else group.function.name
        groups[name] += 1
        neurons[name] += group.neurons
    parts = [f"{groups[name]} {name} groups with {neurons[name]} neurons" for name in groups]
    return ", ".join(parts) or "0 groups"


def _cut_lines(network: Network) -> list[str]:
    """Which groups take no cuts, and why: what `active_set` and its kin can make of the network."""
    from verifier.bounding.cuts.anderson import reads_only_moved_inputs
    from verifier.operators.signed import within_reach

    lines = []
    for number, group in enumerate(network.groups, start=1):
        if not group.function.is_relu:
            continue
        hidden = [term for _, term in group.terms if not within_reach(term)]
        if reads_only_moved_inputs(group):
            lines.append(f"none at group {number}: each neuron reads a single value, so that cuts add nothing")
        elif hidden:
            size = f"{hidden[0].n_out} x {hidden[0].n_in}"
            lines.append(
                f"none with shared masks at group {number}: the signs of its weights are out of reach, because their "
                f"matrix is a product or sum with {size} entries (masks of single weights still work)"
            )
    heads = ["cuts", *[""] * len(lines)]
    return [f"{head:<12}{line}" for head, line in zip(heads, lines or ["at all ReLU groups"], strict=False)]


def _merged_lines(network: Network) -> list[str]:
    """How many neurons a proof has to deal with, if not with all of them."""
    from verifier.network.merge import merged

    left = merged(network).relus
    why = "the others repeat or mirror them, are constant, or nobody reads them"
    return [] if left == network.relus else [f"merged      {left} neurons are enough: {why}"]


def property_lines(path: str, prop: Property, dtype: np.dtype[Any]) -> list[str]:
    """The property: boxes, and how many rows its clauses have; `dtype` is the precision of the network's inputs."""
    boxes, rows = prop.boxes, Counter(len(clause.rows) for clause in prop.clauses)
    lines = [
        f"property    {path}",
        f"variables   {prop.n_x} inputs, {prop.n_y} outputs, VNN-LIB {'1.0' if prop.variables is None else '2.0'}",
        f"clauses     {len(prop.clauses)}" + "".join(f"; {n} with {size} rows" for size, n in sorted(rows.items())),
        f"boxes       {len(boxes)}",
    ]
    if len(boxes):
        widths = boxes.upper - boxes.lower
        points = int((boxes.upper == boxes.lower).all(axis=0).sum())
        lines.append(f"  inputs    from {boxes.lower.min():g} to {boxes.upper.max():g}, {points} of them fixed")
        lines.append(f"  widths    smallest {widths.min():g}, mean {widths.mean():g}, largest {widths.max():g}")
        if lacking := int((~boxes.holds_floats(dtype)).sum()):
            lines.append(f"  {dtype}   {lacking} boxes have an input without a {dtype} value inside")
    return lines + [f"warning     {text}" for text in prop.warnings]


def _shape(shape: tuple[int, ...]) -> str:
    return "[" + ",".join(str(n) for n in shape) + "]"


def _counted(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n}" for name, n in sorted(counts.items())) or "none"
