"""What affine operators mean."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from math import isqrt

import numpy as np

from fuzzing.interpreter import Array, Call, Tensor, Unknown, Value, lifted, rule, stacked

Combine = Callable[[Array, Array], Array]


def added(first: Value, second: Value, sign: int = 1) -> Value:
    """first + sign * second, with broadcasting."""
    if isinstance(first, np.ndarray) and isinstance(second, np.ndarray):
        return first + sign * second
    parts = len(first.parts if isinstance(first, Tensor) else second.parts)  # type: ignore[union-attr]
    a, b = lifted(first, parts), lifted(second, parts)
    return Tensor(stacked([p + sign * q for p, q in zip(a.parts, b.parts, strict=True)]))


def product(first: Value, second: Value, combine: Combine) -> Value:
    """A bilinear map, one of whose operands is constant."""
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        raise Unknown("a product of two tensors that depend on the inputs")
    if isinstance(first, Tensor):
        return first.linear(lambda part: combine(part, second))  # type: ignore[arg-type]
    if isinstance(second, Tensor):
        return second.linear(lambda part: combine(first, part))
    return combine(first, second)


def scaled(value: Value, factor: Fraction) -> Value:
    return product(value, np.array(factor, dtype=object), np.multiply)


@rule("Add")
def add(call: Call) -> Value:
    return added(*_two(call))


@rule("Sub")
def subtract(call: Call) -> Value:
    return added(*_two(call), sign=-1)


@rule("Mul")
def multiply(call: Call) -> Value:
    return product(*_two(call), np.multiply)


@rule("Div")
def divide(call: Call) -> Value:
    value, divisor = _two(call)
    if isinstance(divisor, Tensor):
        raise Unknown("a division by a tensor that depends on the inputs")
    return product(value, Fraction(1) / divisor, np.multiply)


@rule("Neg")
def negate(call: Call) -> Value:
    return scaled(_all(call)[0], Fraction(-1))


@rule("Sum", "Mean")
def total(call: Call) -> Value:
    first, *others = _all(call)
    for other in others:
        first = added(first, other)
    return scaled(first, Fraction(1, 1 + len(others))) if call.node.op_type == "Mean" else first


@rule("MatMul")
def matrix_product(call: Call) -> Value:
    return product(*_two(call), np.matmul)


@rule("Gemm")
def gemm(call: Call) -> Value:
    a, b = _all(call)[:2]
    first = _transposed(a) if call.option("transA", 0) else a
    second = _transposed(b) if call.option("transB", 0) else b
    whole = scaled(product(first, second, np.matmul), call.number("alpha", 1.0))
    if not call.given(2):
        return whole
    return added(whole, scaled(_all(call)[2], call.number("beta", 1.0)))


@rule("BatchNormalization")
def normalise(call: Call) -> Value:
    value = call.values[0]
    assert isinstance(value, Tensor)
    axes = (1, -1, *[1] * (len(value.shape) - 2))
    scale, shift, mean, variance = (call.constant(k).reshape(axes) for k in range(1, 5))
    epsilon = call.number("epsilon", 1e-5)
    root = np.array([_root(v + epsilon) for v in variance.ravel()], dtype=object).reshape(axes)
    factor = scale / root
    return value.linear(lambda part: part * factor).plus(shift - factor * mean)


def _root(value: Fraction) -> Fraction:
    """The square root of a rational that has one."""
    root = Fraction(isqrt(value.numerator), isqrt(value.denominator))
    if root * root != value:
        raise Unknown("BatchNormalization with an irrational deviation")
    return root


@rule("ReduceSum", "ReduceMean")
def reduce(call: Call) -> Value:
    value = _all(call)[0]
    axes = call.integers(1, "axes")
    if axes is None and call.option("noop_with_empty_axes", 0):
        return value
    rank = len(value.shape)
    chosen = tuple(range(rank)) if axes is None else tuple(a % rank for a in axes)
    keep = bool(call.option("keepdims", 1))
    count = int(np.prod([value.shape[a] for a in chosen], dtype=np.int64))
    if isinstance(value, Tensor):
        whole: Value = value.linear(lambda part: np.asarray(part.sum(axis=chosen, keepdims=keep), dtype=object))
    else:
        whole = np.asarray(value.sum(axis=chosen, keepdims=keep), dtype=object)
    return scaled(whole, Fraction(1, count)) if call.node.op_type == "ReduceMean" else whole


def _transposed(value: Value) -> Value:
    return value.linear(np.transpose) if isinstance(value, Tensor) else value.T


def _all(call: Call) -> list[Value]:
    return [value for value in call.values if value is not None]


def _two(call: Call) -> tuple[Value, Value]:
    first, second = _all(call)
    return first, second
