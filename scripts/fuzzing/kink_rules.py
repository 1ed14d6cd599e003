"""What piecewise linear operators and those with windows mean."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from fuzzing.affine_rules import added, scaled
from fuzzing.interpreter import Array, Call, Tensor, Unknown, Value, choose, lifted, rule, stacked


def _tensor(call: Call, position: int = 0) -> Tensor:
    value = call.values[position]
    if not isinstance(value, Tensor):
        raise Unknown(f"{call.node.op_type} of a constant")
    return value


def _like(tensor: Tensor, value: Value) -> Tensor:
    """A constant or tensor, broadcast to a tensor's shape."""
    full = lifted(value, len(tensor.parts))
    return full.linear(lambda part: np.broadcast_to(part, tensor.shape))


def _number(tensor: Tensor, value: Fraction | int) -> Tensor:
    return _like(tensor, np.array(Fraction(value), dtype=object))


def _negated(tensor: Tensor) -> Tensor:
    return tensor.linear(lambda part: -part)


def _smaller(first: Tensor, second: Tensor, call: Call) -> Tensor:
    return _negated(choose(_negated(first), _negated(second), call.signs))


@rule("Relu")
def relu(call: Call) -> Value:
    value = _tensor(call)
    return choose(value, _number(value, 0), call.signs)


@rule("LeakyRelu", "PRelu")
def leaky(call: Call) -> Value:
    value = _tensor(call)
    if call.node.op_type == "PRelu":
        slopes = np.broadcast_to(call.constant(1), value.shape)
    else:
        slopes = np.full(value.shape, call.number("alpha", 0.01), dtype=object)
    parts = value.parts.copy()
    for index in np.ndindex(value.shape):
        if not call.signs.positive(value.entry(index)):
            parts[(slice(None), *index)] = parts[(slice(None), *index)] * slopes[index]
    return Tensor(parts)


@rule("Abs")
def absolute(call: Call) -> Value:
    value = _tensor(call)
    return choose(value, _negated(value), call.signs)


@rule("Clip")
def clip(call: Call) -> Value:
    value = _tensor(call)
    low, high = (_bound(call, position, name) for position, name in ((1, "min"), (2, "max")))
    if low is not None:
        value = choose(value, _like(value, low), call.signs)
    return value if high is None else _smaller(value, _like(value, high), call)


def _bound(call: Call, position: int, name: str) -> Array | None:
    if call.given(position):
        return call.constant(position)
    return None if call.option(name) is None else np.array(call.number(name, 0.0), dtype=object)


@rule("HardSigmoid")
def hard_sigmoid(call: Call) -> Value:
    value = _tensor(call)
    offset = np.array(call.number("beta", 0.5), dtype=object)
    line = added(scaled(value, call.number("alpha", 0.2)), offset)
    assert isinstance(line, Tensor)
    return _smaller(choose(line, _number(line, 0), call.signs), _number(line, 1), call)


@rule("Max", "Min")
def extreme(call: Call) -> Value:
    values = [v for v in call.values if v is not None]
    sample = next(v for v in values if isinstance(v, Tensor))
    shape = np.broadcast_shapes(*(v.shape for v in values))
    whole = Tensor(np.full((len(sample.parts), *shape), Fraction(0), dtype=object))
    first, *others = (_like(whole, v) for v in values)
    for other in others:
        first = choose(first, other, call.signs) if call.node.op_type == "Max" else _smaller(first, other, call)
    return first


@rule("ReduceMax", "ReduceMin", "GlobalMaxPool")
def reduce_extreme(call: Call) -> Value:
    value, op_type = _tensor(call), call.node.op_type
    rank = len(value.shape)
    axes = list(range(2, rank)) if op_type == "GlobalMaxPool" else call.integers(1, "axes")
    if axes is None and call.option("noop_with_empty_axes", 0):
        return value
    chosen = tuple(range(rank)) if axes is None else tuple(sorted(a % rank for a in axes))
    keep = op_type == "GlobalMaxPool" or bool(call.option("keepdims", 1))
    entries = [
        value.linear(lambda part, at=at: np.asarray(part[at], dtype=object))  # type: ignore[misc]
        for at in _corners(value.shape, chosen)
    ]
    best, *others = entries
    for other in others:
        best = _smaller(best, other, call) if op_type == "ReduceMin" else choose(best, other, call.signs)
    return best.linear(lambda part: np.expand_dims(part, chosen)) if keep else best


def _corners(shape: tuple[int, ...], axes: tuple[int, ...]) -> Iterator[tuple[int | slice, ...]]:
    for index in itertools.product(*(range(shape[a]) for a in axes)):
        at = dict(zip(axes, index, strict=True))
        yield tuple(at.get(a, slice(None)) for a in range(len(shape)))


@rule("GlobalAveragePool")
def global_average(call: Call) -> Value:
    value = _tensor(call)
    axes = tuple(range(2, len(value.shape)))
    count = int(np.prod(value.shape[2:], dtype=np.int64))
    return value.linear(lambda part: part.sum(axis=axes, keepdims=True) / Fraction(count))


# -- windows: explicit padding only ---------------------------------------------------------------------------


