"""A look into a torch module: whether it can be read at all, and what it remembers.

What it remembers are its parameters, its buffers and the plain attributes of its parts, as digests.  They serve two
ends: a name for the module, and the test that running it changes nothing.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
from collections import deque
from collections.abc import Iterator, Mapping
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np
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


_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, np.generic, range)
_OWN = frozenset(vars(nn.Module())) - {"training"}  # torch's own bookkeeping, hooks among it


def module_state(module: nn.Module) -> dict[str, str]:
    """A digest for every parameter, buffer and attribute, by its path.

    Not covered: global variables, the code of `forward`, and what lies inside of objects that Python cannot look into.
    """
    found = {}
    for path, child in module.named_modules():
        for name, value in _members(child):
            total = hashlib.sha256()
            for piece in _pieces(value, {id(module)}):
                total.update(piece)
            found[f"{path}.{name}" if path else name] = total.hexdigest()
    return found


def _members(module: nn.Module) -> Iterator[tuple[str, Any]]:
    """All that a module holds but its children: those have a place of their own."""
    yield from module._parameters.items()
    yield from module._buffers.items()
    yield from ((name, value) for name, value in vars(module).items() if name not in _OWN)
    for kind in type(module).__mro__:
        if kind.__module__ == "builtins" or kind.__module__.startswith("torch."):
            continue
        for name, value in vars(kind).items():
            if isinstance(value, (*_PLAIN, torch.Tensor, np.ndarray, list, tuple, dict, set)) and name[:2] != "__":
                yield f"{kind.__name__}.{name}", value


def _pieces(value: Any, seen: set[int]) -> Iterator[bytes]:
    """Bytes that tell one value from another; the same for equal values in another process."""
    yield f"{type(value).__qualname__}:".encode()
    if isinstance(value, _PLAIN):
        yield repr(value).encode()
    elif isinstance(value, torch.Tensor):
        yield from _tensor_pieces(value)
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}".encode()
        yield value.tobytes() if value.dtype.kind != "O" else b""
    elif isinstance(value, torch.Generator):
        yield value.get_state().numpy().tobytes()
    elif id(value) not in seen:
        seen = seen | {id(value)}
        for item in _parts(value):
            yield from _pieces(item, seen)
            yield b";"


def _tensor_pieces(value: torch.Tensor) -> Iterator[bytes]:
    yield f"{value.dtype} {tuple(value.shape)}".encode()
    # A traced tensor has no numbers; it is no part of a module before it runs, so its type already says enough.
    if type(value) in (torch.Tensor, nn.Parameter) and value.layout == torch.strided and value.device.type == "cpu":
        yield value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def _parts(value: Any) -> list[Any]:
    """What an object is made of, as far as it can be looked into."""
    if isinstance(value, set | frozenset):
        return sorted(map(repr, value))
    if isinstance(value, list | tuple | deque):
        return list(value)
    if isinstance(value, FunctionType | MethodType | functools.partial):
        return _parts_of_function(value)
    if isinstance(value, type | ModuleType | BuiltinFunctionType):
        return [getattr(value, "__qualname__", value.__name__)]
    if isinstance(value, nn.Module):
        return [part for pair in _members(value) for part in pair] + list(value.children())
    pairs = value if isinstance(value, Mapping) else getattr(value, "__dict__", {})
    return [part for pair in pairs.items() for part in pair]


def _parts_of_function(value: Any) -> list[Any]:
    if isinstance(value, functools.partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, MethodType):
        return [value.__func__.__qualname__, value.__self__]
    cells = [_content(cell) for cell in value.__closure__ or ()]
    return [value.__qualname__, value.__defaults__, value.__kwdefaults__, *cells]


def _content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # not filled yet
        return None


def changed(before: Mapping[str, str], after: Mapping[str, str]) -> str | None:
    """The first entry that differs between two states."""
    return next((key for key in (*before, *after) if before.get(key) != after.get(key)), None)
