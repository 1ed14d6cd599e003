"""The operators of ONNX that slide a window or reduce axes: convolutions, pools, sums, means."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .expression import Expression, constant
from .maps import Dense, Windows
from .rationals import Array, Ints
from .rules import Graph, Value, expression, fixed, integers, operator, places_of
from .stream import Unreadable


def spots(shape: Sequence[int], kernel: Sequence[int], given: dict[str, Any]) -> list[Ints]:
    """For every spatial axis [windows, kernel] the positions that are covered; those outside are padding."""
    rank = len(kernel)
    strides, dilations = given.get("strides") or [1] * rank, given.get("dilations") or [1] * rank
    pads, how = given.get("pads") or [0] * (2 * rank), given.get("auto_pad", "NOTSET")
    if how not in ("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"):
        raise Unreadable("its padding is not known")
    if len(shape) != rank or len(pads) != 2 * rank or min(*kernel, *strides, *dilations) < 1 or min(pads) < 0:
        raise Unreadable("its window does not fit the image")
    found = []
    for i, (n, k, s, d) in enumerate(zip(shape, kernel, strides, dilations, strict=True)):
        before, after = (0, 0) if how == "VALID" else (pads[i], pads[rank + i])
        if how in ("SAME_UPPER", "SAME_LOWER"):
            total = (-(-n // s) - 1) * s + d * (k - 1) + 1 - n
            if d > 1 or total < 0:
                raise Unreadable("automatic padding of windows with gaps has no agreed meaning")
            before = total // 2 if how == "SAME_UPPER" else total - total // 2
            after = total - before
        room = n + before + after - d * (k - 1) - 1
        count = room // s + 1
        if given.get("ceil_mode", 0):
            count = -(-room // s) + 1
            count -= (count - 1) * s >= n + before  # no window starts behind the image
        if room < 0 or count < 1:
            raise Unreadable("its window is larger than the image")
        found.append(np.arange(count)[:, None] * s + np.arange(k) * d - before)
    return found


def combined(axes: Sequence[Ints], shape: Sequence[int]) -> Ints:
    """[windows, entries of a window] as flat positions of an image; -1 for padding."""
    index: Ints = np.zeros((1, 1), np.int64)
    inside: Array = np.ones((1, 1), np.bool_)
    for axis, n in zip(axes, shape, strict=True):
        index = (index[:, None, :, None] * n + axis[None, :, None, :]).reshape(len(index) * len(axis), -1)
        valid = (axis >= 0) & (axis < n)
        inside = (inside[:, None, :, None] & valid[None, :, None, :]).reshape(index.shape)
    return np.where(inside, index, -1)


def _convolved(value: Expression, kernel: Array, given: dict[str, Any], groups: int) -> Expression:
    batch, channels, *image = value.shape
    out, width = kernel.shape[0], kernel.shape[1] * groups
    if batch != 1 or width != channels or out % groups:
        raise Unreadable("its channels do not fit, or it has a batch of several images")
    if given.get("kernel_shape") not in (None, list(kernel.shape[2:])):
        raise Unreadable("its kernel does not have the shape that is named")
    axes = spots(image, kernel.shape[2:], given)
    outer = Windows(kernel.reshape(groups, out // groups, -1), combined(axes, image), math.prod(image))
    return value.applied(outer, (1, out, *(len(axis) for axis in axes)))


@operator("Conv")
def _conv(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    kernel = fixed(inputs[1])
    found = _convolved(expression(inputs[0]), kernel, given, given.get("group", 1))
    if len(inputs) > 2 and inputs[2] is not None:
        found = found.plus(constant(fixed(inputs[2]).reshape(len(kernel), *[1] * (kernel.ndim - 2))))
    return found


@operator("AveragePool")
def _average_pool(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    """Sums by a convolution with ones, divided by how many entries a window counts."""
    value, kernel = expression(inputs[0]), given["kernel_shape"]
    channels, image = value.shape[1], value.shape[2:]
    if given.get("ceil_mode", 0) and given.get("count_include_pad", 0):
        raise Unreadable("what a window counts beyond its padding has no agreed meaning")
    sums = _convolved(value, np.ones((channels, 1, *kernel)), given, channels)
    counts = np.full(len(combined(spots(image, kernel, given), image)), math.prod(kernel))
    if not given.get("count_include_pad", 0):
        counts = (combined(spots(image, kernel, given), image) >= 0).sum(axis=1)
    return sums.scaled(np.ones(()), counts.reshape(sums.shape[2:]))


def _groups(value: Expression, axes: Sequence[int]) -> tuple[Ints, tuple[int, ...]]:
    """Positions [result, reduced], and the shape of the result with ones for the axes that are gone."""
    rank = len(value.shape)
    gone = places_of(axes, rank)
    kept = [axis for axis in range(rank) if axis not in gone]
    index = value.positions().transpose(*kept, *gone)
    shape = tuple(1 if axis in gone else n for axis, n in enumerate(value.shape))
    return index.reshape(math.prod(shape), -1), shape


def _axes(value: Expression, inputs: list[Any], given: dict[str, Any]) -> list[int]:
    axes = integers(inputs, 1, given, "axes")
    if not axes and given.get("noop_with_empty_axes", 0):
        raise Unreadable("it reduces nothing")
    return axes or list(range(len(value.shape)))


def _without(found: Expression, axes: Sequence[int], given: dict[str, Any]) -> Expression:
    if given.get("keepdims", 1):
        return found
    gone = places_of(axes, len(found.shape))
    return found.reshaped(tuple(n for axis, n in enumerate(found.shape) if axis not in gone))


def _sum(value: Expression, axes: Sequence[int]) -> Expression:
    index, shape = _groups(value, axes)
    return value.taken(index).applied(Dense(np.ones((1, index.shape[1])), len(index)), shape, keeps_sign=True)


@operator("ReduceSum")
def _reduce_sum(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    value = expression(inputs[0])
    axes = _axes(value, inputs, given)
    return _without(_sum(value, axes), axes, given)


def average(value: Expression, axes: Sequence[int]) -> Expression:
    """Over some axes, which stay with the length 1."""
    total = _sum(value, axes)
    return total.scaled(np.ones(()), np.full((), value.size // total.size))


@operator("ReduceMean")
def _reduce_mean(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    value = expression(inputs[0])
    axes = _axes(value, inputs, given)
    return _without(average(value, axes), axes, given)


@operator("GlobalAveragePool")
def _global_average(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    return _reduce_mean(graph, inputs[:1], {"axes": _spatial(inputs[0])})


def _spatial(value: Value) -> list[int]:
    """The axes of an image."""
    if len(value.shape) < 3:
        raise Unreadable("it has no image")
    return list(range(2, len(value.shape)))


# -- maxima ------------------------------------------------------------------------------------------------------------


def _max_of_rows(graph: Graph, value: Expression, windows: Ints, shape: tuple[int, ...]) -> Expression:
    """For every row of positions the largest of those entries; -1 is padding, of which a row must hold more.

    Neighbours in a row are paired, level by level.  Each pair of different entries is one neuron of a new group, in
    ascending order of its two positions; rows that hold the same pair share it.
    """
    if not (windows >= 0).any(axis=1).all():
        raise Unreadable("a window holds nothing but padding")
    first = np.take_along_axis(windows, (windows >= 0).argmax(axis=1)[:, None], axis=1)
    windows = np.where(windows >= 0, windows, first)
    while windows.shape[1] > 1:
        if windows.shape[1] % 2:
            windows = np.concatenate([windows, windows[:, -1:]], axis=1)
        pairs, inverse = np.unique(np.sort(windows.reshape(-1, 2), axis=1), axis=0, return_inverse=True)
        windows = inverse.reshape(len(windows), -1)
        value = _max_of_pairs(graph, value, pairs)
    return value.taken(windows[:, 0].reshape(shape))


def _max_of_pairs(graph: Graph, value: Expression, pairs: Ints) -> Expression:
    base = value.taken(pairs[:, 0])
    differ = pairs[:, 0] != pairs[:, 1]
    if not differ.any():
        return base
    gain = graph.relu(value.taken(pairs[differ, 1]).minus(value.taken(pairs[differ, 0])))
    place = np.where(differ, np.cumsum(differ) - 1, -1)
    found = base.plus(gain.taken(place))
    return Expression(found.shape, found.terms, found.biases, value.nonnegative)


@operator("MaxPool")
def _max_pool(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    """Axis by axis, of those entries only that some window reaches."""
    value = expression(inputs[0])
    if graph.outputs != 1 or given.get("storage_order", 0):
        raise Unreadable("it gives positions")
    image = value.shape[2:]
    axes = spots(image, given["kernel_shape"], given)
    axes = [np.where((axis >= 0) & (axis < n), axis, -1) for axis, n in zip(axes, image, strict=True)]
    for place, axis in enumerate(axes):
        reached = np.unique(axis[axis >= 0])
        if len(reached) < image[place]:
            axes[place] = np.where(axis >= 0, np.searchsorted(reached, axis), -1)
            value = value.along(place + 2, reached)
    for place, axis in enumerate(axes, start=2):
        index = np.moveaxis(value.positions(), place, -1)
        windows = np.moveaxis(np.where(axis >= 0, index[..., np.maximum(axis, 0)], -1), -2, place)
        value = _max_of_rows(graph, value, windows.reshape(-1, axis.shape[1]), windows.shape[:-1])
    return value


@operator("ReduceMax")
def _reduce_max(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    value = expression(inputs[0])
    axes = _axes(value, inputs, given)
    index, shape = _groups(value, axes)
    return _without(_max_of_rows(graph, value, index, shape), axes, given)


@operator("GlobalMaxPool")
def _global_max(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    return _reduce_max(graph, inputs[:1], {"axes": _spatial(inputs[0])})
