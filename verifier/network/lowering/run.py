"""Lowering: run a torch module once on symbolic values and collect its groups of neurons.

The module is executed as it is, on a tensor subclass that carries an `Expression` instead of numbers.  Every
torch function that meets such a tensor is looked up by name (`dispatch`).  Whatever does not depend on the
input is computed by torch itself on the way, which folds all constants. Graphs from onnx2torch and ordinary
modules take the same path.

Constant subexpressions are thereby evaluated in the precision of the model, as onnxruntime does.  All
arithmetic on expressions is in float64 from the weights as stored.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import nn

from verifier.errors import InputError, TooManyNeurons, VerifierError, one_line
from verifier.network.lowering.dispatch import dispatch
from verifier.network.lowering.expression import variable
from verifier.network.lowering.heads import head_of
from verifier.network.lowering.tracing import Lowering, Reading, Traced, place_of
from verifier.network.merge import pruned
from verifier.network.network import Network
from verifier.operators import Select
from verifier.operators.base import flat_size
from verifier.shapes import Tensor

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
    its memory is followed, it is run twice, and messages name lines.  Raises UnsupportedOperator for what is not known.
    The module is not changed, unless it changes itself.

    If it has too many neurons to be searched, windows of which the largest entry is taken are groups of their own.
    """
    if reading is None:
        reading = Reading(precision(module), precision(module))
    try:
        return _lowered(module, input_shape, labels, reading)
    except TooManyNeurons:
        if reading.maxima:
            raise
        return _lowered(module, input_shape, labels, replace(reading, maxima=True))


def _lowered(module: nn.Module, input_shape: tuple[int, ...], labels: Labels, reading: Reading) -> Network:
    lowering = Lowering(reading, dispatch)
    lowering.follows = not labels or any(getattr(child, "inplace", False) for child in module.modules())
    point = sample_input(input_shape, lowering.dtype) if lowering.follows else None
    source = Traced.of(variable(0, input_shape), lowering, None if point is None else point.clone())
    with _announced(lowering, module, labels):
        result = only_member(_executed(lowering, module, source))
    if not isinstance(result, torch.Tensor):
        raise InputError(f"the network must return one tensor, not a {type(result).__name__}")
    if point is not None:
        require_repeatable(module, point, result.shadow if isinstance(result, Traced) else result)
    lowering.node = ("output", "Output")
    value = lowering.value(result)
    if value.is_constant:  # every layer reads something, be it with weight zero
        value = replace(value, terms={0: Select.nothing(value.size, flat_size(input_shape))})
    whole = Network(input_shape, tuple(lowering.groups), lowering.affine("output", value), lowering.within)
    return replace(pruned(whole), head=head_of(lowering, value, input_shape))


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
        found = lowering.fault(f"cannot be evaluated: {one_line(error)}")
    else:
        reason = one_line(f"{type(error).__name__}: {error}")
        found = InputError(f"the module cannot be evaluated: {reason}")
    place = place_of(error.__traceback__) if lowering.follows else None
    if place is not None:
        found.path, found.line = place
    return found


def only_member(result: Any) -> Any:
    """What a tuple or list of one holds; anything else as it is."""
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


_DIGITS = 2.0**8  # units of the precision by which two runs of the same functions may differ


def sample_input(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """One input, always the same, at which a module is run along with its tracing."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(shape, generator=generator, dtype=dtype)


@contextmanager
def nothing_random() -> Iterator[None]:
    """Raises InputError if random numbers of torch, numpy or Python were drawn inside."""
    states, before = _states(), _generators()
    try:
        yield
        drawn = _generators() != before
    finally:
        _restore(states)
    if drawn:
        raise InputError("the module draws random numbers, so its answers differ from call to call")


def _generators() -> tuple[Any, ...]:
    _, keys, *rest = np.random.get_state(legacy=True)
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), np.asarray(keys).tobytes(), rest


def _states() -> tuple[Any, ...]:
    return torch.get_rng_state(), random.getstate(), np.random.get_state()


def _restore(states: tuple[Any, ...]) -> None:
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])


@contextmanager
def _other_seed() -> Iterator[None]:
    """Inside, all generators stand elsewhere."""
    states = _states()
    torch.manual_seed(20051)
    random.seed(20051)
    np.random.seed(20051)
    try:
        yield
    finally:
        _restore(states)


def require_repeatable(module: nn.Module, point: Tensor, found: Tensor) -> None:
    """Run the module once more, on an ordinary tensor, and compare with what it gave while it was traced.

    Raises InputError if the outputs differ by more than the order of summation explains.
    """
    try:
        with torch.no_grad(), _other_seed():
            again = only_member(module(point.clone()))
    except Exception as error:  # foreign code may raise anything
        raise InputError(f"the module fails at its second call: {one_line(error)}") from error
    if not isinstance(again, Tensor) or again.shape != found.shape or again.dtype != found.dtype:
        raise InputError("the module returns something else at its second call, so it cannot be verified")
    size = float(found.abs().nan_to_num(0.0, 0.0, 0.0).max()) if found.numel() else 0.0
    allowed = _DIGITS * torch.finfo(found.dtype).eps * size if found.is_floating_point() else 0.0
    if not torch.allclose(again, found, rtol=0.0, atol=allowed, equal_nan=True):
        raise InputError("the module gives other outputs at its second call, so it cannot be verified")
