"""Checkpoints of a running search: when one is due, what is in it, and how another run takes it up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from verifier.clock import Clock
from verifier.search.loop import Search
from verifier.search.pace import Pace
from verifier.search.saved import Keeping, Saved, SavedRoot
from verifier.shapes import Float, Tensor


@dataclass(frozen=True, eq=False)
class SavedRun:
    """All that another run needs: the bounds of the root, the search, and what the runs so far have used."""

    root: SavedRoot
    search: Saved | None
    numbers: int  # of domains that were given
    runs: int
    seconds: float
    reserve: tuple[Float[Tensor, " n0"], int] | None = None  # a point that only the network's own run confirms
    notes: tuple[int, str] | None = None  # how many bytes of notes for a proof count, and their SHA-256


class Keeper:
    """Looks at a search after each step, and writes down what another run needs whenever it is time for that.

    `left` is what an earlier run has saved of the search, if there is one.  Once time is up nothing is written any
    more: leaves that were given up for lack of time would be given up for good.
    """

    def __init__(
        self, keeping: Keeping, clock: Clock, write: Callable[[Saved], None], left: Saved | None = None
    ) -> None:
        self.left = left
        self._keeping, self._clock, self._write = keeping, clock, write
        self._pace = Pace(keeping.seconds)

    def look(self, search: Search) -> None:
        """Require: `search` is between two steps."""
        if search.outcome is not None or not self._pace.due(self._clock.remaining()):
            return
        with self._pace.taken():
            saved = search.saved(self._keeping.room)
            if saved is not None and not self._clock.expired():
                self._write(saved)
