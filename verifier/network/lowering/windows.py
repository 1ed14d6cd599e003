"""Affine functions that slide a window over images: convolutions, average pools; and batch normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from verifier.network.lowering.affine import in_range, mean, times
from verifier.network.lowering.expression import Expression, constant
from verifier.network.lowering.moves import move
from verifier.network.lowering.tracing import Lowering, lowers, lowers_windows
from verifier.operators import Conv, Transposed, WindowAxis, gamma
from verifier.operators.base import FLOOR, flat_size


def per_axis(setting: Any, axes: int) -> tuple[int, ...]:
    """An integer setting, or one per spatial axis, as one per axis."""
    values = [int(setting)] * axes if isinstance(setting, int) else [int(v) for v in setting]
    return tuple(values * axes if len(values) == 1 else values)


def strides(setting: Any, kernel: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a pool, which are its kernel's sizes where none are given."""
    return kernel if setting is None or setting == [] else per_axis(setting, len(kernel))


def _images(value: Expression, axes: int) -> tuple[tuple[int, ...], int]:
    """Leading batch axes and their size; the rest of the shape is (channels, *spatial)."""
    if len(value.shape) not in {axes + 1, axes + 2}:
        raise ValueError(f"shape {value.shape} does not fit an operation over {axes} axes")
    batch = value.shape[: len(value.shape) - axes - 1]
    return batch, flat_size(batch)


