"""Affine functions of activations: products with constants, convolutions, averages, sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from verifier.functions.names import FUNCTIONS
from verifier.network.lowering.expression import Expression, select
from verifier.network.lowering.tracing import Lowering, lowers
from verifier.operators import Dense, stored
from verifier.operators.base import flat_size
from verifier.shapes import Float64, Tensor

# -- entrywise arithmetic ------------------------------------------------------------------------------------


def broadcast(first: Expression, second: Expression) -> tuple[Expression, Expression]:
    shape = np.broadcast_shapes(first.shape, second.shape)  # torch's own function imports sympy: half a second
    return first.expanded(shape), second.expanded(shape)


@lowers("add", "radd")
def add(low: Lowering, input: Any, other: Any, *, alpha: float = 1) -> Expression:
    first, second = broadcast(low.value(input), low.value(other))
    return first.plus(times(second, low.number(alpha)))


@lowers("sub", "subtract")
def sub(low: Lowering, input: Any, other: Any, *, alpha: float = 1) -> Expression:
    first, second = broadcast(low.value(input), low.value(other))
    return first.minus(times(second, low.number(alpha)))


@lowers("rsub")
def rsub(low: Lowering, input: Any, other: Any, *, alpha: float = 1) -> Expression:
    return sub(low, other, input, alpha=alpha)


@lowers("neg", "negative")
def neg(low: Lowering, input: Any) -> Expression:
    return low.value(input).negated()


def times(value: Expression, factor: Float64[Tensor, "..."] | float, roundings: int = 0) -> Expression:
    """The product with a constant number or tensor; both are broadcast."""
    factor = torch.as_tensor(factor, dtype=torch.float64)
    shape = np.broadcast_shapes(value.shape, factor.shape)
    return value.expanded(shape).scaled(factor.expand(shape).reshape(-1), roundings)


@lowers("mul", "rmul", "multiply")
def mul(low: Lowering, input: Any, other: Any) -> Expression:
    if low.is_constant(input):
        return times(low.value(other), low.number(input))
    if low.is_constant(other):
        return times(low.value(input), low.number(other))
    return low.multiply(*broadcast(low.value(input), low.value(other)))


@lowers("div", "divide", "true_divide", "truediv")
def div(low: Lowering, input: Any, other: Any, *, rounding_mode: str | None = None) -> Expression:
    if rounding_mode is not None:
        low.refuse("it rounds")
    if not low.is_constant(other):
        return mul(low, input, low.apply(FUNCTIONS.build("Reciprocal"), low.value(other)))
    number = low.number(other)
    if not bool(number.all()):
        raise low.fault("divides by zero")
    exact = bool((torch.frexp(number).mantissa.abs() == 0.5).all())  # powers of two
    return times(low.value(input), in_range(low, 1.0 / number, number), roundings=0 if exact else 1)


def in_range(low: Lowering, quotient: Float64[Tensor, "..."], dividend: Float64[Tensor, "..."]) -> Tensor:
    """The quotient, if its error is relative to it: it neither underflows nor overflows."""
    size, info = quotient.abs(), torch.finfo(torch.float64)
    if not bool(((dividend == 0) | ((size >= info.tiny) & (size <= info.max))).all()):
        raise low.fault("has a quotient beyond the range of 64-bit floats")
    return quotient


@lowers("rdiv", "rtruediv")
def rdiv(low: Lowering, input: Any, other: Any) -> Expression:
    return div(low, other, input)


# -- matrix products -----------------------------------------------------------------------------------------


@lowers("linear")
def linear(low: Lowering, input: Any, weight: Any, bias: Any = None) -> Expression:
    value, matrix = low.value(input), low.number(weight)
    found = _right_product(value, matrix.T if matrix.dim() == 2 else matrix)
    return found if bias is None else add(low, found, bias)


def _right_product(value: Expression, matrix: Float64[Tensor, "..."]) -> Expression:
    """value @ matrix, for a matrix [k, m] or a vector [k]."""
    if not value.shape or value.shape[-1] != matrix.shape[0]:
        raise ValueError(f"shapes {value.shape} and {tuple(matrix.shape)} do not multiply")
    outer = value.shape[:-1]
    rows = matrix.reshape(matrix.shape[0], -1).T
    shape = outer if matrix.dim() == 1 else (*outer, matrix.shape[1])
    return value.applied(stored(rows, flat_size(outer)), shape)


def _left_product(matrix: Float64[Tensor, "..."], value: Expression) -> Expression:
    """matrix @ value, for a matrix [m, k] or a vector [k] and values [k] or [..., k, n]."""
    if len(value.shape) == 1:
        rows = matrix.reshape(-1, matrix.shape[-1])
        return value.applied(stored(rows), matrix.shape[:-1])
    *outer, k, n = value.shape
    turned = value.taken(value.positions().mT)
    found = _right_product(turned, matrix.reshape(-1, k).T)
    found = found.taken(found.positions().mT)
    return found if matrix.dim() == 2 else found.reshaped((*outer, n))


@lowers("matmul", "mm", "bmm", "mv")
def matmul(low: Lowering, input: Any, other: Any) -> Expression:
    constant_first = not low.is_constant(other)
    if constant_first and not low.is_constant(input):
        return _product_of_activations(low, low.value(input), low.value(other))
    matrix, value = (input, other) if constant_first else (other, input)
    matrix, value = low.number(matrix), low.value(value)
    if matrix.dim() > 2:
        return _batched_product(low, matrix, value, constant_first)
    return _left_product(matrix, value) if constant_first else _right_product(value, matrix)


lowers("rmatmul")(lambda low, input, other: matmul(low, other, input))


def _batched_product(low: Lowering, matrix: Tensor, value: Expression, constant_first: bool) -> Expression:
    """A different constant matrix for every leading index: one product for each, put together again."""
    is_vector = len(value.shape) == 1
    if is_vector:
        value = value.reshaped((value.size, 1) if constant_first else (1, value.size))
    outer = np.broadcast_shapes(matrix.shape[:-2], value.shape[:-2])
    if flat_size(outer) > 4096:
        low.refuse(f"it multiplies with {flat_size(outer)} matrices")
    matrices = matrix.expand(*outer, *matrix.shape[-2:]).reshape(-1, *matrix.shape[-2:])
    whole = value.expanded((*outer, *value.shape[-2:]))
    blocks = whole.positions().reshape(-1, *whole.shape[-2:])
    parts = []
    for block, single in zip(blocks, matrices, strict=True):
        part = whole.taken(block)
        parts.append(_left_product(single, part) if constant_first else _right_product(part, single))
    shape = (*outer, *parts[0].shape)
    found = select(parts, torch.arange(flat_size(shape)), shape)
    if not is_vector:
        return found
    return found.reshaped(shape[:-1] if constant_first else (*shape[:-2], shape[-1]))  # without the axis added above


def _product_of_activations(low: Lowering, first: Expression, second: Expression) -> Expression:
    """first @ second, as numpy means it: a product for every pair of entries that meet, then a sum."""
    left = first.reshaped((1, first.size)) if len(first.shape) == 1 else first
    right = second.reshaped((second.size, 1)) if len(second.shape) == 1 else second
    if left.shape[-1] != right.shape[-2]:
        raise ValueError(f"shapes {first.shape} and {second.shape} do not multiply")
    rows = left.taken(left.positions().unsqueeze(-2))
    columns = right.taken(right.positions().mT.unsqueeze(-3))
    found = total(low, low.multiply(*broadcast(rows, columns)), -1)
    shape = (*found.shape[:-2], *first.shape[-2:-1], *(second.shape[-1:] if len(second.shape) > 1 else ()))
    return found.reshaped(shape)


@lowers("addmm")
def addmm(low: Lowering, input: Any, mat1: Any, mat2: Any, *, beta: float = 1, alpha: float = 1) -> Expression:
    product = times(matmul(low, mat1, mat2), low.number(alpha))
    return add(low, product, times(low.value(input), low.number(beta)))


# -- sums and averages ---------------------------------------------------------------------------------------


def _axes(dim: Any, rank: int) -> list[int]:
    if dim is None or (isinstance(dim, tuple | list) and not dim):
        return list(range(rank))
    chosen = [dim] if isinstance(dim, int) else list(dim)
    return sorted(int(axis) % rank for axis in chosen)


def grouped(value: Expression, dim: Any, keepdim: bool) -> tuple[Tensor, tuple[int, ...]]:
    """Positions [result entry, reduced entry] of a reduction, and the shape of its result."""
    rank = len(value.shape)
    reduced = _axes(dim, rank)
    kept = [axis for axis in range(rank) if axis not in reduced]
    shape = tuple(1 if axis in reduced else n for axis, n in enumerate(value.shape) if keepdim or axis not in reduced)
    index = value.positions().permute(*kept, *reduced)
    return index.reshape(flat_size(tuple(value.shape[axis] for axis in kept)), -1), shape


@lowers("sum")
def total(low: Lowering, input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Expression:
    value = low.value(input)
    index, shape = grouped(value, dim, keepdim)
    rows, width = index.shape
    return value.taken(index).applied(Dense(torch.ones(1, width, dtype=torch.float64), rows), shape, keeps_sign=True)


@lowers("mean")
def mean(low: Lowering, input: Any, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Expression:
    found = total(low, input, dim, keepdim)
    width = low.value(input).size // max(found.size, 1)
    return times(found, 1.0 / width, roundings=1)