class _Windows:
    """The windows of a pool or convolution: which entries each output position reads."""

    def __init__(self, call: Call, spatial: tuple[int, ...], kernel: tuple[int, ...]) -> None:
        rank = len(spatial)
        if call.option("auto_pad", b"NOTSET") not in {b"NOTSET", b"VALID"} or call.option("ceil_mode", 0):
            raise Unknown("implicit padding")
        self.kernel, self.spatial = kernel, spatial
        self.strides = call.option("strides", [1] * rank)
        self.dilations = call.option("dilations", [1] * rank)
        self.pads = call.option("pads", [0] * 2 * rank)
        self.out = tuple(
            (n + self.pads[i] + self.pads[i + rank] - self.dilations[i] * (kernel[i] - 1) - 1) // self.strides[i] + 1
            for i, n in enumerate(spatial)
        )

    def reads(self, position: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Pairs of a kernel index and the entry that it reads; those on the padding are left out."""
        for index in np.ndindex(*self.kernel):
            entry = tuple(
                p * s + k * d - pad
                for p, s, k, d, pad in zip(
                    position, self.strides, index, self.dilations, self.pads[: len(index)], strict=True
                )
            )
            if all(0 <= e < n for e, n in zip(entry, self.spatial, strict=True)):
                yield index, entry


@rule("Conv")
def convolve(call: Call) -> Value:
    value, weight, group = _tensor(call), call.constant(1), call.option("group", 1)
    windows = _Windows(call, value.shape[2:], weight.shape[2:])
    outs, width = weight.shape[0], weight.shape[1]

    def move(part: Array) -> Array:
        whole = np.full((part.shape[0], outs, *windows.out), Fraction(0), dtype=object)
        for n, o in np.ndindex(part.shape[0], outs):
            first = o // (outs // group) * width
            for position in np.ndindex(*windows.out):
                whole[(n, o, *position)] = sum(
                    (
                        weight[(o, c, *index)] * part[(n, first + c, *entry)]
                        for index, entry in windows.reads(position)
                        for c in range(width)
                    ),
                    Fraction(0),
                )
        return whole

    found = value.linear(move)
    return found.plus(call.constant(2).reshape(1, -1, *[1] * len(windows.out))) if call.given(2) else found


@rule("ConvTranspose")
def convolve_back(call: Call) -> Value:
    value, weight, group = _tensor(call), call.constant(1), call.option("group", 1)
    rank = len(value.shape) - 2
    strides, dilations = call.option("strides", [1] * rank), call.option("dilations", [1] * rank)
    pads, more = call.option("pads", [0] * 2 * rank), call.option("output_padding", [0] * rank)
    if call.option("output_shape") is not None or call.option("auto_pad", b"NOTSET") != b"NOTSET":
        raise Unknown("implicit padding")
    out = [
        s * (n - 1) + o + (k - 1) * d + 1 - pads[i] - pads[i + rank]
        for i, (s, n, o, k, d) in enumerate(
            zip(strides, value.shape[2:], more, weight.shape[2:], dilations, strict=True)
        )
    ]
    inner, each = value.shape[1] // group, weight.shape[1]

    def move(part: Array) -> Array:
        whole = np.full((part.shape[0], each * group, *out), Fraction(0), dtype=object)
        for n, c, *position in np.ndindex(*part.shape):
            for o, *index in np.ndindex(*weight.shape[1:]):
                at = [
                    p * s + k * d - b
                    for p, s, k, d, b in zip(position, strides, index, dilations, pads[:rank], strict=True)
                ]
                if all(0 <= a < size for a, size in zip(at, out, strict=True)):
                    whole[(n, c // inner * each + o, *at)] += weight[(c, o, *index)] * part[(n, c, *position)]
        return whole

    found = value.linear(move)
    return found.plus(call.constant(2).reshape(1, -1, *[1] * rank)) if call.given(2) else found


@rule("AveragePool")
def average(call: Call) -> Value:
    value = _tensor(call)
    kernel = tuple(call.option("kernel_shape"))
    windows = _Windows(call, value.shape[2:], kernel)
    all_count = bool(call.option("count_include_pad", 0))

    def move(part: Array) -> Array:
        whole = np.full((*part.shape[:2], *windows.out), Fraction(0), dtype=object)
        for n, c, *position in np.ndindex(*whole.shape):
            read = [part[(n, c, *entry)] for _, entry in windows.reads(tuple(position))]
            whole[(n, c, *position)] = sum(read, Fraction(0)) / (int(np.prod(kernel)) if all_count else len(read))
        return whole

    return value.linear(move)


@rule("MaxPool")
def maximum(call: Call) -> Value:
    value = _tensor(call)
    windows = _Windows(call, value.shape[2:], tuple(call.option("kernel_shape")))
    shape = (*value.shape[:2], *windows.out)
    whole = np.full((len(value.parts), *shape), Fraction(0), dtype=object)
    for n, c, *position in np.ndindex(*shape):
        best: Tensor | None = None
        for _, entry in windows.reads(tuple(position)):
            other = Tensor(stacked([np.array(part[(n, c, *entry)], dtype=object) for part in value.parts]))
            best = other if best is None else choose(best, other, call.signs)
        assert best is not None
        whole[(slice(None), n, c, *position)] = best.parts
    return Tensor(whole)
