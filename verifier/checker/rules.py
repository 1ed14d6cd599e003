"""What the operators of an ONNX file do to values: the register of rules, and what the rules share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np

from .expression import Expression, constant, joined, variable
from .functions import PRODUCT, RELU, Function, Power
from .network import Layer
from .rationals import Array
from .stream import Unreadable

Value = Expression | Array
Operator = Callable[["Graph", list[Any], dict[str, Any]], Value | list[Value]]

Rule = TypeVar("Rule", bound=Operator)

OPERATORS: dict[str, Operator] = {}

Key = tuple[Function, tuple[int, ...]]
"""A function, and the very values that it is applied to."""


def operator(*names: str) -> Callable[[Rule], Rule]:
    """Decorates what an operator does to the values of its inputs (None where one is left out)."""

    def keep(rule: Rule) -> Rule:
        OPERATORS.update(dict.fromkeys(names, rule))
        return rule

    return keep


@dataclass(eq=False)
class Graph:
    """One run: the groups found so far."""

    opset: int
    outputs: int = 1
    layers: list[Layer] = field(default_factory=list)
    known: dict[Key, tuple[tuple[Expression, ...], Expression]] = field(default_factory=dict)

    def relu(self, value: Expression) -> Expression:
        """A new group, unless the value is known to be nonnegative or has gone through a ReLU before."""
        if value.nonnegative:
            return value
        return self.apply(RELU, value)

    def apply(self, function: Function, *operands: Expression) -> Expression:
        """A new group, with one neuron per entry; or the one that there is of these very values."""
        key = function, tuple(id(operand) for operand in operands)
        if key not in self.known:
            flat = [operand.reshaped((operand.size,)) for operand in operands]
            value = flat[0] if len(flat) == 1 else joined(flat, 0)
            if not value.terms:
                raise Unreadable("a function of a constant that is no constant of the file")
            self.layers.append(value.layer(function))
            found = variable(len(self.layers), operands[0].shape, function.nonnegative)
            self.known[key] = operands, found  # the operands are kept, so that nothing else has their numbers
        return self.known[key][1]

    def multiply(self, first: Expression, second: Expression) -> Expression:
        """Products, entry by entry; those of a value with itself are squares."""
        if first is second:
            return self.apply(Power(2.0), first)
        shape = np.broadcast_shapes(first.shape, second.shape)
        factors = first.expanded(shape), second.expanded(shape)
        return replace(self.apply(PRODUCT, *factors), nonnegative=all(factor.nonnegative for factor in factors))


def expression(value: Value) -> Expression:
    return value if isinstance(value, Expression) else constant(value)


def fixed(value: Any) -> Array:
    """An operand that must be a constant."""
    if value is None or isinstance(value, Expression):
        raise Unreadable("an operand that must be a constant is none")
    found: Array = np.asarray(value)
    return found


def integers(inputs: Sequence[Any], place: int, attributes: dict[str, Any], name: str) -> list[int] | None:
    """Given as an input or, in older operator sets, as an attribute."""
    if len(inputs) > place and inputs[place] is not None:
        return [int(number) for number in fixed(inputs[place]).reshape(-1)]
    return [int(number) for number in attributes[name]] if name in attributes else None


def place_of(axis: int, rank: int) -> int:
    """An axis counted from the front; negative ones count from the end."""
    if not -rank <= axis < rank:
        raise Unreadable(f"there is no axis {axis} among {rank}")
    return axis % rank


def places_of(axes: Sequence[int], rank: int) -> list[int]:
    """Several axes, ascending, none of them twice."""
    found = sorted({place_of(axis, rank) for axis in axes})
    if len(found) != len(axes):
        raise Unreadable("an axis is named twice")
    return found


def moved(value: Value, move: Callable[[Array], Array]) -> Value:
    return value.moved(move) if isinstance(value, Expression) else move(value)


def along(value: Value, axis: int, places: Array) -> Value:
    return value.along(axis, places) if isinstance(value, Expression) else np.take(value, places, axis=axis)


def shaped(value: Value, shape: tuple[int, ...]) -> Value:
    if shape == value.shape:
        return value
    return value.reshaped(shape) if isinstance(value, Expression) else value.reshape(shape)
