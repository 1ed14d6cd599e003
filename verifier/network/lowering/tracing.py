"""The state of one lowering, and the tensors that it runs on."""

from __future__ import annotations

import functools
import math
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, TracebackType
from typing import Any, NoReturn, TypeVar

import torch

from verifier.errors import InputError, TooManyNeurons, UnsupportedOperator, VerifierError
from verifier.functions import PRODUCT, RELU, Function
from verifier.functions.names import FUNCTIONS
from verifier.network.lowering.expression import Expression, constant, joined, variable
from verifier.network.lowering.memory import MemoryLayout, Storage
from verifier.network.network import Affine
from verifier.shapes import Float64, Int, Tensor

_FOLDERS = (Path(torch.__file__).absolute().parent, Path(__file__).absolute().parents[2])
_PACKAGES = tuple(f"{folder}{os.sep}" for folder in _FOLDERS)  # torch and this one
_GENERATED = ("<eval_with_key>", "<frozen", "<__array_function__")

MOST_NEURONS = 4_000_000
"""Of a network that is searched: each takes some hundred bytes before the first bound, and a share of every sweep."""

MOST_BOUNDED = 32_000_000
"""Entries of a network that is only bounded once."""

Place = tuple[str, int]


def _is_users(code: CodeType) -> bool:
    return not os.path.abspath(code.co_filename).startswith(_PACKAGES) and not code.co_filename.startswith(_GENERATED)


def current_place(stop: CodeType) -> Place | None:
    """File and line of the innermost frame outside of torch and of this package, inside of a call of `stop`."""
    frame = sys._getframe(1)
    while frame.f_code is not stop:
        if _is_users(frame.f_code):
            return frame.f_code.co_filename, frame.f_lineno
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return None


def place_of(trace: TracebackType | None) -> Place | None:
    """The same for an error that was caught: the innermost frame of the user's code that it went through."""
    found = None
    while trace is not None:
        if _is_users(trace.tb_frame.f_code):
            found = trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next
    return found


T = TypeVar("T")
Rule = TypeVar("Rule", bound=Callable[..., Any])

RULES: dict[str, Callable[..., Any]] = {}
"""What functions of torch do to expressions, by their names."""


def lowers(*names: str) -> Callable[[Rule], Rule]:
    """Decorates the rule for the functions of torch that have these names."""

    def keep(rule: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, rule))
        return rule

    return keep


def lowers_windows(name: str) -> Callable[[Rule], Rule]:
    """Decorates the rule for `name1d`, `name2d` and `name3d`; its first parameter is the number of axes."""

    def keep(rule: Rule) -> Rule:
        RULES.update({f"{name}{axes}d": functools.partial(rule, axes) for axes in (1, 2, 3)})
        return rule

    return keep


@dataclass(frozen=True, eq=False)
class Normalisation:
    """What Softmax or LogSoftmax was taken of; entries with the same number in `members` were normalised together.

    The group holds `sign` times the result.
    """

    operator: str
    value: Expression
    members: Int[Tensor, " n"]
    sign: int


def _ends(value: Expression) -> list[Float64[Tensor, " n"]]:
    """Between which numbers a constant lies; where it is exact, both are the same."""
    far = [torch.full_like(value.bias, sign * torch.inf) for sign in (-1.0, 1.0)]
    ends = [torch.nextafter(value.bias + s * value.error, end) for s, end in zip((-1.0, 1.0), far, strict=True)]
    return [torch.where(value.error > 0, end, value.bias) for end in ends]


def _constant(function: Function, value: Expression, shape: tuple[int, ...]) -> Expression:
    """What a function makes of a constant."""
    low, high = function.image(*_ends(value))
    return constant(((low + high) / 2).reshape(shape), (high - low) * 0.75)


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


def depends(value: Any) -> bool:
    """Whether a nest of arguments holds a traced tensor."""
    return next(leaves(value, Traced), None) is not None


