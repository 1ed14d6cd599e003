"""The machine that a run computes on: device, cores, memory, time limit, and how torch computes there.

Nothing heavy is imported before a part of the machine is taken.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from verifier.arguments import MOST_THREADS, device_name, seconds, whole_number
from verifier.cgroups import ControlGroups
from verifier.clock import Clock
from verifier.errors import InputError
from verifier.processes import cores, forkable

if TYPE_CHECKING:
    import torch

CORES_PER_WORKER = 4
SHARE = 0.9
"""Of the memory, for all workers of a batch together."""

_TRIMMED, _AHEAD, _FROM_SYSTEM = -1, -2, -3
"""Of glibc's allocator (M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_THRESHOLD): free bytes at the end of the heap that are
returned, bytes that it asks for besides what is needed, and the size from which each block comes from the system."""


@dataclass(frozen=True, slots=True)
class Machine:
    """What a run may use: a device by its name, so many cores (None: all of them), so many seconds (None: any)."""

    device: str = "auto"
    threads: int | None = None
    timeout: float | None = None

    @classmethod
    def of(cls, device: object, threads: object, timeout: object) -> Machine:
        """Takes numbers of Python and NumPy and devices of torch.  Raises InputError for all that makes no sense."""
        count = None if threads is None else whole_number(threads, "threads", 1, MOST_THREADS)
        return cls(device_name(device), count, seconds(timeout))

    @property
    def cores(self) -> int:
        """The number of cores, whether it was said or not."""
        return self.threads or cores()

    def clock(self, start: float | None = None) -> Clock:
        """The time limit, from `start` on (default: now)."""
        return Clock.begin(self.timeout, start)

    def processes(self, device: torch.device) -> int:
        """How many processes may work on one instance: a GPU is kept busy by one."""
        return self.cores if device.type == "cpu" and forkable() else 1

    @contextmanager
    def taken(self) -> Iterator[torch.device]:
        """The device; inside, torch uses these cores, has no settings of the user's, saves no digits, keeps memory."""
        from verifier.precision import full_precision, own_defaults

        device = _device(self.device)
        with own_defaults(), torch_threads(self.cores), full_precision(), memory_kept():
            yield device


class WithinMemory:
    """A body for which the memory does not suffice is left without an error: what stands after the block says so."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        return isinstance(error, MemoryError | RuntimeError) and out_of_memory(error)


def out_of_memory(error: Exception) -> bool:
    """Whether an error says that the memory did not suffice."""
    import torch

    # torch has no exception of its own for main memory, only for that of a GPU.
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or "DefaultCPUAllocator" in str(error)


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Inside, torch's operations use that many threads.

    Attacks and searches make many small ones, which several threads do not make faster (docs/search.md).
    """
    import torch

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(count)
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def memory_kept() -> Iterator[None]:
    """Inside, memory that is freed stays with the process: the next tensor of that size needs no new pages.

    By default glibc returns each block of some megabytes to the system, which clears the pages before it hands them out
    again; on networks of convolutions that takes a tenth of a search.  Other systems' allocators are left alone.
    """
    import ctypes

    try:
        libc = ctypes.CDLL(None)
        tune, trim = libc.mallopt, libc.malloc_trim
    except (AttributeError, OSError, TypeError):
        yield
        return
    for setting, size in ((_FROM_SYSTEM, 2**25), (_TRIMMED, 2**31 - 1), (_AHEAD, 2**26)):
        tune(setting, size)
    try:
        yield
    finally:
        for setting, size in ((_FROM_SYSTEM, 2**17), (_TRIMMED, 2**17), (_AHEAD, 2**17)):
            tune(setting, size)
        trim(0)


def _device(wanted: str) -> torch.device:
    import torch

    kind, _, index = wanted.partition(":")
    count = torch.cuda.device_count() if kind != "cpu" else 0
    if kind == "cuda" and int(index or 0) >= count:
        raise InputError(f"device {wanted} is not there: torch sees {count} CUDA devices")
    return torch.device(("cuda" if count else "cpu") if kind == "auto" else wanted)


def workers(machine: Machine) -> int:
    """How many worker processes a batch starts if nobody says: one for four cores, or as `threads` divide them.

    On a GPU one: two would share its memory.
    """
    if machine.device.startswith("cuda"):
        return 1
    return max(cores() // (machine.threads or CORES_PER_WORKER), 1)


def cores_each(jobs: int) -> int:
    """The share of each of `jobs` workers in the cores."""
    return max(cores() // jobs, 1)


def memory_each(jobs: int) -> int | None:
    """The share of each of `jobs` workers in the memory, in bytes; None where the system does not tell."""
    total = memory_total()
    return None if total is None else int(SHARE * total / jobs)


def memory_budget(wanted: int | None) -> int:
    """Bytes that a run may hold: what is wanted, or half of the machine's memory; 4 GB where nobody tells."""
    if wanted is not None:
        return wanted
    total = memory_total()
    return 4 * 2**30 if total is None else total // 2


def memory_total(groups: ControlGroups | None = None) -> int | None:
    """All that this process may have, in bytes: a container may have less than the machine.

    None where the system does not tell.
    """
    allowed = (groups or ControlGroups()).memory()
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return allowed
    return total if allowed is None else min(total, allowed)
