"""Better bounds of hidden neurons for searches that turn out to be long."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from verifier.bounding.core.base import Bounder, Region, Until
from verifier.bounding.hidden import Known, Sharpened
from verifier.network.network import Network
from verifier.processes import Answer
from verifier.search.domains import Progress

SOON = 0.5
"""Seconds of search after which another core begins with it: one search in many then ends before it is used."""


@dataclass(frozen=True)
class Sharpening:
    """How long searches get better bounds of hidden neurons, with which they then go on.

    On a single core: not before `after` seconds of search, with at most `share` of the time that is left and `most`
    seconds; where little is left of the tree at that moment, only after twice the time.  With more cores a second one
    does it while the search goes on, and may take twice the share.
    """

    bounder: Bounder
    after: float = 4.0
    share: float = 0.25
    most: float = 120.0
    little: float = 0.1


class Sharpener:
    """Decides when bounds are to be sharpened in one search, and does it: in a `with` block, at most once."""

    def __init__(self, options: Sharpening, net: Network, known: Sequence[Region], machine: tuple[Until, int]) -> None:
        """`known` are the boxes with the bounds that the search begins with."""
        self._options, self._net, self._known, (self._until, self._cores) = options, net, known, machine
        self._began, self._patience, self._asked = time.monotonic(), options.after, False
        self._beside: Answer[list[Region]] | None = None

    def __enter__(self) -> Sharpener:
        return self

    def __exit__(self, *_: object) -> None:
        if self._beside is not None:
            self._beside.end()

    def ready(self, progress: Progress) -> bool:
        """Whether the search should now ask for its bounds."""
        elapsed = time.monotonic() - self._began
        if self._cores == 1:
            return self._patient(elapsed, progress)
        if self._beside is None and elapsed >= min(SOON, self._options.after):
            self._beside = Answer(lambda send: self._sharp(2 * self._options.share))
        return self._beside is not None and self._beside.now() is not None

    def _patient(self, elapsed: float, progress: Progress) -> bool:
        if elapsed < self._patience:
            return False
        again, self._asked, self._patience = self._asked, True, 2 * self._patience
        return again or progress.left >= self._options.little

    def regions(self) -> list[Region]:
        """The boxes with bounds that are nowhere looser.  Require: `ready`."""
        return self._sharp(self._options.share) if self._beside is None else self._beside.wait()

    def _sharp(self, share: float) -> list[Region]:
        allowed = min(self._options.most, share * self._until.clock.remaining())
        until = Until(self._until.clock.within(allowed))
        return [
            Sharpened(Known(region), self._options.bounder).region(self._net, region.lower, region.upper, until)
            for region in self._known
        ]