class Traced(torch.Tensor):
    """A tensor of affine expressions.

    It has no numbers: what reaches for them past `__torch_function__` (torch.tensor, compiled code) ends in
    `__torch_dispatch__`, which refuses.  `shadow` is an ordinary tensor of the same shape and type; where the memory of
    a module is followed it holds the values at one input, otherwise zeros.
    """

    shadow: Tensor
    storage_behind: Storage
    lowering: Lowering
    _seen: tuple[int, Expression] | None

    @staticmethod
    def of(expression: Expression, lowering: Lowering, shadow: Tensor | None = None) -> Traced:
        """A tensor with memory of its own."""
        if shadow is None:
            shadow = torch.zeros((), dtype=lowering.dtype).expand(expression.shape)
        behind = Storage(expression, MemoryLayout.of(shadow))
        return Traced.showing(behind, expression, lowering, shadow)

    @staticmethod
    def showing(behind: Storage, expression: Expression, lowering: Lowering, shadow: Tensor) -> Traced:
        """A tensor that shows memory which others may show too; `expression` is what it holds now."""
        found: Traced = torch.Tensor._make_wrapper_subclass(
            Traced, shadow.shape, strides=shadow.stride(), storage_offset=shadow.storage_offset(), dtype=shadow.dtype
        )
        found.shadow, found.storage_behind, found.lowering = shadow, behind, lowering
        found._seen = behind.version, expression
        return found

    @property
    def expression(self) -> Expression:
        """What the tensor holds now, after all writes through whatever shows the same memory."""
        if self._seen is None or self._seen[0] != self.storage_behind.version:
            self._seen = self.storage_behind.version, self.storage_behind.read(MemoryLayout.of(self.shadow))
        return self._seen[1]

    def write(self, expression: Expression) -> None:
        """Replace what the tensor holds."""
        self.storage_behind.write(MemoryLayout.of(self.shadow), expression)
        self._seen = self.storage_behind.version, expression

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

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> NoReturn:
        lowering = next(leaves((args, kwargs), Traced)).lowering
        lowering.node = lowering.label(getattr(func, "__name__", str(func)).partition(".")[0])
        lowering.refuse("it reads the values of a tensor that depends on the input (as torch.tensor and scripts do)")


