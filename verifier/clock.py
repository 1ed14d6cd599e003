"""Time budgets: when the run began and when it must have answered."""

from __future__ import annotations

import functools
import math
import mmap
import os
import time
from dataclasses import dataclass
from pathlib import Path

# The fallback for machines without /proc: the import of this module is among the first things a process does.
_IMPORTED = time.monotonic()


@functools.cache
def process_start() -> float:
    """The moment this process began, on the scale of `time.monotonic`.

    Forks that are made after the first call keep its answer: their work began with that process.  Guarantees: never
    later than the import of this module.  Linux tells the true start; elsewhere the import stands in for it.
    """
    try:
        fields = Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()
        born = int(fields[19]) / os.sysconf("SC_CLK_TCK")  # seconds after boot; field 22 of proc(5)
        age = time.clock_gettime(time.CLOCK_BOOTTIME) - born
    except (OSError, ValueError, IndexError, AttributeError):
        return _IMPORTED
    start = time.monotonic() - age
    # A container may count /proc in another time namespace; a start after the import cannot be true.
    return min(start, _IMPORTED) if age >= 0 else _IMPORTED


class Switch:
    """Ends a run before its deadline; it is seen by this process and by all its forks."""

    def __init__(self) -> None:
        self._byte = mmap.mmap(-1, 1)  # memory that forks share

    def pull(self) -> None:
        self._byte[0] = 1

    @property
    def pulled(self) -> bool:
        return self._byte[0] != 0


@dataclass(frozen=True, slots=True)
class Clock:
    """A start and a deadline on the scale of `time.monotonic`; no deadline is `math.inf`.

    It has also run out once it is `cancelled`, for all clocks that were made from it.
    """

    start: float
    deadline: float = math.inf
    switch: Switch | None = None

    @classmethod
    def begin(cls, timeout: float | None = None, start: float | None = None) -> Clock:
        """A clock that runs out `timeout` seconds after `start` (default: now); None is no limit."""
        begun = time.monotonic() if start is None else start
        return cls(begun, math.inf if timeout is None else begun + timeout)

    def elapsed(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.start

    def remaining(self) -> float:
        """Seconds until the deadline; negative after it, infinite without one."""
        return -math.inf if self.cancelled else self.deadline - time.monotonic()

    def expired(self) -> bool:
        """True from the deadline on."""
        return self.cancelled or time.monotonic() >= self.deadline

    @property
    def cancelled(self) -> bool:
        """Whether somebody wants an end before the deadline."""
        return self.switch is not None and self.switch.pulled

    def within(self, seconds: float) -> Clock:
        """The same start, with a deadline at most `seconds` from now: a share of the budget for one phase."""
        return Clock(self.start, min(self.deadline, time.monotonic() + seconds), self.switch)


class Stopwatch:
    """Adds up the time spent inside of `with` blocks, which do not nest."""

    def __init__(self) -> None:
        self._total = self._lapped = self._began = 0.0

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._total += time.perf_counter() - self._began

    @property
    def total(self) -> float:
        """All seconds so far."""
        return self._total

    def lap(self) -> float:
        """The seconds since the last lap."""
        lap = self._total - self._lapped
        self._lapped = self._total
        return lap
