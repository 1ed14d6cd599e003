"""The searches of ends, which take turns.

One branch and bound for each end asks where the function is at or below a threshold just under the least value that is
known to be reached.  It goes on, the worst domain first, until the least bound of all that is open has come close to
that value, or nothing is open: what is closed lies above the threshold, and bounds of open domains are rigorous, too.
A point below the threshold ends nothing, it only lowers the value.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import NDArray

from verifier.bounding.clauses import ClauseBounder
from verifier.bounding.core.base import Until
from verifier.bounding.hidden import GroupBounds
from verifier.clock import Clock
from verifier.falsify.lowest import Lowest
from verifier.falsify.target import Target
from verifier.loading import Loaded
from verifier.pipeline import Pipeline, Request
from verifier.property.problem import Problem, canonicalise
from verifier.ranging.sides import Side, asking
from verifier.result.counterexample import Counterexample, precision
from verifier.result.status import Status
from verifier.result.verdict import Reason
from verifier.search.journal import Journal
from verifier.search.loop import Search
from verifier.search.problem import ProblemSearch
from verifier.shapes import Float, Int, Tensor

FIRST_TURN = 0.25
"""Seconds that every search gets in the first round; rounds double."""

DESCENTS = 0.1
"""The share of the time of a search that descents from its points may take."""


def in_turns(task: RangeTask, sides: list[Side], gap: float, tell: Callable[[Side], None]) -> None:
    """The searches of some ends, each for a while, until they are close enough or time is up; `tell` hears of each."""
    searches: dict[Side, SideSearch] = {}
    seconds = FIRST_TURN
    with ExitStack() as ends:
        while left := [side for side in sides if side.open(gap)]:
            for side in left:
                if task.clock.expired():
                    return
                if side not in searches:
                    searches[side] = SideSearch.of(task, side, gap)
                    ends.callback(searches[side].close)
                searches[side].go_on(seconds, gap)
                if searches[side].search is None and side.open(gap):
                    side.given_up = Reason.NUMERICS  # no float lies between what is proved and what is reached
                tell(side)
            seconds *= 2


@dataclass(eq=False)
class SideSearch:
    """The branch and bound of one end; None once nothing is open."""

    side: Side
    at: float  # the threshold
    points: Reaching
    search: Search | None

    @classmethod
    def of(cls, task: RangeTask, side: Side, gap: float) -> SideSearch:
        """The search, which has not begun; what the whole boxes prove is known."""
        at, points = side.threshold(gap), Reaching(task, side)
        search = task.searching(side, at, points) if math.isfinite(at) else None
        if search is None and math.isfinite(at):
            side.proved = max(side.proved, at)
        return cls(side, at, points, search)

    def go_on(self, seconds: float, gap: float) -> None:
        """Steps until time is up, the end is close enough, or the search ends."""
        spent = 0.0
        while self.search is not None and spent < seconds and not self.points.task.clock.expired():
            began = time.monotonic()
            self.search.step()
            self._learn(self.search)
            if not self.side.open(gap):
                self.close()
            spent += (step := time.monotonic() - began)
            self.points.descents += DESCENTS * step

    def _learn(self, search: Search) -> None:
        """What all domains together prove: closed ones lie above the threshold, open ones above their bounds."""
        outcome, lower = search.outcome, search.progress.lower
        self.side.domains = search.progress.domains
        closed = outcome is not None and outcome.reason is None and outcome.witness is None
        below = self.at if closed or lower > 0 else math.nextafter(self.at + lower, -math.inf)
        self.side.proved = max(self.side.proved, below)
        if outcome is not None:
            self.side.given_up = outcome.reason
            self.close()

    def close(self) -> None:
        if self.search is not None:
            self.search.close()
        self.search = None


@dataclass(frozen=True, eq=False)
class RangeTask:
    """The loaded instance, and what all searches share."""

    request: Request
    clock: Clock
    loaded: Loaded
    whole: Problem  # with a clause for every end and box
    hidden: GroupBounds
    device: torch.device

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
            self.tried(sides[number // boxes], points, [number % boxes] * len(points))

    def tried(self, side: Side, points: NDArray[np.floating], boxes: Sequence[int]) -> None:
        """Let the original network say what points of boxes reach, those that lie in the input set."""
        prop, dtype = self.loaded.property, precision(self.loaded.model)
        lower, upper = prop.boxes.ends(dtype)
        for point, box in zip(points, boxes, strict=True):
            if not np.isfinite(point).all():
                continue
            x = np.clip(point, lower[box], upper[box]).astype(dtype)
            if prop.ball is not None:
                x = prop.ball.inside(x, (lower[box], upper[box]))
                if not prop.ball.holds([Fraction(v) for v in x.tolist()]):
                    continue
            side.reach(x, np.asarray(self.loaded.model.run(x)))

    def searching(self, side: Side, threshold: float, points: Reaching) -> Search | None:
        """The search for points at or below the threshold, with rigorous bounds of all that is open.

        None if the bounds of whole boxes show that there are none.
        """
        prop = replace(self.loaded.property, clauses=asking(self.loaded.property, side, threshold))
        problem = replace(canonicalise(self.whole.network, prop), merged=self.whole.merged)
        pipeline = Pipeline.of(self.request, Status(clock=self.clock), problem, self.loaded.model, self.device)
        until = Until(self.clock)
        found = ClauseBounder(self.hidden, self.request.config.bounding.batch).bound(pipeline.problem, until)
        points.target = pipeline.target
        options = self._one_of_many(pipeline.whole(Journal()))
        return options.begun(pipeline.problem, found, pipeline.target.dtype, until, points)

    def _one_of_many(self, options: ProblemSearch) -> ProblemSearch:
        """The same for one of several ends, which has its share of memory and time: the others take turns with it."""
        count = len(self.whole.rows) // len(self.whole.lower)
        limits = replace(options.limits, memory_bytes=options.limits.memory_bytes // count)
        sharp = options.sharpening
        if sharp is not None:
            sharp = replace(sharp, after=sharp.after * count, share=sharp.share / count)
        policy = replace(options.policy, certain=True)
        return replace(options, policy=policy, limits=limits, sharpening=sharp, cores=1)


@dataclass(eq=False)
class Reaching:
    """Lets the original network try all points that a search comes across, and descents from them while time is left.

    None of them ends the search.
    """

    task: RangeTask
    side: Side
    target: Target | None = None
    descents: float = 0.0  # seconds that are left for them

    def __call__(self, x: Float[Tensor, "P n0"], clauses: Int[Tensor, " P"]) -> Counterexample | None:
        target = self.target
        assert target is not None
        x, clauses = x.to(target.device, target.dtype), clauses.to(target.device)
        if self.descents > 0:
            began = time.monotonic()
            x = torch.cat([x, Lowest().lowered(target, x, clauses, self.task.clock)])
            clauses = clauses.repeat(2)
            self.descents -= time.monotonic() - began
        boxes = [target.prop.clauses[k].box for k in clauses.tolist()]
        self.task.tried(self.side, x.cpu().numpy(), boxes)
        return None