@lowers("conv1d", "conv2d", "conv3d")
def conv(  # noqa: PLR0913 (torch's own signature)
    low: Lowering,
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Expression:
    value, kernel = low.value(input), low.number(weight)
    axes = kernel.dim() - 2
    batch, count = _images(value, axes)
    steps, dilations = per_axis(stride, axes), per_axis(dilation, axes)
    if isinstance(padding, str):
        totals = [d * (k - 1) * (padding == "same") for d, k in zip(dilations, kernel.shape[2:], strict=True)]
        sides = tuple((total // 2, total - total // 2) for total in totals)
    else:
        sides = tuple((p, p) for p in per_axis(padding, axes))
    channels, *spatial = value.shape[len(batch) :]
    # A fixed batch of several images is a convolution with as many times the groups.
    kernels = kernel.repeat(count, *[1] * (axes + 1))
    outer = Conv(kernels, (channels * count, *spatial), steps, sides, dilations, groups * count)
    found = value.applied(outer, (*batch, kernel.shape[0], *outer.out_shape[1:]))
    return _with_channel_bias(low, found, bias, axes)


def _with_channel_bias(low: Lowering, value: Expression, bias: Any, axes: int) -> Expression:
    if bias is None:
        return value
    shift = low.number(bias).reshape(-1, *[1] * axes).expand(value.shape)
    return value.plus(constant(shift))


@lowers("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
def conv_transpose(  # noqa: PLR0913 (torch's own signature)
    low: Lowering,
    input: Any,
    weight: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
) -> Expression:
    value, kernel = low.value(input), low.number(weight)
    axes = kernel.dim() - 2
    batch, count = _images(value, axes)
    steps, pads, extra, dilations = (per_axis(s, axes) for s in (stride, padding, output_padding, dilation))
    spatial = value.shape[len(batch) + 1 :]
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel.shape[2:], strict=True)]
    # The full image first, then the part that padding leaves: right for every combination of settings.
    full = [(n - 1) * s + r for n, s, r in zip(spatial, steps, reach, strict=True)]
    out = [f - 2 * p + e for f, p, e in zip(full, pads, extra, strict=True)]
    if min(out) < 1:
        raise ValueError("padding leaves nothing of the output")
    channels = kernel.shape[1] * groups
    kernels = kernel.repeat(count, *[1] * (axes + 1))

    def transposed(sizes: Sequence[int], padding: Sequence[int]) -> Expression:
        sides = tuple((p, p) for p in padding)
        inner = Conv(kernels, (channels * count, *sizes), steps, sides, dilations, groups * count)
        return value.applied(Transposed(inner), (*batch, channels, *sizes))

    if all(p <= f and e < s for p, f, e, s in zip(pads, full, extra, steps, strict=True)):
        found = transposed(out, pads)
    else:
        found = _cropped(transposed(full, [0] * axes), pads, out)
    return _with_channel_bias(low, found, bias, axes)


def _cropped(value: Expression, before: Sequence[int], sizes: Sequence[int]) -> Expression:
    """The window that starts at `before` and has `sizes` on the last axes, with zeros outside of the
    value.
    """
    axes = len(sizes)
    index = value.positions() + 1
    spread = []
    for axis in range(axes - 1, -1, -1):
        spread += [-before[axis], sizes[axis] + before[axis] - value.shape[len(value.shape) - axes + axis]]
    moved = torch.nn.functional.pad(index, spread)
    return value.taken(moved - 1)


@lowers("batch_norm")
def batch_norm(  # noqa: PLR0913 (torch's own signature)
    low: Lowering,
    input: Any,
    running_mean: Any,
    running_var: Any,
    weight: Any = None,
    bias: Any = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
    *_: Any,
) -> Expression:
    if training or running_mean is None or running_var is None:
        low.refuse("it normalises with the statistics of the batch")
    value, mean, variance = low.value(input), low.number(running_mean), low.number(running_var)
    gain = torch.ones_like(mean) if weight is None else low.number(weight)
    offset = torch.zeros_like(mean) if bias is None else low.number(bias)
    spread = variance + low.number(eps)
    if not bool((spread > 0).all()):
        raise low.fault("has a variance that is not positive")
    scale = in_range(low, gain / spread.sqrt(), gain)  # three roundings: sum, root, quotient
    shift = offset - mean * scale
    error = gamma(6) * (offset.abs() + (mean * scale).abs()) + FLOOR
    channels = (1, -1, *[1] * (len(value.shape) - 2))
    if len(value.shape) < 2 or value.shape[1] != scale.numel():
        raise ValueError(f"{scale.numel()} channels do not fit the shape {value.shape}")
    found = times(value, scale.reshape(channels), roundings=3)
    return found.plus(
        constant(shift.reshape(channels).expand(value.shape), error.reshape(channels).expand(value.shape))
    )


@lowers_windows("avg_pool")
def avg_pool(  # noqa: PLR0913 (torch's own signature)
    axes: int,
    low: Lowering,
    input: Any,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Expression:
    value = low.value(input)
    batch, count = _images(value, axes)
    channels, *spatial = value.shape[len(batch) :]
    kernel, pads = per_axis(kernel_size, axes), per_axis(padding, axes)
    steps = strides(stride, kernel)
    sides, counts = [], torch.ones((), dtype=torch.float64)
    for n, k, s, p in zip(spatial, kernel, steps, pads, strict=True):
        axis = WindowAxis(n, k, s, 1, p, p)
        axis = axis.overhanging() if ceil_mode else axis
        sides.append((axis.before, axis.after))
        counts = counts.unsqueeze(-1) * (axis.counts(-p, n + p) if count_include_pad else axis.counts(0, n))
    ones = torch.ones(channels * count, 1, *kernel, dtype=torch.float64)
    depthwise = Conv(ones, (channels * count, *spatial), steps, tuple(sides), (1,) * axes, channels * count)
    sums = value.applied(depthwise, (*batch, channels, *depthwise.out_shape[1:]), keeps_sign=True)
    if divisor_override is not None:
        counts = torch.tensor(float(divisor_override), dtype=torch.float64)
    return times(sums, 1.0 / counts, roundings=1)


@lowers_windows("adaptive_avg_pool")
def adaptive_avg_pool(axes: int, low: Lowering, input: Any, output_size: Any) -> Expression:
    value = low.value(input)
    sizes = list(output_size) if isinstance(output_size, tuple | list) else [output_size] * axes
    for offset, size in enumerate(sizes):
        axis = len(value.shape) - axes + offset
        n = value.shape[axis]
        if size is None or size == n:
            continue
        cells = []
        for i in range(size):
            first, last = (i * n) // size, -(-(i + 1) * n // size)
            part = value.taken(value.positions().narrow(axis, first, last - first))
            cells.append(mean(low, part, axis, True))
        value = move(low, torch.cat, "cat", (cells, axis), {})
    return value
