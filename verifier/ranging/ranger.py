"""Ranges from the files to the results: the network is loaded, and its hidden neurons are bounded, once.

requires:   a network that can be bounded, and at least one box
guarantees: outer bounds include all rounding errors at any time; inner ones were reached by the original network
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray

from verifier.bounding.clauses import inputs_of
from verifier.bounding.core.base import Until
from verifier.bounding.hidden import Known
from verifier.errors import InputError
from verifier.loading import Loaded
from verifier.machine import WithinMemory, torch_threads
from verifier.network.merge import merging
from verifier.pipeline import Request, load, problem_of
from verifier.processes import Fork, Forks, Send, forkable, wait_for
from verifier.property.problem import Problem
from verifier.property.property import Doubles
from verifier.ranging.sides import Side, asking, sides_of
from verifier.ranging.turns import RangeTask, in_turns
from verifier.result.ranges import Range, Ranges, allowed
from verifier.result.status import Status
from verifier.result.verdict import Reason

NAP = 0.2
"""Seconds between two looks at what forks have found."""

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

    def run(self) -> Ranges:
        """All ends, until they are close enough, or time is up, or no search helps."""
        with WithinMemory(), self.request.machine.taken() as device:
            self.status.computes_on(device, self.request.machine.cores)
            with self.status.phase("load"), torch_threads(1):
                loaded = load(self.request, self.status)
                self.sides = sides_of(self.rows, loaded.property.n_y)
                if not len(loaded.property.boxes):
                    raise InputError("the property has no box: there is nothing to range over")
                clauses = tuple(clause for side in self.sides for clause in asking(loaded.property, side, 0.0))
                prop = replace(loaded.property, clauses=clauses)
                whole = problem_of(replace(loaded, property=prop), self.request.seed, merging)
            if whole.beyond is not None:
                return self.results(Reason.NUMERICS)
            self._narrow(self._task(loaded, whole, device))
            return self.results(self._reason())
        return self.results(Reason.MEMORY)

    def _task(self, loaded: Loaded, whole: Problem, device: torch.device) -> RangeTask:
        """Bounds the hidden neurons, once for all if there is a single box."""
        hidden, clock = self.request.config.bounding.hidden(), self.status.clock
        if len(whole.lower) == 1:
            workers = Forks(self.request.machine.processes(device))
            with self.status.phase("root"):
                region = hidden.completed(whole.network, inputs_of(whole, torch.tensor([0])), Until(clock), workers)
            hidden = Known(region)
        return RangeTask(self.request, clock, loaded, whole, hidden, device)

    def results(self, reason: Reason | None = None) -> Ranges:
        """What is known now."""
        pairs = zip(self.sides[::2], self.sides[1::2], strict=True)
        ranges = tuple(Range(self._name(low.row), low.end(), high.end()) for low, high in pairs)
        return Ranges(ranges, self.gap, reason, sum(side.domains for side in self.sides), **self.status.circumstances())

    def _reason(self) -> Reason | None:
        """Why some end is not as close as was asked for, if one is not."""
        if any(side.open(self.gap) for side in self.sides):
            return Reason.TIMEOUT
        wide = (s for s in self.sides if s.reached - s.proved > allowed(self.gap, s.reached))
        return next((side.given_up for side in wide), None)

    def _name(self, row: int) -> str:
        return f"Y_{row}" if self.rows is None else f"row {row}"

    def _narrow(self, task: RangeTask) -> None:
        """First bounds and points of all ends, then their searches, in as many processes as there may be."""
        with self.status.phase("root"):
            task.first_bounds(self.sides)
        with self.status.phase("attack"), torch_threads(1):
            task.first_points(self.sides)
        self.report(self.results())
        left = [side for side in self.sides if side.open(self.gap)]
        with self.status.phase("search"), torch_threads(1):
            count = min(self.request.machine.processes(task.device), len(left)) if forkable() else 1
            if count <= 1:
                in_turns(task, left, self.gap, lambda side: self.report(self.results()))
            else:
                self._by_forks(task, left, count)

    def _by_forks(self, task: RangeTask, left: list[Side], count: int) -> None:
        """Every fork searches some of the ends; this process listens."""
        parts = [left[i::count] for i in range(count)]
        forks = {Fork.start(partial(_abroad, task, part, self.gap)): part for part in parts}
        try:
            while not all(fork.ended for fork in forks):
                wait_for([fork for fork in forks if not fork.ended], NAP)
                for fork, part in forks.items():
                    for message in [] if fork.ended else fork.messages():
                        if isinstance(message, Found):
                            message.tell(part)
                self.report(self.results())
        finally:
            for fork in forks:
                fork.stop()


@dataclass(frozen=True, eq=False)
class Found:
    """What a fork has found out about one of its ends."""

    number: int
    proved: float
    reached: float
    point: NDArray[np.floating] | None
    given_up: Reason | None
    domains: int

    def tell(self, sides: Sequence[Side]) -> None:
        side = sides[self.number]
        side.proved, side.reached, side.point = self.proved, self.reached, self.point
        side.given_up, side.domains = self.given_up, self.domains


def _abroad(task: RangeTask, sides: list[Side], gap: float, send: Send) -> None:
    """What a fork does."""

    def tell(side: Side) -> None:
        send(Found(sides.index(side), side.proved, side.reached, side.point, side.given_up, side.domains))

    in_turns(task, sides, gap, tell)
