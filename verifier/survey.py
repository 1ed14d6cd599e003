"""Incomplete verification: lower bounds of every row of an instance, by one method or several, without a search."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from verifier.bounding.clauses import RowsOfBoxes, boxes_together, inputs_of
from verifier.bounding.core.base import Bounder, Objective, Region, Until, together, widest
from verifier.errors import InputError
from verifier.machine import WithinMemory
from verifier.network.network import Network
from verifier.pipeline import Request, load_problem, moved
from verifier.property.problem import Problem
from verifier.result.lower_bounds import LowerBounds, RowBound
from verifier.result.status import Status
from verifier.result.verdict import Reason
from verifier.shapes import Float, Int, Tensor

VECTORS = 64
"""Vectors of the widest layer that a method may hold per row.  None holds more, so none splits the rows it is given."""


@dataclass(eq=False)
class Survey:
    """What is known so far, method by method; results can be drawn up at any time, also from another thread."""

    request: Request
    status: Status
    tracks: tuple[Track, ...]
    curves: bool = False  # whether to note how the bounds grow
    clauses: tuple[int, ...] = ()  # the number of rows of each, once the instance is loaded

    @classmethod
    def of(cls, request: Request, methods: Sequence[str], status: Status, curves: bool = False) -> Survey:
        """Nothing known yet.  Raises InputError for an unknown method."""
        tracks = [Track(name, request.config.bounding.bounder(name)) for name in methods]
        return cls(request, status, tuple(tracks), curves)

    def run(self) -> tuple[LowerBounds, ...]:
        """Bounds all rows by every method.

        Guarantees: what is found can be drawn up as soon as it is known; valid bounds also when the time runs out.
        """
        with WithinMemory(), self.request.machine.taken() as device:
            self.status.computes_on(device, self.request.machine.cores)
            with self.status.phase("load"):
                problem = moved(load_problem(self.request, self.status)[0], device)
            self._check(problem.network)
            self._begin(problem)
            if problem.rows:
                self._bound(problem, Until(self.status.clock))
            return self.results(Reason.TIMEOUT if self.status.clock.expired() else None)
        return self.results(Reason.MEMORY)

    def _check(self, network: Network) -> None:
        """Raises InputError for a method that knows ReLUs only, if the network has other functions."""
        if network.bent is None:
            return
        for track in self.tracks:
            if not track.bounder.any_function:
                raise InputError(f"the method '{track.method}' knows ReLUs only, but {network.bent}")
        if not self.request.config.bounding.hidden().any_function:
            raise InputError(f"the bounder of hidden neurons knows ReLUs only, but {network.bent}")

    def _begin(self, problem: Problem) -> None:
        """All rows of the problem are still unknown."""
        sizes = tuple(len(rows.c) for rows in problem.rows)
        for track in self.tracks:
            track.lower = [[None] * size for size in sizes]
            track.left = sum(sizes)
            if self.curves:
                track.curve = Growth(torch.full((len(sizes),), -math.inf, dtype=torch.float64))
        self.clauses = sizes

    def _bound(self, problem: Problem, until: Until) -> None:
        """Batches of boxes, and for each batch all methods: they share the bounds of the hidden neurons."""
        options = self.request.config.bounding
        intermediate = options.hidden()
        boxes = torch.arange(len(problem.lower), device=problem.lower.device)
        for some in boxes.split(boxes_together(problem.network, options.batch)):
            if until.expired():
                return
            with self.status.phase("intermediate"):
                region = intermediate.completed(problem.network, inputs_of(problem, some), until)
            table = RowsOfBoxes.of(problem, some)
            for track in self.tracks:
                self.status.tier = track.method
                for part in parts(problem, table, region):
                    if until.expired():
                        return
                    with self.status.phase("bounding"):
                        track.take(problem, region, part, until)

    def results(self, reason: Reason | None = None) -> tuple[LowerBounds, ...]:
        """The bounds of every method, as far as they are known."""
        return tuple(self._result(track, reason) for track in self.tracks)

    def _result(self, track: Track, reason: Reason | None) -> LowerBounds:
        rows = [RowBound(k, i, lower) for k, clause in enumerate(track.lower) for i, lower in enumerate(clause)]
        circumstances = self.status.circumstances()
        circumstances["time"]["bounding"] = track.seconds
        return LowerBounds(
            track.method,
            tuple(rows),
            len(self.clauses),
            track.iterations,
            track.bounder.rigorous,
            reason if track.left or track.hurried or not self.clauses else None,
            None if track.curve is None else tuple(track.curve.points),
            **circumstances,
        )


@dataclass(frozen=True, eq=False)
class SomeRows:
    """Some rows of a batch of boxes; `clause` and `row` say which, with -1 where a box has fewer."""

    objective: Objective
    clause: Int[Tensor, "D s"]
    row: Int[Tensor, "D s"]


def parts(problem: Problem, table: RowsOfBoxes, region: Region) -> Iterator[SomeRows]:
    """All rows of a table, as many at once as fit into memory."""
    net, objective = problem.network, table.objective
    clause = torch.full((region.count, objective.count), -1)
    row = clause.clone()
    for k, place in table.rows_of.items():
        clause[place] = k
        row[place] = torch.arange(len(problem.rows[k].c))
    chunk = together(VECTORS * 8 * widest(net, objective.layer) * region.count)
    for start in range(0, objective.count, chunk):
        stop = start + chunk
        yield SomeRows(objective.part(start, stop), clause[:, start:stop], row[:, start:stop])


@dataclass(eq=False)
class Track:
    """One method on its way through an instance."""

    method: str
    bounder: Bounder
    curve: Growth | None = None
    lower: list[list[float | None]] = field(default_factory=list)  # clause by clause, row by row
    left: int = 0  # rows still to come
    hurried: bool = False  # whether the deadline ended an ascent
    iterations: int = 0
    seconds: float = 0.0

    def take(self, problem: Problem, region: Region, part: SomeRows, until: Until) -> None:
        """Bound some more rows."""
        begun = time.monotonic()
        bounder = self.bounder
        if self.curve is not None:
            bounder = bounder.watched(partial(self.curve.hear, part.clause, begun - self.seconds))
        found = bounder.bound(problem.network, region, part.objective, until)
        lower = found.lower.to("cpu", torch.float64)
        self.seconds += time.monotonic() - begun
        self.iterations = max(self.iterations, found.iterations)
        self.hurried |= until.expired()
        real = torch.nonzero(part.clause >= 0).tolist()
        self.left -= len(real)
        for d, s in real:
            value = float(lower[d, s])
            known = value if math.isfinite(value) else None
            self.lower[int(part.clause[d, s])][int(part.row[d, s])] = known
        if self.curve is not None:
            self.curve.settle(part.clause, lower, self.seconds)


@dataclass(eq=False)
class Growth:
    """The worst bound over all clauses against the seconds that a method has spent.

    Points before the last one may come from iterates in single precision; the last one is the final bound.
    """

    best: Float[Tensor, " clauses"]  # of the rows that are finished
    points: list[tuple[float, float]] = field(default_factory=list)

    def hear(self, clause: Int[Tensor, "D s"], start: float, lower: Float[Tensor, "D s"]) -> None:
        """An iterate of some rows; `start` is the moment of second 0."""
        worst = float(self._with(clause, lower.to("cpu", torch.float64)).min())
        if math.isfinite(worst) and (not self.points or worst > self.points[-1][1]):
            self.points.append((time.monotonic() - start, worst))

    def settle(self, clause: Int[Tensor, "D s"], lower: Float[Tensor, "D s"], seconds: float) -> None:
        """The final bounds of some rows."""
        self.best = self._with(clause, lower)
        worst = float(self.best.min())
        if math.isfinite(worst):
            self.points.append((seconds, worst))

    def _with(self, clause: Tensor, lower: Tensor) -> Tensor:
        real = clause >= 0
        return self.best.scatter_reduce(0, clause[real], lower[real].nan_to_num(nan=-math.inf), "amax")
