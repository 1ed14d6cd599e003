"""Lowering: run a torch module once on symbolic values and collect its ReLU groups.

The module is executed as it is, on a tensor subclass that carries an `Expression` instead of numbers.  Every
torch function that meets such a tensor is looked up by name: it moves entries about, is affine, is a ReLU
composition, or it is refused.  Whatever does not depend on the input is computed by torch itself on the way,
which folds all constants. Graphs from onnx2torch and ordinary modules take the same path.

Constant subexpressions are thereby evaluated in the precision of the model, as onnxruntime does.  All
arithmetic on expressions is in float64 from the weights as stored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from verifier.errors import InputError, VerifierError
from verifier.network import lower_affine, lower_moves, lower_pieces, lower_windows
from verifier.network.expression import Expression, variable
from verifier.network.lowering import Lowering, Reading, Traced
from verifier.network.network import Network
from verifier.network.prune import pruned
from verifier.operators import Select
from verifier.operators.base import flat_size

Handler = Callable[..., Any]

# What a tensor says about itself without looking at its numbers, and new constants of its size.
PASSIVE = frozenset(
    """shape size dim ndim ndimension numel nelement dtype device layout is_floating_point is_complex
    requires_grad len is_cuda is_contiguous is_meta is_sparse is_quantized zeros_like ones_like full_like
    new_zeros new_ones new_full new_tensor is_leaf grad_fn names has_names""".split()
)

# The identity, at inference time.
SAME = frozenset("contiguous clone detach requires_grad_ float double cpu alias positive pos data".split())

HANDLERS: Mapping[str, Handler] = {
    **lower_affine.HANDLERS,
    **lower_windows.HANDLERS,
    **lower_pieces.HANDLERS,
}


def dispatch(lowering: Lowering, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a torch function that was called on at least one traced tensor."""
    name, in_place = _plain_name(func)
    if name in PASSIVE:
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **kwargs)
    if in_place:
        target = args[0]
        if not isinstance(target, Traced) or name not in HANDLERS:
            lowering.refuse(f"the function '{name}' writes into a tensor")
        target.expression = _wrapped(lowering, HANDLERS[name](lowering, *args, **kwargs)).expression
        return target
    if name in SAME:
        return args[0]
    if name in lower_moves.MOVES:
        return _wrapped(lowering, lower_moves.move(lowering, func, name, args, kwargs))
    if name in HANDLERS:
        return _wrapped(lowering, HANDLERS[name](lowering, *args, **kwargs))
    return lowering.refuse(f"the function '{name}' is not piecewise linear, or not known")


def _wrapped(lowering: Lowering, found: Any) -> Any:
    if isinstance(found, Expression):
        return Traced.of(found, lowering)
    if isinstance(found, tuple | list):
        return type(found)(_wrapped(lowering, item) for item in found)
    return found


def _plain_name(func: Callable[..., Any]) -> tuple[str, bool]:
    """The name under which a function is looked up, and whether it works in place (`add_`, `__iadd__`)."""
    name: str = getattr(func, "__name__", str(func))
    if name == "__get__":  # a property such as Tensor.shape
        return str(func.__self__.__name__), False  # type: ignore[attr-defined]
    if name.startswith("__"):
        name = name.strip("_")
        if name in {"iadd", "isub", "imul", "itruediv"}:
            return name[1:], True
        return name, False
    if name.endswith("_") and name not in SAME:
        return name[:-1], True
    return name.lstrip("_"), False


def lower(
    module: nn.Module,
    input_shape: tuple[int, ...],
    labels: Mapping[str, tuple[str, str]],
    reading: Reading | None = None,
) -> Network:
    """The network that `module` computes on inputs of `input_shape` (batch axis included, as the module
    expects it).  By default its numbers are read as torch does: in the precision of its parameters.

    Requires a module in evaluation mode.  `labels` gives node name and operator type for the paths of
    submodules; those that are missing are named by their path and class.  Raises UnsupportedOperator for
    what is not piecewise linear.  The module is not changed.
    """
    if reading is None:
        precision = _precision(module)
        reading = Reading(precision, precision)
    lowering = Lowering(reading, dispatch)
    hooks = [
        child.register_forward_pre_hook(_announce(lowering, labels.get(path, (path, type(child).__name__))))
        for path, child in module.named_modules()
        if (path in labels if labels else path and not any(child.children()))
    ]
    source = Traced.of(variable(0, input_shape), lowering)
    try:
        with torch.no_grad():
            result = module(source)
    except VerifierError:
        raise
    except Exception as error:  # any library error inside a foreign module: the network cannot be used as given
        node, op_type = lowering.node
        reason = " ".join(str(error).split())[:300]
        raise InputError(f"node '{node}' of type {op_type} cannot be evaluated: {reason}") from error
    finally:
        for hook in hooks:
            hook.remove()
    if isinstance(result, tuple | list) and len(result) == 1:
        result = result[0]
    if not isinstance(result, torch.Tensor):
        raise InputError(f"the network must return one tensor, not a {type(result).__name__}")
    lowering.node = ("output", "Output")
    value = lowering.value(result)
    if value.is_constant:  # every layer reads something, be it with weight zero
        nothing = Select(torch.full((value.size,), -1), flat_size(input_shape))
        value = replace(value, terms={0: nothing})
    return pruned(Network(input_shape, tuple(lowering.groups), lowering.affine("output", value), lowering.within))


def _announce(lowering: Lowering, label: tuple[str, str]) -> Callable[[nn.Module, Any], None]:
    def hook(module: nn.Module, args: Any) -> None:
        lowering.node = label

    return hook


def _precision(module: nn.Module) -> torch.dtype:
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            return tensor.dtype
    return torch.float32
