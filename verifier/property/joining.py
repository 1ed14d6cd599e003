"""The joint network of a property: several networks side by side on shared inputs, with products behind them.

    x -> (f(x[shared_f]), g(x[shared_g]), ..., products of linear terms of x and of all that)

Inputs that the property asserts to be equal are one entry of x, so that a search never has to find points at which two
numbers are equal.  Nothing is assumed about how the networks are related; neurons that turn out to be the same, as of
two copies on the same inputs, are merged like any others.

requires:   networks in their original form, with the inputs and outputs that the property declares
guarantees: the joint model runs the original files, each by its own runtime; the lowered network is that of the files
            in real arithmetic, with the rounding of all coefficients of products counted
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import torch

from verifier.errors import InputError
from verifier.network.entries import Entries, entries_of, map_of
from verifier.network.lowering.dispatch import dispatch
from verifier.network.lowering.expression import Expression, constant, select, variable
from verifier.network.lowering.tracing import Lowering, Reading
from verifier.network.models.base import Array, SourceModel
from verifier.network.models.onnx import OnnxModel
from verifier.network.network import Affine, Network
from verifier.operators import Dense, Diagonal, LinearMap, Select, Sparse, add, compose
from verifier.operators.base import FLOOR, gamma
from verifier.property.joint import Joint, LinearSum, NamedNetwork, ProductTerm

MATRICES = (Dense, Diagonal, Select, Sparse)
"""Maps that stay what they are if rows and columns of zeros are added; convolutions do not."""

LARGE, SMALL = 2.0**500, 2.0**-500
"""Between them rounding a number to a float64 changes it by no more than a unit."""


@dataclass(frozen=True, eq=False)
class Part:
    """One of the networks, and which inputs of the joint network it takes."""

    name: str
    model: OnnxModel
    index: Array  # [n_in]


class JointModel(SourceModel):
    """Several networks as one, each run by its own runtime; the products are computed in float64."""

    def __init__(self, models: Mapping[str, OnnxModel], joint: Joint, sha256: str) -> None:
        """Raises InputError for networks that do not run in the same precision."""
        shared, start, parts = np.asarray(joint.shared, dtype=np.int64), 0, []
        for network in joint.networks:
            parts.append(Part(network.name, models[network.name], shared[start : start + network.n_x]))
            start += network.n_x
        kinds = {part.model.dtype for part in parts}
        if len(kinds) > 1:
            named = " and ".join(sorted(map(str, kinds)))
            raise InputError(f"the networks of the property run in different precisions: {named}")
        self.parts, self.joint = tuple(parts), joint
        self.dtype = kinds.pop()
        self.input_shape = (int(shared.max()) + 1,)
        self.path = parts[0].model.path
        self.sha256 = sha256

    @property
    def rounding(self) -> np.dtype[Any]:
        """That of the part with the fewest digits."""
        return min((part.model.rounding for part in self.parts), key=lambda kind: kind.itemsize)

    @cached_property
    def widened(self) -> JointModel | None:
        """All parts in float32, if one of them computes in half precision."""
        if self.rounding != np.float16:
            return None
        return JointModel({part.name: part.model.widened or part.model for part in self.parts}, self.joint, self.sha256)

    def network(self, far_bounds: bool = False) -> Network:
        known: dict[int, Network] = {}
        for part in self.parts:
            if id(part.model) not in known:
                known[id(part.model)] = part.model.network(far_bounds)
        parts = [(part.name, known[id(part.model)], part.index) for part in self.parts]
        return joint_network(parts, self.n_in, self.joint.products)

    def _call(self, x: Array) -> Array:
        answer: Array = self._completed(x[None], [part.model.run(x[part.index])[None] for part in self.parts])[0]
        return answer

    def _together(self, points: Array) -> Array | None:
        return self._completed(points, [part.model.run(points[:, part.index]) for part in self.parts])

    def _completed(self, x: Array, answers: Sequence[Array]) -> Array:
        """Outputs [B, n_y] with the products, at points [B, n_x]."""
        y = np.concatenate(answers, axis=1)
        if not self.joint.products:
            return y
        x, y = x.astype(np.float64), y.astype(np.float64)
        for product in self.joint.products:
            found = _at(product.first, x, y) * _at(product.second, x, y)
            y = np.concatenate([y, found[:, None]], axis=1)
        return y


def _at(term: LinearSum, x: Array, y: Array) -> Array:
    found: Array = np.full(len(x), float(term.constant))
    for values, terms in ((x, term.x), (y, term.y)):
        for i, a in terms:
            found = found + float(a) * values[:, i]
    return found


def joint_network(
    parts: Sequence[tuple[str, Network, Array]], n_in: int, products: Sequence[ProductTerm] = ()
) -> Network:
    """Networks side by side, each on some of `n_in` inputs, and products of linear terms of inputs and outputs."""
    low = Lowering(Reading(torch.float64, torch.float64), dispatch)
    low.node = ("property", "Product")
    values = [[variable(0, (n_in,)).taken(torch.from_numpy(np.asarray(index, np.int64)))] for _, _, index in parts]
    for level in range(max(len(net.groups) for _, net, _ in parts)):
        _add_level(low, [(name, net.groups[level : level + 1]) for name, net, _ in parts], values)
    outputs = [_value(net.output, known) for (_, net, _), known in zip(parts, values, strict=True)]
    y = _stacked(outputs)
    if products:
        y = _with_products(low, variable(0, (n_in,)), y, products)
    within = min(net.within for _, net, _ in parts)
    return Network((n_in,), tuple(low.groups), low.affine("output", y), within)


def _add_level(
    low: Lowering, layers: Sequence[tuple[str, Sequence[Affine]]], values: Sequence[list[Expression]]
) -> None:
    """The next group of every network that has one; those of matrices and one function are a single group.

    Neurons of several networks that turn out to be the same can only be merged inside of a group.
    """
    together: dict[object, list[int]] = {}
    for k, (_, some) in enumerate(layers):
        for layer in some:
            small = layer.function.arity == 1 and all(isinstance(term, MATRICES) for _, term in layer.terms)
            together.setdefault(layer.function if small else k, []).append(k)
    for members in together.values():
        chosen = [layers[k][1][0] for k in members]
        name = "+".join(f"{layers[k][0]}/{layer.name}" for k, layer in zip(members, chosen, strict=True))
        value = _stacked([_value(layer, values[k]) for k, layer in zip(members, chosen, strict=True)])
        shape = chosen[0].shape if len(chosen) == 1 else value.shape
        low.groups.append(replace(low.affine(name, value.reshaped(shape)), function=chosen[0].function))
        source = variable(len(low.groups), (sum(layer.neurons for layer in chosen),))
        start = 0
        for k, layer in zip(members, chosen, strict=True):
            values[k].append(source.taken(torch.arange(start, start + layer.neurons)))
            start += layer.neurons


def _value(layer: Affine, values: Sequence[Expression]) -> Expression:
    """What a layer makes of its sources, which are selections of inputs and groups of the joint network."""
    terms: dict[int, LinearMap] = {}
    for source, term in layer.terms:
        ((place, taken),) = values[source].terms.items()
        found = compose(term, taken)
        terms[place] = add(terms[place], found) if place in terms else found
    return Expression((layer.size,), terms, layer.bias, layer.bias_error)


def _stacked(values: Sequence[Expression]) -> Expression:
    """One below the other.  Matrices are written as one, with zeros, so that equal rows can be seen."""
    if len(values) == 1:
        return values[0]
    total = sum(value.size for value in values)
    found = select(values, torch.arange(total), (total,))
    terms: dict[int, LinearMap] = {}
    for source, term in found.terms.items():
        blocks, start = [], 0
        for value in values:
            if source in value.terms:
                blocks.append((start, entries_of(value.terms[source])))
            start += value.size
        known = [(first, block) for first, block in blocks if block is not None]
        terms[source] = term
        if len(known) == len(blocks):
            rows = torch.cat([first + block.rows for first, block in known])
            columns, entries = (torch.cat([getattr(b, name) for _, b in known]) for name in ("columns", "values"))
            terms[source] = map_of(Entries(rows, columns, entries, (total, term.n_in)))
    return replace(found, terms=terms)


def _with_products(low: Lowering, x: Expression, y: Expression, products: Sequence[ProductTerm]) -> Expression:
    """The outputs y, and after them the products, each a neuron of its own in a new group."""
    known: dict[LinearSum, Expression] = {}
    for product in products:
        for term in (product.first, product.second):
            if term not in known:
                known[term] = _summed(term, x, y)
        found = low.multiply(known[product.first], known[product.second])
        y = select((y, found), torch.arange(y.size + 1), (y.size + 1,))
    return y


def _summed(term: LinearSum, x: Expression, y: Expression) -> Expression:
    """One entry: the sum, with what rounding its coefficients changes."""
    index = [i for i, _ in term.x] + [x.size + j for j, _ in term.y]
    offset, off = _nearest(term.constant)
    start = constant(torch.tensor([offset]), torch.tensor([off]))
    if not index:
        return start
    weights = [_nearest(a) for _, a in (*term.x, *term.y)]
    scale = torch.tensor([weight for weight, _ in weights], dtype=torch.float64)
    parts = select((x, y), torch.tensor(index), (len(index),))
    scaled = parts.scaled(scale, roundings=int(any(error > 0 for _, error in weights)))
    total = scaled.applied(Dense(torch.ones(1, len(index), dtype=torch.float64)), (1,))
    return total.plus(start) if term.constant else total


def _nearest(value: Fraction) -> tuple[float, float]:
    """The nearest float64, and how far from the number it is at most."""
    if value and not SMALL < abs(value) < LARGE:
        raise InputError("a product in the property has a coefficient that is too large or too small")
    found = float(value)
    return found, 0.0 if Fraction(found) == value else abs(found) * gamma(1) + FLOOR


def check_declared(model: OnnxModel, network: NamedNetwork) -> None:
    """Raises InputError unless a file has the tensors that a property declares, each of as many entries.

    Their shapes may be written differently.
    """
    for word, has, wants in (
        ("input", model.input_shapes, network.inputs),
        ("output", model.output_shapes, network.outputs),
    ):
        sizes, declared = [math.prod(shape) for shape in has], [math.prod(shape) for shape in wants]
        if sizes != declared:
            whose = f" for '{network.name}'" if network.name else ""
            raise InputError(
                f"the network has {_listed(sizes, word)}, but the property declares {_listed(declared, word)}{whose}",
                model.path,
            )


def _listed(sizes: Sequence[int], word: str) -> str:
    if len(sizes) == 1:
        return f"{sizes[0]} {word}{'s' * (sizes[0] != 1)}"
    return f"{len(sizes)} {word} tensors of {', '.join(map(str, sizes))} entries"
