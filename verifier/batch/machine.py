"""The part of this machine that a batch may use."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

CORES_PER_WORKER = 4
SHARE = 0.9
"""Of the memory, for all workers together."""


def cores() -> int:
    """The cores that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1


def workers(threads: int | None, device: str) -> int:
    """How many worker processes to start if nobody says: one for four cores, or as `threads` each divide the cores.

    On a GPU one: two would share its memory.
    """
    if device.startswith("cuda"):
        return 1
    return max(cores() // (threads or CORES_PER_WORKER), 1)


def threads_each(jobs: int) -> int:
    """The share of each of `jobs` workers in the cores."""
    return max(cores() // jobs, 1)


def memory_each(jobs: int) -> int | None:
    """The share of each of `jobs` workers in the memory, in bytes; None where the system does not tell."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return None
    with contextlib.suppress(OSError, ValueError):  # a container may have less than the machine
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return int(SHARE * total / jobs)
