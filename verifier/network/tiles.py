"""Some neurons of a group together with all that they depend on, as a small network of its own.

A neuron behind convolutions sees a window of what is before it.  Neurons that lie side by side share most of their
windows, so a tile of them is bounded by sweeps over a small network instead of the whole one.

requires:   any network
guarantees: the neurons of a tile have the same values as in the network, in real arithmetic: no number is computed,
            only left out
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from verifier.functions import RELU
from verifier.network.network import Affine, Network
from verifier.operators import Select
from verifier.operators.part import part, places, reads
from verifier.shapes import Int, Tensor


@dataclass(frozen=True, eq=False)
class Tile:
    """A network whose outputs are some entries of x_hat of a group.

    `inputs` says which entries of the input it reads; `groups` names those of its groups in the given network, and
    `entries` which entries of their x_hat are left.
    """

    net: Network
    inputs: Int[Tensor, " m"]
    groups: tuple[int, ...]
    entries: tuple[Int[Tensor, " _"], ...]

    @classmethod
    def of(cls, net: Network, k: int, rows: Int[Tensor, " r"]) -> Tile:
        """The entries `rows` of x_hat[k].  Require: ascending."""
        wanted: list[Tensor | None] = [None] * k  # entries of x[j], by source
        entries: dict[int, Tensor] = {k: rows}
        for j in range(k, 0, -1):
            own = rows if j == k else _entries(net.groups[j - 1], wanted[j])
            if own is None:
                continue
            entries[j] = own
            for source, term in net.layers[j - 1].terms:
                wanted[source] = _union(wanted[source], reads(term, own))
        first = wanted[0]
        if first is None or not len(first):
            first = rows.new_zeros(1)
        kept = [first, *wanted[1:]]
        numbers = {0: 0}
        for j in sorted(entries):
            numbers[j] = len(numbers)
        # The last one is an output, whose function is never used.
        layers = [net.layers[j - 1] if j < k else replace(net.layers[j - 1], function=RELU) for j in sorted(entries)]
        *groups, output = (
            _layer(layer, entries[j], kept, numbers) for j, layer in zip(sorted(entries), layers, strict=True)
        )
        inner = tuple(sorted(entries))[:-1]
        small = Network((len(first),), tuple(groups), output)
        return cls(small, first, inner, tuple(entries[j] for j in inner))


def located(group: Affine) -> Int[Tensor, "a n"] | None:
    """Where each neuron of a group lies in space, axis by axis; None if it does not."""
    if group.function.arity > 1:
        return None
    return next((found for _, term in group.terms if (found := places(term)) is not None), None)


def tiled(places: Int[Tensor, "a n"], rows: Int[Tensor, " r"], side: int) -> list[Int[Tensor, " _"]]:
    """Some rows by squares (cubes) of that side; each ascending."""
    number = torch.zeros_like(rows)
    for along in places:
        number = number * (int(along.max()) // side + 2) + (along[rows] // side + 1)
    order = number.argsort(stable=True)
    counts = number[order].unique_consecutive(return_counts=True)[1]
    return list(rows[order].split(counts.tolist()))


def _entries(group: Affine, neurons: Tensor | None) -> Tensor | None:
    """The entries of x_hat that some neurons are made of; None if there are none."""
    if neurons is None or not len(neurons):
        return None
    return torch.cat([neurons + i * group.neurons for i in range(group.function.arity)])


def _union(first: Tensor | None, second: Int[Tensor, " _"]) -> Int[Tensor, " _"]:
    return second if first is None else torch.cat([first, second]).unique()


def _layer(layer: Affine, rows: Tensor, kept: Sequence[Tensor | None], numbers: dict[int, int]) -> Affine:
    """A layer between the entries that are left."""
    terms, inputs = [], kept[0]
    assert inputs is not None
    for source, term in layer.terms:
        columns = kept[source]
        if columns is not None and source in numbers:
            terms.append((numbers[source], part(term, rows, columns)))
    if not terms:  # every layer reads something
        terms.append((0, Select.nothing(len(rows), len(inputs))))
    bias, error = layer.bias[rows], layer.bias_error[rows]
    return replace(layer, shape=(1, len(rows)), terms=tuple(terms), bias=bias, bias_error=error)
