"""Arithmetic on constants that is exact, or is not made.

A float32 file may multiply two of its constants, or scale one inside of an operator.  Runtimes round the result to
float32; real arithmetic does not.  float64 holds most of these results exactly, and then they are what the network
means.  A result that float64 has to round, too, is not given here: it stays the number that onnxruntime computes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from verifier.network.graph import Array, attributes

_LARGE, _SMALL = 2.0**500, 2.0**-400  # in between, neither a product nor its error term overflows or underflows
_HALF = 2.0**27 + 1.0  # Veltkamp's constant: splits 53 digits into 26 and 26

_MOVES = frozenset("Identity Reshape Flatten Squeeze Unsqueeze".split())


def exact_product(first: Array, second: Array) -> Array | None:
    """The entrywise product in float64, or None if an entry of it would be rounded."""
    a, b = (np.asarray(v, dtype=np.float64) for v in np.broadcast_arrays(first, second))
    for values in (a, b):
        size = np.abs(values)
        if not bool(((size == 0) | ((size > _SMALL) & (size < _LARGE))).all()):
            return None
    product: Array = np.asarray(a * b)
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    error = ((a_high * b_high - product) + a_high * b_low + a_low * b_high) + a_low * b_low
    return product if not bool(error.any()) else None


def exact_sum(first: Array, second: Array) -> Array | None:
    """The entrywise sum in float64, or None if an entry of it would be rounded."""
    a, b = (np.asarray(v, dtype=np.float64) for v in np.broadcast_arrays(first, second))
    if not bool((np.abs(a) < _LARGE).all() and (np.abs(b) < _LARGE).all()):
        return None
    total: Array = np.asarray(a + b)
    other = total - a
    error = (a - (total - other)) + (b - other)
    return total if not bool(error.any()) else None


def exact_values(
    nodes: list[onnx.NodeProto], known: Mapping[str, Array], rounded: Mapping[str, Array]
) -> dict[str, Array]:
    """Results of constant nodes in float64, of those that are exact there.

    Requires the nodes in topological order; `known` holds the file's constants, `rounded` what onnxruntime gives for
    the results of the nodes.
    """
    found: dict[str, Array] = {}
    for node in nodes:
        operands = [found.get(name, known.get(name)) for name in node.input if name]
        if len(node.output) == 1 and node.output[0] in rounded and operands and all(v is not None for v in operands):
            value = _exact_value(node, [v for v in operands if v is not None], rounded[node.output[0]].shape)
            if value is not None:
                found[node.output[0]] = value
    return found


def _halves(values: Array) -> tuple[Array, Array]:
    scaled = _HALF * values
    high = scaled - (scaled - values)
    return high, values - high


def _exact_value(node: onnx.NodeProto, operands: list[Array], shape: tuple[int, ...]) -> Array | None:
    kinds = {np.dtype(v.dtype).kind for v in operands[:1]}
    if node.op_type in _MOVES and kinds == {"f"}:
        return operands[0].astype(np.float64).reshape(shape)
    if node.op_type == "Transpose" and kinds == {"f"}:
        return np.transpose(operands[0].astype(np.float64), attributes(node).get("perm"))
    if node.op_type == "Cast" and attributes(node)["to"] == TensorProto.DOUBLE and kinds == {"f"}:
        return operands[0].astype(np.float64)
    if node.op_type == "DequantizeLinear":
        return _dequantized(node, operands, shape)
    rule = _ARITHMETIC.get(node.op_type)
    return rule(*operands) if rule is not None and kinds == {"f"} else None


def _dequantized(node: onnx.NodeProto, operands: list[Array], shape: tuple[int, ...]) -> Array | None:
    """(values - zero) * scale, with one scale for all entries or one per index of an axis."""
    values, scale, *zero = operands
    if values.dtype.kind not in "iu" or attributes(node).get("block_size", 0) or scale.ndim > 1:
        return None
    if scale.size > 1:
        axis = attributes(node).get("axis", 1) % values.ndim
        place = [-1 if i == axis else 1 for i in range(values.ndim)]
        scale, zero = scale.reshape(place), [z.reshape(place) for z in zero]
    steps = values.astype(np.float64) - (zero[0].astype(np.float64) if zero else 0.0)  # exact: 32 bits each
    product = exact_product(steps, scale)
    return None if product is None else product.reshape(shape)


_ARITHMETIC: dict[str, Callable[..., Array | None]] = {
    "Neg": lambda value: -value.astype(np.float64),
    "Mul": exact_product,
    "Add": exact_sum,
    "Sub": lambda first, second: exact_sum(first, -second.astype(np.float64)),
}


MADE_EXACTLY = _MOVES | _ARITHMETIC.keys() | {"Transpose", "Cast", "DequantizeLinear"}
"""Operators whose results on constants `exact_values` can give."""


def array_of(tensor: onnx.TensorProto) -> Array:
    """The value of a constant; half-precision values as float32, which holds them."""
    values: Array = numpy_helper.to_array(tensor)
    kind: Any = values.dtype.kind
    return values.astype(np.float32) if kind == "V" or values.dtype.name == "bfloat16" else values
