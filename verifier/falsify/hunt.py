"""An attack that goes on while bounds and a search work on the same instance.

Nearly all counterexamples that descents find at all are found by their first wave.  On instances that hold, the others
are in vain, and bounds often need less time than these.  So the other waves have a part of the time until one decides.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import chain

from verifier.clock import Clock
from verifier.falsify.base import Wave
from verifier.processes import Forked
from verifier.result.counterexample import Counterexample

SHARE = 0.25
"""The part of the time that waves may have taken when the next one begins."""


class Hunt:
    """Waves of an attack, `seconds` in all, with their share of the time; the first one begins at once."""

    def __init__(self, waves: Iterable[Wave], clock: Clock, seconds: float) -> None:
        self._waves, self._clock, self._seconds = iter(waves), clock, seconds
        self._began, self._spent = time.monotonic(), 0.0
        self.over = False

    @property
    def due(self) -> bool:
        """Whether the next wave has its turn."""
        return not self.over and self._spent <= SHARE * (time.monotonic() - self._began)

    def ready(self) -> bool:
        """Whether there is a counterexample already that nobody has been told of."""
        return False

    def turn(self) -> Counterexample | None:
        """What the next wave finds, if it has its turn."""
        return self._next() if self.due else None

    def turns(self) -> Counterexample | None:
        """The same, until it is the turn of all else."""
        while self.due:
            if witness := self._next():
                return witness
        return None

    def rest(self) -> Counterexample | None:
        """What all waves find that are left."""
        while not self.over:
            if witness := self._next():
                return witness
        return None

    def near(self, waves: Iterable[Wave]) -> None:
        """Points have been found that are worth trying next."""
        self._waves, self.over = chain(waves, self._waves), False

    def _next(self) -> Counterexample | None:
        left = self._clock.within(self._seconds - self._spent)
        wave = None if left.expired() else next(self._waves, None)
        if wave is None:
            self.over = True
            return None
        began = time.monotonic()
        witness = wave(left)
        self._spent += time.monotonic() - began
        return witness


class HuntBeside(Hunt):
    """The attack is made by a fork, on another core; what comes up on the way is tried here, in turns."""

    def __init__(self, fork: Forked[Counterexample | None], clock: Clock, seconds: float) -> None:
        super().__init__((), clock, seconds)
        self._fork = fork

    def ready(self) -> bool:
        return self._fork.ready()

    def turn(self) -> Counterexample | None:
        return self._fork.now() or super().turn()

    def turns(self) -> Counterexample | None:
        return self._fork.now() or super().turns()

    def rest(self) -> Counterexample | None:
        return super().rest() or self._fork.wait()
