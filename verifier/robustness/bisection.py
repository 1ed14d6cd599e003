"""Bisection for the radius of robustness.

What is known is never asked again.  The network is read, merged and compared with its file for the first ball, and anew
only while that is doubled, not for the radii inside of it.  A counterexample at distance d refutes every radius from d
on, so it is pulled towards the centre first; the next attack begins there.
Bounds of the whole ball certify small radii in a few steps of a secant.  What is left between them is searched, for a
limited time each: a radius that takes too long makes way for smaller ones, and is tried again for longer when nothing
else is left.
"""

from __future__ import annotations

import decimal
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from verifier.bounding.clauses import ClauseBounds
from verifier.clock import Clock
from verifier.errors import SoundnessError
from verifier.machine import WithinMemory, torch_threads
from verifier.pipeline import Groundwork, Pipeline, Request
from verifier.result.counterexample import Counterexample, replay
from verifier.result.result import Statistics
from verifier.result.status import Status
from verifier.result.verdict import Reason
from verifier.robustness.place import Place
from verifier.robustness.radius import Bracket, Radius, Trial, between, rounded

DIGITS = 12
"""Significant digits of a radius that a counterexample refutes, at most; less where the tolerance needs no more."""
LEAST = 1e-9
"""The smallest tolerance: radii have digits enough to tell it."""
DOUBLINGS = 10
"""How often the first radius is doubled while no counterexample is found."""
SECANT = 5
"""Radii for which the bounds of the whole ball are computed before anything is searched."""
PATIENCE = 1.5
"""How much longer a search must be allowed to take before an undecided radius is tried again."""
STARTS = 8
"""Counterexamples, the nearest ones, from which attacks begin."""
GLANCE = 1.0
"""Seconds of a search before the usual attack is made."""
FIRST_SHARE, GROWTH = 10.0, 4.0
"""Seconds of the first searches; each time that only undecided radii are left, they get so many times more, and never
less than so many times what the longest one took that decided something."""


@dataclass(frozen=True, slots=True)
class Aim:
    """When to stop: at a gap that is this share of the falsified radius, at a largest radius."""

    tolerance: float = 0.01
    most: Fraction | None = None


@dataclass(frozen=True, eq=False)
class Reach:
    """The groundwork for all balls up to a radius."""

    eps: Fraction
    work: Groundwork

    @classmethod
    def of(cls, place: Place, eps: Fraction, seed: int) -> Reach:
        """Reads the network, and compares it with its file in a large ball and in a small one."""
        prop = place.property(eps)
        work = Groundwork.of(place.model, prop)
        work.problem(prop)
        for boxes in (prop.boxes, place.property(between(Fraction(0), eps, 1 / 16)).boxes):
            work.check(place.model, boxes, seed)
        return cls(eps, work)


@dataclass(frozen=True, eq=False)
class Attempt:
    """One radius at work."""

    eps: Fraction
    pipeline: Pipeline
    began: float


@dataclass(frozen=True, slots=True)
class Fence:
    """A radius that was not decided in so many seconds, and why."""

    eps: Fraction
    seconds: float
    reason: Reason

    def falls(self, share: float, top: Fraction) -> bool:
        """Whether it is worth another try with more time, or a counterexample is nearer."""
        return self.eps >= top or (self.reason is Reason.TIMEOUT and share > PATIENCE * self.seconds)