@dataclass(frozen=True)
class Reading:
    """How the numbers of a module are to be taken.

    `precision` is the type of its activations, `scalars` the type to which its Python numbers are rounded.  Bounds
    of Clip at the end of the precision's range are left out, unless `far_bounds` asks for them.  The largest entries of
    windows are written with ReLUs, or as neurons of their own if `maxima` asks for that.
    """

    precision: torch.dtype
    scalars: torch.dtype
    far_bounds: bool = False
    maxima: bool = False

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
        self.follows = False  # whether the memory of the module is followed, see `verifier.network.lowering.memory`
        self.failure: VerifierError | None = None  # the first one, also if the module's own code caught it
        self.raised: Exception | None = None  # what the last failing function has raised
        self.running: list[tuple[str, str]] = []  # the modules that are being executed, the innermost last
        self.entry: CodeType | None = None  # the function that calls the module, for messages
        self._known: dict[tuple[Function, tuple[int, ...]], tuple[tuple[Expression, ...], Expression]] = {}
        self._names: dict[str, int] = {}
        self.normalised: dict[int, Normalisation] = {}  # by the group that has what softmax gives

    def relu(self, value: Expression) -> Expression:
        """max(value, 0): a new group, unless the answer is known already."""
        if value.nonnegative:
            return value
        if value.is_constant:
            return constant(value.bias.clamp(min=0).reshape(value.shape), value.error)
        return self._activated(RELU, value)

    def apply(self, function: Function, *operands: Expression) -> Expression:
        """The values of a function as new neurons; each operand gives one of its arguments, in one shape."""
        value = joined(operands)
        return (
            _constant(function, value, operands[0].shape) if value.is_constant else self._activated(function, *operands)
        )

    def reduce(self, function: Function, value: Expression) -> Expression:
        """The same where all arguments are one expression, along its first axis."""
        shape = value.shape[1:]
        return _constant(function, value, shape) if value.is_constant else self._grouped(function, value, shape)

    def _activated(self, function: Function, *operands: Expression) -> Expression:
        """The group of a function of these very expressions: the one that there is, or a new one."""
        key = function, tuple(id(operand) for operand in operands)
        if key not in self._known:
            value = operands[0] if len(operands) == 1 else joined(operands)
            # The key stays valid because the operands themselves are kept.
            self._known[key] = operands, self._grouped(function, value, operands[0].shape)
        return self._known[key][1]

    def _grouped(self, function: Function, value: Expression, shape: tuple[int, ...]) -> Expression:
        """A new group, and its neurons in that shape."""
        self.room(value.size)
        self.groups.append(replace(self.affine(self._group_name(), value), function=function))
        return variable(len(self.groups), shape, function.nonnegative)

    def room(self, neurons: int) -> None:
        """Refuse to go on if so many neurons more are too many."""
        most = MOST_BOUNDED if self.reading.maxima else MOST_NEURONS
        if sum(group.size for group in self.groups) + neurons > most:
            self.refuse(f"with it the network has more than {most / 1e6:g} million neurons to bound", TooManyNeurons)

    def multiply(self, first: Expression, second: Expression) -> Expression:
        """The products of two expressions of one shape, entry by entry; those of one with itself are squares."""
        if first is second:
            return self.apply(FUNCTIONS.build("Pow", {"exponent": 2.0}), first)
        found = self.apply(PRODUCT, first, second)
        return replace(found, nonnegative=first.nonnegative and second.nonnegative)

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
            if expression.is_constant and not bool(expression.error.any()):
                return expression.bias.reshape(expression.shape)
            if expression.is_constant:
                self.refuse("it uses a constant that has more digits than float64")
            self.refuse("it combines two values that both depend on the input in a way that is not known")
        if isinstance(operand, torch.Tensor):
            found = operand.detach().to(dtype=torch.float64, device="cpu", copy=True)  # the module may write into it
        else:
            found = torch.tensor(operand, dtype=self.reading.scalars).to(torch.float64)
        if bool(torch.isnan(found).any()):
            raise self.fault("uses a constant that is not a number")
        return found

    def is_absent(self, bound: Expression, sign: int) -> bool:
        """Whether a constant bound above (sign 1) or below (-1) is one that no activation reaches."""
        far = bool((sign * bound.bias >= self.reading.largest).all())
        if far and not bool(torch.isinf(bound.bias).all()):
            self.within = self.reading.largest
        return far

    def label(self, name: str) -> tuple[str, str]:
        """The node that messages name: the running module of torch, or a function in the code of another one."""
        path, kind = self.running[-1] if self.running else ("", "")
        return path or "forward", kind or name

    def refuse(self, why: str, kind: type[UnsupportedOperator] = UnsupportedOperator) -> NoReturn:
        from verifier.network.rewrite import normalise  # a module can be lowered without onnx

        node, op_type = self.node
        error = kind(node, op_type, why, normalise.supported())
        self.note(error)
        raise error

    def fault(self, what: str) -> InputError:
        """A sentence about the node that is being executed."""
        node, op_type = self.node
        return InputError(f"node '{node}' of type {op_type} {what}")

    def note(self, error: VerifierError) -> None:
        """Remember an error, and name the line of the module's code that led to it.

        A module may catch what is raised here and go on; its real run would not have met the error.
        """
        if self.failure is None:
            self.failure = error
        if self.entry is not None and isinstance(error, InputError) and error.path is None:
            place = current_place(self.entry)
            if place is not None:
                error.path, error.line = place

    def affine(self, name: str, value: Expression) -> Affine:
        if not bool(torch.isfinite(value.bias).all()) or not bool(torch.isfinite(value.error).all()):
            raise self.fault("has constants that are not finite")
        return Affine(name, value.shape, tuple(sorted(value.terms.items())), value.bias, value.error)

    def _group_name(self) -> str:
        name = self.node[0]
        count = self._names[name] = self._names.get(name, 0) + 1
        return name if count == 1 else f"{name}#{count}"
