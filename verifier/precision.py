"""How torch computes inside of a run: as the error analysis assumes it, whatever a user has set in this process.

float32 is float32, and subnormal numbers are numbers.  Libraries may compute float32 products with fewer digits (TF32,
bfloat16) and take subnormal numbers for zero, if somebody has asked for it.  Bounds in float32 would then be wrong by
far more than they admit.  So would they be by convolutions that are no sums of products, but transforms (Winograd's),
whose errors depend on all that they read.  What torch takes for granted (the type and the place of new tensors,
autocasting) is as torch starts with; only a user's module runs with the user's type.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch


@contextmanager
def full_precision() -> Iterator[None]:
    """Inside, no library saves digits; afterwards all is as it was.  Forks that are made inside inherit it."""
    with ExitStack() as undo:
        for read, write, exact in _switches():
            undo.callback(_quietly, write, read())
            _quietly(write, exact)
        yield


Switch = tuple[Callable[[], Any], Callable[[Any], object], object]
"""How to read a setting, how to change it, and the value that keeps all digits."""


def _switches() -> list[Switch]:
    """What decides how many digits float32 products keep, in the words of this version of torch."""
    backends: Any = torch.backends  # its stubs miss settings that it has
    common: list[Switch] = [
        (_flushes, torch.set_flush_denormal, False),
        (torch._C._get_nnpack_enabled, torch._C._set_nnpack_enabled, False),  # its convolutions are transforms
    ]
    if hasattr(backends.cuda.matmul, "fp32_precision"):
        owners = [backends.mkldnn.matmul, backends.mkldnn.conv, backends.cuda.matmul, backends.cudnn.conv]
        return [*(_setting(owner, "fp32_precision", "ieee") for owner in owners), *common]
    products: Switch = (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "highest")
    return [products, _setting(backends.cudnn, "allow_tf32", False), *common]


FEWER_DIGITS = "ONEDNN_DEFAULT_FPMATH_MODE"
"""A variable of the environment by which a library saves digits of float32, whatever torch is told."""


def direct_sums(device: torch.device) -> bool:
    """Whether products in float32 there are sums of products in float32, inside of `full_precision`.

    On a GPU convolutions may be made by transforms; whoever relies on their errors has to compute in float64 there.
    """
    return device.type == "cpu" and os.environ.get(FEWER_DIGITS, "STRICT").upper() in ("", "STRICT")


def _quietly(write: Callable[[Any], object], value: object) -> None:
    """Changes a setting; some versions of torch warn about hardware that is not here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        write(value)


def _setting(owner: object, name: str, exact: object) -> Switch:
    return lambda: getattr(owner, name), lambda value: setattr(owner, name, value), exact


def _flushes() -> bool:
    """Whether this thread takes subnormal numbers for zero."""
    least = torch.tensor([2.0**-1060], dtype=torch.float64)
    return not bool((least * 2.0).any())


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
