"""Piecewise-linear functions, each written exactly with ReLUs.

    max(a, b)      = b + relu(a - b)                      min(a, b) = a - relu(a - b)
    abs(x)         = 2 relu(x) - x                        leaky(x)  = s x + (1 - s) relu(x)
    clip(x, l, u)  = u - relu((u - l) - relu(x - l))      MaxPool   = a tree of max

One ReLU per kink and no more: the forms with a skip term keep a single decision per neuron, and the nested
form of clip keeps the interval [l, u] visible to every bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from verifier.functions import Largest
from verifier.network.lowering.affine import broadcast, grouped, times
from verifier.network.lowering.expression import Expression, constant, select
from verifier.network.lowering.tracing import Lowering, lowers, lowers_windows
from verifier.network.lowering.windows import per_axis, strides
from verifier.operators import Diagonal, Select, WindowAxis, add, compose
from verifier.shapes import Float64, Int, Tensor

_FAR = 2.0**20  # beyond this, u - (u - x) would lose digits of x
_STEEP = 2.0**10


@lowers("relu")
def relu(low: Lowering, input: Any, inplace: bool = False) -> Expression:
    return low.relu(low.value(input))


def _leaky(low: Lowering, value: Expression, slope: Float64[Tensor, "..."]) -> Expression:
    if value.nonnegative:
        return value
    if bool((slope.abs() > _STEEP).any()):  # the form below would cancel
        back = times(low.relu(value.negated()), slope)
        return low.relu(value).minus(back)
    rest = 1.0 - slope
    exact = bool((1.0 - rest == slope).all())
    kink = times(low.relu(value), rest, roundings=0 if exact else 1)
    return times(value, slope).plus(kink)


@lowers("leaky_relu")
def leaky_relu(low: Lowering, input: Any, negative_slope: float = 0.01, inplace: bool = False) -> Expression:
    return _leaky(low, low.value(input), low.number(negative_slope))


@lowers("prelu")
def prelu(low: Lowering, input: Any, weight: Any) -> Expression:
    value, slope = low.value(input), low.number(weight)
    if slope.dim() != len(value.shape) and slope.numel() > 1:
        slope = slope.reshape(-1, *[1] * (len(value.shape) - 2))  # torch: one slope per channel, axis 1
    return _leaky(low, value, slope.expand(value.shape) if slope.numel() > 1 else slope.reshape(()))


@lowers("abs", "absolute")
def absolute(low: Lowering, input: Any) -> Expression:
    value = low.value(input)
    if value.nonnegative:
        return value
    return replace(times(low.relu(value), 2.0).minus(value), nonnegative=True)


# -- clip ----------------------------------------------------------------------------------------------------


@lowers("clamp", "clip")
def clip(low: Lowering, input: Any, min: Any = None, max: Any = None, inplace: bool = False) -> Expression:
    value = low.value(input)
    if min is not None:
        value = _at_least(low, value, low.value(min))
    if max is not None:
        value = _at_most(low, value, low.value(max))
    return value


lowers("clamp_min")(lambda low, input, min: clip(low, input, min=min))
lowers("clamp_max")(lambda low, input, max: clip(low, input, max=max))


def _at_least(low: Lowering, value: Expression, bound: Expression) -> Expression:
    if bound.is_constant and (low.is_absent(bound, -1) or (value.nonnegative and bool((bound.bias <= 0).all()))):
        return value
    return maximum_of(low, value, bound)


def _at_most(low: Lowering, value: Expression, bound: Expression) -> Expression:
    if bound.is_constant and low.is_absent(bound, 1):
        return value
    return minimum_of(low, value, bound)


@lowers("hardsigmoid")
def hardsigmoid(low: Lowering, input: Any, inplace: bool = False) -> Expression:
    value = times(low.value(input), 1.0 / 6.0, roundings=1)
    half = constant(torch.tensor(0.5, dtype=torch.float64)).expanded(value.shape)
    zero, one = constant(torch.tensor(0.0)), constant(torch.tensor(1.0))
    return _at_most(low, _at_least(low, value.plus(half), zero), one)


@lowers("hardtanh")
def hardtanh(
    low: Lowering, input: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Expression:
    return clip(low, input, min_val, max_val, inplace)


@lowers("relu6")
def relu6(low: Lowering, input: Any, inplace: bool = False) -> Expression:
    return clip(low, input, 0.0, 6.0, inplace)


# -- max and min ---------------------------------------------------------------------------------------------


def _is_near(value: Expression) -> bool:
    """A constant, and small enough to be the base to which the ReLU is added."""
    return value.is_constant and bool((value.bias.abs() <= _FAR).all())


def maximum_of(low: Lowering, first: Expression, second: Expression) -> Expression:
    """max(first, second) = second + relu(first - second), where `second` is the constant if one is."""
    first, second = broadcast(first, second)
    if _is_near(first) or (second.is_constant and not _is_near(second)):
        first, second = second, first
    found = second.plus(low.relu(first.minus(second)))
    return replace(found, nonnegative=first.nonnegative or second.nonnegative)


def minimum_of(low: Lowering, first: Expression, second: Expression) -> Expression:
    """min(first, second) = first - relu(first - second), where `first` is the constant if one is."""
    first, second = broadcast(first, second)
    if _is_near(second) or (first.is_constant and not _is_near(first)):
        first, second = second, first
    found = first.minus(low.relu(first.minus(second)))
    return replace(found, nonnegative=first.nonnegative and second.nonnegative)


@lowers("maximum")
def maximum(low: Lowering, input: Any, other: Any) -> Expression:
    return maximum_of(low, low.value(input), low.value(other))


@lowers("minimum")
def minimum(low: Lowering, input: Any, other: Any) -> Expression:
    return minimum_of(low, low.value(input), low.value(other))


def max_of_rows(low: Lowering, value: Expression, windows: Int[Tensor, "m k"], shape: tuple[int, ...]) -> Expression:
    """For every row of positions the largest of those entries.

    Position -1 and entries that are minus infinity (padding) do not count; a row of nothing else gives minus
    infinity.  Pairs are formed level by level; a pair that several rows share is one neuron, and a pair of
    twice the same entry is none.
    """
    padded = torch.cat([value.bias, value.bias.new_full((1,), -torch.inf)]) == -torch.inf
    low.room(windows.numel() - len(windows))
    missing = padded[windows]
    filled = ~missing.all(dim=1)
    first_valid = windows.gather(1, (~missing).to(torch.int8).argmax(dim=1, keepdim=True))
    windows = torch.where(missing, first_valid, windows)[filled]
    while windows.shape[1] > 1:
        if windows.shape[1] % 2:
            windows = torch.cat([windows, windows[:, -1:]], dim=1)
        ends = windows.reshape(-1, 2).sort(dim=1).values
        pairs, windows = torch.unique(ends, dim=0, return_inverse=True)
        windows = windows.reshape(int(filled.sum()), -1)
        value = _max_of_pairs(low, value, pairs)
    index = torch.full((filled.numel(),), -1)
    index[filled] = windows[:, 0]
    return select((value,), index, shape, fill=-torch.inf)


def _max_of_pairs(low: Lowering, value: Expression, pairs: Int[Tensor, "p 2"]) -> Expression:
    base = value.taken(pairs[:, 0])
    differ = pairs[:, 0] != pairs[:, 1]
    count = int(differ.sum())
    if not count:
        return base
    minus = Diagonal(-torch.ones(count, dtype=torch.float64))
    left, right = Select(pairs[differ, 0], value.size), Select(pairs[differ, 1], value.size)
    gain = low.relu(value.applied(add(right, compose(minus, left)), (count,)))
    place = torch.full((pairs.shape[0],), -1)
    place[differ] = torch.arange(count)
    return replace(base.plus(gain.taken(place)), nonnegative=value.nonnegative)


@lowers("amax")
def amax(low: Lowering, input: Any, dim: Any = (), keepdim: bool = False) -> Expression:
    value = low.value(input)
    index, shape = grouped(value, dim, keepdim)
    return max_of_rows(low, value, index, shape)


@lowers("amin")
def amin(low: Lowering, input: Any, dim: Any = (), keepdim: bool = False) -> Expression:
    value = low.value(input).negated()
    index, shape = grouped(value, dim, keepdim)
    return max_of_rows(low, value, index, shape).negated()


def _max_like(
    pairwise: Callable[..., Expression], reduction: Callable[..., Expression]
) -> Callable[..., Expression | tuple[Expression, None]]:
    """torch.max and torch.min: of everything, of two tensors, or along an axis (then with positions, not
    given).
    """

    def call(
        low: Lowering, input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None
    ) -> Expression | tuple[Expression, None]:
        if isinstance(dim, torch.Tensor):
            other = dim
        if other is not None:
            return pairwise(low, input, other)
        if dim is None:
            return reduction(low, input)
        return reduction(low, input, dim, keepdim), None

    return call


lowers("max")(_max_like(maximum, amax))
lowers("min")(_max_like(minimum, amin))


@lowers_windows("max_pool")
def max_pool(  # noqa: PLR0913 (torch's own signature)
    axes: int,
    low: Lowering,
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    return_indices: bool = False,
) -> Expression:
    if return_indices:
        low.refuse("it returns positions")
    value = low.value(input)
    kernel, pads, dilations = (per_axis(s, axes) for s in (kernel_size, padding, dilation))
    spots = []
    for n, k, s, d, p in zip(value.shape[-axes:], kernel, strides(stride, kernel), dilations, pads, strict=True):
        axis = WindowAxis(n, k, s, d, p, p)
        reached = (axis.overhanging() if ceil_mode else axis).spots()
        if not len(reached):
            raise ValueError(f"a window of {k} does not fit into {n} entries")
        spots.append(torch.where((reached >= 0) & (reached < n), reached, -1))
    value = _only_reached(value, spots)
    if low.reading.maxima:
        return _largest_of_windows(low, value, spots)
    for offset, windows in enumerate(spots):
        value = _pooled_axis(low, value, len(value.shape) - axes + offset, windows)
    return value


def _largest_of_windows(low: Lowering, value: Expression, spots: list[Int[Tensor, "o k"]]) -> Expression:
    """All windows as one group of neurons; entries of the padding are replaced by others of the same window."""
    axes = len(spots)
    index = value.positions()
    for offset, windows in enumerate(spots):
        at = index.dim() - axes + offset  # each axis before this one has become two
        inside = windows.amax(dim=1, keepdim=True)
        if bool((inside < 0).any()) or not bool(torch.isfinite(value.bias).all()):
            low.refuse("a window lies in the padding")
        taken = index.index_select(at, torch.where(windows < 0, inside, windows).flatten())
        index = taken.reshape(*index.shape[:at], *windows.shape, *index.shape[at + 1 :])
    first = index.dim() - 2 * axes
    index = index.permute(*range(first + 1, index.dim(), 2), *range(first), *range(first, index.dim(), 2))
    index = index.reshape(-1, *index.shape[axes:])
    return replace(low.reduce(Largest(len(index)), value.taken(index)), nonnegative=value.nonnegative)


def _only_reached(value: Expression, spots: list[Tensor]) -> Expression:
    """Drop rows that no window touches, and renumber the windows (in place): they would cost neurons for
    nothing.
    """
    index = value.positions()
    for offset, windows in enumerate(spots):
        axis = len(value.shape) - len(spots) + offset
        reached = torch.unique(windows[windows >= 0])
        if reached.numel() < value.shape[axis]:
            renumbered = torch.full((value.shape[axis] + 1,), -1)
            renumbered[reached] = torch.arange(reached.numel())
            spots[offset] = renumbered[windows]
            index = index.index_select(axis, reached)
    return value.taken(index)


def _pooled_axis(low: Lowering, value: Expression, axis: int, spots: Int[Tensor, "o k"]) -> Expression:
    """The maximum over windows of one axis.  Axis by axis, neighbouring windows share what they have in
    common.
    """
    index = value.positions().movedim(axis, -1)
    windows = torch.where(spots >= 0, index[..., spots.clamp(min=0)], -1).movedim(-2, axis)
    return max_of_rows(low, value, windows.reshape(-1, spots.shape[1]), tuple(windows.shape[:-1]))


# -- no kink after all ---------------------------------------------------------------------------------------


@lowers("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout")
def dropout(low: Lowering, input: Any, p: Any = 0.5, training: bool = True, inplace: bool = False) -> Expression:
    if training:
        low.refuse("it is random in training mode")
    return low.value(input)


@lowers("to", "type_as")
def to(low: Lowering, input: Any, *targets: Any, **settings: Any) -> Expression:
    """Between float32 and float64, and between devices, nothing changes; other types round.

    In a module the type of its activations stays the same, which is asserted for every function.
    """
    for target in (*targets, *settings.values()):
        kind = target.dtype if isinstance(target, torch.Tensor) else target
        if isinstance(kind, torch.dtype) and kind not in {torch.float32, torch.float64}:
            low.refuse(f"it rounds to {kind}")
    return low.value(input)
