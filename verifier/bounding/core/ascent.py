"""Projected supergradient ascent with Adam's step: the loop that all iterative dual bounds share.

A dual function is evaluated for a whole batch at once; its variables are one tensor whose last axis lists all of
them.  Every iterate gives valid bounds, so the best one of each objective is kept.  Regions whose objectives are all
above the threshold leave the batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch.nn.functional import pad

from verifier.bounding.core.base import Until, Watch
from verifier.bounding.core.state import State
from verifier.registry import AscentOptions
from verifier.shapes import Float, Int, Tensor

LEAVE_BELOW = 0.8
"""The batch is rebuilt once no more than this share of it is open: rebuilding copies what stays."""


@dataclass(eq=False)
class Average:
    """The mean of primal points: x[j] of all sources and, where the dual has it, z at the kinks of all groups.

    Near the end of an ascent it approximates a solution of the primal linear program, in its interior.  Groups that
    nobody reads have no values.
    """

    rows: Int[Tensor, " d"]  # the regions that the points belong to, in ascending order
    count: int = 0
    _values: tuple[Tensor | None, ...] = ()
    _z: tuple[Tensor, ...] = ()

    def follow(self, rows: Int[Tensor, " d"]) -> None:
        """Forget regions that have left the batch."""
        if len(rows) == len(self.rows):
            return
        kept = torch.searchsorted(self.rows, rows)
        self.rows = rows
        self._values = tuple(None if v is None else v[kept] for v in self._values)
        self._z = tuple(v[kept] for v in self._z)

    def add(self, values: Sequence[Tensor | None], z: Sequence[Tensor] = ()) -> None:
        """Take one more point of the regions `rows`."""
        self.count += 1
        if self.count == 1:
            self._values = tuple(None if v is None else v.clone() for v in values)
            self._z = tuple(v.clone() for v in z)
            return
        for total, other in zip((*self._values, *self._z), (*values, *z), strict=True):
            if total is not None and other is not None:
                total.add_(other)

    def mean(self) -> tuple[list[Tensor | None], list[Tensor]]:
        return [None if v is None else v / self.count for v in self._values], [v / self.count for v in self._z]


@dataclass(eq=False)
class Averaging:
    """Collects the average over the last iterations of an ascent.

    If the ascent ends before them, `average` stays None or holds fewer points.
    """

    last: int = 40
    average: Average | None = None

    def at(self, t: int, iterations: int, rows: Int[Tensor, " d"]) -> Average | None:
        """Where iteration t adds its point, if it is one of the last."""
        if t < iterations - self.last:
            return None
        if self.average is None:
            self.average = Average(rows)
        self.average.follow(rows)
        return self.average


@dataclass(frozen=True)
class Steps:
    """A step size that falls from `first` to `last` over the iterations, geometrically or linearly."""

    first: float
    last: float
    linear: bool = False

    def at(self, t: int, count: int) -> float:
        """The step of iteration t = 0 .. count - 1."""
        part = t / max(1, count - 1)
        if self.linear:
            return self.first + part * (self.last - self.first)
        return float(self.first * (self.last / self.first) ** part)


EvaluationT = TypeVar("EvaluationT", bound="Evaluation")


@dataclass(frozen=True, eq=False)
class Evaluation(State):
    """The dual value at a point, and the primal input that attains it."""

    lower: Float[Tensor, "D S"]
    x0: Float[Tensor, "D S n0"]


class Dual(State, ABC, Generic[EvaluationT]):
    """A concave (or nearly concave) function of the variables, to be maximised over a simple set."""

    @abstractmethod
    def evaluate(self, point: Float[Tensor, "D S V"]) -> EvaluationT:
        """Valid lower bounds at any feasible point."""

    @abstractmethod
    def supergradient(
        self, point: Float[Tensor, "D S V"], at: EvaluationT, seen: Average | None = None
    ) -> Float[Tensor, "D S V"]:
        """A direction of ascent at the point that gave `at`; `seen` takes the primal point that is met on the way."""

    @abstractmethod
    def project(self, point: Float[Tensor, "D S V"]) -> None:
        """Move the point to the feasible set, in place."""

    def step_scale(self) -> Float[Tensor, " V"] | float:
        """Factors by which the variables' steps differ, in all regions alike."""
        return 1.0


@dataclass(frozen=True, eq=False)
class Adam(State):
    """First and second moments of the supergradient."""

    mean: Tensor
    square: Tensor

    BETA1 = 0.9
    BETA2 = 0.999
    EPSILON = 1e-8
    TINY = 2.0**-126  # roots of subnormal numbers take thirty times as long, and vanish beside EPSILON

    @classmethod
    def start(cls, like: Tensor) -> Adam:
        return cls(torch.zeros_like(like), torch.zeros_like(like))

    def step(self, point: Tensor, gradient: Tensor, size: float | Tensor, t: int) -> None:
        """point += size * direction, in place; t counts from 0."""
        self.mean.lerp_(gradient, 1 - self.BETA1)
        self.square.mul_(self.BETA2).addcmul_(gradient, gradient, value=1 - self.BETA2)
        spread = self.square.div(1 - self.BETA2 ** (t + 1)).clamp_(min=self.TINY).sqrt_().add_(self.EPSILON)
        direction = self.mean.div(spread).div_(1 - self.BETA1 ** (t + 1))
        point.add_(direction.mul_(size))

    def widened(self, variables: int) -> Adam:
        """With zero moments for further variables at the end."""
        extra = (0, variables - self.mean.shape[-1])
        return Adam(pad(self.mean, extra), pad(self.square, extra))


