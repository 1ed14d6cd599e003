"""Points that a search comes across, tried as counterexamples."""

from __future__ import annotations

import time

from verifier.clock import Clock
from verifier.falsify.base import Falsifier
from verifier.falsify.target import Target
from verifier.result.counterexample import Counterexample
from verifier.shapes import Float, Int, Tensor

SECONDS = 0.5
"""The most that the descents from the points of one batch may take."""

SHARE = 0.1
"""The share of a search's time that descents may take: most of them find nothing."""

LATER = 0.5
"""Seconds of search before the first descent: the whole boxes have just been tried."""


class Offers:
    """Replays every point that looks unsafe, and starts descents from points while they take little of the time."""

    def __init__(self, falsifier: Falsifier | None, target: Target, clock: Clock) -> None:
        self._falsifier, self._target, self._clock = falsifier, target, clock
        self._began, self._spent = time.monotonic(), SHARE * LATER

    def __call__(self, x: Float[Tensor, "P n0"], clauses: Int[Tensor, " P"]) -> Counterexample | None:
        """The first counterexample that comes of the points; point i belongs to clause `clauses[i]`."""
        target = self._target
        if self._clock.expired():
            return None
        x, clauses = x.to(target.device, target.dtype), clauses.to(target.device)
        witness = _as_they_are(target, x, clauses)
        began = time.monotonic()
        if witness is not None or self._falsifier is None or self._spent > SHARE * (began - self._began):
            return witness
        witness = self._falsifier.improve(target, x, clauses, self._clock.within(SECONDS))
        self._spent += time.monotonic() - began
        return witness


def _as_they_are(target: Target, x: Float[Tensor, "P n0"], clauses: Int[Tensor, " P"]) -> Counterexample | None:
    """Replays points without any descent."""
    x = target.room(clauses).inside(x)
    y = target.network.forward(x)
    worst = target.rows.margins(x, y, clauses).amax(-1)
    return target.replay(x, worst, clauses, target.rows.noise(y, clauses))
