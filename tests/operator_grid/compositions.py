"""Random networks of two to five operators, in which a wrong shape or a wrong name of one reaches the next."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from operator_grid.case import Case, Sketch
from operator_grid.entrywise import partner
from operator_grid.family import Family, Settings

MOST_ENTRIES = 200


@dataclass(frozen=True)
class Value:
    name: str
    shape: tuple[int, ...]

    @property
    def rank(self) -> int:
        return len(self.shape)


Step = Callable[[Sketch, Value], Value | None]


def entrywise(op: str) -> Step:
    return lambda sketch, value: Value(sketch.node(op, [value.name]), value.shape)


def with_constant(op: str) -> Step:
    """One operand is constant; both are broadcast."""

    def step(sketch: Sketch, value: Value) -> Value:
        shape = partner(sketch, value.shape, int(sketch.random.integers(0, 4)))
        numbers = sketch.powers(shape) if op in {"Mul", "Div"} else sketch.numbers(shape, False)
        operands = [value.name, sketch.constant(numbers)]
        if op != "Div" and sketch.random.random() < 0.5:
            operands.reverse()
        return Value(sketch.node(op, operands), np.broadcast_shapes(value.shape, shape))

    return step


def clip(sketch: Sketch, value: Value) -> Value:
    low, high = (sketch.constant(sketch.array(bound)) for bound in (-1.5, 2.0))
    return Value(sketch.node("Clip", [value.name, sketch.pick((low, "")), high]), value.shape)


def leaky(sketch: Sketch, value: Value) -> Value:
    slope = sketch.constant(sketch.array([0.5]))
    return Value(sketch.node("PRelu", [value.name, slope]), value.shape) if value.rank else value


def with_branch(op: str) -> Step:
    """Together with another function of the same value."""

    def step(sketch: Sketch, value: Value) -> Value:
        other = sketch.node(sketch.pick(("Relu", "Neg", "Abs")), [value.name])
        return Value(sketch.node(op, [value.name, other]), value.shape)

    return step


def matmul(sketch: Sketch, value: Value) -> Value | None:
    if not value.rank:
        return None
    n = int(sketch.random.integers(1, 4))
    lead = value.shape[:-2] if sketch.random.random() < 0.3 else ()
    if sketch.random.random() < 0.5:
        weight = sketch.numbers((*lead, value.shape[-1], n), False)
        shape = (*lead, *value.shape[:-1][len(lead) :], n)
        return Value(sketch.node("MatMul", [value.name, sketch.constant(weight)]), shape)
    inner = value.shape[-2] if value.rank > 1 else value.shape[-1]
    weight = sketch.numbers((*lead, n, inner), False)
    shape = (*value.shape[:-2], n, value.shape[-1]) if value.rank > 1 else (*lead, n)
    return Value(sketch.node("MatMul", [sketch.constant(weight), value.name]), shape)


def vector_product(sketch: Sketch, value: Value) -> Value | None:
    """A vector, and a stack of matrices."""
    n = int(np.prod(value.shape))
    flat = sketch.node("Reshape", [value.name, sketch.integers([-1])])
    weight = sketch.constant(sketch.numbers((2, n, 3), False))
    return Value(sketch.node("MatMul", [flat, weight]), (2, 3))


def gemm(sketch: Sketch, value: Value) -> Value | None:
    if value.rank != 2:
        return None
    n = int(sketch.random.integers(1, 4))
    turned = int(sketch.random.integers(2))
    weight = sketch.constant(sketch.numbers((n, value.shape[1]) if turned else (value.shape[1], n), False))
    addend = sketch.constant(sketch.numbers(sketch.pick(((n,), (1, n), (value.shape[0], 1))), False))
    output = sketch.node("Gemm", [value.name, weight, addend], transB=turned, alpha=sketch.pick((None, 0.5)))
    return Value(output, (value.shape[0], n))


def transpose(sketch: Sketch, value: Value) -> Value | None:
    perm = [int(a) for a in sketch.random.permutation(value.rank)]
    if not perm:
        return None
    return Value(sketch.node("Transpose", [value.name], perm=perm), tuple(value.shape[a] for a in perm))


def reshape(sketch: Sketch, value: Value) -> Value:
    split = int(sketch.random.integers(value.rank + 1))
    target = [int(np.prod(value.shape[:split])), int(np.prod(value.shape[split:]))]
    asked = [target[0], -1] if sketch.random.random() < 0.5 else target
    return Value(sketch.node("Reshape", [value.name, sketch.integers(asked)]), tuple(target))


def sliced(sketch: Sketch, value: Value) -> Value | None:
    if not value.rank:
        return None
    axis = int(sketch.random.integers(value.rank))
    step = sketch.pick((1, -1, 2, -2))
    start, end = (0, 2**62) if step > 0 else (-1, -(2**62))
    inputs = [sketch.integers([part]) for part in (start, end, axis - value.rank, step)]
    shape = list(value.shape)
    shape[axis] = len(range(0, shape[axis], abs(step)))
    return Value(sketch.node("Slice", [value.name, *inputs]), tuple(shape))


def pad(sketch: Sketch, value: Value) -> Value | None:
    if not value.rank:
        return None
    before, after = sketch.sizes(value.rank, 0, 1), sketch.sizes(value.rank, 0, 2)
    filled = sketch.pick(("", sketch.constant(sketch.array(1.5))))
    shape = tuple(n + b + a for n, b, a in zip(value.shape, before, after, strict=True))
    return Value(sketch.node("Pad", [value.name, sketch.integers([*before, *after]), filled]), shape)


def concat(sketch: Sketch, value: Value) -> Value | None:
    if not value.rank:
        return None
    axis = int(sketch.random.integers(value.rank))
    other = sketch.constant(sketch.numbers(value.shape, False)) if sketch.random.random() < 0.5 else value.name
    shape = (*value.shape[:axis], 2 * value.shape[axis], *value.shape[axis + 1 :])
    return Value(sketch.node("Concat", [value.name, other], axis=axis), shape)


def gather(sketch: Sketch, value: Value) -> Value | None:
    if not value.rank:
        return None
    axis = int(sketch.random.integers(value.rank))
    size = sketch.sizes(int(sketch.random.integers(0, 3)), 1, 3)
    index = sketch.random.integers(-value.shape[axis], value.shape[axis], size)
    output = sketch.node("Gather", [value.name, sketch.integers(index)], axis=axis)
    return Value(output, (*value.shape[:axis], *size, *value.shape[axis + 1 :]))


def reduced(op: str) -> Step:
    def step(sketch: Sketch, value: Value) -> Value | None:
        if not value.rank:
            return None
        axis, keep = int(sketch.random.integers(value.rank)), int(sketch.random.integers(2))
        if op == "ReduceSum" or sketch.opset >= 18:
            output = sketch.node(op, [value.name, sketch.integers([axis])], keepdims=keep)
        else:
            output = sketch.node(op, [value.name], axes=[axis], keepdims=keep)
        return Value(output, (*value.shape[:axis], *[1] * keep, *value.shape[axis + 1 :]))

    return step


def unsqueeze(sketch: Sketch, value: Value) -> Value:
    axis = int(sketch.random.integers(value.rank + 1))
    output = sketch.node("Unsqueeze", [value.name, sketch.integers([axis])])
    return Value(output, (*value.shape[:axis], 1, *value.shape[axis:]))


def squeeze(sketch: Sketch, value: Value) -> Value:
    return Value(sketch.node("Squeeze", [value.name]), tuple(n for n in value.shape if n > 1))


def expand(sketch: Sketch, value: Value) -> Value:
    target = (2, *(sketch.pick((1, n)) for n in value.shape))
    return Value(sketch.node("Expand", [value.name, sketch.integers(target)]), (2, *value.shape))


def halves(sketch: Sketch, value: Value) -> Value | None:
    """Split along an axis of even length; the sum of both parts."""
    even = [axis for axis, n in enumerate(value.shape) if n % 2 == 0]
    if not even:
        return None
    axis = sketch.pick(even)
    half = value.shape[axis] // 2
    sketch.node("Split", [value.name, sketch.integers([half, half])], 2, axis=axis)
    output = sketch.node("Sub", list(sketch.nodes[-1].output))
    return Value(output, (*value.shape[:axis], half, *value.shape[axis + 1 :]))


def as_image(sketch: Sketch, value: Value) -> Value:
    if value.rank == 4:
        return value
    n = int(np.prod(value.shape))
    height = 3 if n % 3 == 0 else 2 if n % 2 == 0 else 1
    shape = (1, 1, height, n // height)
    return Value(sketch.node("Reshape", [value.name, sketch.integers(shape)]), shape)


def conv(sketch: Sketch, value: Value) -> Value | None:
    image = as_image(sketch, value)
    weight = sketch.constant(sketch.numbers((2, image.shape[1], 3, 2), False))
    output = sketch.node("Conv", [image.name, weight], pads=[1, 1, 1, 0], strides=[2, 1])
    batch, _, height, width = image.shape
    return Value(output, (batch, 2, (height - 1) // 2 + 1, width))


def max_pool(sketch: Sketch, value: Value) -> Value | None:
    image = as_image(sketch, value)
    output = sketch.node("MaxPool", [image.name], kernel_shape=[2, 2], pads=[0, 1, 1, 0])
    return Value(output, image.shape)


def where(sketch: Sketch, value: Value) -> Value:
    mask = sketch.random.random(value.shape) < 0.5
    other = sketch.constant(sketch.numbers((), False))
    return Value(sketch.node("Where", [sketch.constant(mask), value.name, other]), value.shape)


PLAIN: dict[str, Step] = {
    "Relu": entrywise("Relu"),
    "Abs": entrywise("Abs"),
    "Neg": entrywise("Neg"),
    "Clip": clip,
    "PRelu": leaky,
    **{op: with_constant(op) for op in ("Add", "Sub", "Mul", "Div", "Max", "Min")},
    **{f"{op} of branches": with_branch(op) for op in ("Add", "Sub", "Max", "Min")},
    "Where": where,
    "MatMul": matmul,
    "vectors": vector_product,
    "Gemm": gemm,
    "Conv": conv,
    "MaxPool": max_pool,
    **{op: reduced(op) for op in ("ReduceSum", "ReduceMax", "ReduceMin")},
    "Transpose": transpose,
    "Reshape": reshape,
    "Slice": sliced,
    "Pad": pad,
    "Concat": concat,
    "Gather": gather,
    "Unsqueeze": unsqueeze,
    "Squeeze": squeeze,
    "Expand": expand,
    "Split": halves,
}


def composed(sketch: Sketch, given: Settings) -> Case | None:
    start = Value("x", sketch.sizes(given["rank"]))
    value, done = start, 0
    names = [given["step"], *(sketch.pick(list(PLAIN)) for _ in range(given["length"] + 3))]
    for name in names:
        before = len(sketch.nodes)
        found = PLAIN[name](sketch, value)
        if found is None or int(np.prod(found.shape)) > MOST_ENTRIES:
            del sketch.nodes[before:]
            continue
        value, done = found, done + 1
        if done == given["length"]:
            break
    return sketch.case(start.shape, value.name) if value is not start else None


FAMILIES = (Family("composed", composed, {"step": tuple(PLAIN), "rank": range(5), "length": (2, 3, 4)}, 600, since=13),)