@dataclass(eq=False)
class Bisection:
    """The search for one radius; what is known can be drawn up at any time, also from another thread."""

    request: Request
    status: Status
    place: Place
    aim: Aim = field(default_factory=Aim)
    reach: Reach | None = None  # made if there is none
    hear: Callable[[Trial], None] = lambda trial: None
    known: Bracket = field(default_factory=Bracket)
    _longest: float = 0.0  # seconds of a radius that a search has decided
    _device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    def result(self, reason: Reason | None = None) -> Radius:
        """What is known now."""
        known = self.known
        return Radius(
            self.place.label,
            self.place.around.norm,
            known.certified,
            known.falsified,
            known.witnesses[-1] if known.witnesses else None,
            reason,
            self.aim.tolerance,
            known.trials,
            **self.status.circumstances(),
        )

    def run(self) -> Radius:
        """Narrows the gap down to the tolerance, or until the time is up."""
        with WithinMemory(), self.request.machine.taken() as self._device:
            self.status.computes_on(self._device, self.request.machine.cores)
            if self._wrong_at_centre():
                return self.result()
            self._from_above()
            self._by_attack()
            self._by_bounds()
            return self.result(self._narrow())
        return self.result(Reason.MEMORY)

    # ---------------------------------------------------------------- what is known

    @property
    def _low(self) -> Fraction:
        return Fraction(0) if self.known.certified is None else Fraction(repr(self.known.certified))

    @property
    def _high(self) -> Fraction | None:
        return None if self.known.falsified is None else Fraction(repr(self.known.falsified))

    @property
    def _top(self) -> Fraction:
        """What is falsified, or else the largest radius that was asked for."""
        assert self.reach is not None
        return self._high or self.reach.eps

    @property
    def _gap(self) -> Fraction:
        """That need not be closed."""
        return Fraction(self.aim.tolerance) * self._top

    @property
    def _narrow_enough(self) -> bool:
        return self._top - self._low <= self._gap

    def _note(self, trial: Trial, **news: Any) -> None:
        self.known = replace(self.known, trials=(*self.known.trials, trial), **news)
        self.hear(trial)

    def _certify(self, eps: Fraction, by: str, began: float) -> None:
        if self._high is not None and eps >= self._high:
            raise SoundnessError(f"radius {float(eps)} is certified, but a counterexample lies within {self._high}")
        self._note(Trial(float(eps), "certified", by, time.monotonic() - began), certified=float(eps))

    def _falsify(self, witness: Counterexample, by: str, began: float) -> None:
        """Takes a counterexample, pulled towards the centre as far as it stays one."""
        for x in (*self.place.nearer(witness.x), witness.x):
            eps = self._radius_of(x)
            if self._high is not None and eps >= self._high:
                return
            found = self._replayed(x, eps)
            if found is not None:
                if eps <= self._low and self.known.certified is not None:
                    raise SoundnessError(f"a counterexample lies within {float(eps)}, which is certified")
                trial = Trial(float(eps), "falsified", by, time.monotonic() - began)
                self._note(trial, falsified=float(eps), witnesses=(*self.known.witnesses, found))
                return

    def _radius_of(self, x: NDArray[np.floating]) -> Fraction:
        """A short decimal at or above the distance of a point."""
        digits = min(max(6, 3 - math.floor(math.log10(self.aim.tolerance))), DIGITS)
        return rounded(self.place.distance(x), digits, decimal.ROUND_CEILING)

    def _replayed(self, x: NDArray[np.floating], eps: Fraction) -> Counterexample | None:
        """The point as a counterexample inside of the ball of that radius, if real arithmetic confirms it too."""
        target = self._pipeline(eps, replace(self.status)).target
        found = replay(x, target.model, target.prop, 0, target.judge)
        return found if found is not None and found.sharp else None

    def _pipeline(self, eps: Fraction, status: Status) -> Pipeline:
        """The ball of a radius as an instance."""
        if self.reach is None or eps > self.reach.eps:
            with self.status.phase("load"), torch_threads(1):
                self.reach = Reach.of(self.place, eps, self.request.seed)
        problem = self.reach.work.problem(self.place.property(eps))
        return Pipeline.of(self.request, status, problem, self.place.model, self._device)

    # ---------------------------------------------------------------- phases

    def _wrong_at_centre(self) -> bool:
        """Whether the network gives another class to the centre itself: then there is no radius at all."""
        own = self.place.own
        if int(np.argmax(self.place.model.run(own))) == self.place.label:
            return False
        eps = self._radius_of(own)
        found = self._replayed(own, eps)
        if found is not None:
            self._note(Trial(float(eps), "falsified", "centre", 0.0), falsified=float(eps), witnesses=(found,))
        return found is not None

    def _from_above(self) -> None:
        """A first counterexample, in a ball that is doubled until it holds one."""
        most, began = self.aim.most, time.monotonic()
        eps = self.place.first(most)
        for _ in range(DOUBLINGS):
            pipeline = self._pipeline(eps, self.status)
            with self.status.phase("attack"), torch_threads(1):
                witness = pipeline.falsify()
                if witness is not None:
                    self._falsify(witness, "attack", began)
            if self._high is not None or self.status.clock.expired() or eps == most:
                return
            eps = 2 * eps if most is None else min(2 * eps, most)

    def _by_bounds(self) -> None:
        """What bounds of the whole ball certify: a secant between radii that they do and do not."""
        low, high = (Fraction(0), self.place.margin), (self._top, -self.place.margin)
        for _ in range(SECANT):
            width = high[0] - low[0]
            if self.status.clock.expired() or width <= Fraction(self.aim.tolerance) * high[0]:
                return
            fall = low[1] - high[1]
            share = low[1] / fall if 0 < fall < np.inf else 0.25
            eps, began = between(low[0], high[0], min(max(share, 0.1), 0.9)), time.monotonic()
            found = self._bounds(self._pipeline(eps, self.status))
            if found.closed:
                self._certify(eps, "bounds", began)
                low = eps, found.worst
            else:
                high = eps, found.worst

    def _bounds(self, pipeline: Pipeline) -> ClauseBounds:
        with pipeline.status.phase("root"):
            return pipeline.bound()

    def _by_attack(self) -> None:
        """Short attacks from the known counterexamples in smaller and smaller balls, as long as that helps."""
        failed = self._low
        while self._high is not None and self._high - failed > self._gap / 2:
            eps, before = between(failed, self._high), self._high
            attempt = Attempt(eps, self._pipeline(eps, self.status), time.monotonic())
            if not self._attacked(attempt, self._from_known):
                failed = eps
            elif self._high >= before:
                return
            if self.status.clock.expired():
                return

    def _narrow(self) -> Reason | None:
        """Searches between what is certified and what is falsified.  Why that was ended, if it was.

        Attacks mostly find what is nearest, so the first radius is just below: one long search instead of several.
        Radii that were not decided in their time are a fence, until searches may take longer.
        """
        fence: Fence | None = None
        aimed: Fraction | None = None  # the falsified radius that was aimed at
        share = FIRST_SHARE
        while not self._narrow_enough:
            if self.status.clock.expired():
                return Reason.TIMEOUT
            share = max(share, GROWTH * self._longest)
            if fence is not None and fence.eps - self._low <= self._gap:
                if fence.reason is not Reason.TIMEOUT:
                    return fence.reason
                share = max(share, GROWTH * fence.seconds)
            if fence is not None and fence.falls(share, self._top):
                fence, aimed = None, None
            eps = between(self._low, self._top if fence is None else fence.eps)
            if fence is None and aimed != self._top:
                aimed, eps = self._top, self._just_below()
            before = self._low, self._top
            reason = self._try(eps, share)
            if reason is None and before == (self._low, self._top):
                reason = Reason.NUMERICS  # a counterexample that is none at any radius which a float can tell
            if reason is not None:
                fence = Fence(eps, share, reason)
            elif eps > self._low:
                self._by_attack()
        return None

    def _just_below(self) -> Fraction:
        """What decides everything at once; the largest radius itself if no counterexample is known."""
        top = self._top
        return top if self._high is None else between(top - self._gap, top, 0.25)

    def _try(self, eps: Fraction, share: float) -> Reason | None:
        """Attack, bounds and a search for one radius, within so many seconds; None if it is decided."""
        began, clock = time.monotonic(), self.status.clock.within(share)
        status = replace(self.status, clock=clock, statistics=Statistics())
        try:
            reason = self._decided(Attempt(eps, self._pipeline(eps, status), began))
        finally:
            self.status.seconds = status.seconds
        if reason is not None:
            self._note(Trial(float(eps), "undecided", reason.value, time.monotonic() - began))
        return reason

    def _decided(self, attempt: Attempt) -> Reason | None:
        """Cheap things first.  The usual attack comes after a glance at the tree: most radii need none of it."""
        if self._attacked(attempt, self._from_known):
            return None
        if attempt.pipeline.problem.beyond is not None:  # nothing can be proved
            return None if self._attacked(attempt, _usual) else Reason.NUMERICS
        found = self._bounds(attempt.pipeline)
        if found.closed:
            self._certify(attempt.eps, "bounds", attempt.began)
            return None
        if self._attacked(attempt, lambda one: one.pipeline.refine(found)):
            return None
        whole = attempt.pipeline.status.clock
        if self._longest < GLANCE:
            reason = self._searched(attempt, found, whole.within(GLANCE))
            if reason is not Reason.TIMEOUT or whole.expired():
                return reason
            attempt.pipeline.status.clock = whole
        if self._attacked(attempt, _usual):
            return None
        return self._searched(attempt, found, whole)

    def _attacked(self, attempt: Attempt, attack: Callable[[Attempt], Counterexample | None]) -> bool:
        """Whether an attack has found something."""
        with attempt.pipeline.status.phase("attack"), torch_threads(1):
            witness = attack(attempt)
            if witness is not None:
                self._falsify(witness, "attack", attempt.began)
        return witness is not None

    def _searched(self, attempt: Attempt, found: ClauseBounds, clock: Clock) -> Reason | None:
        """Branch and bound until a time; None if that decides it."""
        status = attempt.pipeline.status
        status.clock = clock
        with status.phase("search"), torch_threads(1):
            outcome = attempt.pipeline.search(found)
        if outcome.reason is not None:
            return outcome.reason
        self._longest = max(self._longest, time.monotonic() - attempt.began)
        if outcome.witness is not None:
            self._falsify(outcome.witness, "search", attempt.began)
        else:
            self._certify(attempt.eps, "search", attempt.began)
        return None

    def _from_known(self, attempt: Attempt) -> Counterexample | None:
        """A short attack on all classes from the counterexamples so far, moved into the ball."""
        if not self.known.witnesses or not self.request.config.falsify.enabled:
            return None
        target, pipeline = attempt.pipeline.target, attempt.pipeline
        points = torch.from_numpy(np.stack([witness.x for witness in self.known.witnesses[-STARTS:]]))
        x = points.to(target.device, target.dtype).repeat_interleave(target.clauses, dim=0)
        clause = torch.arange(target.clauses, device=target.device).repeat(len(points))
        return pipeline.falsifier.improve(target, x, clause, pipeline.status.clock)


def _usual(attempt: Attempt) -> Counterexample | None:
    """The attack that `verify NET PROP` begins with."""
    return attempt.pipeline.falsify()
