"""Linear maps as exact entries, and entries as the maps whose products are fastest."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import replace

import torch

from verifier.network.exact import MOST_ENTRIES, Entries, product
from verifier.operators import Chain, Conv, Dense, Diagonal, LinearMap, Select, Sparse
from verifier.operators.base import flat_size
from verifier.operators.sparse import worth_it
from verifier.shapes import Int, Tensor


def entries_of(linear: LinearMap) -> Entries | None:
    """The entries of a map; None if it holds rounded weights, has too many entries, or is of another kind."""
    if isinstance(linear, Chain):
        return _chained(linear)
    if isinstance(linear, Select):
        rows = torch.nonzero(linear.index >= 0).flatten()
        ones = torch.ones(len(rows), dtype=torch.float64)
        return Entries(rows, linear.index[rows], ones, (linear.n_out, linear.n_in))
    if not isinstance(linear, Dense | Sparse | Diagonal | Conv) or linear.roundings:
        return None
    if linear.parameters > MOST_ENTRIES:
        return None
    if isinstance(linear, Conv):
        return _unrolled(linear)
    if isinstance(linear, Dense):
        return None if linear.repeats > 1 else Entries.of(linear.weight)
    if isinstance(linear, Diagonal):
        index = torch.arange(linear.n_in)
        return Entries(index, index, linear.scale, (linear.n_out, linear.n_in)).nonzero()
    return Entries(linear.rows, linear.columns, linear.values, linear.shape).nonzero()


def map_of(entries: Entries, templates: Iterable[Conv] = ()) -> LinearMap:
    """A convolution like one of the templates if it has exactly these entries, else a sparse or a dense matrix.

    Any matrix is a convolution with a single window; so only those that share their weights count.
    """
    found = [conv for template in templates if (conv := _recognised(entries, template)) is not None]
    best = min(found, key=lambda conv: conv.parameters, default=None)
    if best is not None and best.parameters < len(entries.values):
        return best
    if worth_it(len(entries.values), entries.shape):
        return Sparse(entries.rows, entries.columns, entries.values, entries.shape)
    return Dense(entries.dense())


def _chained(chain: Chain) -> Entries | None:
    found = entries_of(chain.maps[0])
    for linear in chain.maps[1:]:
        outer = entries_of(linear)
        if found is None or outer is None:
            return None
        found = product(outer, found)
    return found


def _unrolled(conv: Conv) -> Entries | None:
    """A convolution written out, without any arithmetic on its weights."""
    if conv.groups > 1 or conv.parameters * flat_size(conv.out_shape[1:]) > MOST_ENTRIES:
        return None
    place = _windows(conv)  # P T
    channels = torch.arange(conv.in_shape[0]).unsqueeze(1) * flat_size(conv.in_shape[1:])
    columns = channels + place.unsqueeze(1)  # P c_in T
    inside = (place >= 0).unsqueeze(1).expand_as(columns)
    values = conv.weight.reshape(conv.weight.shape[0], 1, *columns.shape[1:]) * inside
    rows = torch.arange(conv.n_out).reshape(-1, len(place), 1, 1)
    at, columns, values = (part.reshape(-1) for part in torch.broadcast_tensors(rows, columns, values))
    return Entries(at, columns, values, (conv.n_out, conv.n_in)).nonzero()


def _windows(conv: Conv) -> Int[Tensor, "P T"]:
    """Where each tap of the kernel lies for each position of the output, in one channel; -1 in the padding."""
    place = torch.zeros(1, 1, dtype=torch.long)
    for axis, n in enumerate(conv.in_shape[1:]):
        start = torch.arange(conv.out_shape[1 + axis]) * conv.stride[axis] - conv.padding[axis][0]
        at = start.unsqueeze(1) + torch.arange(conv.weight.shape[2 + axis]) * conv.dilation[axis]
        here, outer = at[None, :, None, :], place[:, None, :, None]
        known = (here >= 0) & (here < n) & (outer >= 0)
        place = torch.where(known, outer * n + here, -1).reshape(len(place) * len(at), -1)
    return place


def _recognised(entries: Entries, template: Conv) -> Conv | None:
    """The convolution with these entries that has the template's geometry, with as many channels as fit."""
    inside, outside = flat_size(template.in_shape[1:]), flat_size(template.out_shape[1:])
    (n_out, n_in), taps = entries.shape, template.weight.shape[2:]
    if n_in % inside or n_out % outside or template.groups > 1:
        return None
    place = _windows(template)
    whole = torch.nonzero((place >= 0).all(dim=1)).flatten()
    if not len(whole):
        return None
    c_in, c_out = n_in // inside, n_out // outside
    rows = torch.arange(c_out) * outside + whole[0]
    columns = torch.arange(c_in).unsqueeze(1) * inside + place[whole[0]]
    weight = entries.taken(rows).dense()[:, columns.reshape(-1)]
    in_shape = (c_in, *template.in_shape[1:])
    found = replace(template, weight=weight.reshape(c_out, c_in, *taps), in_shape=in_shape, roundings=0)
    unrolled = _unrolled(found)
    return found if unrolled is not None and unrolled.equals(entries) else None


def convolutions(maps: Iterable[LinearMap]) -> list[Conv]:
    """The convolutions among maps and the factors of products."""
    factors = itertools.chain.from_iterable(m.maps if isinstance(m, Chain) else (m,) for m in maps)
    return [m for m in factors if isinstance(m, Conv)]
