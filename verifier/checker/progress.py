"""A line on a terminal that says how far a check is."""

from __future__ import annotations

import time
from types import TracebackType
from typing import TextIO

from .tree import Walk

_EVERY = 0.2  # seconds


class Progress:
    """Writes nothing where nobody looks, and leaves nothing behind."""

    def __init__(self, target: TextIO) -> None:
        self.target = target
        self.shown = target.isatty()
        self.last = time.monotonic()

    def tell(self, walk: Walk) -> None:
        if self.shown and time.monotonic() - self.last > _EVERY:
            self.last = time.monotonic()
            self.target.write(
                f"\r\x1b[Kchecking: {walk.nodes} nodes, {walk.closed} closings, depth {len(walk.waiting)}"
            )
            self.target.flush()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.shown:
            self.target.write("\r\x1b[K")
            self.target.flush()
