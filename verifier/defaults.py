"""What torch takes for granted when nobody says otherwise: the type and the place of new tensors, and autocasting.

A user may change all of it.  Our own code runs with what torch starts with; a user's module runs with the user's type.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Inside, new tensors have this type unless they are given another one."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def own_defaults() -> Iterator[None]:
    """Inside, torch is as it starts: new tensors are float32 on the CPU and can be differentiated; nothing is autocast.

    Autocasting would round float32 products to bfloat16, beyond what rigorous bounds allow for.
    """
    with ExitStack() as stack:
        stack.enter_context(default_dtype(torch.float32))
        stack.enter_context(torch.inference_mode(False))
        stack.enter_context(torch.enable_grad())
        if torch.get_default_device().type != "cpu":
            stack.enter_context(torch.device("cpu"))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield
