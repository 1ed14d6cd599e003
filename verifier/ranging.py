"""Certified ranges: how small and how large linear functions of the outputs become over an input set.

Every end is a minimum, of the function or of its negative.  Its bounds are moved towards each other by questions that
the search answers: is there a point at or below a threshold between them?  `unsat` lifts the certified bound to the
threshold; a witness lowers the value that is reached.  The network is loaded, and its hidden neurons are bounded, once.

requires:   a network that can be bounded, and at least one box
guarantees: outer bounds include all rounding errors at any time; inner ones were reached by the original network
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray

from verifier.bounding.clauses import ClauseBounder, inputs_of
from verifier.bounding.core.base import Until
from verifier.bounding.hidden import GroupBounds, Known
from verifier.clock import Clock
from verifier.errors import InputError
from verifier.falsify.lowest import Lowest
from verifier.falsify.target import Target
from verifier.loading import Loaded
from verifier.machine import WithinMemory, torch_threads
from verifier.network.merge import merging
from verifier.pipeline import Pipeline, Request, load, problem_of
from verifier.processes import Forks
from verifier.property.problem import Problem, canonicalise
from verifier.property.property import Clause, Doubles, ExactRow, RoundedRows
from verifier.result.counterexample import Counterexample, precision
from verifier.result.ranges import End, Range, Ranges, allowed
from verifier.result.status import Status
from verifier.result.verdict import Reason

AIM = 1.0
"""Where between both bounds of an end the first threshold lies: as near to the value that is reached as is asked for.
Where that takes too long, the next one is half as far from the certified bound."""

ALMOST = 0.99
"""The share of the gap that the last threshold leaves: rounding must not make it one too many."""

FIRST = 0.25
"""The part of its share of the time that an end's first question gets."""

LEAST_AIM = 0.01
"""An end whose threshold would have to be that near to its certified bound is given up."""

LEAST_SECONDS = 0.5
"""That one question gets, if there are that many left."""


@dataclass(eq=False)
class Side:
    """One end as a minimum: what is proved and what is reached so far."""

    row: int
    sign: int  # 1: the lower end; -1: the upper one, the minimum of the negative
    coefficients: tuple[tuple[int, Fraction], ...]
    proved: float = -math.inf
    reached: float = math.inf
    point: NDArray[np.floating] | None = None
    aim: float = AIM

    def value(self, y: NDArray[np.floating]) -> float:
        """The function at outputs, rounded once."""
        return float(sum((a * Fraction(y[j].item()) for j, a in self.coefficients), Fraction(0)))

    def reach(self, x: NDArray[np.floating], y: NDArray[np.floating]) -> None:
        """Hear of a point."""
        if np.isfinite(y).all() and (value := self.value(y)) < self.reached:
            self.reached, self.point = value, x

    def open(self, gap: float) -> bool:
        """Whether a question is worth asking."""
        return self.aim >= LEAST_AIM and self.reached - self.proved > allowed(gap, self.reached)

    def threshold(self, gap: float) -> float:
        """What the next question is about.  Require: `open`."""
        near = self.reached - ALMOST * allowed(gap, self.reached)
        if not math.isfinite(self.proved):
            return near
        return min(near, self.proved + self.aim * (self.reached - self.proved))

    def end(self) -> End:
        reached = None if self.point is None else self.sign * self.reached
        return End(self.sign * self.proved, reached, self.point)


Report = Callable[[Ranges], None]


@dataclass(eq=False)
class Ranger:
    """Ranges under way; results can be drawn up at any time, also from another thread.

    `rows` are the functions, one for each row; None: every output.  `report` hears of every change.
    """

    request: Request
    status: Status
    rows: Doubles | None
    gap: float
    report: Report = lambda found: None
    sides: list[Side] = field(default_factory=list)
    searches: int = 0
    reason: Reason | None = None

    def run(self) -> Ranges:
        """All ends, until they are close enough, or time is up, or no question helps."""
        with WithinMemory(), self.request.machine.taken() as device:
            self.status.computes_on(device, self.request.machine.cores)
            with self.status.phase("load"), torch_threads(1):
                loaded = load(self.request, self.status)
                self.sides = sides_of(self.rows, loaded.property.n_y)
                if not len(loaded.property.boxes):
                    raise InputError("the property has no box: there is nothing to range over")
                whole = problem_of(self._asking(loaded, [0.0] * len(self.sides)), self.request.seed, merging)
            if whole.beyond is not None:
                return self.results(Reason.NUMERICS)
            self._narrow(RangeTask.of(self, loaded, whole, device))
            return self.results(self.reason)
        return self.results(Reason.MEMORY)

    def results(self, reason: Reason | None = None) -> Ranges:
        """What is known now."""
        pairs = zip(self.sides[::2], self.sides[1::2], strict=True)
        ranges = tuple(Range(self._name(low.row), low.end(), high.end()) for low, high in pairs)
        return Ranges(ranges, self.gap, reason, self.searches, **self.status.circumstances())

    def _name(self, row: int) -> str:
        return f"Y_{row}" if self.rows is None else f"row {row}"

    @staticmethod
    def _asking_one(loaded: Loaded, side: Side, threshold: float) -> tuple[Clause, ...]:
        """A clause on every box: the function is at or below the threshold."""
        prop = loaded.property
        row = ExactRow(side.coefficients, (), Fraction(threshold), strict=False)
        ends = ((prop.boxes.lower[b], prop.boxes.upper[b]) for b in range(len(prop.boxes)))
        return tuple(Clause(b, RoundedRows.of([row], prop.n_x, prop.n_y, box)) for b, box in enumerate(ends))

    def _asking(self, loaded: Loaded, thresholds: list[float]) -> Loaded:
        """All ends, in turn on all boxes."""
        pairs = zip(self.sides, thresholds, strict=True)
        clauses = tuple(clause for side, at in pairs for clause in self._asking_one(loaded, side, at))
        return replace(loaded, property=replace(loaded.property, clauses=clauses))

    def _narrow(self, task: RangeTask) -> None:
        """First bounds and points of all ends, then one question after the other, of the widest gap first."""
        with self.status.phase("root"):
            task.first_bounds(self.sides)
        with self.status.phase("attack"), torch_threads(1):
            task.first_points(self.sides)
        self.report(self.results())
        with self.status.phase("search"), torch_threads(1):
            while left := [side for side in self.sides if side.open(self.gap)]:
                if self.status.clock.expired():
                    self.reason = Reason.TIMEOUT
                    return
                side = max(left, key=lambda one: (one.reached - one.proved) / allowed(1.0, one.reached))
                self._ask(task, side, len(left))
                self.report(self.results())
        if any(side.aim < LEAST_AIM for side in self.sides):
            self.reason = self.reason or Reason.NUMERICS

    def _ask(self, task: RangeTask, side: Side, left: int) -> None:
        """One question about one end, with its share of the time."""
        threshold = side.threshold(self.gap)
        if not side.proved < threshold < side.reached:  # no float lies between them
            side.aim = 0.0
            return
        self.searches += 1
        share = self.status.clock.remaining() / left
        limit = max(LEAST_SECONDS, FIRST * share if side.aim == AIM else share)
        problem = task.asking(self._asking_one(task.loaded, side, threshold))
        closed, witness, reason = task.decided(problem, self.status.clock.within(limit))
        if closed:
            side.proved = threshold
        elif witness is not None:
            before = side.reached
            side.reach(witness.x, witness.y)
            side.aim = side.aim if side.reached < before else side.aim / 2
        else:
            side.aim, self.reason = side.aim / 2, reason


