"""Bounds of a whole problem: which clauses are empty already at the root.

requires:   a problem in float64
guarantees: for each clause a rigorous lower bound of its largest row; above zero, the clause holds no point
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from verifier.bounding.core.ball import InputBall
from verifier.bounding.core.base import Objective, Region, Until, together, widest
from verifier.bounding.core.closing import closes
from verifier.bounding.hidden import IN_TURN, GroupBounds, RootBounds, Workers
from verifier.bounding.relaxation.interval import Interval
from verifier.bounding.rows import Conjunction
from verifier.bounding.solvers.crown import Linear
from verifier.network.network import Network
from verifier.property.problem import Problem
from verifier.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class ClauseBounds:
    """Of every clause the best bound among its rows, and where the relaxation attains it.

    Clauses that were not reached in time have -inf and no point.
    """

    lower: Float[Tensor, " clauses"]
    points: dict[int, Float[Tensor, " n0"]]  # of open clauses, at most `most` of them
    regions: dict[int, Region]  # the bounds of boxes with open clauses (D = 1), at most `most` of them
    best: dict[int, tuple[int, bool]] = field(default_factory=dict)  # the row, and whether a sweep bounds it better
    error: dict[int, float] = field(default_factory=dict)  # what was subtracted for rounding

    @property
    def worst(self) -> float:
        """The bound of the clause that is furthest from being closed."""
        return float(self.lower.min())

    @property
    def closed(self) -> bool:
        """True if no clause holds a point.  A bound of exactly zero proves nothing."""
        return bool(closes(self.lower).all())


@dataclass(frozen=True)
class ClauseBounder:
    """Interval and linear bounds of every row, the better of both; boxes are treated `batch` at a time.

    A clause of several rows is closed by one of them.  Combinations of rows are left to later methods.
    """

    intermediate: GroupBounds = field(default_factory=RootBounds)
    batch: int = 256
    most: int = 64

    def bound(
        self,
        problem: Problem,
        until: Until,
        report: Callable[[float], None] = lambda worst: None,
        workers: Workers = IN_TURN,
    ) -> ClauseBounds:
        """`report` hears the worst bound so far after each batch; `workers` share the hidden neurons."""
        lower = torch.full((len(problem.rows),), -torch.inf, dtype=problem.lower.dtype)  # in main memory till the end
        points: dict[int, Tensor] = {}
        regions: dict[int, Region] = {}
        rows_of: dict[int, tuple[int, bool]] = {}
        errors: dict[int, float] = {}
        seen = torch.inf
        boxes = torch.arange(len(problem.lower), device=problem.lower.device)
        for some in boxes.split(boxes_together(problem.network, self.batch)):
            if until.expired():
                break
            table = RowsOfBoxes.of(problem, some)
            sides = problem.lower[some], problem.upper[some]
            hidden = self.intermediate.for_rows(problem.network, sides, table.objective, until)
            region = hidden.completed(problem.network, inputs_of(problem, some), until, workers)
            *told, x0 = self._rows(problem.network, region, table, until)
            found, swept, error, numbers = (part.cpu() for part in (*told, some))
            for clause, rows in table.rows_of.items():
                best = int(found[rows].argmax())
                lower[clause] = found[rows][best]
                rows_of[clause] = best, bool(swept[rows][best])
                errors[clause] = float(error[rows][best])
                if not bool(closes(lower[clause])) and x0 is not None and len(points) < self.most:
                    points[clause] = x0[rows][best]
                    regions.setdefault(int(numbers[rows[0]]), region.select(slice(rows[0], rows[0] + 1)))
                seen = min(seen, float(lower[clause]))
            report(seen)
        return ClauseBounds(lower.to(problem.lower.device), points, regions, rows_of, errors)

    def _rows(
        self, net: Network, region: Region, table: RowsOfBoxes, until: Until
    ) -> tuple[Float[Tensor, "D S"], Bool[Tensor, "D S"], Float[Tensor, "D S"], Float[Tensor, "D S n0"] | None]:
        """The better bound of each row, whether it is the sweep's, its rounding, and where the sweep attains it."""
        interval = Interval().bound(net, region, table.objective, until)
        if until.expired():  # sweeps through a large network may take longer than all that was allowed
            assert interval.error is not None
            return interval.lower, torch.zeros_like(interval.lower, dtype=torch.bool), interval.error, None
        linear = Linear().bound(net, region, table.objective, until)
        assert interval.error is not None
        assert linear.error is not None
        swept = linear.lower >= interval.lower
        error = torch.where(swept, linear.error, interval.error)
        return torch.maximum(interval.lower, linear.lower), swept, error, linear.x0


def inputs_of(problem: Problem, boxes: Int[Tensor, " D"]) -> Region:
    """The input sets of some boxes of a problem, by their numbers."""
    return Region(problem.lower[boxes], problem.upper[boxes], ball=InputBall.of(problem.property.ball, problem.lower))


def boxes_together(net: Network, most: int) -> int:
    """How many boxes fit into memory with all their bounds; no more than `most`."""
    each = 8 * (16 * net.neurons + 64 * widest(net, len(net.layers)))
    return min(most, together(each))


@dataclass(frozen=True, eq=False)
class RowsOfBoxes:
    """The rows of all clauses of some boxes as one objective [D, S]; boxes with fewer rows are padded with zeros."""

    objective: Objective
    rows_of: dict[int, tuple[int, slice]]  # clause -> its box among the D, and its rows among the S

    @classmethod
    def of(cls, problem: Problem, boxes: Int[Tensor, " D"]) -> RowsOfBoxes:
        members = [problem.clauses_of[box] for box in boxes.tolist()]
        rows = Conjunction.of(problem, members)
        rows_of = {}
        for d, clauses in enumerate(members):
            stop = 0
            for k in clauses:
                start, stop = stop, stop + len(problem.rows[k].c)
                if stop > start:  # without rows every point of the box is unsafe: nothing to bound
                    rows_of[k] = (d, slice(start, stop))
        return cls(Objective(len(problem.network.layers), rows.A, rows.B, -rows.c), rows_of)
