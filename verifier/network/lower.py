"""Lowering: run a torch module once on symbolic values and collect its ReLU groups.

The module is executed as it is, on a tensor subclass that carries an `Expression` instead of numbers.  Every
torch function that meets such a tensor is looked up by name (`dispatch`).  Whatever does not depend on the
input is computed by torch itself on the way, which folds all constants. Graphs from onnx2torch and ordinary
modules take the same path.

Constant subexpressions are thereby evaluated in the precision of the model, as onnxruntime does.  All
arithmetic on expressions is in float64 from the weights as stored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from verifier.errors import InputError, VerifierError
from verifier.network.dispatch import dispatch
from verifier.network.expression import variable
from verifier.network.lowering import Lowering, Reading, Traced
from verifier.network.network import Network
from verifier.network.prune import pruned
from verifier.network.repeat import nothing_random, require_repeatable, sample_input
from verifier.network.whereabouts import place_of
from verifier.operators import Select
from verifier.operators.base import flat_size

Labels = Mapping[str, tuple[str, str]]


def lower(
    module: nn.Module,
    input_shape: tuple[int, ...],
    labels: Labels,
    reading: Reading | None = None,
) -> Network:
    """The network that `module` computes on inputs of `input_shape` (batch axis included, as the module
    expects it).  By default its numbers are read as torch does: in the precision of its parameters.

    Requires a module in evaluation mode.  `labels` gives node name and operator type for the paths of
    submodules of a pure graph, in which nothing is written through a view.  Without them the module may be any code:
    its memory is followed, it is run twice, and messages name lines.  Raises UnsupportedOperator for what is not
    piecewise linear.  The module is not changed, unless it changes itself.
    """
    if reading is None:
        reading = Reading(precision(module), precision(module))
    lowering = Lowering(reading, dispatch)
    lowering.follows = not labels or any(getattr(child, "inplace", False) for child in module.modules())
    point = sample_input(input_shape, lowering.dtype) if lowering.follows else None
    source = Traced.of(variable(0, input_shape), lowering, None if point is None else point.clone())
    with _announced(lowering, module, labels):
        result = _single(_executed(lowering, module, source))
    if not isinstance(result, torch.Tensor):
        raise InputError(f"the network must return one tensor, not a {type(result).__name__}")
    if point is not None:
        require_repeatable(module, point, result.shadow if isinstance(result, Traced) else result)
    lowering.node = ("output", "Output")
    value = lowering.value(result)
    if value.is_constant:  # every layer reads something, be it with weight zero
        nothing = Select(torch.full((value.size,), -1), flat_size(input_shape))
        value = replace(value, terms={0: nothing})
    return pruned(Network(input_shape, tuple(lowering.groups), lowering.affine("output", value), lowering.within))


def _executed(lowering: Lowering, module: nn.Module, source: Traced) -> Any:
    """What the module returns.  Raises the first failure, also if the module's own code has caught it."""
    lowering.entry = _executed.__code__ if lowering.follows else None
    try:
        with torch.no_grad(), nothing_random() if lowering.follows else nullcontext():
            result = module(source)
    except VerifierError:
        raise
    except Exception as error:  # any library error inside a foreign module: the network cannot be used as given
        raise (lowering.failure or _explained(lowering, error)) from error
    if lowering.failure is not None:
        raise lowering.failure
    return result


def _explained(lowering: Lowering, error: Exception) -> InputError:
    if error is lowering.raised or not lowering.follows:
        found = lowering.trouble(error)
    else:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        found = InputError(f"the module cannot be evaluated: {reason}")
    place = place_of(error.__traceback__) if lowering.follows else None
    if place is not None:
        found.path, found.line = place
    return found


def _single(result: Any) -> Any:
    return result[0] if isinstance(result, tuple | list) and len(result) == 1 else result


@contextmanager
def _announced(lowering: Lowering, module: nn.Module, labels: Labels) -> Iterator[None]:
    """Inside, the lowering knows which submodule is running."""

    def announce(label: tuple[str, str]) -> Callable[[nn.Module, Any], None]:
        def hook(module: nn.Module, args: Any) -> None:
            lowering.node = label

        return hook

    def enter(label: tuple[str, str]) -> Callable[[nn.Module, Any], None]:
        return lambda module, args: lowering.running.append(label)

    def leave(module: nn.Module, args: Any, result: Any) -> None:
        if lowering.running:  # a hook of the module's own may have failed before it was entered
            lowering.running.pop()

    hooks = []
    for path, child in module.named_modules():
        if path in labels:
            hooks.append(child.register_forward_pre_hook(announce(labels[path])))
        elif lowering.follows:
            of_torch = bool(path) and type(child).__module__.startswith("torch.")
            hooks.append(child.register_forward_pre_hook(enter((path, type(child).__name__ if of_torch else ""))))
            hooks.append(child.register_forward_hook(leave, always_call=True))
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def precision(module: nn.Module) -> torch.dtype:
    """The type of a module's activations: that of its first parameter or buffer, or else torch's default type."""
    for tensor in (*module.parameters(), *module.buffers()):
        if tensor.is_floating_point():
            return tensor.dtype
    return torch.float64 if torch.get_default_dtype() is torch.float64 else torch.float32