@dataclass(frozen=True, eq=False)
class Best:
    """The best point that was met, its bounds, and how many iterations were made.

    `last` is what the regions that have not left met last.
    """

    point: Float[Tensor, "D S V"]
    lower: Float[Tensor, "D S"]
    iterations: int
    last: Any


Grown = Callable[[Any, Any, int], Any]
"""(ascent under way, evaluation, iteration) -> the evaluation to step from."""


@dataclass(frozen=True)
class Ascent:
    """How long to climb and with which steps."""

    iterations: int
    steps: Steps
    check_every: int = 10  # iterations between looks at the clock and at who is done; a look is a synchronisation

    @classmethod
    def of(cls, options: AscentOptions, linear: bool = False, check_every: int = 10) -> Ascent:
        """As the options say; the steps fall linearly or geometrically."""
        return cls(options.iterations, Steps(options.first_step, options.last_step, linear), check_every)

    def run(
        self,
        dual: Dual[Any],
        start: Float[Tensor, "D S V"],
        until: Until,
        averaging: Averaging | None = None,
        watch: Watch | None = None,
        grown: Grown | None = None,
    ) -> Best:
        """Maximise from `start`, which is not changed.  Guarantee: never worse than the start.

        `grown` sees every iterate before the step, and may go on with a function of more variables.
        """
        climb = Climb(dual, start, until, watch)
        for t in range(self.iterations):
            if self._looks(t) and climb.finished():
                if t == 0:  # no time: the bound of the start is all there is
                    climb.record()
                return climb.best(t)
            seen = None if averaging is None else averaging.at(t, self.iterations, climb.rows)
            at = climb.record()
            if grown is not None:
                at = grown(climb, at, t)
            climb.step(at, self.steps.at(t, self.iterations), t, seen)
        climb.record()
        return climb.best(self.iterations)

    def _looks(self, t: int) -> bool:
        """Whether iteration t begins with a look; most regions that are ever done are so at their start."""
        return t == 1 or t % self.check_every == 0


DualT = TypeVar("DualT", bound=Dual[Any])


class Climb(Generic[DualT]):
    """An ascent under way: the regions that are still in it (`rows`), and the best points of all."""

    def __init__(self, dual: DualT, start: Float[Tensor, "D S V"], until: Until, watch: Watch | None = None) -> None:
        self.dual = dual
        self.until = until
        self.watch = watch
        self.point = start.clone()
        self.adam = Adam.start(start)
        self._scale = dual.step_scale()
        self.rows = torch.arange(start.shape[0], device=start.device)
        self._best_point = start.clone()
        self._best_lower = torch.full(start.shape[:2], -torch.inf, dtype=start.dtype, device=start.device)
        self._all_points, self._all_lower = self._best_point, self._best_lower
        self._last: Evaluation | None = None

    def record(self) -> Any:
        """Evaluate the current point and keep it where it is better."""
        at = self.dual.evaluate(self.point)
        improved = at.lower > self._best_lower
        torch.where(improved.unsqueeze(-1), self.point, self._best_point, out=self._best_point)
        torch.maximum(at.lower, self._best_lower, out=self._best_lower)
        if self.watch is not None:
            self.watch(self._best_lower)
        self._last = at
        return at

    def step(self, at: Evaluation, size: float, t: int, seen: Average | None = None) -> None:
        """One projected step from the point that was just recorded."""
        gradient = self.dual.supergradient(self.point, at, seen)
        self.adam.step(self.point, gradient, size * self._scale, t)
        self.dual.project(self.point)

    def extend(self, dual: DualT, variables: int) -> None:
        """Go on with a function of more variables, the new ones last and starting at zero."""
        extra = (0, variables - self.point.shape[-1])
        self._write_back()
        self.dual, self.adam = dual, self.adam.widened(variables)
        self._scale = dual.step_scale()
        self.point = pad(self.point, extra)
        shared = self._all_points is self._best_point
        self._all_points = pad(self._all_points, extra)
        self._best_point = self._all_points if shared else pad(self._best_point, extra)

    def finished(self) -> bool:
        """Let regions leave that are done; True when none is left or time is up."""
        if self.until.expired():
            return True
        if self.until.threshold is None:
            return False
        open_rows = torch.nonzero((self._best_lower <= self.until.threshold).any(dim=1)).flatten()
        if len(open_rows) > LEAVE_BELOW * len(self.rows):
            return False
        self._write_back()
        self.rows = self.rows[open_rows]
        self.dual, self.adam = self.dual.select(open_rows), self.adam.select(open_rows)
        self.point = self.point[open_rows]
        self._best_point, self._best_lower = self._best_point[open_rows], self._best_lower[open_rows]
        return len(open_rows) == 0

    def _write_back(self) -> None:
        if self._all_lower is not self._best_lower:
            self._all_points[self.rows] = self._best_point
            self._all_lower[self.rows] = self._best_lower

    def best(self, iterations: int) -> Best:
        """The best points of all regions, also of those that have left."""
        self._write_back()
        return Best(self._all_points, self._all_lower, iterations, self._last)
