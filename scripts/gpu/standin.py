"""A device that is not the CPU, on a machine that has no other: mistakes with devices show before a GPU is there.

A tensor on the stand-in wraps one in main memory, and torch's dispatcher takes it for one of a device of its own
(PrivateUse1, torch's place for devices from outside): `tensor.device` says so, `.numpy()` fails, gradients flow.
Every operator computes on the wrapped tensors, so values are those of the CPU, bit by bit.  What CUDA would refuse is
an error that names the operator: tensors of two devices in one operator, work in a forked process.  It is stricter than
CUDA in one point: an index in main memory, which CUDA copies silently, is an error too.

What is launched, and what makes the host wait, goes to the tallies of `gpu.tally`.  It sees one operator as one kernel;
it cannot see what a kernel computes on a GPU, how long it takes, nor what it allocates.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch
from torch.utils import backend_registration

from gpu import tally
from gpu.tally import Kind

NAME = "standin"
_owner: list[int] = []  # the process that made the device, and the library of its factories
_keep: list[object] = []


class MixedDevices(RuntimeError):
    """Tensors of two devices met in one operator."""


def available() -> bool:
    """Whether this version of torch lets a device be written in Python."""
    return hasattr(backend_registration, "_setup_privateuseone_for_python_backend")


def install() -> torch.device:
    """The device; the first call makes it known to torch, once and for all in this process.

    Afterwards torch starts a thread for gradients on it, as it does where a GPU is: forks that need gradients must have
    been made before.
    """
    if not _owner:
        backend_registration._setup_privateuseone_for_python_backend(NAME, _backend())
        library = torch.library.Library("aten", "IMPL")
        for name in _FACTORIES.split():
            library.impl(name, _factory(name), "PrivateUse1")
        library.impl("_copy_from", _copy_from, "PrivateUse1")
        _keep.append(library)
        _owner.append(os.getpid())
    return torch.device(NAME, 0)


def _backend() -> object:
    """torch's own stub of a backend, with the random state that `torch.random.fork_rng` asks every device for."""

    class Backend(backend_registration._DummyBackendModule):
        def get_rng_state(self, device: object = NAME) -> torch.Tensor:
            return torch.get_rng_state()

        def set_rng_state(self, state: torch.Tensor, device: object = NAME) -> None:
            torch.set_rng_state(state)

    return Backend()


class OnDevice(torch.Tensor):
    """A tensor of the stand-in; `raw` is the one in main memory that holds its values."""

    raw: torch.Tensor
    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, raw: torch.Tensor) -> OnDevice:
        made: OnDevice = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            raw.shape,
            strides=raw.stride(),
            storage_offset=raw.storage_offset(),
            dtype=raw.dtype,
            layout=raw.layout,
            device=torch.device(NAME, 0),
        )
        made.raw = raw
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"{self.raw!r} on {NAME}"

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def numpy(self, **_: object) -> Any:
        raise TypeError(f"a tensor on {NAME} is no array; copy it to main memory first")

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: object, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if os.getpid() != _owner[0]:
            raise RuntimeError(f"{func} on {NAME} in a forked process: a GPU cannot be used there")
        if func in _COPIES:
            return _COPIES[func](*args, **kwargs)
        foreign: list[torch.Tensor] = []
        raw_args = tuple(_raw(x, foreign) for x in args)
        raw_kwargs = {name: _raw(x, foreign) for name, x in kwargs.items()}
        _refuse_mixed(func, foreign)
        place = raw_kwargs.pop("device", None)
        if place is not None and torch.device(place).type != NAME:
            raise MixedDevices(f"{func} was asked for a tensor on {place} by one on {NAME}")
        found = func(*raw_args, **raw_kwargs)
        tally.note(func, _kind(func), raw_args, raw_kwargs, found)
        return _given_back(func, args, kwargs, found) if _writes(func) else _wrapped(found)


def _raw(x: Any, foreign: list[torch.Tensor]) -> Any:
    """What is computed with; tensors of other devices are listed."""
    if isinstance(x, OnDevice):
        return x.raw
    if isinstance(x, torch.Tensor):
        foreign.append(x)
    elif isinstance(x, list | tuple):
        return [_raw(part, foreign) for part in x]
    return x


