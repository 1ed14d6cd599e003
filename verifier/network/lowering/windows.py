"""Affine functions that slide a window over images: convolutions, average pools; and batch normalisation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from verifier.errors import InputError
from verifier.network.lowering.affine import in_range, mean, times
from verifier.network.lowering.expression import Expression, constant, select
from verifier.network.lowering.tracing import Lowering
from verifier.operators import Conv, Transposed, gamma
from verifier.operators.base import FLOOR, flat_size


def per_axis(setting: Any, axes: int) -> tuple[int, ...]:
    """An integer setting, or one per spatial axis, as one per axis."""
    values = [int(setting)] * axes if isinstance(setting, int) else [int(v) for v in setting]
    return tuple(values * axes if len(values) == 1 else values)


def _images(value: Expression, axes: int) -> tuple[tuple[int, ...], int]:
    """Leading batch axes and their size; the rest of the shape is (channels, *spatial)."""
    if len(value.shape) not in {axes + 1, axes + 2}:
        raise ValueError(f"shape {value.shape} does not fit an operation over {axes} axes")
    batch = value.shape[: len(value.shape) - axes - 1]
    return batch, flat_size(batch)


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
    strides, dilations = per_axis(stride, axes), per_axis(dilation, axes)
    pads: tuple[tuple[int, int], ...]
    if isinstance(padding, str):
        totals = [d * (k - 1) * (padding == "same") for d, k in zip(dilations, kernel.shape[2:], strict=True)]
        pads = tuple((total // 2, total - total // 2) for total in totals)
    else:
        pads = tuple((p, p) for p in per_axis(padding, axes))
    channels, *spatial = value.shape[len(batch) :]
    # A fixed batch of several images is a convolution with as many times the groups.
    outer = Conv(
        kernel.repeat(count, *[1] * (axes + 1)),
        (channels * count, *spatial),
        strides,
        pads,
        dilations,
        groups * count,
    )
    found = value.applied(outer, (*batch, kernel.shape[0], *outer.out_shape[1:]))
    return _with_channel_bias(low, found, bias, axes)


def _with_channel_bias(low: Lowering, value: Expression, bias: Any, axes: int) -> Expression:
    if bias is None:
        return value
    shift = low.number(bias).reshape(-1, *[1] * axes).expand(value.shape)
    return value.plus(constant(shift))


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
    strides, pads, extra, dilations = (per_axis(s, axes) for s in (stride, padding, output_padding, dilation))
    spatial = value.shape[len(batch) + 1 :]
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, kernel.shape[2:], strict=True)]
    # The full image first, then the part that padding leaves: right for every combination of settings.
    full = [(n - 1) * s + r for n, s, r in zip(spatial, strides, reach, strict=True)]
    out = [f - 2 * p + e for f, p, e in zip(full, pads, extra, strict=True)]
    if min(out) < 1:
        raise ValueError("padding leaves nothing of the output")
    channels = kernel.shape[1] * groups
    none = tuple((0, 0) for _ in range(axes))
    inner = Conv(
        kernel.repeat(count, *[1] * (axes + 1)),
        (channels * count, *full),
        strides,
        none,
        dilations,
        groups * count,
    )
    if all(p <= f and e < s for p, f, e, s in zip(pads, full, extra, strides, strict=True)):
        direct = Conv(
            inner.weight,
            (channels * count, *out),
            strides,
            tuple((p, p) for p in pads),
            dilations,
            groups * count,
        )
        found = value.applied(Transposed(direct), (*batch, channels, *out))
    else:
        whole = value.applied(Transposed(inner), (*batch, channels, *full))
        found = _cropped(whole, pads, out)
    return _with_channel_bias(low, found, bias, axes)


def _cropped(value: Expression, before: Sequence[int], sizes: Sequence[int]) -> Expression:
    """The window that starts at `before` and has `sizes` on the last axes, with zeros outside of the
    value.
    """
    axes = len(sizes)
    index = torch.arange(1, value.size + 1, dtype=torch.float64).reshape(value.shape)
    spread = []
    for axis in range(axes - 1, -1, -1):
        spread += [-before[axis], sizes[axis] + before[axis] - value.shape[len(value.shape) - axes + axis]]
    moved = torch.nn.functional.pad(index, spread)
    return select((value,), moved.reshape(-1).to(torch.long) - 1, tuple(moved.shape))


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
        raise InputError(f"node '{low.node[0]}' of type {low.node[1]} has a variance that is not positive")
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


def avg_pool(axes: int) -> Callable[..., Expression]:
    def pool(  # noqa: PLR0913 (torch's own signature)
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
        strides = kernel if stride is None or stride == [] else per_axis(stride, axes)
        out = [
            pooled_size(n, k, s, 2 * p, ceil_mode, p) for n, k, s, p in zip(spatial, kernel, strides, pads, strict=True)
        ]
        after = [
            max((o - 1) * s + k - n - p, 0) for o, s, k, n, p in zip(out, strides, kernel, spatial, pads, strict=True)
        ]
        depthwise = Conv(
            torch.ones(channels * count, 1, *kernel, dtype=torch.float64),
            (channels * count, *spatial),
            strides,
            tuple(zip(pads, after, strict=True)),
            (1,) * axes,
            channels * count,
        )
        sums = value.applied(depthwise, (*batch, channels, *depthwise.out_shape[1:]), keeps_sign=True)
        if divisor_override is not None:
            counts = torch.full((1,) * axes, float(divisor_override), dtype=torch.float64)
        else:
            counts = torch.ones((), dtype=torch.float64)
            for n, k, s, p, o in zip(spatial, kernel, strides, pads, depthwise.out_shape[1:], strict=True):
                first = torch.arange(o) * s - p
                low_end, high_end = (-p, n + p) if count_include_pad else (0, n)
                held = (first + k).clamp(max=high_end) - first.clamp(min=low_end)
                counts = counts.unsqueeze(-1) * held.to(torch.float64)
        return times(sums, 1.0 / counts, roundings=1)

    return pool


def pooled_size(n: int, reach: int, stride: int, pad: int, ceil_mode: bool, before: int) -> int:
    """Windows along one axis.  With `ceil_mode` the last one may overhang, but must start inside the
    input.
    """
    span = n + pad - reach
    if not ceil_mode:
        return span // stride + 1
    windows = math.ceil(span / stride) + 1
    return windows - 1 if (windows - 1) * stride >= n + before else windows


def adaptive_avg_pool(axes: int) -> Callable[..., Expression]:
    def pool(low: Lowering, input: Any, output_size: Any) -> Expression:
        value = low.value(input)
        sizes = list(output_size) if isinstance(output_size, tuple | list) else [output_size] * axes
        for offset, size in enumerate(sizes):
            axis = len(value.shape) - axes + offset
            n = value.shape[axis]
            if size is None or size == n:
                continue
            cells = []
            index = torch.arange(value.size).reshape(value.shape)
            for i in range(size):
                first, last = (i * n) // size, -(-(i + 1) * n // size)
                part = index.narrow(axis, first, last - first)
                cells.append(mean(low, select((value,), part.reshape(-1), tuple(part.shape)), axis, True))
            value = _joined(cells, axis)
        return value

    return pool


def _joined(parts: Sequence[Expression], axis: int) -> Expression:
    positions, start = [], 0
    for part in parts:
        positions.append(torch.arange(start, start + part.size).reshape(part.shape))
        start += part.size
    index = torch.cat(positions, dim=axis)
    return select(parts, index.reshape(-1), tuple(index.shape))


HANDLERS: dict[str, Callable[..., Any]] = {
    "batch_norm": batch_norm,
    **{f"conv{d}d": conv for d in (1, 2, 3)},
    **{f"conv_transpose{d}d": conv_transpose for d in (1, 2, 3)},
    **{f"avg_pool{d}d": avg_pool(d) for d in (1, 2, 3)},
    **{f"adaptive_avg_pool{d}d": adaptive_avg_pool(d) for d in (1, 2, 3)},
}
