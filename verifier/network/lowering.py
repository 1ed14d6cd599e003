"""The state of one lowering, and the tensors that it runs on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

import torch

from verifier.errors import InputError, UnsupportedOperator
from verifier.network.expression import Expression, constant, variable
from verifier.network.network import Affine
from verifier.network.supported import SUPPORTED
from verifier.shapes import Float64, Tensor

T = TypeVar("T")
Dispatch = Callable[["Lowering", Callable[..., Any], tuple[Any, ...], dict[str, Any]], Any]


def leaves(value: Any, kind: type[T]) -> Iterator[T]:
    """All members of a nest of tuples, lists and dicts that are of the given kind."""
    if isinstance(value, kind):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from leaves(item, kind)
    elif isinstance(value, dict):
        yield from leaves(list(value.values()), kind)


class Traced(torch.Tensor):
    """A tensor of affine expressions.  Its own storage is a single zero and is never read."""

    expression: Expression
    lowering: Lowering

    @staticmethod
    def of(expression: Expression, lowering: Lowering) -> Traced:
        shell = torch.zeros((), dtype=lowering.dtype).expand(expression.shape).as_subclass(Traced)
        shell.expression, shell.lowering = expression, lowering
        return shell

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        kwargs = kwargs or {}
        first = next(leaves((args, kwargs), Traced))
        return first.lowering.dispatch(first.lowering, func, args, kwargs)


@dataclass(frozen=True)
class Reading:
    """How the numbers of a module are to be taken.

    `precision` is the type of its activations, `scalars` the type to which its Python numbers are rounded.  Bounds
    of Clip at the end of the precision's range are left out, unless `far_bounds` asks for them.
    """

    precision: torch.dtype
    scalars: torch.dtype
    far_bounds: bool = False

    @property
    def largest(self) -> float:
        """A bound of Clip that is as large as that counts as none."""
        return math.inf if self.far_bounds else torch.finfo(self.precision).max


class Lowering:
    """One run of one module: the groups found so far, and the node that is being executed.

    `dispatch` decides what a torch function means for expressions; `node` is (name, operator type), for
    messages; the groups are those of the module while no activation is larger than `within`.
    """

    def __init__(self, reading: Reading, dispatch: Dispatch) -> None:
        self.dtype = reading.precision
        self.reading = reading
        self.dispatch = dispatch
        self.within = math.inf
        self.groups: list[Affine] = []
        self.node: tuple[str, str] = ("input", "Input")
        self._known: dict[int, tuple[Expression, Expression]] = {}
        self._names: dict[str, int] = {}

    def relu(self, value: Expression) -> Expression:
        """max(value, 0): a new group, unless the answer is known already."""
        if value.nonnegative:
            return value
        if value.is_constant:
            return constant(value.bias.clamp(min=0).reshape(value.shape), value.error)
        if id(value) not in self._known:
            self.groups.append(self.affine(self._group_name(), value))
            # The key stays valid because the value itself is kept.
            self._known[id(value)] = value, variable(len(self.groups), value.shape)
        return self._known[id(value)][1]

    def value(self, operand: Any) -> Expression:
        """An operand as an expression, constants included."""
        if isinstance(operand, Traced):
            return operand.expression
        return operand if isinstance(operand, Expression) else constant(self.number(operand))

    def is_constant(self, operand: Any) -> bool:
        return not isinstance(operand, Traced | Expression) or self.value(operand).is_constant

    def number(self, operand: Any) -> Float64[Tensor, "..."]:
        """A constant operand in float64.  Python numbers are first rounded as `reading` says."""
        if isinstance(operand, Traced | Expression):
            expression = self.value(operand)
            if expression.is_constant:
                return expression.bias.reshape(expression.shape)
            self.refuse("it combines two values that both depend on the input in a way that is not piecewise linear")
        if isinstance(operand, torch.Tensor):
            found = operand.detach().to(dtype=torch.float64, device="cpu")
        else:
            found = torch.tensor(operand, dtype=self.reading.scalars).to(torch.float64)
        if bool(torch.isnan(found).any()):
            raise InputError(f"node '{self.node[0]}' of type {self.node[1]} uses a constant that is not a number")
        return found

    def is_absent(self, bound: Expression, sign: int) -> bool:
        """Whether a constant bound above (sign 1) or below (-1) is one that no activation reaches."""
        far = bool((sign * bound.bias >= self.reading.largest).all())
        if far and not bool(torch.isinf(bound.bias).all()):
            self.within = self.reading.largest
        return far

    def refuse(self, why: str) -> NoReturn:
        node, op_type = self.node
        raise UnsupportedOperator(node, op_type, why, SUPPORTED)

    def affine(self, name: str, value: Expression) -> Affine:
        if not bool(torch.isfinite(value.bias).all()) or not bool(torch.isfinite(value.error).all()):
            raise InputError(f"node '{self.node[0]}' of type {self.node[1]} has constants that are not finite")
        return Affine(name, value.shape, tuple(sorted(value.terms.items())), value.bias, value.error)

    def _group_name(self) -> str:
        name = self.node[0]
        count = self._names[name] = self._names.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"
