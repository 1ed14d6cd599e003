"""What operators mean that only move entries: each is applied to constants, and to every part of a tensor."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
from onnx import numpy_helper

from fuzzing.interpreter import Array, Call, Tensor, Unknown, Value, exact, lifted, rule, stacked

WIDTHS = {1: 32, 11: 64}  # float32 and float64 by ONNX's numbers


def moved(value: Value | None, move: Callable[[Array], Array]) -> Value:
    if isinstance(value, Tensor):
        return value.linear(move)
    assert value is not None
    return move(value)


@rule("Constant")
def constant(call: Call) -> Value:
    if (tensor := call.option("value")) is not None:
        return exact(numpy_helper.to_array(tensor))
    for name in ("value_float", "value_floats"):
        if (found := call.option(name)) is not None:
            return exact(np.array(found, dtype=np.float32))
    for name in ("value_int", "value_ints"):
        if (found := call.option(name)) is not None:
            return np.array(found, dtype=np.int64)
    raise Unknown("a Constant of another kind")


@rule("Identity", "Dropout")
def identity(call: Call) -> Value:
    return moved(call.values[0], lambda part: part)


@rule("Cast")
def cast(call: Call) -> Value:
    if call.option("to") != 11:
        raise Unknown("a Cast that rounds")
    return moved(call.values[0], lambda part: part)


@rule("Flatten")
def flatten(call: Call) -> Value:
    axis = call.option("axis", 1)

    def move(part: Array) -> Array:
        first = int(np.prod(part.shape[: axis if axis >= 0 else part.ndim + axis], dtype=np.int64))
        return part.reshape(first, -1)

    return moved(call.values[0], move)


@rule("Reshape")
def reshape(call: Call) -> Value:
    wanted = call.integers(1, "shape") or []
    zero = bool(call.option("allowzero", 0))
    return moved(
        call.values[0],
        lambda part: part.reshape([part.shape[i] if not n and not zero else n for i, n in enumerate(wanted)]),
    )


@rule("Transpose")
def transpose(call: Call) -> Value:
    return moved(call.values[0], lambda part: np.transpose(part, call.option("perm")))


@rule("Squeeze")
def squeeze(call: Call) -> Value:
    axes = call.integers(1, "axes")
    return moved(call.values[0], lambda part: np.squeeze(part, None if axes is None else tuple(axes)))


@rule("Unsqueeze")
def unsqueeze(call: Call) -> Value:
    axes = call.integers(1, "axes") or []
    return moved(call.values[0], lambda part: np.expand_dims(part, tuple(axes)))


@rule("Slice")
def slice_(call: Call) -> Value:
    starts, ends = call.integers(1, "starts") or [], call.integers(2, "ends") or []
    axes = call.integers(3, "axes") or list(range(len(starts)))
    steps = call.integers(4, "steps") or [1] * len(starts)

    def move(part: Array) -> Array:
        for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
            part = np.take(part, _positions(part.shape[axis], start, end, step), axis=axis)
        return part

    return moved(call.values[0], move)


def _positions(size: int, start: int, end: int, step: int) -> list[int]:
    """The positions of a slice, clamped as the specification says."""
    start, end = (v + size if v < 0 else v for v in (start, end))
    if step > 0:
        return list(range(min(max(start, 0), size), min(max(end, 0), size), step))
    return list(range(min(max(start, 0), size - 1), min(max(end, -1), size - 1), step))


@rule("Split")
def split(call: Call) -> list[Value]:
    value, axis = call.values[0], call.option("axis", 0)
    assert value is not None
    size, count = value.shape[axis], len(call.node.output)
    each = -(-size // count)
    sizes = call.integers(1, "split") or [min(each, size - i * each) for i in range(count)]
    ends = np.cumsum([0, *sizes])
    return [
        moved(value, lambda part, a=a, b=b: np.take(part, range(a, b), axis=axis))  # type: ignore[misc]
        for a, b in itertools.pairwise(ends)
    ]


@rule("Concat")
def concat(call: Call) -> Value:
    axis = call.option("axis")
    return together([v for v in call.values if v is not None], lambda parts: np.concatenate(parts, axis=axis))


def together(values: Sequence[Value], join: Callable[[list[Array]], Array]) -> Value:
    """A linear map of several tensors."""
    known = [value for value in values if isinstance(value, Tensor)]
    if not known:
        return join([value for value in values if isinstance(value, np.ndarray)])
    tensors = [lifted(value, len(known[0].parts)) for value in values]
    return Tensor(stacked([join([t.parts[i] for t in tensors]) for i in range(len(known[0].parts))]))


@rule("Gather")
def gather(call: Call) -> Value:
    where, axis = call.constant(1).astype(np.int64), call.option("axis", 0)
    return moved(call.values[0], lambda part: np.take(part, where, axis=axis))


@rule("GatherElements")
def gather_elements(call: Call) -> Value:
    where, axis = call.constant(1).astype(np.int64), call.option("axis", 0)
    return moved(call.values[0], lambda part: np.take_along_axis(part, where % part.shape[axis], axis=axis))


@rule("Expand")
def expand(call: Call) -> Value:
    wanted = tuple(call.integers(1, "shape") or [])
    return moved(call.values[0], lambda part: np.broadcast_to(part, np.broadcast_shapes(part.shape, wanted)))


@rule("Tile")
def tile(call: Call) -> Value:
    times = tuple(call.integers(1, "repeats") or [])
    return moved(call.values[0], lambda part: np.tile(part, times))


@rule("Where")
def where(call: Call) -> Value:
    condition = call.constant(0).astype(bool)
    values = [v for v in call.values[1:] if v is not None]
    return together(values, lambda parts: np.where(condition, parts[0], parts[1]))


@rule("Pad")
def pad(call: Call) -> Value:
    given = call.integers(1, "pads") or []
    mode = call.option("mode", b"constant").decode()
    filler = call.constant(2).ravel()[0] if call.given(2) else call.number("value", 0.0)
    value = call.values[0]
    assert value is not None
    rank = len(value.shape)
    chosen = [a % rank for a in call.integers(3, "axes") or range(rank)]
    widths = [(0, 0)] * rank
    for k, axis in enumerate(chosen):
        widths[axis] = (given[k], given[k + len(chosen)])

    def move(part: Array) -> Array:
        if mode == "constant":
            return np.pad(part, widths, constant_values=Fraction(0))
        return np.pad(part, widths, mode={"edge": "edge", "reflect": "reflect"}[mode])  # type: ignore[call-overload]

    moved_value = moved(value, move)
    if mode != "constant" or not filler:
        return moved_value
    outside = np.pad(np.full(value.shape, Fraction(0), dtype=object), widths, constant_values=filler)
    return moved_value.plus(outside) if isinstance(moved_value, Tensor) else moved_value + outside


@rule("DepthToSpace")
def depth_to_space(call: Call) -> Value:
    size, mode = call.option("blocksize"), call.option("mode", b"DCR").decode()

    def move(part: Array) -> Array:
        n, c, h, w = part.shape
        if mode == "DCR":
            return (
                part.reshape(n, size, size, c // size**2, h, w)
                .transpose(0, 3, 4, 1, 5, 2)
                .reshape(n, -1, h * size, w * size)
            )
        return (
            part.reshape(n, c // size**2, size, size, h, w)
            .transpose(0, 1, 4, 2, 5, 3)
            .reshape(n, -1, h * size, w * size)
        )

    return moved(call.values[0], move)


@rule("SpaceToDepth")
def space_to_depth(call: Call) -> Value:
    size = call.option("blocksize")

    def move(part: Array) -> Array:
        n, c, h, w = part.shape
        blocks = part.reshape(n, c, h // size, size, w // size, size)
        return blocks.transpose(0, 3, 5, 1, 2, 4).reshape(n, -1, h // size, w // size)

    return moved(call.values[0], move)
