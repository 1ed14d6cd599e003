"""Incomplete verification: lower bounds of every row of an instance, by one method or several, without a search.

`lower_bounds` is the entry point for Python; the command line calls `survey` with a record of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from os import PathLike

import torch

from verifier.arguments import Means, shown, whole_number
from verifier.bounding.clauses import RowsOfBoxes, boxes_together
from verifier.bounding.core.base import Bounder, Objective, Region, Until, together, widest
from verifier.clock import Clock
from verifier.config import Config, iteration_overrides, load_config
from verifier.errors import InputError
from verifier.loading import Source, file_name, loader
from verifier.machine import out_of_memory
from verifier.property.arrays import Numbers, Unsafe
from verifier.property.problem import Problem
from verifier.result.ledger import Ledger, versions
from verifier.result.lower_bounds import PHASES, LowerBounds, RowBound
from verifier.result.result import Setting
from verifier.result.verdict import Reason
from verifier.run import Task, load_problem, moved
from verifier.shapes import Float, Int, Tensor

MOST_ITERATIONS = 2**31 - 1
VECTORS = 64
"""Vectors of the widest layer that a method may hold per row.  None holds more, so none splits the rows it is given."""


def lower_bounds(  # noqa: PLR0913 (a public entry point: all but the instance has defaults)
    network: Source,
    prop: str | PathLike[str] | None = None,
    *,
    lower: Numbers | None = None,
    upper: Numbers | None = None,
    unsafe: Unsafe | None = None,
    method: str = "alpha_crown",
    iterations: int | None = None,
    config: str | PathLike[str] | Config = "auto",
    timeout: float | None = None,
    device: str = "auto",
    threads: int | None = None,
    seed: int = 0,
) -> LowerBounds:
    """Lower bounds of every row of an instance, by one method and without a search: incomplete verification.

    The instance is given as for `verify`.  `method` is one of `verifier.bounding.BOUNDERS.names()`; its options stand
    in the configuration under `bounding`, and `iterations` replaces the number of its iterations.  (`verifier.bounds`
    bounds the hidden neurons instead.)

    Guarantees: see `LowerBounds`.  Raises InputError for input that cannot be used.
    """
    if not isinstance(method, str):
        raise InputError(f"a method is given by its name, not by {shown(method)}")
    count = None if iterations is None else whole_number(iterations, "iterations", 0, MOST_ITERATIONS)
    resolved = load_config(config)
    if count is not None:
        resolved = load_config(resolved, iteration_overrides([method], count))
    means, load = Means.of(timeout, device, threads, seed), loader(network, prop, (lower, upper), unsafe)
    setting = Setting(file_name(network), file_name(prop), means.timeout, resolved.resolved(), means.seed)
    ledger = Ledger(setting, Clock.begin(means.timeout), phases=PHASES)
    task = Task(load, resolved, means.device, means.threads, means.seed)
    return survey(task, Record.of([method], resolved, ledger))[0]


def survey(task: Task, record: Record) -> tuple[LowerBounds, ...]:
    """Bounds all rows by every method of the record.

    Guarantees: what is found is in the record as soon as it is known; valid bounds also when the time runs out.
    """
    ledger = record.ledger
    try:
        with task.machine(ledger) as device:
            with ledger.phase("load"):
                problem = moved(load_problem(task, ledger)[0], device)
            record.begin(problem)
            if problem.rows:
                _survey(task.config, problem, record, Until(ledger.clock))
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        return record.results(Reason.MEMORY)
    return record.results(Reason.TIMEOUT if ledger.clock.expired() else None)


def _survey(config: Config, problem: Problem, record: Record, until: Until) -> None:
    """Batches of boxes, and for each batch all methods: they share the bounds of the hidden neurons."""
    intermediate = config.bounding.hidden()
    boxes = torch.arange(len(problem.lower), device=problem.lower.device)
    for some in boxes.split(boxes_together(problem.network, config.bounding.batch)):
        if until.expired():
            return
        with record.ledger.phase("intermediate"):
            region = intermediate.region(problem.network, problem.lower[some], problem.upper[some], until)
        table = RowsOfBoxes.of(problem, some)
        for track in record.tracks:
            record.ledger.tier = track.method
            for part in parts(problem, table, region):
                if until.expired():
                    return
                with record.ledger.phase("bounding"):
                    track.take(problem, region, part, until)


@dataclass(frozen=True, eq=False)
class Part:
    """Some rows of a batch of boxes; `clause` and `row` say which, with -1 where a box has fewer."""

    objective: Objective
    clause: Int[Tensor, "D s"]
    row: Int[Tensor, "D s"]


def parts(problem: Problem, table: RowsOfBoxes, region: Region) -> Iterator[Part]:
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
        yield Part(objective.part(start, stop), clause[:, start:stop], row[:, start:stop])


@dataclass(eq=False)
class Track:
    """One method on its way through an instance."""

    method: str
    bounder: Bounder
    curve: Curve | None = None
    lower: list[list[float | None]] = field(default_factory=list)  # clause by clause, row by row
    left: int = 0  # rows still to come
    hurried: bool = False  # whether the deadline ended an ascent
    iterations: int = 0
    seconds: float = 0.0

    def take(self, problem: Problem, region: Region, part: Part, until: Until) -> None:
        """Bound some more rows."""
        begun, bounder = time.monotonic(), self.bounder
        if self.curve is not None:
            bounder = bounder.watched(self.curve.hears(part.clause, begun - self.seconds))
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
class Curve:
    """The worst bound over all clauses against the seconds that a method has spent.

    Points before the last one may come from iterates in single precision; the last one is the final bound.
    """

    best: Float[Tensor, " clauses"]  # of the rows that are finished
    points: list[tuple[float, float]] = field(default_factory=list)

    def hears(self, clause: Int[Tensor, "D s"], start: float) -> Callable[[Tensor], None]:
        """A listener for the iterates of some rows; `start` is the moment of second 0."""

        def listen(lower: Float[Tensor, "D s"]) -> None:
            worst = float(self._with(clause, lower.to("cpu", torch.float64)).min())
            if math.isfinite(worst) and (not self.points or worst > self.points[-1][1]):
                self.points.append((time.monotonic() - start, worst))

        return listen

    def settle(self, clause: Int[Tensor, "D s"], lower: Float[Tensor, "D s"], seconds: float) -> None:
        """The final bounds of some rows."""
        self.best = self._with(clause, lower)
        worst = float(self.best.min())
        if math.isfinite(worst):
            self.points.append((seconds, worst))

    def _with(self, clause: Tensor, lower: Tensor) -> Tensor:
        real = clause >= 0
        return self.best.scatter_reduce(0, clause[real], lower[real].nan_to_num(nan=-math.inf), "amax")


@dataclass(eq=False)
class Record:
    """What is known so far, method by method; results can be drawn up at any time, also from another thread."""

    ledger: Ledger
    tracks: tuple[Track, ...]
    curves: bool = False  # whether to note how the bounds grow
    clauses: tuple[int, ...] = ()  # the number of rows of each, once the instance is loaded

    @classmethod
    def of(cls, methods: Sequence[str], config: Config, ledger: Ledger, curves: bool = False) -> Record:
        """Nothing known yet.  Raises InputError for an unknown method."""
        tracks = [Track(name, config.bounding.bounder(name)) for name in methods]
        return cls(ledger, tuple(tracks), curves)

    def begin(self, problem: Problem) -> None:
        """All rows of the problem are still unknown."""
        sizes = tuple(len(rows.c) for rows in problem.rows)
        for track in self.tracks:
            track.lower, track.left = [[None] * size for size in sizes], sum(sizes)
            if self.curves:
                track.curve = Curve(torch.full((len(sizes),), -math.inf, dtype=torch.float64))
        self.clauses = sizes

    def results(self, reason: Reason | None = None) -> tuple[LowerBounds, ...]:
        """The bounds of every method, as far as they are known."""
        return tuple(self._result(track, reason) for track in self.tracks)

    def _result(self, track: Track, reason: Reason | None) -> LowerBounds:
        ledger = self.ledger
        rows = [RowBound(k, i, lower) for k, clause in enumerate(track.lower) for i, lower in enumerate(clause)]
        spent = {"total": ledger.clock.elapsed()} | ledger.times() | {"bounding": track.seconds}
        return LowerBounds(
            track.method,
            tuple(rows),
            len(self.clauses),
            track.iterations,
            track.bounder.rigorous,
            reason if track.left or track.hurried or not self.clauses else None,
            None if track.curve is None else tuple(track.curve.points),
            spent,
            ledger.setting,
            ledger.network_sha256,
            ledger.property_sha256,
            ledger.device,
            ledger.threads,
            versions(),
        )
