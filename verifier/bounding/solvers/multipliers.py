"""Multipliers one by one: a state for Big-M, Active Set and Saddle Point, and what these solvers share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

import torch

from verifier.bounding.core.ascent import Best, Dual
from verifier.bounding.core.base import Until
from verifier.bounding.cuts.masks import Geometries, MaskSet
from verifier.bounding.solvers.alpha_crown import SlopeDual, Slopes
from verifier.bounding.solvers.crown import Linear
from verifier.bounding.solvers.face_dual import FaceVariables
from verifier.bounding.solvers.lagrangian import Cuts, Lagrangian
from verifier.bounding.solvers.solver import Sizes, Solved, Solver, Task, Variables, converts
from verifier.shapes import Float, Tensor


class Start(Enum):
    """Where a dual ascent begins."""

    ZERO = "zero"  # the paper's
    LINEAR = "linear"  # the multipliers of CROWN's bound

    def point(self, dual: Lagrangian) -> Float[Tensor, "D S V"]:
        if self is Start.ZERO:
            return dual.zero()
        choices = Linear().choices(dual.sweep)
        trace = dual.sweep.backward(dual.objective, choices)
        return dual.from_trace(trace, [c.slope for c in choices], [c.split for c in choices])


def cuts_of(geometries: Geometries, masks: MaskSet) -> Cuts:
    """The cuts of given masks, with constants for the regions."""
    found = [(bits, None if bits is None else geometries.at(k, bits.form)) for k, bits in enumerate(masks)]
    return tuple(None if bits is None or geometry is None else bits.cut(geometry) for bits, geometry in found)


@dataclass(frozen=True, eq=False)
class MultiplierVariables(Variables):
    """The multipliers of a Lagrangian and the masks of its cuts.  The weights of a clause's rows are fixed.

    Methods that move a primal point as well keep where it ended, and the multipliers of Big-M that they began with.
    """

    primal: Float[Tensor, "D S P"] | None = None
    origin: Float[Tensor, "D S W"] | None = None

    kind = "multipliers"

    def dual(self, task: Task) -> Lagrangian:
        cuts = tuple(cuts_of(task.geometries, masks) for masks in self.masks.cuts)
        return Lagrangian(task.sweep, task.weighted(self.weights), cuts)

    def variables(self, task: Task) -> int:
        return (Lagrangian.FIXED + self.masks.count) * sum(kinks.count for kinks in task.sweep.kinks)

    def without_cuts(self) -> MultiplierVariables:
        """The Big-M multipliers: they come first."""
        kinks = self.point.shape[-1] // (Lagrangian.FIXED + self.masks.count)
        return MultiplierVariables(self.point[..., : Lagrangian.FIXED * kinks], weights=self.weights)


@converts("slopes", "multipliers")
@converts("shares", "multipliers")
def multipliers_of(task: Task, state: FaceVariables) -> MultiplierVariables:
    """Multipliers of the same value; those of cuts are left out."""
    dual = Lagrangian(task.sweep, task.objective)
    slopes = SlopeDual(task.sweep, task.objective)
    choices = slopes.choices(Slopes(state.point[..., : slopes.variables]).start(task, slopes))
    trace = task.sweep.backward(task.objective, choices)
    return MultiplierVariables(dual.from_trace(trace, [c.slope for c in choices], [c.split for c in choices]))


@dataclass(frozen=True)
class MultiplierSolver(Solver):
    """A solver with explicit multipliers.  Children inherit those of Big-M; masks are found anew, as in the paper."""

    kind = "multipliers"

    def inherits(self, sizes: Sizes) -> int:
        return Lagrangian.FIXED * sizes.kinks

    def blank(self, point: Float[Tensor, "D S V"]) -> Variables:
        return MultiplierVariables(point)

    def begin(self, task: Task, until: Until, parent: Variables | None = None) -> Solved:
        """Whole boxes begin anew, whatever a parent knows."""
        return self.solve(task, self.init(task), until)

    def begun_at(self, task: Task, start: Start) -> MultiplierVariables:
        """The multipliers of a start."""
        return MultiplierVariables(start.point(Lagrangian(task.sweep, task.objective)))

    def settled(self, task: Task, parent: Variables) -> Variables:
        """A parent's multipliers; where neurons were split since, the multipliers of the splits take over."""
        dual = parent.dual(task)
        assert isinstance(dual, Lagrangian)
        point = parent.start(task, dual)
        dual.settle(point)
        return replace(parent, point=point)

    def inherited(self, state: Variables) -> Variables:
        assert isinstance(state, MultiplierVariables)
        return state.without_cuts()

    def probe(self, task: Task, state: Variables) -> Float[Tensor, "D S"]:
        """CROWN's bound: multipliers of parents say little about splits."""
        return task.sweep.backward(task.objective, Linear().choices(task.sweep)).lower


def proved(dual: Dual[Any], best: Best, state: Variables) -> Solved:
    """The result of an ascent; one that time cut short may know no bound but that of its start."""
    at = dual.evaluate(best.point)
    return Solved(torch.fmax(best.lower, at.lower), at.x0, state.at(best.point), best.iterations)
