"""What a torch function means for traced tensors.

A function is looked up by its name: it asks for a shape, moves entries about, is affine, is a ReLU composition, makes
neurons of another kind, or it is refused.  In a module that is followed (`Lowering.follows`) the same function also
runs on the shadows of its operands, and torch's own answer says whether the result is the operand itself (then it was
written to), a view or a copy, and of which shape and type it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from verifier.errors import VerifierError, one_line
from verifier.network.lowering import moves, windows
from verifier.network.lowering.expression import Expression
from verifier.network.lowering.memory import MemoryLayout, overlap, same_memory
from verifier.network.lowering.smooth import elementwise
from verifier.network.lowering.tracing import RULES, Lowering, Traced, depends, leaves
from verifier.registry import import_rules
from verifier.shapes import Tensor

import_rules("verifier.network.lowering", "lowers")

Handler = Callable[..., Any]

# What a tensor says about itself without looking at its numbers, and new constants of its size.
PASSIVE = frozenset(
    """shape size dim ndim ndimension numel nelement dtype device layout is_floating_point is_complex
    requires_grad len is_cuda is_contiguous is_meta is_sparse is_quantized zeros_like ones_like full_like
    new_zeros new_ones new_full new_tensor is_leaf grad_fn names has_names element_size itemsize""".split()
)

# The identity, at inference time; whether the result is a copy, torch says.
SAME = frozenset("contiguous clone detach requires_grad_ float double cpu alias positive pos data".split())

# Of these, a constant as the first operand takes only the shape or the type of the second one.
LIKE = frozenset("to type_as expand_as view_as reshape_as".split())

_LEAVES = "it takes values that depend on the input out of torch"
_COMPARES = "comparisons with a value that depends on the input are not known"
REASONS: Mapping[str, str] = {
    "bool": "it branches on a value that depends on the input",
    **dict.fromkeys("item tolist numpy array".split(), _LEAVES),
    **dict.fromkeys("gt lt ge le eq ne greater less greater_equal less_equal not_equal".split(), _COMPARES),
    **dict.fromkeys("repr format".split(), "it turns values that depend on the input into text"),
    **dict.fromkeys("half bfloat16 int long short char byte".split(), "it rounds"),
}


def dispatch(lowering: Lowering, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a torch function that was called on at least one traced tensor.

    What torch itself raises on the shadows is passed on as it is: the module's own run raises it too.  Every other
    failure is noted, so that the module cannot hide it.
    """
    func, args = _of_python(func, args)
    name, in_place = _plain_name(func)
    if lowering.follows:
        lowering.node = lowering.label(name)
    try:
        return _meaning(lowering, func, (name, in_place), args, kwargs)
    except _ShadowError as error:
        lowering.raised = error.cause
        raise error.cause from None
    except VerifierError as error:
        lowering.note(error)
        raise
    except Exception as error:
        lowering.raised = error
        lowering.note(lowering.fault(f"cannot be evaluated: {one_line(error)}"))
        raise


