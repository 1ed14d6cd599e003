"""Which modules can be read at all, with the way out for those that cannot."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from verifier.errors import InputError

_QUANTISED = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized", "torch.nn.quantized")
_WRAPPERS = (nn.DataParallel, nn.parallel.DistributedDataParallel)


def require_readable(module: Any) -> None:
    """Raises InputError for what is no module, and for modules whose code or numbers cannot be followed."""
    if not isinstance(module, nn.Module):
        hint = "; its module() is one, but only code of torch.nn can be followed" if _is_exported(module) else ""
        raise InputError(f"a network is a path or a torch module, not a value of type {type(module).__name__}{hint}")
    for path, child in module.named_modules():
        why = _why_not(child)
        if why is not None:
            named = f"submodule '{path}'" if path else "the module"
            raise InputError(f"{named} {why}")
    for name, tensor in _tensors(module):
        why = _why_not_tensor(tensor)
        if why is not None:
            raise InputError(f"parameter '{name}' {why}")


def _is_exported(value: Any) -> bool:
    return type(value).__name__ == "ExportedProgram"


def _why_not(module: nn.Module) -> str | None:
    if isinstance(module, torch.jit.ScriptModule | torch.jit.ScriptFunction):
        return "is compiled by torch.jit; give the module that it was made from"
    if type(module).__name__ == "OptimizedModule":
        return "is compiled by torch.compile; give the module that it was made from (its _orig_mod)"
    if isinstance(module, _WRAPPERS):
        return f"is wrapped in {type(module).__name__}; give its attribute 'module'"
    if type(module).__module__.startswith(_QUANTISED):
        return f"is quantised ({type(module).__name__}), which is not supported"
    return None


def _tensors(module: nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    return itertools.chain(module.named_parameters(), module.named_buffers())


def _why_not_tensor(tensor: torch.Tensor) -> str | None:
    if is_lazy(tensor):
        return "has no values yet; run the lazy module once"
    if tensor.is_meta:
        return "is on the device 'meta', where tensors have no values"
    if tensor.is_quantized:
        return "is quantised, which is not supported"
    if tensor.layout != torch.strided:
        return f"has the layout {tensor.layout}, which is not supported"
    if (tensor.is_floating_point() or tensor.is_complex()) and tensor.dtype not in {torch.float32, torch.float64}:
        return f"is of type {str(tensor.dtype).removeprefix('torch.')}; only float32 and float64 are supported"
    if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
        return "holds values that are not finite"
    return None