def _wrapped(found: Any) -> Any:
    if isinstance(found, torch.Tensor):
        return OnDevice(found)
    return type(found)(map(_wrapped, found)) if isinstance(found, list | tuple) else found


def _given_back(func: Any, args: Sequence[Any], kwargs: dict[str, Any], found: Any) -> Any:
    """What was written in place, or into `out`: the tensors that were given, if they still have their shapes."""
    written = []
    for place, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            written.append(kwargs[argument.name] if argument.name in kwargs else args[place])
    for given in written:
        if given.shape != given.raw.shape or given.stride() != given.raw.stride():
            raise RuntimeError(f"{func} gives a tensor another shape in place, which {NAME} cannot follow")
    return written[0] if isinstance(found, torch.Tensor) else tuple(written)


@cache
def _writes(func: Any) -> bool:
    """Whether all results are tensors that were given."""
    returned = func._schema.returns
    return bool(returned) and all(r.alias_info is not None and r.alias_info.is_write for r in returned)


@cache
def _kind(func: Any) -> Kind:
    """What an operator costs: nothing if it only looks at memory in another way."""
    schema, tags = func._schema, func.tags
    if torch.Tag.data_dependent_output in tags or torch.Tag.dynamic_output_shape in tags:
        return Kind.WAITS
    views = bool(schema.returns) and all(r.alias_info is not None and not r.alias_info.is_write for r in schema.returns)
    return Kind.FREE if views or schema.name in _FREE else Kind.LAUNCHES


_FREE = {"aten::detach", "aten::_unsafe_view", "aten::lift_fresh", "aten::empty_like", "aten::new_empty"}
_FREE |= {"aten::new_empty_strided", "aten::_reshape_alias"}


def _refuse_mixed(func: Any, foreign: Sequence[torch.Tensor]) -> None:
    """Tensors in main memory may enter as single numbers, where an operator works entry by entry: as CUDA has it."""
    for x in foreign:
        single = torch.Tag.pointwise in func.tags or func in _TAKE_A_NUMBER
        if x.device.type != "cpu" or x.dim() or not single:
            raise MixedDevices(f"{func} mixes {NAME} with {x.device}: a tensor of the shape {tuple(x.shape)}")


_TAKE_A_NUMBER = {torch.ops.aten.index_put_.default, torch.ops.aten.index_put.default}
_TAKE_A_NUMBER |= {torch.ops.aten.fill_.Tensor, torch.ops.aten.masked_fill_.Tensor, torch.ops.aten.masked_fill.Tensor}


# ---------------------------------------------------------------- between the devices, and from nothing


def _to_copy(x: OnDevice, **options: Any) -> torch.Tensor:
    place = options.pop("device", None)
    made = torch.ops.aten._to_copy.default(x.raw, **options)
    if place is None or torch.device(place).type == NAME:
        tally.note(torch.ops.aten._to_copy.default, Kind.LAUNCHES, (x.raw,), {}, made)
        return OnDevice(made)
    tally.moved("copy to the host", made)
    return made


def _copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """Between two places it is what moves tensors; the host waits for it unless it was told not to."""
    there, here = isinstance(target, OnDevice), isinstance(source, OnDevice)
    raws = [x.raw if isinstance(x, OnDevice) else x for x in (target, source)]
    raws[0].copy_(raws[1])
    if there and here:
        tally.note(torch.ops.aten.copy_.default, Kind.LAUNCHES, tuple(raws), {}, raws[0])
    else:
        tally.moved("copy to the device" if there else "copy to the host", raws[1])
    return target


def _copy_from(source: torch.Tensor, target: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    return _copy(target, source, non_blocking)


_COPIES = {torch.ops.aten._to_copy.default: _to_copy, torch.ops.aten.copy_.default: _copy}


_FACTORIES = """empty.memory_format empty_strided arange arange.start arange.start_step linspace eye eye.m randperm
tril_indices triu_indices"""
"""What makes tensors from nothing, or first an empty one that is given its shape later."""


def _factory(name: str) -> Callable[..., OnDevice]:
    packet, _, overload = name.partition(".")
    func = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def make(*args: Any, device: object = None, **kwargs: Any) -> OnDevice:
        made = func(*args, device="cpu", **kwargs)
        tally.note(func, Kind.FREE if packet.startswith("empty") else Kind.LAUNCHES, (), {}, made)
        return OnDevice(made)

    return make
