"""The operators of ONNX that do not slide a window.

Piecewise-linear ones are written with ReLUs: max(a, b) = b + relu(a - b), min(a, b) = a - relu(a - b),
|x| = 2 relu(x) - x, and a leaky ReLU is s x + relu(x) - s relu(x).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from .expression import Expression, constant, joined
from .functions import BY_NAME, EXPONENTS, Function, Power
from .maps import Dense
from .rationals import Array, Rationals
from .rules import Graph, Value, along, expression, fixed, integers, moved, operator, place_of, places_of, shaped
from .stream import Unreadable

_FAR = 2.0**20
_STEEP = 2.0**10


def array_of(tensor: Any) -> Array:
    """The numbers of a tensor of the file; floats as float64, which holds them."""
    if tensor.external_data or tensor.data_location:
        raise Unreadable("weights in other files are not read")
    found: Array = numpy_helper.to_array(tensor)
    if found.dtype.kind not in "fiub":
        raise Unreadable("numbers of an unusual type are not read")
    return found.astype(np.float64) if found.dtype.kind == "f" else found


# -- constants and shapes ----------------------------------------------------------------------------------------


@operator("Constant")
def _constant(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    if "value" in given:
        return array_of(given["value"])
    for name, kind in (("value_float", np.float64), ("value_floats", np.float64), ("value_int", np.int64)):
        if name in given:
            return np.asarray(given[name], kind)
    return np.asarray(given["value_ints"], np.int64)


@operator("ConstantOfShape")
def _filled(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    value = array_of(given["value"]).reshape(()) if "value" in given else np.zeros(())
    return np.full([int(n) for n in fixed(inputs[0])], value)


@operator("Shape")
def _shape(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    shape = inputs[0].shape
    return np.asarray(shape[given.get("start", 0) : given.get("end", len(shape))], np.int64)


@operator("Identity")
def _same(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    found: Value = inputs[0]
    return found


@operator("Dropout")
def _dropout(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    if len(inputs) > 2 and inputs[2] is not None and fixed(inputs[2]).any():
        raise Unreadable("it is random in training mode")
    return _same(graph, inputs, given)


@operator("Cast")
def _cast(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    """What depends on the input is a real number, which a float of any size stands for; constants keep all digits."""
    value, kind = inputs[0], onnx.helper.tensor_dtype_to_np_dtype(given["to"])
    if isinstance(value, Expression):
        if kind not in (np.float16, np.float32, np.float64):
            raise Unreadable("it rounds")
        return value
    wide: Array = value.astype(np.float64 if np.dtype(kind).kind == "f" else kind)
    if not (wide == value).all() or (np.dtype(kind).kind == "f" and not (wide.astype(kind) == value).all()):
        raise Unreadable("it rounds")
    return wide


# -- what only moves entries ---------------------------------------------------------------------------------------


@operator("Reshape")
def _reshape(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    shape = integers(inputs, 1, given, "shape") or []
    if not given.get("allowzero", 0):
        shape = [inputs[0].shape[i] if n == 0 else n for i, n in enumerate(shape)]
    known = math.prod(n for n in shape if n != -1)
    if shape.count(-1) > 1 or (shape.count(-1) and (known == 0 or math.prod(inputs[0].shape) % known)):
        raise Unreadable("its shape is ambiguous")
    return shaped(inputs[0], tuple(math.prod(inputs[0].shape) // known if n == -1 else n for n in shape))


@operator("Flatten")
def _flatten(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    shape = inputs[0].shape
    axis = given.get("axis", 1)
    axis = axis if axis == len(shape) else place_of(axis, len(shape))
    return shaped(inputs[0], (math.prod(shape[:axis]), math.prod(shape[axis:])))


@operator("Squeeze")
def _squeeze(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    shape, axes = inputs[0].shape, integers(inputs, 1, given, "axes")
    if axes == []:
        raise Unreadable("its list of axes is empty, which has no agreed meaning")
    gone = [i for i, n in enumerate(shape) if n == 1] if axes is None else places_of(axes, len(shape))
    return shaped(inputs[0], tuple(n for i, n in enumerate(shape) if i not in gone))


@operator("Unsqueeze")
def _unsqueeze(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    shape, axes = list(inputs[0].shape), integers(inputs, 1, given, "axes") or []
    for axis in places_of(axes, len(shape) + len(axes)):
        shape.insert(axis, 1)
    return shaped(inputs[0], tuple(shape))


@operator("Transpose")
def _transpose(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    if len(inputs[0].shape) < 2:
        return _same(graph, inputs, given)
    return moved(inputs[0], lambda index: np.transpose(index, given.get("perm")))


@operator("Concat")
def _concat(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    if not any(isinstance(value, Expression) for value in inputs):
        return np.concatenate(inputs, axis=given["axis"])
    return joined([expression(value) for value in inputs], given["axis"])


@operator("Slice")
def _slice(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    starts, ends = integers(inputs, 1, given, "starts") or [], integers(inputs, 2, given, "ends") or []
    axes = integers(inputs, 3, given, "axes") or list(range(len(starts)))
    steps = integers(inputs, 4, given, "steps") or [1] * len(starts)
    value: Value = inputs[0]
    places_of(axes, len(value.shape))
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step < 1:
            raise Unreadable("negative steps are not read")
        kept = np.arange(value.shape[axis])[start:end:step]
        if len(kept) < value.shape[axis]:
            value = along(value, axis, kept)
    return value


@operator("Gather")
def _gather(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    places, axis = fixed(inputs[1]), given.get("axis", 0)
    n = inputs[0].shape[axis]
    if not ((places >= -n) & (places < n)).all():
        raise Unreadable("an index is out of range")
    return along(inputs[0], axis, places)


@operator("Split")
def _split(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> list[Value]:
    axis, sizes = given.get("axis", 0), integers(inputs, 1, given, "split")
    n = inputs[0].shape[axis]
    if sizes is None:
        width = -(-n // graph.outputs)
        sizes = [*[width] * (graph.outputs - 1), n - (graph.outputs - 1) * width]
        if sizes[-1] < 1:
            raise Unreadable("nothing is left for the last of its parts")
    if sum(sizes) != n or min(sizes) < 0 or len(sizes) != given.get("num_outputs", graph.outputs):
        raise Unreadable("its parts do not fill the axis")
    ends = np.cumsum(sizes)
    return [along(inputs[0], axis, np.arange(end - size, end)) for size, end in zip(sizes, ends, strict=True)]


@operator("Pad")
def _pad(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    amounts = integers(inputs, 1, given, "pads") or []
    shape = inputs[0].shape
    value = float(fixed(inputs[2])) if len(inputs) > 2 and inputs[2] is not None else given.get("value", 0.0)
    if given.get("mode", "constant") != "constant" or len(inputs) > 3 or min(amounts) < 0 or value != 0:
        raise Unreadable("only padding with zeros at all axes is read")
    sides = list(zip(amounts[: len(shape)], amounts[len(shape) :], strict=True))
    return expression(inputs[0]).moved(lambda index: np.pad(index, sides, constant_values=-1))


# -- arithmetic ------------------------------------------------------------------------------------------------------


def _is_exact(combine: Callable[[Any, Any], Any], first: Array, second: Array, found: Array) -> bool:
    a, b, c = (Rationals.of(part).fractions for part in (first, second, found))
    return bool(np.array_equal(combine(a, b), c))


def _exactly(combine: Callable[[Any, Any], Any], first: Array, second: Array) -> Array:
    """Arithmetic of constants, refused where it would round."""
    if first.dtype.kind != second.dtype.kind:
        raise Unreadable("its operands are of different types")
    found: Array = np.asarray(combine(first, second))
    if found.dtype.kind != "f":
        return found
    if found.size > 1 << 20 or not _is_exact(combine, first, second, found):
        raise Unreadable("a constant has more digits than float64")
    return found


@operator("Add", "Sum")
def _add(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    total = inputs[0]
    for value in inputs[1:]:
        if isinstance(total, Expression) or isinstance(value, Expression):
            total = expression(total).plus(expression(value))
        else:
            total = _exactly(np.add, total, value)
    return total  # type: ignore[no-any-return]


@operator("Sub")
def _sub(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    first, second = inputs
    if isinstance(second, Expression):
        return expression(first).plus(second.times(-1.0))
    if isinstance(first, Expression):
        return first.plus(constant(-second))
    return _exactly(np.subtract, first, second)


@operator("Neg")
def _neg(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    return inputs[0].times(-1.0) if isinstance(inputs[0], Expression) else -inputs[0]


@operator("Mul")
def _mul(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    first, second = inputs if isinstance(inputs[0], Expression) else inputs[::-1]
    if isinstance(first, Expression) and isinstance(second, Expression):
        return graph.multiply(inputs[0], inputs[1])
    if isinstance(first, Expression):
        return first.scaled(fixed(second), np.ones(()))
    return _exactly(np.multiply, first, second)


@operator("Div")
def _div(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    first, second = inputs
    if isinstance(second, Expression):
        inverse = graph.apply(Power(-1.0), second)
        return graph.multiply(first, inverse) if isinstance(first, Expression) else inverse.scaled(first, np.ones(()))
    if isinstance(first, Expression):
        return first.scaled(np.ones(()), second)
    if first.dtype.kind != "f":
        if not (first >= 0).all() or not (second > 0).all() or second.dtype.kind == "f":
            raise Unreadable("a quotient of integers that are not positive is not read")
        return np.asarray(first // second)
    return _exactly(np.divide, first, second)


@operator("MatMul")
def _matmul(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    first, second = inputs
    if isinstance(first, Expression) and isinstance(second, Expression):
        return _of_values(graph, first, second)
    if isinstance(first, Expression):
        return _product(first, fixed(second))
    if not isinstance(second, Expression) or len(second.shape) != 2 or first.ndim != 2:
        raise Unreadable("it is no product of a matrix and a value")
    turned = _product(second.moved(np.transpose), first.T)
    return turned.moved(np.transpose)


def _of_values(graph: Graph, first: Expression, second: Expression) -> Expression:
    """A product for every pair of entries that meet, then sums."""
    if min(len(first.shape), len(second.shape)) < 2 or first.shape[-1] != second.shape[-2]:
        raise Unreadable("its operands do not fit")
    rows = first.moved(lambda index: index[..., :, None, :])
    columns = second.moved(lambda index: np.swapaxes(index, -1, -2)[..., None, :, :])
    shape = np.broadcast_shapes(rows.shape, columns.shape)
    found = graph.multiply(rows.expanded(shape), columns.expanded(shape))
    total = Dense(np.ones((1, shape[-1])), math.prod(shape[:-1]))
    return found.applied(total, shape[:-1], keeps_sign=True)


def _product(value: Expression, matrix: Array) -> Expression:
    """value @ matrix."""
    if matrix.ndim not in (1, 2) or value.shape[-1] != matrix.shape[0]:
        raise Unreadable("its operands do not fit")
    rows = matrix.reshape(matrix.shape[0], -1).T
    shape = (*value.shape[:-1], *matrix.shape[1:])
    return value.applied(Dense(rows.astype(np.float64), math.prod(value.shape[:-1])), shape)


@operator("Gemm")
def _gemm(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    value, matrix = inputs[0], fixed(inputs[1])
    if not isinstance(value, Expression) or len(value.shape) != 2 or matrix.ndim != 2:
        raise Unreadable("it is no product of a value and a matrix")
    if given.get("transA", 0):
        value = value.moved(np.transpose)
    found = _product(value, matrix.T if given.get("transB", 0) else matrix).times(given.get("alpha", 1.0))
    if len(inputs) > 2 and inputs[2] is not None:
        addend = expression(inputs[2]).times(given.get("beta", 1.0))
        if np.broadcast_shapes(found.shape, addend.shape) != found.shape:
            raise Unreadable("its operands do not fit")
        found = found.plus(addend)
    return found


@operator("BatchNormalization")
def _batch_norm(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    """(x - mean) gain / sqrt(variance + epsilon) + offset; the root is off by less than three roundings."""
    value = expression(inputs[0])
    if given.get("training_mode", 0) or not given.get("spatial", 1) or graph.outputs != 1:
        raise Unreadable("it normalises with the statistics of the batch, or per entry")
    axes = (-1, *[1] * (len(value.shape) - 2))
    gain, offset, mean, variance = (fixed(part).reshape(axes) for part in inputs[1:5])
    spread = variance + given.get("epsilon", float(np.float32(1e-5)))
    if not (spread > 0).all() or {part.size for part in (gain, offset, mean, variance)} != {value.shape[1]}:
        raise Unreadable("its variance is not positive, or its channels do not fit")
    found = value.plus(constant(-mean)).scaled(gain, np.sqrt(spread), roundings=3).plus(constant(offset))
    return Expression(found.shape, found.terms, found.biases)


# -- what bends --------------------------------------------------------------------------------------------------------


@operator("Relu")
def _relu(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    if isinstance(inputs[0], Expression):
        return graph.relu(inputs[0])
    found: Array = np.maximum(inputs[0], 0)
    return found


def _elementwise(name: str, function: Function) -> None:
    """The rule for a function of one number."""

    @operator(name)
    def rule(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
        if not isinstance(inputs[0], Expression):
            raise Unreadable("it is applied to a constant, which would round")
        return graph.apply(function, inputs[0])


for _name, _kind in (BY_NAME | {"Sqrt": Power(0.5), "Reciprocal": Power(-1.0)}).items():
    _elementwise(_name, _kind)


@operator("Pow")
def _pow(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    """With one exponent for all entries."""
    exponents = {float(number) for number in fixed(inputs[1]).reshape(-1)}
    if len(exponents) != 1 or not exponents <= {1.0, *EXPONENTS} or not isinstance(inputs[0], Expression):
        raise Unreadable("its exponents are not one known number, or its base is a constant")
    value = inputs[0].expanded(np.broadcast_shapes(inputs[0].shape, np.shape(inputs[1])))
    (exponent,) = exponents
    return value if exponent == 1.0 else graph.apply(Power(exponent), value)


@operator("LeakyRelu", "PRelu")
def _leaky(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    """s x + relu(x) - s relu(x)."""
    value = expression(inputs[0])
    slope = fixed(inputs[1]) if len(inputs) > 1 else np.full((), given.get("alpha", float(np.float32(0.01))))
    if value.nonnegative:
        return value
    if (np.abs(slope) > _STEEP).any() or np.broadcast_shapes(value.shape, slope.shape) != value.shape:
        raise Unreadable("its slope is too steep, or does not fit")
    bent = graph.relu(value)
    one = np.ones(())
    return value.scaled(slope, one).plus(bent).plus(bent.scaled(-slope, one))


@operator("Abs")
def _abs(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    value = expression(inputs[0])
    if value.nonnegative:
        return value
    found = graph.relu(value).times(2.0).minus(value)
    return Expression(found.shape, found.terms, found.biases, True)


@operator("Clip")
def _clip(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    value = expression(inputs[0])
    low, high = (
        fixed(inputs[place]) if len(inputs) > place and inputs[place] is not None else given.get(name)
        for place, name in ((1, "min"), (2, "max"))
    )
    if low is not None and not np.isneginf(low).all() and not (value.nonnegative and (np.asarray(low) <= 0).all()):
        value = maximum(graph, value, constant(np.asarray(low)))
    if high is not None and not np.isposinf(high).all():
        value = minimum(graph, value, constant(np.asarray(high)))
    return value


def _near(value: Expression) -> bool:
    """A constant that is small enough to be the base to which the ReLU is added."""
    return not value.terms and all((np.abs(part) <= _FAR).all() for _, part in value.biases)


def maximum(graph: Graph, first: Expression, second: Expression) -> Expression:
    """second + relu(first - second), where the second is the constant if one is."""
    if _near(first) or (not second.terms and not _near(second)):
        first, second = second, first
    found = second.plus(graph.relu(first.minus(second)))
    return Expression(found.shape, found.terms, found.biases, first.nonnegative or second.nonnegative)


def minimum(graph: Graph, first: Expression, second: Expression) -> Expression:
    """first - relu(first - second), where the first is the constant if one is."""
    if _near(second) or (not first.terms and not _near(first)):
        first, second = second, first
    found = first.minus(graph.relu(first.minus(second)))
    return Expression(found.shape, found.terms, found.biases, first.nonnegative and second.nonnegative)


def _extremum(pair: Callable[[Graph, Expression, Expression], Expression]) -> Any:
    """Of several values, two at a time."""

    def rule(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
        values = [expression(value) for value in inputs]
        while len(values) > 1:
            pairs = [values[i : i + 2] for i in range(0, len(values), 2)]
            values = [pair(graph, *two) if len(two) == 2 else two[0] for two in pairs]
        return values[0]

    return rule


operator("Max")(_extremum(maximum))
operator("Min")(_extremum(minimum))
