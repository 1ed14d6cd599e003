"""Bounds as functions of the faces that a sweep takes: what alpha-CROWN and the propagated Anderson bound share.

The rows of a clause must hold together, so the best non-negative combination of them is bounded.  Its weights are dual
variables like the others; their supergradient is the value of each row at the point that minimises the relaxation (not
at the network's true output), relative to the combination's own.

requires:   bounds of all groups
guarantees: valid lower bounds at every iterate; of a clause, of max_i g_i
source:     multipliers on output constraints as in INVPROP; docs/notation.md
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from typing import ClassVar, TypeVar

import torch
from torch.nn.functional import pad

from verifier.bounding.core.ascent import Ascent, Average, Averaging, Dual, Evaluation
from verifier.bounding.core.base import Objective, Until, widest
from verifier.bounding.core.sweep import Choice, Route, Sweep, Trace
from verifier.bounding.cuts.anderson import Cut
from verifier.bounding.rows import Conjunction, onto_simplex
from verifier.bounding.solvers.solver import Sizes, Solved, Solver, Task, Variables
from verifier.bounding.solvers.usual import UsualSlopes
from verifier.shapes import Float, Tensor


@dataclass(frozen=True, eq=False)
class SlopePoint(Evaluation):
    """A finished backward sweep, kept for the supergradient."""

    trace: Trace
    choices: tuple[Choice, ...]


@dataclass(frozen=True, eq=False)
class FaceDual(Dual[SlopePoint]):
    """A bound as a function of the faces that a sweep takes: one sweep back, and one forward for the supergradient."""

    sweep: Sweep
    objective: Objective

    @property
    @abstractmethod
    def variables(self) -> int:
        """How many variables each objective has."""

    @abstractmethod
    def start(self) -> Float[Tensor, "D S V"]:
        """Variables that give CROWN's bound."""

    @abstractmethod
    def choices(self, point: Float[Tensor, "D S V"]) -> tuple[Choice, ...]:
        """The faces that the variables choose, group by group."""

    def plain_choices(self, point: Float[Tensor, "D S V"]) -> tuple[Choice, ...]:
        """The same without cuts."""
        return self.choices(point[..., : self.variables])

    def weighted_cuts(self, point: Float[Tensor, "D S V"]) -> list[list[tuple[Cut, Float[Tensor, "D S _"]]]]:
        """The cuts of every group, with their weights in its upper faces."""
        return [[] for _ in self.sweep.neurons]

    @abstractmethod
    def gains(self, at: SlopePoint, route: Route) -> Float[Tensor, "D S V"]:
        """The supergradient, given the way of the minimiser."""

    def evaluate(self, point: Float[Tensor, "D S V"]) -> SlopePoint:
        return self.bound_of(self.objective, point)

    def bound_of(self, objective: Objective, point: Float[Tensor, "D S V"]) -> SlopePoint:
        """The bound of another objective at the same layer."""
        choices = self.choices(point)
        trace = self.sweep.backward(objective, choices)
        return SlopePoint(trace.lower, trace.x0, trace, choices)

    def supergradient(
        self, point: Float[Tensor, "D S V"], at: SlopePoint, seen: Average | None = None
    ) -> Float[Tensor, "D S V"]:
        route = self.sweep.forward(at.trace, at.choices)
        if seen is not None:
            seen.add(route.values)
        return self.gains(at, route)


@dataclass(frozen=True, eq=False)
class ConjunctionDual(Dual[SlopePoint]):
    """The variables of another dual (slopes, split multipliers, cuts), then the weights of the rows; one objective."""

    slopes: FaceDual
    rows: Conjunction
    weight_scale: float = 0.5

    @property
    def sweep(self) -> Sweep:
        return self.slopes.sweep

    @property
    def plain(self) -> int:
        """How many variables come before the weights."""
        return self.slopes.variables

    def start(self, weights: Float[Tensor, "D 1 m"] | None = None) -> Float[Tensor, "D 1 V"]:
        """CROWN's slopes and the given weights, or equal ones."""
        return torch.cat([self.slopes.start(), self.rows.even() if weights is None else weights], dim=-1)

    def best_start(self) -> Float[Tensor, "D 1 V"]:
        """CROWN's slopes with equal weights or with a single row, whatever bounds best in each region."""
        point = self.start()
        best = self.evaluate(point).lower
        for row in range(self.rows.c.shape[1] if self.rows.c.shape[1] > 1 else 0):
            weights = torch.zeros_like(point[..., self.plain :])
            weights[..., row] = 1.0
            single = self.start(weights)
            lower = self.evaluate(single).lower
            better = (lower > best) & self.rows.present[:, row : row + 1]
            point = torch.where(better.unsqueeze(-1), single, point)
            best = torch.where(better, lower, best)
        return point

    def evaluate(self, point: Float[Tensor, "D 1 V"]) -> SlopePoint:
        objective = self.rows.objective(self.sweep, point[..., self.plain :])
        return self.slopes.bound_of(objective, point[..., : self.plain])

    def supergradient(
        self, point: Float[Tensor, "D 1 V"], at: SlopePoint, seen: Average | None = None
    ) -> Float[Tensor, "D 1 V"]:
        route = self.sweep.forward(at.trace, at.choices)
        if seen is not None:
            seen.add(route.values)
        gains = self.slopes.gains(at, route)
        if self.rows.c.shape[1] == 1:  # the weight of a single row never moves
            return pad(gains, (0, 1))
        y = self.sweep.net.layers[self.sweep.layer - 1].forward(route.values)
        g, weights = self.rows.values(y, at.x0), point[..., self.plain :]
        # Only differences matter on the simplex.  Steps that look at each entry's sign would stall without this.
        return torch.cat([gains, g - (weights * g).sum(dim=-1, keepdim=True)], dim=-1)

    def project(self, point: Float[Tensor, "D 1 V"]) -> None:
        self.slopes.project(point[..., : self.plain])
        weights = point[..., self.plain :]
        if weights.shape[-1] == 1:  # whatever somebody has made of it
            weights.fill_(1.0)
        else:
            weights.copy_(onto_simplex(weights, self.rows.present.unsqueeze(1)))

    def step_scale(self) -> Float[Tensor, " V"]:
        scale = self.rows.c.new_ones(self.plain + self.rows.c.shape[1])
        scale[: self.plain] = self.slopes.step_scale()
        scale[self.plain :] = self.weight_scale
        return scale


