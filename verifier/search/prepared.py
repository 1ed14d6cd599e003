"""A search that begins with a long computation, which is made bit by bit.

In a race nobody may wait for it: every part of the computation is a step, like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from verifier.search.domains import Progress
from verifier.search.loop import Search
from verifier.search.saved import Saved

T = TypeVar("T")


class Prepared(Search, Generic[T]):
    """Goes through `parts`, and then is the search that is made of the last of them.  Require: at least one."""

    def __init__(self, parts: Iterator[T], make: Callable[[T], Search], worst: float) -> None:
        self._parts, self._make = parts, make
        self._last: T | None = None
        self._search: Search | None = None
        self.progress = Progress(open=1, lower=worst, left=1.0)
        self.outcome = None

    def step(self) -> None:
        if self._search is None:
            found = next(self._parts, None)
            if found is not None:
                self._last = found
                return
            assert self._last is not None
            self._search = self._make(self._last)
        self._search.step()
        self.progress, self.outcome = self._search.progress, self._search.outcome

    def saved(self, room: int) -> Saved | None:
        """What the search needs that was made; the computation before it begins anew."""
        return None if self._search is None else self._search.saved(room)

    def close(self) -> None:
        if self._search is not None:
            self._search.close()