def _of_python(func: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The function of torch that stands for an operator of an exported graph, and its arguments."""
    if not isinstance(func, torch._ops.OpOverload) or func.namespace != "aten":
        return func, args
    name = func._schema.name.partition("::")[2]
    if name == "slice":  # which Python writes in brackets
        whole: list[Any] = [*args, *[0, None, None][len(args) - 1 :]]
        x, dim, *ends = whole
        before = [slice(None)] * (dim % x.dim())
        return torch.Tensor.__getitem__, (x, (*before, slice(*ends)))
    homes = (torch, torch._C._nn, torch.Tensor)  # in all of which arguments have the order of the operator
    return next((getattr(home, name) for home in homes if hasattr(home, name)), func), args


class _ShadowError(Exception):
    """Torch refused the function on ordinary tensors."""

    def __init__(self, cause: Exception) -> None:
        super().__init__()
        self.cause = cause


def _meaning(
    lowering: Lowering,
    func: Callable[..., Any],
    called: tuple[str, bool],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    name, in_place = called
    first = args[0] if args else kwargs.get("input")
    if any(operand.lowering is not lowering for operand in leaves((args, kwargs), Traced)):
        lowering.refuse("it uses a value of an earlier run of the module")
    if (name in PASSIVE and not in_place) or (name in LIKE and not isinstance(first, Traced)):
        if name in PASSIVE and depends((args[1:], {k: v for k, v in kwargs.items() if k != "input"})):
            lowering.refuse("its arguments depend on the input")
        return _by_torch(func, args, kwargs)
    if kwargs.get("out") is not None:
        lowering.refuse("it writes into the tensor that is given as 'out'")
    if name == "iter":
        return iter(dispatch(lowering, torch.unbind, args, {}))
    if name == "setitem" or in_place:
        _require_target(lowering, name, first)
    if name == "setitem":
        return _set_item(lowering, *args)
    handler = _handler(lowering, func, called)
    if not lowering.follows:
        found = handler(lowering, *args, **dict(kwargs))
        if in_place and isinstance(first, Traced):
            return _written(first, found)
        return _wrapped(lowering, found, _owner(name, args, kwargs))
    _require_exact(lowering, args, kwargs)
    if isinstance(first, Traced) and (in_place or kwargs.get("inplace")):
        _require_apart(lowering, first, MemoryLayout.of(first.shadow).spots(), (args[1:], kwargs))
    shadow = _by_torch(func, args, kwargs)
    if isinstance(shadow, Tensor):
        _require_precision(lowering, shadow)
    return _joined(lowering, handler(lowering, *args, **dict(kwargs)), shadow, list(leaves((args, kwargs), Tensor)))


def _handler(lowering: Lowering, func: Callable[..., Any], called: tuple[str, bool]) -> Handler:
    """What computes the expressions of the result."""
    name, in_place = called
    if name in SAME and not in_place:
        return lambda low, input, *rest, **settings: low.value(input)
    if name in moves.MOVES and not in_place:
        return lambda low, *args, **kwargs: moves.move(low, func, name, args, kwargs)
    if func is torch.batch_norm:  # unlike torch.nn.functional.batch_norm it takes weight and bias first
        norm = windows.batch_norm
        return lambda low, x, weight, bias, mean, var, *rest: norm(low, x, mean, var, weight, bias, *rest)
    if name in RULES:
        return RULES[name]
    rule = elementwise(name)
    if rule is not None:
        return rule
    return lowering.refuse(
        f"the function '{name}' writes into a tensor"
        if in_place
        else REASONS.get(name, f"the function '{name}' is not known")
    )


# -- operands ------------------------------------------------------------------------------------------------


def _shadowed(value: Any) -> Any:
    """The same nest of arguments with shadows instead of traced tensors."""
    if isinstance(value, Traced):
        return value.shadow
    if isinstance(value, tuple | list):
        items = [_shadowed(item) for item in value]
        return items if isinstance(value, list) else value if not depends(value) else tuple(items)
    if isinstance(value, dict):
        return {key: _shadowed(item) for key, item in value.items()}
    return value


def _by_torch(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The function on the shadows of its operands."""
    try:
        return func(*_shadowed(args), **_shadowed(kwargs))
    except Exception as error:
        raise _ShadowError(error) from error


def _require_target(lowering: Lowering, name: str, target: Any) -> None:
    """A write must go to a traced tensor, of a module whose memory is followed."""
    if not isinstance(target, Traced):
        lowering.refuse(f"the function '{name}' writes a value that depends on the input into a constant tensor")
    if not lowering.follows and (name == "setitem" or target.storage_behind.shared):
        lowering.refuse(f"the function '{name}' writes into a tensor")


def _require_apart(lowering: Lowering, target: Traced, spots: Tensor, others: Any) -> None:
    """What is read while `spots` of the target's memory are written must not lie there, unless entry by entry."""
    for other in leaves(others, Traced):
        if other.storage_behind is target.storage_behind and overlap(spots, MemoryLayout.of(other.shadow).spots()):
            lowering.refuse("it writes into memory that it reads from")


def _require_exact(lowering: Lowering, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Constants of another type must be the same numbers in the precision of the module: torch may round them."""
    exact = {lowering.dtype, torch.bool, torch.float16, torch.bfloat16}
    exact |= {torch.float32} if lowering.dtype == torch.float64 else set()
    for operand in leaves((args, kwargs), Tensor):
        if isinstance(operand, Traced) or operand.dtype in exact:
            continue
        if operand.is_complex() or not bool((operand.to(lowering.dtype).to(operand.dtype) == operand).all()):
            wanted, given = (str(kind).removeprefix("torch.") for kind in (lowering.dtype, operand.dtype))
            lowering.refuse(f"it rounds a constant of type {given} to {wanted}, or is not computed in {wanted}")


# -- results -------------------------------------------------------------------------------------------------


def _set_item(lowering: Lowering, target: Traced, where: Any, value: Any) -> None:
    _require_exact(lowering, (value,), {})
    found = moves.set_item(lowering, target, where, value)
    _require_apart(lowering, target, MemoryLayout.of(target.shadow).spots()[where], value)
    _by_torch(torch.Tensor.__setitem__, (target, where, value), {})
    target.write(found)


def _owner(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether the result of a function has memory of its own for sure; if not, its operands share theirs."""
    if (name in RULES or elementwise(name)) and name not in LIKE and "dropout" not in name:
        return True
    for operand in leaves((args, kwargs), Traced):
        operand.storage_behind.shared = True
    return False


def _wrapped(lowering: Lowering, found: Any, owner: bool) -> Any:
    """Results in a graph whose memory is not followed: what may be shared is marked, and is not written to."""
    if isinstance(found, Expression):
        result = Traced.of(found, lowering)
        result.storage_behind.shared = not owner
        return result
    if isinstance(found, tuple | list):
        return type(found)(_wrapped(lowering, item, owner) for item in found)
    return found


def _written(target: Traced, found: Expression) -> Traced:
    if found.shape != target.expression.shape:
        raise ValueError(f"values of shape {found.shape} do not fit into a tensor of shape {target.expression.shape}")
    target.write(found)
    return target


def _joined(lowering: Lowering, found: Any, shadow: Any, operands: list[Tensor]) -> Any:
    """Results with their shadows.  What torch returns as an operand itself was written to, or is unchanged."""
    if isinstance(found, tuple | list):
        if not isinstance(shadow, tuple | list) or len(found) != len(shadow):
            lowering.refuse("it returns something else than expected")
        items = [_joined(lowering, *pair, operands) for pair in zip(found, shadow, strict=True)]
        return type(shadow)(items)
    if not isinstance(found, Expression):
        return found
    if not isinstance(shadow, Tensor) or tuple(shadow.shape) != found.shape:
        lowering.refuse("it returns something else than expected")
    _require_precision(lowering, shadow)
    for operand in operands:
        own = operand.shadow if isinstance(operand, Traced) else operand
        if own.layout != torch.strided or not same_memory(shadow, own):
            continue
        if not isinstance(operand, Traced):
            lowering.refuse("its result is a view of a constant")
        if shadow is not own:
            return Traced.showing(operand.storage_behind, found, lowering, shadow)
        if found is not operand.expression:
            operand.write(found)
        return operand
    return Traced.of(found, lowering, shadow)


def _require_precision(lowering: Lowering, shadow: Tensor) -> None:
    """A result is an ordinary tensor in the precision of the module."""
    if shadow.dtype != lowering.dtype:
        kind, wanted = (str(t).removeprefix("torch.") for t in (shadow.dtype, lowering.dtype))
        lowering.refuse(f"its result is of type {kind}, where the module computes in {wanted}")
    if shadow.device.type != "cpu" or shadow.layout != torch.strided:
        lowering.refuse(f"its result is a tensor on {shadow.device} with the layout {shadow.layout}")


# -- names ---------------------------------------------------------------------------------------------------


def _plain_name(func: Callable[..., Any]) -> tuple[str, bool]:
    """The name under which a function is looked up, and whether it works in place (`add_`, `__iadd__`)."""
    name: str = getattr(func, "__name__", str(func))
    if name in {"__get__", "__set__", "__delete__"}:  # a property such as Tensor.shape
        return str(func.__self__.__name__), name != "__get__"  # type: ignore[attr-defined]
    if name in {"__float__", "__int__", "__index__", "__complex__"}:  # unlike the methods float and int
        return "item", False
    if name.startswith("__"):
        name = name.strip("_")
        if name in {"iadd", "isub", "imul", "itruediv"}:
            return name[1:], True
        return name, False
    if name.endswith("_") and name not in SAME:
        return name[:-1], True
    return name.lstrip("_"), False