@dataclass(frozen=True, eq=False)
class FaceVariables(Variables):
    """Slopes, split multipliers and shares of cuts; the weights of a clause's rows come last in the function."""

    @abstractmethod
    def faces(self, task: Task) -> FaceDual:
        """The function of all but the weights."""

    def dual(self, task: Task) -> FaceDual | ConjunctionDual:
        return self.dual_of(task, self.faces(task))

    def dual_of(self, task: Task, faces: FaceDual) -> FaceDual | ConjunctionDual:
        """The function of all variables, given that of all but the weights."""
        return faces if task.rows is None else ConjunctionDual(faces, task.rows)

    def start(self, task: Task, dual: Dual[SlopePoint]) -> Float[Tensor, "D S V"]:
        if self.weights is None:
            return super().start(task, dual)
        together = torch.cat([self.point, self.weights], dim=-1).to(task.dtype)
        dual.project(together)
        return together

    def at(self, point: Float[Tensor, "D S V"]) -> FaceVariables:
        if self.weights is None:
            return replace(self, point=point)
        plain = self.point.shape[-1]
        return replace(self, point=point[..., :plain], weights=point[..., plain:])


@dataclass(frozen=True)
class FaceSolver(Solver):
    """Adam on slopes, split multipliers, shares, and the weights of rows."""

    ascent: Ascent
    usual: UsualSlopes | None = field(default=None, kw_only=True)  # of other objectives, if they are told

    weighs = True
    PLAIN: ClassVar[int] = 2  # slopes, split multipliers

    @property
    def any_function(self) -> bool:
        return True

    @property
    def proves(self) -> bool:
        return True

    def learning(self: FaceSolverT) -> FaceSolverT:
        return replace(self, usual=UsualSlopes())

    def inherits(self, sizes: Sizes) -> int:
        return self.PLAIN * sizes.kinks

    @abstractmethod
    def blank(self, point: Float[Tensor, "D S V"]) -> FaceVariables: ...

    def init(self, task: Task, parent: Variables | None = None) -> Variables:
        """From nothing: CROWN's slopes, and of a clause the weights that suit them best."""
        if parent is not None:
            return parent.ready(task)
        blank = self.blank(task.sweep.region.lower[:, None, :0])
        faces = blank.faces(task)
        if task.rows is None:
            point = faces.start()
            return replace(blank, point=point if self.usual is None else self.usual.begin(task.sweep, point))
        point = ConjunctionDual(faces, task.rows).best_start()
        return replace(blank, point=point[..., : faces.variables], weights=point[..., faces.variables :])

    def solve(self, task: Task, state: Variables, until: Until) -> Solved:
        return self.climb(task, state, self.ascent, until)

    def climb(
        self, task: Task, state: Variables, ascent: Ascent, until: Until, averaging: Averaging | None = None
    ) -> Solved:
        """One ascent; where time cut it short, it may know no bound but that of its start."""
        dual = state.dual(task)
        best = ascent.run(dual, state.start(task, dual), until, averaging, self.watch)
        if self.usual is not None and task.rows is None and until.threshold is None:
            self.usual.learn(task.sweep, best.point, best.last.trace.coefficients)

        point = best.point

        def retrace(rows: Tensor | slice) -> Trace:
            at: SlopePoint = dual.select(rows).evaluate(point[rows])
            return at.trace

        return Solved(best.lower, None, state.at(point), best.iterations, retrace=retrace)

    def bytes_each(self, task: Task) -> int:
        return 24 * widest(task.sweep.net, task.sweep.layer) * task.sweep.region.lower.element_size()


FaceSolverT = TypeVar("FaceSolverT", bound=FaceSolver)
