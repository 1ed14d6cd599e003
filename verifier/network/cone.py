"""The part of a network that some of its outputs depend on: those outputs, and the neurons that reach them.

Which entries of a source a layer needs is read off the places of its weights: a product of maps needs an entry if some
path of nonzero weights leads from it.  What is left are the same numbers in smaller maps; convolutions are cut to the
rectangle that is needed, the others to their rows and columns.

requires:   any network
guarantees: the same function in real arithmetic, of the outputs that are asked for; numbers are left out, none is made;
            functions that may have no value stay, whoever reads them
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import torch

from verifier.network.network import Affine, Network
from verifier.operators import Chain, Conv, Dense, Diagonal, LinearMap, Select, Sparse, Sum, add, compose
from verifier.operators.base import flat_size, places_of
from verifier.operators.matrix import stored
from verifier.shapes import Bool, Int, Tensor

Mask = Bool[Tensor, " _"]


def cone(net: Network, outputs: Sequence[int]) -> Network:
    """The network of these outputs, in this order, with those neurons only that they depend on.  Require: ascending."""
    alive = _alive(net, torch.tensor(outputs, dtype=torch.long))
    numbers = {0: 0}
    for k in range(1, len(net.groups) + 1):
        if bool(alive[k].any()):
            numbers[k] = len(numbers)
    *groups, output = (_shrunk(net, k, alive, numbers) for k in (*list(numbers)[1:], len(net.layers)))
    return replace(net, groups=tuple(groups), output=output, head=None)


def _alive(net: Network, outputs: Int[Tensor, " a"]) -> list[Mask]:
    """What is needed of the input (all of it), of the activations of every group, and of the output."""
    sizes = [net.n_in, *(group.neurons for group in net.groups), net.n_out]
    alive = [torch.zeros(size, dtype=torch.bool) for size in sizes]
    alive[0][:] = True
    alive[-1][outputs] = True
    for k, group in enumerate(net.groups, start=1):
        alive[k][:] = group.function.partial  # zero times what has no value has none
    for k in range(len(net.layers), 0, -1):
        rows = _entries(net.layers[k - 1], alive[k], k <= len(net.groups))
        if bool(rows.any()):
            for source, term in net.layers[k - 1].terms:
                alive[source] |= needed(term, rows)
    return alive


def _entries(layer: Affine, neurons: Mask, is_group: bool) -> Mask:
    """The entries of a layer that some of its neurons are made of."""
    return neurons.repeat(layer.function.arity) if is_group else neurons


def _shrunk(net: Network, k: int, alive: Sequence[Mask], numbers: dict[int, int]) -> Affine:
    """A layer between the neurons that are left."""
    layer, rows = net.layers[k - 1], _entries(net.layers[k - 1], alive[k], k <= len(net.groups))
    terms = tuple(
        (numbers[source], cut(term, rows, alive[source]))
        for source, term in layer.terms
        if bool(needed(term, rows).any())
    )
    index = torch.nonzero(rows).flatten()
    return replace(
        layer,
        shape=layer.shape if len(index) == layer.size else (1, len(index)),
        terms=terms or ((0, Select.nothing(len(index), net.n_in)),),  # every layer reads something
        bias=layer.bias[index],
        bias_error=layer.bias_error[index],
    )


def needed(linear: LinearMap, rows: Mask) -> Mask:
    """Which entries of its input some rows of a map read."""
    if isinstance(linear, Chain):
        for factor in reversed(linear.maps):
            rows = needed(factor, rows)
        return rows
    if isinstance(linear, Sum):
        return torch.stack([needed(part, rows) for part in linear.maps]).any(dim=0)
    if isinstance(linear, Sparse):
        found = torch.zeros(linear.n_in, dtype=torch.bool)
        found[linear.columns[rows[linear.rows] & (linear.values != 0)]] = True
        return found
    if isinstance(linear, Dense) and linear.repeats == 1:
        return (linear.weight[rows] != 0).any(dim=0)
    weights = linear.weights
    pattern = linear if weights is None else linear.reweighted((weights != 0).double())
    return pattern.transpose(rows.double()) > 0  # sums of ones and zeros


def cut(linear: LinearMap, rows: Mask, columns: Mask) -> LinearMap:
    """Some rows of a map over some of its columns.  Require: there are some, and the rows need no other columns."""
    if not bool(needed(linear, rows).any()):
        return Select.nothing(int(rows.sum()), int(columns.sum()))
    if isinstance(linear, Chain):
        return _cut_chain(linear, rows, columns)
    if isinstance(linear, Sum):
        return reduce(add, (cut(part, rows, columns) for part in linear.maps if bool(needed(part, rows).any())))
    return _cut_alone(linear, torch.nonzero(rows).flatten(), columns)


def _cut_alone(linear: LinearMap, index: Int[Tensor, " r"], columns: Mask) -> LinearMap:
    """The same of a map that is not composed."""
    if isinstance(linear, Select):
        taken = linear.index[index]
        return Select(torch.where(taken >= 0, _places(columns)[taken.clamp(min=0)], -1), int(columns.sum()))
    if isinstance(linear, Diagonal):
        inner = Select(_places(columns)[index], int(columns.sum()))
        return compose(Diagonal(linear.scale[index], linear.roundings), inner)
    if isinstance(linear, Dense) and linear.repeats == 1:
        return stored(linear.weight[index][:, columns], roundings=linear.roundings)
    if isinstance(linear, Sparse):
        some = linear.taken(index)
        kept = some.where(columns[some.columns])
        return kept.moved(kept.rows, _places(columns)[kept.columns], (len(index), int(columns.sum())))
    if isinstance(linear, Conv) and linear.groups == 1:
        return _cut_convolution(linear, index, columns)
    return _framed(linear, index, columns)


def _places(mask: Mask) -> Int[Tensor, " n"]:
    """Where each entry is among those of the mask; -1 for the others."""
    return torch.where(mask, mask.cumsum(0) - 1, -1)


def _framed(linear: LinearMap, index: Int[Tensor, " r"], columns: Mask) -> LinearMap:
    """The whole map between two selections."""
    inner = Select(_places(columns), int(columns.sum()))
    return compose(Select(index, linear.n_out), compose(linear, inner))


def _cut_chain(chain: Chain, rows: Mask, columns: Mask) -> LinearMap:
    """Factor by factor: what one of them needs is what is left of the one before it."""
    masks = [rows]
    for factor in reversed(chain.maps[1:]):
        masks.append(needed(factor, masks[-1]))
    masks.append(columns)
    found: LinearMap | None = None
    for factor, inner, outer in zip(chain.maps, masks[::-1], masks[-2::-1], strict=False):
        part = cut(factor, outer, inner)
        found = part if found is None else compose(part, found)
    assert found is not None
    return found


def _cut_convolution(conv: Conv, index: Int[Tensor, " r"], columns: Mask) -> LinearMap:
    """The convolution of the smallest rectangle that holds what is left, between two selections."""
    channel, *places = places_of(index, conv.out_shape)
    channels, own = channel.unique(return_inverse=True)
    inner = columns.reshape(conv.in_shape)
    read = torch.nonzero(inner.flatten(1).any(dim=1)).flatten()
    spans, padding, sizes, firsts = [], [], [], []
    for axis, place in enumerate(places):
        first, last = int(place.min()), int(place.max())
        reach = conv.dilation[axis] * (conv.weight.shape[2 + axis] - 1) + 1
        start = first * conv.stride[axis] - conv.padding[axis][0]
        stop = last * conv.stride[axis] - conv.padding[axis][0] + reach
        inside = max(start, 0), min(stop, conv.in_shape[1 + axis])
        spans.append(slice(*inside))
        padding.append((inside[0] - start, stop - inside[1]))
        sizes.append(last - first + 1)
        firsts.append(first)
    weight = conv.weight[channels][:, read].contiguous()
    shape = (len(read), *(span.stop - span.start for span in spans))
    small = Conv(weight, shape, conv.stride, tuple(padding), conv.dilation, 1, conv.roundings)
    inside_of = (slice(None), *spans)
    numbers = _places(columns).reshape(conv.in_shape)[read][inside_of]
    spot = own
    for place, first, size in zip(places, firsts, sizes, strict=True):
        spot = spot * size + (place - first)
    assert small.out_shape == (len(channels), *sizes)
    inner_map = Select(numbers.flatten(), int(columns.sum()))
    return compose(Select(spot, flat_size(small.out_shape)), compose(small, inner_map))
