"""The part of the machine that a run uses: device, threads, memory, and how torch computes there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

import torch

from verifier.arguments import device_name
from verifier.defaults import own_defaults
from verifier.errors import InputError
from verifier.precision import full_precision


@contextmanager
def machine(wanted: str, count: int) -> Iterator[torch.device]:
    """The wanted device; inside, torch uses `count` threads, has no settings of the user's, and saves no digits."""
    device = _device(wanted)
    with own_defaults(), threads(count), full_precision():
        yield device


def one_thread() -> AbstractContextManager[None]:
    """Inside, one thread for each of torch's operations.

    Attacks and searches make many small ones, which several threads do not make faster (docs/search.md).
    """
    return threads(1)


@contextmanager
def threads(count: int | None) -> Iterator[None]:
    """Inside, torch's operations use that many threads; None changes nothing."""
    before = torch.get_num_threads()
    try:
        if count is not None:
            torch.set_num_threads(count)
        yield
    finally:
        torch.set_num_threads(before)


def out_of_memory(error: Exception) -> bool:
    """Whether an error says that the memory did not suffice."""
    # torch has no exception of its own for main memory, only for that of a GPU.
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


def _device(wanted: str) -> torch.device:
    kind, _, index = device_name(wanted).partition(":")
    count = torch.cuda.device_count() if kind != "cpu" else 0
    if kind == "cuda" and int(index or 0) >= count:
        raise InputError(f"device {wanted} is not there: torch sees {count} CUDA devices")
    return torch.device(("cuda" if count else "cpu") if kind == "auto" else wanted)
