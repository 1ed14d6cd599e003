"""What is composed of functions of one number and of products: softmax, and normalisation by a value's own entries.

    softmax_i      = 1 / (1 + sum over j != i of exp(t_j - t_i))        log_softmax_i = -log(the same sum)
    layer_norm(t)  = (t - mean) (variance + epsilon)^(-1/2) scale + shift

Both equations hold for real numbers; of two entries, softmax is a sigmoid of their difference, and of one it is 1.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .expression import Expression, constant
from .functions import BY_NAME, Power
from .maps import Dense
from .rules import Graph, Value, expression, fixed, operator, place_of
from .stream import Unreadable
from .windows import average

_EXP, _LOG, _SIGMOID = (BY_NAME[name] for name in ("Exp", "Log", "Sigmoid"))


def _gaps(value: Expression, axis: int) -> Expression:
    """t_j - t_i in the shape [*value.shape, n - 1]: i is the entry, j all others on the axis, ascending."""
    n, index = value.shape[axis], value.positions()
    others = np.array([[j for j in range(n) if j != i] for i in range(n)])
    there = np.moveaxis(np.moveaxis(index, axis, -1)[..., others], -2, axis)
    return value.taken(there).minus(value.taken(np.broadcast_to(index[..., None], there.shape)))


def _odds(graph: Graph, value: Expression, axis: int) -> Expression:
    """1 / softmax."""
    size = graph.apply(_EXP, _gaps(value, axis))
    total = size.applied(Dense(np.ones((1, size.shape[-1])), value.size), value.shape, keeps_sign=True)
    return total.plus(constant(np.ones(())))


def _softmax(graph: Graph, value: Expression, axis: int) -> Value:
    n = value.shape[axis]
    if n == 1:
        return np.ones(value.shape)
    if n == 2:
        return graph.apply(_SIGMOID, _gaps(value, axis).times(-1.0).reshaped(value.shape))
    return graph.apply(Power(-1.0), _odds(graph, value, axis))


def _log_softmax(graph: Graph, value: Expression, axis: int) -> Value:
    if value.shape[axis] == 1:
        return np.zeros(value.shape)
    return graph.apply(_LOG, _odds(graph, value, axis)).times(-1.0)


def _along_one_axis(name: str, compose: Any) -> None:
    """Before operator set 13 all axes from the given one on count as one."""

    @operator(name)
    def rule(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
        value = inputs[0]
        if not isinstance(value, Expression):
            raise Unreadable("it is applied to a constant, which would round")
        axis, shape = given.get("axis", -1 if graph.opset >= 13 else 1), value.shape
        if graph.opset >= 13:
            found: Value = compose(graph, value, place_of(axis, len(shape)))
            return found
        axis = axis if axis == len(shape) else place_of(axis, len(shape))
        found = compose(graph, value.reshaped((math.prod(shape[:axis]), math.prod(shape[axis:]))), 1)
        return found.reshaped(shape) if isinstance(found, Expression) else found.reshape(shape)


_along_one_axis("Softmax", _softmax)
_along_one_axis("LogSoftmax", _log_softmax)


@operator("LayerNormalization")
def _layer_norm(graph: Graph, inputs: list[Any], given: dict[str, Any]) -> Value:
    """Over all axes from the given one on."""
    value = inputs[0]
    if not isinstance(value, Expression) or graph.outputs != 1:
        raise Unreadable("it is applied to a constant, or its mean and deviation are asked for")
    axes = list(range(place_of(given.get("axis", -1), len(value.shape)), len(value.shape)))
    centred = value.minus(average(value, axes))
    variance = average(graph.multiply(centred, centred), axes)
    spread = variance.plus(constant(np.full((), given.get("epsilon", float(np.float32(1e-5))))))
    found = graph.multiply(centred, graph.apply(Power(-0.5), spread))
    found = found.scaled(fixed(inputs[1]), np.ones(()))
    if found.shape != value.shape:
        raise Unreadable("its scale does not fit")
    return found.plus(expression(inputs[2])) if len(inputs) > 2 and inputs[2] is not None else found
