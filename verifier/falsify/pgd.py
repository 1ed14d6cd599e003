"""Projected gradient descent on the margin of whole clauses, many clauses and starting points at a time."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import count

import torch

from verifier.clock import Clock
from verifier.falsify import ATTACKS
from verifier.falsify.base import Falsifier, FirstOf, Wave, one_after_another
from verifier.falsify.start import rank, starts
from verifier.falsify.target import Room, Target
from verifier.registry import Count, Options, Positive, Step
from verifier.result.counterexample import Counterexample
from verifier.shapes import Float, Int, Tensor

SECONDS_PER_MULTIPLICATION = 1e-10
SECONDS_PER_NUMBER = 4e-9
"""Forward and backward pass on a nominal core, per multiplication and per number that the forward pass moves.
Effort is planned with these instead of a stopwatch: what is tried must depend on the instance and the seed only."""


class StepRule(ABC):
    """How a gradient becomes a direction.  Coordinates are relative to the box: 0 is lower, 1 is upper."""

    @abstractmethod
    def direction(
        self, gradient: Float[Tensor, "P n0"], memory: Memory | None
    ) -> tuple[Float[Tensor, "P n0"], Memory | None]:
        """The direction of descent, of size about 1 per coordinate, and what the next step must remember."""

    def in_ball(self, step: Float[Tensor, "P n0"], way: Callable[[], Float[Tensor, "P n0"]]) -> Float[Tensor, "P n0"]:
        """The step to take in a ball: that of the box, or the way to the point that is best to first order."""
        return step


@dataclass(frozen=True, slots=True)
class Memory:
    """Running means of the gradient and of its square after `steps` steps."""

    mean: Float[Tensor, "P n0"]
    square: Float[Tensor, "P n0"]
    steps: int


@dataclass(frozen=True, slots=True)
class SignSteps(StepRule):
    """Every coordinate moves by the same share of its width."""

    def direction(
        self, gradient: Float[Tensor, "P n0"], memory: Memory | None
    ) -> tuple[Float[Tensor, "P n0"], Memory | None]:
        return -gradient.sign(), None

    def in_ball(self, step: Float[Tensor, "P n0"], way: Callable[[], Float[Tensor, "P n0"]]) -> Float[Tensor, "P n0"]:
        return 2.0 * way()


@dataclass(frozen=True, slots=True)
class AdamSteps(StepRule):
    """Kingma and Ba (2015): coordinates whose gradient keeps its sign move fastest."""

    beta_1: float = 0.9
    beta_2: float = 0.99

    def direction(
        self, gradient: Float[Tensor, "P n0"], memory: Memory | None
    ) -> tuple[Float[Tensor, "P n0"], Memory | None]:
        # Only ratios of gradients matter; with the largest at 1 nothing under- or overflows when squared.
        largest = gradient.abs().amax(-1, keepdim=True)
        gradient = gradient / torch.where(largest > 0, largest, 1.0)
        zero = torch.zeros_like(gradient)
        before = memory or Memory(zero, zero, 0)
        mean = torch.lerp(gradient, before.mean, self.beta_1)
        square = torch.lerp(gradient.square(), before.square, self.beta_2)
        steps = before.steps + 1
        scale = (square / (1 - self.beta_2**steps)).sqrt() + 1e-8
        return -(mean / (1 - self.beta_1**steps)) / scale, Memory(mean, square, steps)


@dataclass(frozen=True, slots=True)
class Descent:
    """A number of steps whose size shrinks geometrically from `first` to `last`, as shares of the box's width."""

    rule: StepRule = SignSteps()
    steps: int = 40
    first: float = 0.25
    last: float = 0.001

    def size(self, step: int) -> float:
        """The length of step number 0, 1, ..."""
        share = step / max(1, self.steps - 1)
        return float(self.first ** (1 - share) * self.last**share)

    def run(
        self, target: Target, x: Float[Tensor, "P n0"], clause: Int[Tensor, " P"], until: Clock
    ) -> tuple[Counterexample | None, Float[Tensor, " P"]]:
        """Descends from points of the box; a witness if there is one, and the lowest worst margin of each descent.

        Every iterate with a margin of zero or below is replayed.  A point just above zero may still be a witness of
        the original network, whose sums are ordered differently: such points are replayed at the end.
        """
        room, memory = target.room(clause), None
        lowest = x.new_full((len(x),), torch.inf)
        for step in range(self.steps):
            if until.expired():
                return None, lowest
            worst, gradient = target.slope(x, clause)
            lowest = torch.fmin(lowest, worst)
            if witness := target.replay(x, worst, clause):
                return witness, lowest
            x, memory = self.moved(room, x, gradient, step, memory)
        y = target.network.forward(x)
        worst = target.rows.margins(x, y, clause).amax(-1)
        return target.replay(x, worst, clause, target.rows.noise(y, clause)), torch.fmin(lowest, worst)

    def moved(
        self,
        room: Room,
        x: Float[Tensor, "P n0"],
        gradient: Float[Tensor, "P n0"],
        step: int,
        memory: Memory | None,
    ) -> tuple[Float[Tensor, "P n0"], Memory | None]:
        """The points after one step down their gradients, and what the next step must remember."""
        move, memory = self.rule.direction(gradient * room.width, memory)
        way = room.width * move
        if room.ball is not None:
            way = self.rule.in_ball(way, partial(room.way, x, gradient))
        return room.inside(x + self.size(step) * way), memory


