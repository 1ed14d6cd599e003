"""The hunt for counterexamples while a search runs: points that it comes across, and descents from new ones."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator

from verifier.clock import Clock
from verifier.falsify.base import Falsifier
from verifier.falsify.pgd import restarts
from verifier.falsify.target import Target
from verifier.result.counterexample import Counterexample
from verifier.shapes import Float, Int, Tensor

SECONDS = 0.5
"""The most that the descents from the points of one batch may take."""

SHARE = 0.06
"""The share of a search's time for descents from its points, and again for those from new ones: most find nothing."""

EARLY, LATE_SHARE = 10.0, 0.02
"""Seconds of search after which descents from its points have a smaller share: what they find, they find soon."""

LATER = 0.5
"""Seconds of search before the first descent: the whole boxes have just been tried."""

ANEW = 5.0
"""Seconds of search before the first descent from new points: most searches have ended by then."""


class Offers:
    """Replays every point that looks unsafe, and descends from points while that takes little of the time.

    Some descents begin where the search's relaxations are worst, others at random points of the whole boxes
    (`pgd.restarts`).  The latter are left to the process that the search began in: forks would repeat them.
    """

    def __init__(self, falsifier: Falsifier | None, target: Target, clock: Clock, seed: int = 0) -> None:
        self._falsifier, self._target, self._clock = falsifier, target, clock
        self._near, self._anew = Allowance(LATER, LATE_SHARE), Allowance(ANEW)
        self._restarts: Iterator[Falsifier] = restarts(seed)
        self._home = os.getpid()

    def __call__(self, x: Float[Tensor, "P n0"], clauses: Int[Tensor, " P"]) -> Counterexample | None:
        """The first counterexample that comes of the points; point i belongs to clause `clauses[i]`."""
        target, falsifier = self._target, self._falsifier
        if self._clock.expired():
            return None
        x, clauses = x.to(target.device, target.dtype), clauses.to(target.device)
        witness = _as_they_are(target, x, clauses)
        if witness is None and falsifier is not None:
            until = self._clock.within(SECONDS)
            witness = self._near.spend(lambda: falsifier.improve(target, x, clauses, until))
        if witness is None and falsifier is not None and os.getpid() == self._home:
            witness = self._anew.spend(lambda: next(self._restarts).attack(target, self._clock))
        return witness


class Allowance:
    """A share of the time since it was made, from some seconds on, and perhaps a smaller one when much has passed."""

    def __init__(self, later: float, late_share: float = SHARE) -> None:
        self._began, self._spent, self._late_share = time.monotonic(), SHARE * later, late_share

    def _allowed(self, elapsed: float) -> float:
        """Seconds that may have been spent."""
        return SHARE * min(elapsed, EARLY) + self._late_share * max(0.0, elapsed - EARLY)

    def spend(self, attack: Callable[[], Counterexample | None]) -> Counterexample | None:
        """What an attack finds, if there is time for it."""
        began = time.monotonic()
        if self._spent > self._allowed(began - self._began):
            return None
        witness = attack()
        self._spent += time.monotonic() - began
        return witness


def _as_they_are(target: Target, x: Float[Tensor, "P n0"], clauses: Int[Tensor, " P"]) -> Counterexample | None:
    """Replays points without any descent."""
    x = target.room(clauses).inside(x)
    y = target.network.forward(x)
    worst = target.rows.margins(x, y, clauses).amax(-1)
    return target.replay(x, worst, clauses, target.rows.noise(y, clauses))
