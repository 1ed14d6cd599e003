"""When the next checkpoint is due."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

SHARE = 0.01
"""Of the time that a process may spend on checkpoints: where they take longer, they are made more seldom."""

LAST = 2.0
"""Seconds before a deadline at which one more is due, if there is time for it."""


class Pace:
    """Every so many seconds, the first time after so many; more seldom where one takes long; once before a deadline."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._took = 0.0
        self._next = time.monotonic() + seconds
        self._last = False

    def due(self, remaining: float = float("inf")) -> bool:
        """Whether it is time for one, if so many seconds remain; never when they are over."""
        if remaining <= 2 * self._took or remaining <= 0:
            return False
        if remaining <= LAST + 4 * self._took and not self._last:
            self._last = True
            return True
        return time.monotonic() >= self._next

    @contextmanager
    def taken(self) -> Iterator[None]:
        """Around the making of one: how long that takes says when the next one is due."""
        began = time.monotonic()
        yield
        now = time.monotonic()
        self._took = now - began
        self._next = now + max(self._seconds, self._took / SHARE)
