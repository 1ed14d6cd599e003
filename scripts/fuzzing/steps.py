"""The steps that random networks are made of: each appends a few nodes, or returns False where it does not fit."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

import numpy as np
from onnx import TensorProto

from fuzzing.builder import Builder

MAX_SIZE = 18
Step = Callable[[Builder], bool]


def dense(b: Builder) -> bool:
    """Gemm in all its forms, or MatMul and Add."""
    if len(b.shape) != 2:
        return False
    n, m = b.shape[1], b.rng.randint(1, 6)
    if b.rng.random() < 0.5:
        return _gemm(b, n, m)
    b.apply("MatMul", [b.value, b.floats((n, m))], (1, m))
    if b.rng.random() < 0.8:
        b.apply(b.rng.choice(("Add", "Sub")), b.rng.sample([b.value, b.bias((m,))], 2), (1, m))
    return True


def _gemm(b: Builder, n: int, m: int) -> bool:
    options: dict[str, object] = {}
    if b.rng.random() < 0.3:
        options["alpha"] = b.rng.choice((0.5, 0.1, -1.25))
    turned = b.rng.random() < 0.6
    if turned:
        options["transB"] = 1
    inputs = [b.value, b.floats((m, n) if turned else (n, m))]
    if b.opset < 11 or b.rng.random() < 0.8:
        inputs.append(b.bias(b.rng.choice(((m,), (1, m)))))
        if b.rng.random() < 0.2:
            options["beta"] = b.rng.choice((0.5, -1.0, 0.3))
    b.apply("Gemm", inputs, (1, m), **options)
    return True


def entrywise(b: Builder) -> bool:
    """Arithmetic with a constant that is broadcast."""
    shape = b.rng.choice(((), b.shape, b.shape[-1:], (1,)))
    op_type = b.rng.choice(("Add", "Sub", "Mul", "Div", "Neg", "Sum", "Mean"))
    if op_type == "Mean" and b.dtype != np.float32:
        return False  # onnxruntime has it for float32 only
    if op_type == "Neg":
        b.apply("Neg", [b.value], b.shape)
    elif op_type == "Div":
        b.apply("Div", [b.value, b.scalar(b.weights.divisor())], b.shape)
    else:
        b.apply(op_type, b.rng.sample([b.value, b.floats(shape)], 2), b.shape)
    return True


def kink(b: Builder) -> bool:
    """An activation function, or Max or Min with a constant."""
    op_type = b.rng.choice(("Relu", "Relu", "Relu", "LeakyRelu", "PRelu", "Clip", "Abs", "HardSigmoid", "Max", "Min"))
    if b.dtype != np.float32 and op_type in {"LeakyRelu", "PRelu", "HardSigmoid"}:
        return False  # onnxruntime has them for float32 only
    size = prod(b.shape) * (2 if op_type in {"Clip", "HardSigmoid"} else 1)
    if size > b.kinks:
        return False
    b.kinks -= size
    inputs, options = [b.value], {}
    if op_type == "LeakyRelu":
        options["alpha"] = b.rng.choice((0.01, 0.1, 0.5, -0.5, 1.5, 0.0))
    elif op_type == "HardSigmoid" and b.rng.random() < 0.7:
        options = {"alpha": b.rng.choice((0.2, 1.0, 0.5)), "beta": b.rng.choice((0.5, 0.0, -0.25))}
    elif op_type == "PRelu":
        inputs.append(b.floats(b.rng.choice(((1,), b.shape[1:]))))
    elif op_type in {"Max", "Min"}:
        inputs = b.rng.sample([*inputs, b.floats(b.rng.choice(((), b.shape)))], 2)
    elif op_type == "Clip":
        return _clip(b)
    b.apply(op_type, inputs, b.shape, **options)
    return True


def _clip(b: Builder) -> bool:
    low, high = sorted(b.rng.choice((-1.0, -0.5, 0.0, 0.1, 0.75, 1.0, 6.0)) for _ in range(2))
    if b.opset < 11:
        if b.dtype != np.float32:
            return entrywise(b)
        b.apply("Clip", [b.value], b.shape, min=low, max=high)
        return True
    given = b.rng.choice(("both", "both", "low", "high"))
    if b.dtype != np.float32 and b.opset < 12:
        return entrywise(b)
    inputs = [b.value, b.scalar(low) if given != "high" else ""]
    if given != "low":
        inputs.append(b.scalar(high))
    b.apply("Clip", inputs, b.shape)
    return True


def residual(b: Builder) -> bool:
    """The last tensor and an earlier one of its shape."""
    fitting = [name for name, shape in b.earlier if shape == b.shape]
    if not fitting:
        return False
    op_type, size = b.rng.choice(("Add", "Add", "Sub", "Sum", "Mean", "Max", "Min")), prod(b.shape)
    if op_type == "Mean" and b.dtype != np.float32:
        return False
    if op_type in {"Max", "Min"}:
        if size > b.kinks:
            return False
        b.kinks -= size
    b.apply(op_type, b.rng.sample([b.value, b.rng.choice(fitting)], 2), b.shape)
    return True


def joined(b: Builder) -> bool:
    """Concat with an earlier tensor, on an axis that fits."""
    axis = 1
    fitting = [
        (name, shape)
        for name, shape in b.earlier
        if len(shape) == len(b.shape) and shape[2:] == b.shape[2:] and prod(shape) + prod(b.shape) <= MAX_SIZE
    ]
    if not fitting:
        return False
    name, shape = b.rng.choice(fitting)
    wide = (1, shape[1] + b.shape[1], *b.shape[2:])
    b.apply("Concat", b.rng.sample([b.value, name], 2), wide, axis=b.rng.choice((axis, axis - len(b.shape))))
    return True


def split(b: Builder) -> bool:
    """Split, of which one part or the sum of two goes on."""
    axis = b.rng.randrange(1, len(b.shape))
    size = b.shape[axis]
    if size < 2:
        return False
    equal = size % 2 == 0 and b.rng.random() < 0.5
    sizes = [size // 2] * 2 if equal else [1, size - 1]
    options: dict[str, object] = {"axis": b.rng.choice((axis, axis - len(b.shape)))}
    inputs = [b.value]
    if b.opset < 13:
        options["split"] = sizes
    else:
        inputs.append(b.integers(sizes))
    parts = b.several("Split", inputs, 2, **options)
    k = b.rng.randrange(2)
    b.value, b.shape = parts[k], (*b.shape[:axis], sizes[k], *b.shape[axis + 1 :])
    if equal and b.rng.random() < 0.6:
        b.apply(b.rng.choice(("Add", "Sub")), [parts[0], parts[1]], b.shape)
    return True


def sliced(b: Builder) -> bool:
    """Slice with steps of both signs and ends inside and outside of the tensor."""
    axis = b.rng.randrange(1, len(b.shape))
    size, step = b.shape[axis], b.rng.choice((1, 1, 2, -1, -2))
    start = b.rng.randint(-size - 2, size + 2)
    end = b.rng.choice((b.rng.randint(-size - 2, size + 2), 2**31 - 1 if step > 0 else -(2**31) + 1))
    kept = len(range(size)[start:end:step])
    if not kept:
        return False
    shape = (*b.shape[:axis], kept, *b.shape[axis + 1 :])
    if b.opset < 10:
        if step != 1:
            return False
        b.apply("Slice", [b.value], shape, starts=[start], ends=[end], axes=[axis])
    else:
        b.apply("Slice", [b.value, *(b.integers([v]) for v in (start, end, axis, step))], shape)
    return True


def picked(b: Builder) -> bool:
    """Gather and GatherElements."""
    axis = b.rng.randrange(1, len(b.shape))
    size = b.shape[axis]
    count = b.rng.randint(1, min(4, MAX_SIZE * size // prod(b.shape)))
    low = -size if b.opset >= 11 and b.rng.random() < 0.3 else 0
    where = [b.rng.randrange(low, size) for _ in range(count)]
    shape = (*b.shape[:axis], count, *b.shape[axis + 1 :])
    if b.opset >= 11 and b.rng.random() < 0.4:
        spread = np.array([b.rng.choice(where) for _ in range(prod(shape))], dtype=np.int64).reshape(shape)
        b.apply("GatherElements", [b.value, b.constant(spread)], shape, axis=axis)
    else:
        b.apply("Gather", [b.value, b.integers(where)], shape, axis=axis)
    return True


def padded(b: Builder) -> bool:
    """Pad with a constant, the edge or a reflection."""
    rank = len(b.shape)
    before, after = [0] * rank, [0] * rank
    axis = b.rng.randrange(1, rank)
    before[axis], after[axis] = b.rng.randint(0, 1), b.rng.randint(0, 1)
    mode = b.rng.choice(("constant", "constant", "edge", "reflect"))
    shape = tuple(n + p + q for n, p, q in zip(b.shape, before, after, strict=True))
    if prod(shape) > MAX_SIZE or (mode == "reflect" and b.shape[axis] < 2) or shape == b.shape:
        return False
    if b.opset < 11:
        b.apply("Pad", [b.value], shape, mode=mode, pads=[*before, *after])
        return True
    filler = [b.scalar(b.rng.choice((0.5, -1.0)))] if mode == "constant" and b.rng.random() < 0.5 else []
    b.apply("Pad", [b.value, b.integers([*before, *after]), *filler], shape, mode=mode)
    return True


def repeated(b: Builder) -> bool:
    """Tile or Expand."""
    axis = b.rng.randrange(1, len(b.shape))
    if 2 * prod(b.shape) > MAX_SIZE:
        return False
    shape = (*b.shape[:axis], 2 * b.shape[axis], *b.shape[axis + 1 :])
    if b.shape[axis] == 1 and b.rng.random() < 0.5:
        b.apply("Expand", [b.value, b.integers(shape)], shape)
    else:
        b.apply("Tile", [b.value, b.integers([2 if a == axis else 1 for a in range(len(b.shape))])], shape)
    return True


def reduced(b: Builder) -> bool:
    """Sums, means, maxima and minima along an axis that is kept."""
    axis = b.rng.randrange(1, len(b.shape))
    op_type = b.rng.choice(("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin"))
    size = prod(b.shape) - prod(b.shape) // b.shape[axis]
    if op_type in {"ReduceMax", "ReduceMin"}:
        if size > b.kinks or (b.dtype != np.float32 and b.opset < 12):
            return False
        b.kinks -= size
    shape = (*b.shape[:axis], 1, *b.shape[axis + 1 :])
    if b.opset >= (13 if op_type == "ReduceSum" else 18):
        b.apply(op_type, [b.value, b.integers([axis])], shape, keepdims=1)
    else:
        b.apply(op_type, [b.value], shape, axes=[axis], keepdims=1)
    return True


def chosen(b: Builder) -> bool:
    """Where with a constant condition."""
    condition = np.array([b.rng.random() < 0.5 for _ in range(prod(b.shape))]).reshape(b.shape)
    b.apply("Where", [b.constant(condition), *b.rng.sample([b.value, b.floats(b.shape)], 2)], b.shape)
    return True


def copied(b: Builder) -> bool:
    """Identity, Dropout, or a Cast to the wider type."""
    if b.dtype == np.float32 and b.rng.random() < 0.1:
        b.first = TensorProto.FLOAT
        b.dtype = np.float64
        b.apply("Cast", [b.value], b.shape, to=TensorProto.DOUBLE)
        b.earlier.clear()
        return True
    b.apply(b.rng.choice(("Identity", "Dropout")), [b.value], b.shape)
    return True


FLAT: tuple[Step, ...] = (dense, dense, dense, entrywise, kink, kink, kink, residual, joined, split, sliced, picked,
                          padded, repeated, reduced, chosen, copied)  # fmt: skip
