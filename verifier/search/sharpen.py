"""Better bounds of hidden neurons for searches that turn out to be long."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

from verifier.bounding.core.base import Bound, Bounder, Objective, Region, Until
from verifier.bounding.hidden import Ends, Known, Sharpened, laborious
from verifier.network.network import Network
from verifier.processes import Forked
from verifier.search.domains import Progress
from verifier.search.journal import Improved, Journal, Note
from verifier.search.loop import Search

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

    def at_once(self) -> Sharpening:
        """The same without waiting: curves in deep networks gain more by bounds of hidden neurons than by splits."""
        return replace(self, after=0.0)


@dataclass(frozen=True, eq=False)
class Blunt:
    """What is to be sharpened: boxes of a property, by their numbers, with the bounds that a search begins with."""

    net: Network
    known: dict[int, Region]
    journal: Journal = field(default_factory=Journal)

    def sharp(self, bounder: Bounder, until: Until) -> list[Region]:
        """The boxes with bounds that are nowhere looser; the journal hears of all of them.

        Of curves and products only those are bounded again whose sweeps are short: the time is better spent on ReLUs.
        """
        skipped = laborious(self.net)
        return [
            Sharpened(Known(region), bounder, partial(self._tell, box), skipped).completed(
                self.net, Region(region.lower, region.upper, ball=region.ball), until
            )
            for box, region in self.known.items()
        ]

    def _tell(self, box: int, known: Ends, rows: Objective, found: Bound) -> None:
        self.journal.hear(Improved(box, known, rows, found))


class Sharpener:
    """Decides when bounds are to be sharpened in one search, and does it, at most once."""

    def __init__(self, options: Sharpening, blunt: Blunt, until: Until, cores: int = 1) -> None:
        self._options, self._blunt, self._until, self._cores = options, blunt, until, cores
        self._began: float | None = None
        self._patience, self._asked = options.after, False
        self._beside: Forked[tuple[list[Region], list[Note]]] | None = None

    def close(self) -> None:
        """Nobody needs the bounds any more."""
        if self._beside is not None:
            self._beside.end()

    def ready(self, progress: Progress) -> bool:
        """Whether the search should now ask for its bounds; time counts from the first call."""
        if self._began is None:
            self._began = time.monotonic()
        elapsed = time.monotonic() - self._began
        if self._cores == 1:
            return self._patient(elapsed, progress)
        if self._beside is None and elapsed >= min(SOON, self._options.after):
            self._beside = Forked(lambda send: self._abroad(2 * self._options.share))
        return self._beside is not None and self._beside.now() is not None

    def _patient(self, elapsed: float, progress: Progress) -> bool:
        if elapsed < self._patience:
            return False
        again, self._asked, self._patience = self._asked, True, 2 * self._patience
        return again or progress.left >= self._options.little

    def regions(self) -> list[Region]:
        """The boxes with bounds that are nowhere looser.  Require: `ready`."""
        if self._beside is None:
            return self._sharp(self._options.share)
        found, notes = self._beside.wait()
        self._blunt.journal.receive(notes)
        return found

    def _abroad(self, share: float) -> tuple[list[Region], list[Note]]:
        """What a fork does: its notes are worth something only to a search that goes on with its bounds."""
        self._blunt.journal.go_abroad()
        return self._sharp(share), self._blunt.journal.sent()

    def _sharp(self, share: float) -> list[Region]:
        allowed = min(self._options.most, share * self._until.clock.remaining())
        return self._blunt.sharp(self._options.bounder, Until(self._until.clock.within(allowed)))


class SharpenedSearch(Search):
    """A search that moves to sharper bounds of hidden neurons if it turns out to be long.

    `sharper` makes the search that then goes on with the domains of the first one, which is no longer needed.
    """

    def __init__(self, first: Search, sharpener: Sharpener, sharper: Callable[[list[Region]], Search]) -> None:
        self._now, self._sharper = first, sharper
        self._sharpener: Sharpener | None = sharpener
        self._begun = False
        self.progress = first.progress
        self.outcome = first.outcome

    def step(self) -> None:
        if self._begun and self._sharpener is not None and self._sharpener.ready(self.progress):
            self._now = self._sharper(self._sharpener.regions())
            self._sharpener.close()
            self._sharpener = None
        else:
            self._now.step()
        self._begun = True
        self.progress, self.outcome = self._now.progress, self._now.outcome

    def close(self) -> None:
        self._now.close()
        if self._sharpener is not None:
            self._sharpener.close()