@dataclass(frozen=True, slots=True)
class PGD(Falsifier):
    """Samples of each box, then descents from the best of them and from random ones.

    `effort` is the work in seconds of a nominal core; a large network gets at least `passes` forward and backward
    passes.  Half of it goes to all clauses alike (to those with the lowest margins at their centres if they are
    too many), the rest to the quarter of them on which the descents came lowest.  No clause gets more than `samples`
    samples and `restarts` descents at a time.
    """

    descent: Descent = Descent()
    samples: int = 1024
    restarts: int = 64
    effort: float = 0.15
    passes: int = 100
    seed: int = 0

    def attack(self, target: Target, until: Clock) -> Counterexample | None:
        return one_after_another(self.waves(target), until)

    def waves(self, target: Target) -> Iterator[Wave]:
        """All clauses, and then, if there are several, those on which the first descents came lowest."""
        generator = torch.Generator().manual_seed(self.seed)
        points = self._points(target)
        found: list[tuple[Int[Tensor, " C"], Float[Tensor, " C"]]] = []

        def all_alike(until: Clock) -> Counterexample | None:
            scouted = rank(target, until)[: max(1, points // 2)]
            mine = points if len(scouted) == 1 else points // 2
            witness, lowest = self._wave(target, scouted, mine, generator, until)
            found.append((scouted, lowest))
            return witness

        def the_best(until: Clock) -> Counterexample | None:
            ((scouted, lowest),) = found
            best = scouted[torch.argsort(lowest, stable=True)[: math.ceil(len(scouted) / 4)]]
            return self._wave(target, best, points - points // 2, generator, until)[0]

        yield all_alike
        if found and len(found[0][0]) > 1:
            yield the_best

    def improve(
        self, target: Target, x: Float[Tensor, "P n0"], clause: Int[Tensor, " P"], until: Clock
    ) -> Counterexample | None:
        x = target.room(clause).inside(x)
        for part in torch.arange(len(x), device=target.device).split(target.points_in_memory):
            witness, _ = self.descent.run(target, x[part], clause[part], until)
            if witness:
                return witness
        return None

    def _wave(
        self, target: Target, clauses: Int[Tensor, " C"], points: int, generator: torch.Generator, until: Clock
    ) -> tuple[Counterexample | None, Float[Tensor, " C"]]:
        """About `points` descents, shared evenly among the clauses: a witness, or the lowest margin of each clause."""
        restarts = min(self.restarts, max(1, points // len(clauses)))
        samples = min(self.samples, max(restarts, points * self.descent.steps // (4 * len(clauses))))
        lowest = []
        for chunk in clauses.split(max(1, target.points_in_memory // max(samples, restarts))):
            witness, x = starts(target, chunk, samples, restarts, generator)
            if witness is None:
                repeated = chunk.repeat_interleave(restarts)
                witness, margins = self.descent.run(target, x.flatten(0, 1), repeated, until)
                lowest.append(margins.reshape(-1, restarts).amin(1))
            if witness or until.expired():
                return witness, target.lower.new_full((len(clauses),), torch.inf)
        return None, torch.cat(lowest)

    def _points(self, target: Target) -> int:
        """Descents that the effort allows."""
        seconds = SECONDS_PER_MULTIPLICATION * target.network.work + SECONDS_PER_NUMBER * target.traffic
        passes = max(self.passes, int(self.effort / seconds))
        return max(1, passes // self.descent.steps)


class QuickOptions(Options, frozen=True):
    """Descents from many starting points."""

    samples: Count = 1024  # points of each box that are tried first
    restarts: Positive = 64  # starting points of the descents, per clause
    steps: Positive = 40  # steps of each descent
    effort: Step = 0.15  # the work of one attack, in seconds of a nominal core


@ATTACKS.register("quick", QuickOptions)
def quick(options: QuickOptions | None = None, seed: int = 0) -> Falsifier:
    """A first try that costs a few tenths of a second, or some hundred passes through a large network.

    Coarse signed steps do best on images, whose witnesses sit at corners; Adam with fine last steps finds the narrow
    sets that conjunctions over few inputs leave.
    """
    o = options or QuickOptions()
    signed = PGD(Descent(SignSteps(), o.steps, last=0.02), o.samples, o.restarts, o.effort, passes=200, seed=seed)
    adam = PGD(Descent(AdamSteps(), o.steps), 4 * o.samples, 4 * o.restarts, o.effort * 2 / 3, seed=seed)
    return FirstOf((signed, adam))


def restarts(seed: int = 0) -> Iterator[Falsifier]:
    """Attacks without end, each a few tenths of a second with points of its own: long descents, by turns of both kinds.

    Where `quick` has failed, more of the same does not help, but a hundred steps instead of forty do.
    """
    long = Descent(AdamSteps(), 100), Descent(SignSteps(), 100, last=0.005)
    for turn in count(1):
        yield PGD(long[(turn - 1) % 2], effort=0.25, passes=200, seed=seed + turn)


@ATTACKS.register("thorough")
def thorough(seed: int = 0) -> Falsifier:
    """Some twenty times as much as `quick`, which comes first, for users who ask for a counterexample only."""
    signed = PGD(Descent(SignSteps(), 40, last=0.02), samples=8192, effort=0.25, passes=400)
    adam = PGD(Descent(AdamSteps(), 100), samples=8192, effort=0.25, passes=400)
    later = [replace(part, seed=seed + turn) for turn in range(1, 13) for part in (signed, adam)]
    return FirstOf((quick(seed=seed), *later))
