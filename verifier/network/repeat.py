"""Whether a module computes the same at every call: no random numbers, no state, no look at the type of its input."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from verifier.errors import InputError
from verifier.shapes import Tensor

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
            again = module(point.clone())
    except Exception as error:  # foreign code may raise anything
        reason = " ".join(str(error).split())[:300] or type(error).__name__
        raise InputError(f"the module fails at its second call: {reason}") from error
    again = again[0] if isinstance(again, tuple | list) and len(again) == 1 else again
    if not isinstance(again, Tensor) or again.shape != found.shape or again.dtype != found.dtype:
        raise InputError("the module returns something else at its second call, so it cannot be verified")
    size = float(found.abs().nan_to_num(0.0, 0.0, 0.0).max()) if found.numel() else 0.0
    allowed = _DIGITS * torch.finfo(found.dtype).eps * size if found.is_floating_point() else 0.0
    if not torch.allclose(again, found, rtol=0.0, atol=allowed, equal_nan=True):
        raise InputError("the module gives other outputs at its second call, so it cannot be verified")
