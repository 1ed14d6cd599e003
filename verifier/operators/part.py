"""Parts of maps: some rows, and the columns that they need.

Rows and columns are named by ascending numbers.  A convolution is cut to the smallest box around its rows; maps whose
structure is not known stay whole, between two selections.

requires:   any map
guarantees: the same numbers in a smaller map; nothing is computed
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import torch

from verifier.operators.base import LinearMap, flat_size, places_of
from verifier.operators.compose import Chain, Sum, add, compose
from verifier.operators.conv import Conv, Transposed
from verifier.operators.matrix import Dense, Sparse
from verifier.operators.select import Diagonal, Select
from verifier.shapes import Int, Tensor

Span = tuple[int, int]
"""The first place along an axis and the one after the last."""

Rows = Int[Tensor, " r"]


def reads(linear: LinearMap, rows: Rows) -> Int[Tensor, " c"]:
    """The columns that some rows need, or more of them, in ascending order."""
    if isinstance(linear, Chain):
        for factor in reversed(linear.maps):
            rows = reads(factor, rows)
        return rows
    if not len(rows):
        return rows
    if isinstance(linear, Sum):
        return _distinct(torch.cat([reads(one, rows) for one in linear.maps]))
    if isinstance(linear, Diagonal):
        return rows
    if isinstance(linear, Select):
        taken = linear.index[rows]
        return _distinct(taken[taken >= 0])
    if isinstance(linear, Conv | Transposed) and _connected(linear):
        spans = _sources(linear, _box(rows, _out_shape(linear)))
        return rows.new_zeros(0) if spans is None else _inside(_in_shape(linear), spans, rows.device)
    return torch.arange(linear.n_in, device=rows.device)


def part(linear: LinearMap, rows: Rows, columns: Int[Tensor, " c"]) -> LinearMap:
    """Some rows of a map over some of its columns.  Require: all that `reads` names are among them."""
    if isinstance(linear, Chain):
        return _of_chain(linear, rows, columns)
    if not len(rows) or not len(columns):
        return Select.nothing(len(rows), len(columns), rows.device)
    if isinstance(linear, Sum):
        return reduce(add, (part(one, rows, columns) for one in linear.maps))
    if isinstance(linear, Select):
        taken = linear.index[rows]
        return Select(torch.where(taken >= 0, _position(columns, taken.clamp(min=0)), -1), len(columns))
    if isinstance(linear, Diagonal):
        return compose(Diagonal(linear.scale[rows], linear.roundings), Select(_position(columns, rows), len(columns)))
    if isinstance(linear, Conv | Transposed) and _connected(linear):
        return _of_windows(linear, rows, columns)
    return _of_matrix(linear, rows, columns)


def _of_matrix(linear: LinearMap, rows: Rows, columns: Int[Tensor, " c"]) -> LinearMap:
    """Some rows over all columns."""
    every = Select(_position(columns, torch.arange(linear.n_in, device=rows.device)), len(columns))
    if isinstance(linear, Dense) and linear.repeats == 1:
        return compose(Dense(linear.weight[rows], 1, linear.roundings), every)
    if isinstance(linear, Sparse):
        return compose(linear.taken(rows), every)
    return compose(Select(rows, linear.n_out), compose(linear, every))


def places(linear: LinearMap) -> Int[Tensor, "a n_out"] | None:
    """Where each row lies in space, axis by axis, if the last matrix of the map is a convolution; -1 where nowhere."""
    if isinstance(linear, Conv | Transposed):
        rows = torch.arange(linear.n_out, device=linear.weights.device)
        return torch.stack(places_of(rows, _out_shape(linear))[1:])
    if isinstance(linear, Sum):
        return next((found for one in linear.maps if (found := places(one)) is not None), None)
    if not isinstance(linear, Chain):
        return None
    taken: Tensor | None = None
    for factor in reversed(linear.maps):
        if isinstance(factor, Select):
            taken = factor.index if taken is None else torch.where(taken >= 0, factor.index[taken.clamp(min=0)], -1)
        elif not isinstance(factor, Diagonal):
            found = places(factor)
            if found is None or taken is None:
                return found
            return torch.where(taken >= 0, found[:, taken.clamp(min=0)], -1)
    return None


def _of_chain(chain: Chain, rows: Rows, columns: Int[Tensor, " c"]) -> LinearMap:
    """Factor by factor: what one of them needs is what is left of the one before it."""
    wanted = [rows]
    for factor in reversed(chain.maps[1:]):
        wanted.append(reads(factor, wanted[-1]))
    if not all(len(some) for some in (*wanted, columns)):  # only padding is read
        return Select.nothing(len(rows), len(columns), rows.device)
    found: LinearMap | None = None
    for factor, own, before in zip(chain.maps, reversed(wanted), [columns, *reversed(wanted)], strict=False):
        one = part(factor, own, before)
        found = one if found is None else compose(one, found)
    assert found is not None
    return found


def _distinct(index: Int[Tensor, " n"]) -> Int[Tensor, " c"]:
    """Each number once, in ascending order."""
    ordered = index.sort().values
    fresh = torch.ones_like(ordered, dtype=torch.bool)
    fresh[1:] = ordered[1:] != ordered[:-1]
    return ordered[fresh]


def _position(columns: Int[Tensor, " c"], wanted: Int[Tensor, " w"]) -> Int[Tensor, " w"]:
    """Where each wanted column is among those that are left.  Require: it is one of them."""
    return torch.searchsorted(columns, wanted).clamp(max=len(columns) - 1)


# -- convolutions ----------------------------------------------------------------------------------------------


def _of_windows(linear: Conv | Transposed, rows: Rows, columns: Int[Tensor, " c"]) -> LinearMap:
    """The smallest box around the rows, in all channels."""
    box = _box(rows, _out_shape(linear))
    spans = _sources(linear, box)
    if spans is None:
        return Select.nothing(len(rows), len(columns), rows.device)
    small = _small(linear, box, spans)
    channel, *places = places_of(rows, _out_shape(linear))
    spot = channel
    for place, (first, after) in zip(places, box, strict=True):
        spot = spot * (after - first) + (place - first)
    read = _position(columns, _inside(_in_shape(linear), spans, rows.device))
    return compose(Select(spot, small.n_out), compose(small, Select(read, len(columns))))


def _small(linear: Conv | Transposed, box: Sequence[Span], spans: Sequence[Span]) -> Conv | Transposed:
    """The map from one box of places to another."""
    conv = linear.inner if isinstance(linear, Transposed) else linear
    inner, outer = (box, spans) if isinstance(linear, Transposed) else (spans, box)
    padding = []
    for axis, ((first, after), (start, stop)) in enumerate(zip(inner, outer, strict=True)):
        begins = start * conv.stride[axis] - conv.padding[axis][0]
        ends = (stop - 1) * conv.stride[axis] - conv.padding[axis][0] + _reach(conv, axis)
        padding.append((max(first - begins, 0), max(ends - after, 0)))
    shape = (conv.in_shape[0], *(after - first for first, after in inner))
    small = replace(conv, in_shape=shape, padding=tuple(padding))
    assert small.out_shape[1:] == tuple(stop - start for start, stop in outer)
    return Transposed(small) if isinstance(linear, Transposed) else small


def _sources(linear: Conv | Transposed, box: Sequence[Span]) -> list[Span] | None:
    """The places that a box of results is made of; None if there is only padding."""
    conv = linear.inner if isinstance(linear, Transposed) else linear
    found = []
    for axis, (first, after) in enumerate(box):
        stride, before, reach = conv.stride[axis], conv.padding[axis][0], _reach(conv, axis)
        if isinstance(linear, Transposed):
            start = max(-((reach - 1 - before - first) // stride), 0)
            span = start, min((after - 1 + before) // stride + 1, conv.out_shape[1 + axis])
        else:
            begins = first * stride - before
            span = max(begins, 0), min((after - 1) * stride - before + reach, conv.in_shape[1 + axis])
        if span[0] >= span[1]:
            return None
        found.append(span)
    return found


def _connected(linear: Conv | Transposed) -> bool:
    """Whether no results lie between windows of a transposed convolution, where nothing reaches them."""
    if isinstance(linear, Conv):
        return True
    return all(stride <= _reach(linear.inner, axis) for axis, stride in enumerate(linear.inner.stride))


def _reach(conv: Conv, axis: int) -> int:
    return conv.dilation[axis] * (conv.weight.shape[2 + axis] - 1) + 1


def _out_shape(linear: Conv | Transposed) -> tuple[int, ...]:
    return linear.inner.in_shape if isinstance(linear, Transposed) else linear.out_shape


def _in_shape(linear: Conv | Transposed) -> tuple[int, ...]:
    return linear.inner.out_shape if isinstance(linear, Transposed) else linear.in_shape


def _box(rows: Rows, shape: tuple[int, ...]) -> list[Span]:
    """The smallest box of places around some entries of channels of that shape."""
    _, *places = places_of(rows, shape)
    return [(int(place.min()), int(place.max()) + 1) for place in places]


def _inside(shape: tuple[int, ...], spans: Sequence[Span], device: torch.device) -> Int[Tensor, " c"]:
    """All entries of a box of places, in all channels."""
    index = torch.arange(flat_size(shape), device=device).reshape(shape)
    inside = (slice(None), *(slice(*span) for span in spans))
    return index[inside].flatten()