@dataclass(frozen=True, eq=False)
class RangeTask:
    """The loaded instance, and what all questions about it share."""

    request: Request
    clock: Clock
    loaded: Loaded
    whole: Problem  # with a clause for every end and box
    hidden: GroupBounds
    device: torch.device

    @classmethod
    def of(cls, ranger: Ranger, loaded: Loaded, whole: Problem, device: torch.device) -> RangeTask:
        """Bounds the hidden neurons, once for all if there is a single box."""
        hidden = ranger.request.config.bounding.hidden()
        if len(whole.lower) == 1:
            inputs = inputs_of(whole, torch.tensor([0]))
            workers = Forks(ranger.request.machine.processes(whole.lower.device))
            with ranger.status.phase("root"):
                hidden = Known(hidden.completed(whole.network, inputs, Until(ranger.status.clock), workers))
        return cls(ranger.request, ranger.status.clock, loaded, whole, hidden, device)

    def first_bounds(self, sides: list[Side]) -> None:
        """What the bounds at the root prove."""
        found = ClauseBounder(self.hidden, self.request.config.bounding.batch).bound(self.whole, Until(self.clock))
        boxes = len(self.whole.lower)
        for number, side in enumerate(sides):
            side.proved = float(found.lower[number * boxes : (number + 1) * boxes].min())

    def first_points(self, sides: list[Side]) -> None:
        """What descents reach."""
        target = Target.of(self.whole, self.loaded.model, self.device)
        clauses = torch.arange(len(self.whole.rows), device=self.device)
        x = Lowest(seed=self.request.seed).points(target, clauses, self.clock)
        boxes = len(self.whole.lower)
        for number, points in enumerate(x.cpu().numpy()):
            for point in points:
                self._try(sides[number // boxes], number % boxes, point)

    def _try(self, side: Side, box: int, x: NDArray[np.floating]) -> None:
        """Let the original network say what a point reaches, if it lies in the input set."""
        prop, dtype = self.loaded.property, precision(self.loaded.model)
        ends = tuple(end[box] for end in prop.boxes.ends(dtype))
        x = np.clip(x, *ends).astype(dtype)
        if prop.ball is not None:
            x = prop.ball.inside(x, (ends[0], ends[1]))
            if not prop.ball.holds([Fraction(v) for v in x.tolist()]):
                return
        side.reach(x, np.asarray(self.loaded.model.run(x)))

    def asking(self, clauses: tuple[Clause, ...]) -> Problem:
        """The same instance with other clauses."""
        prop = replace(self.loaded.property, clauses=clauses)
        return replace(canonicalise(self.whole.network, prop), merged=self.whole.merged)

    def decided(self, problem: Problem, clock: Clock) -> tuple[bool, Counterexample | None, Reason | None]:
        """Whether nothing is at or below the threshold, or a witness, or why neither is known."""
        status = Status(clock=clock)
        pipeline = Pipeline.of(self.request, status, problem, self.loaded.model, self.device)
        bounder = ClauseBounder(self.hidden, self.request.config.bounding.batch)
        found = bounder.bound(pipeline.problem, Until(clock))
        if found.closed:
            return True, None, None
        outcome = pipeline.search(found)
        kept = outcome.witness or pipeline.target.reserve.found()
        return kept is None and outcome.reason is None, kept, outcome.reason


def sides_of(rows: Doubles | None, outputs: int) -> list[Side]:
    """Both ends of every function, the lower one first."""
    matrix = np.eye(outputs) if rows is None else rows
    if matrix.ndim != 2 or matrix.shape[1] != outputs or not len(matrix):
        raise InputError(f"rows have the shape {matrix.shape}; a matrix with {outputs} columns is expected")
    sides = []
    for number, row in enumerate(matrix.tolist()):
        for sign in (1, -1):
            terms = tuple((j, sign * Fraction(a)) for j, a in enumerate(row) if a)
            sides.append(Side(number, sign, terms))
    return sides
