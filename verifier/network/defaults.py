"""Torch's defaults for new tensors: the package computes with its own, a module with those of its user."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch

_users: ContextVar[torch.dtype | None] = ContextVar("users_precision", default=None)


@contextmanager
def own_defaults() -> Iterator[None]:
    """Inside, a new tensor is float32 and on the CPU unless it says otherwise, whatever the user has set."""
    before = torch.get_default_dtype()
    token = _users.set(before if _users.get() is None else _users.get())
    torch.set_default_dtype(torch.float32)
    try:
        with on_cpu():
            yield
    finally:
        torch.set_default_dtype(before)
        _users.reset(token)


@contextmanager
def users_defaults() -> Iterator[None]:
    """Inside, the code of a module runs as its user would run it: without gradients, on the CPU, where the copy of the
    module is, and outside of any autocast but its own.  Its default precision is part of what it computes.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(_users.get() or before)
    try:
        with on_cpu(), torch.no_grad(), torch.autocast("cpu", enabled=False):
            yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def on_cpu() -> Iterator[None]:
    """Inside, new tensors are on the CPU.  Costs nothing where that is the default."""
    if torch.get_default_device().type == "cpu":
        yield
        return
    with torch.device("cpu"):
        yield
