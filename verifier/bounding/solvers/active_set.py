"""Active Set: supergradient ascent on the dual of the Anderson relaxation, restricted to a few masks.

requires:   bounds of all groups before the objective's layer
guarantees: a valid lower bound at every iterate; the best one is returned.  With no mask it is Big-M
source:     [SCB] sec:active, algorithm alg:active-set

Every so many iterations the oracle adds a mask per neuron: the most violated cut at a primal point.  The paper takes
the inner minimiser, a vertex of the boxes.  Neurons that pass have no multipliers here and lie inside of their boxes,
where a row with z = 0 keeps none of them: for the oracle they go to the nearer end.  Even then a neuron with z = 1 gets
a mask that Big-M already has.  The average of the last minimisers is an interior point and gives better masks; there
the passing neurons stay where they are.

Two of the paper's experiments are options: `additions.every` is its omega (300, 450, 600), and with `selection: random`
masks are drawn instead of asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum

from verifier.bounding import BOUNDERS
from verifier.bounding.core.ascent import Ascent, Average, Climb, Steps
from verifier.bounding.core.base import Bounder, Until, widest
from verifier.bounding.core.sweep import Values
from verifier.bounding.cuts.masks import CutMasks, Form, MostViolated, RandomMasks, Selection
from verifier.bounding.solvers.big_m import BigMOptions
from verifier.bounding.solvers.lagrangian import Inner, Lagrangian
from verifier.bounding.solvers.multipliers import MultiplierSolver, Start, cuts_of, proved
from verifier.bounding.solvers.solver import Certified, Solved, Task, Variables, variables_of
from verifier.registry import AscentOptions, Count, Literal, Options, Positive, Share, Step

COPIES = 6
"""Of the multipliers, in an ascent: the point, the best points, Adam's moments, the supergradient."""


class OraclePoint(Enum):
    """Where the oracle is asked."""

    MINIMISER = "minimiser"  # the paper's: the current inner minimiser
    AVERAGE = "average"  # the mean of all minimisers since the last addition

    def values(self, dual: Lagrangian, at: Inner) -> Values:
        """What one evaluation adds to it."""
        return dual.vertex(at) if self is OraclePoint.MINIMISER else dual.primal(at)[0]


@dataclass(frozen=True)
class Additions:
    """When masks are added: `count` of them, one per iteration, every `every` iterations, up to `most`."""

    every: int = 450
    count: int = 2
    most: int = 7

    def due(self, t: int, present: int) -> bool:
        return present < self.most and t % self.every < self.count


class InitialOptions(BigMOptions, frozen=True):
    """The Big-M ascent that comes before masks, shorter than Big-M alone."""

    iterations: Count = 500


class AdditionsOptions(Options, frozen=True):
    """When masks are added to an active set: `count` of them every `every` iterations, up to `most`."""

    every: Positive = 450  # iterations between two additions
    count: Count = 2  # masks that are added at a time
    most: Count = 7  # masks per neuron in the end


class ActiveSetOptions(AscentOptions, frozen=True):
    """The dual of the Anderson relaxation with a few masks."""

    iterations: Count = 600
    first_step: Step = 1e-3
    last_step: Step = 1e-6
    initial: InitialOptions = InitialOptions()
    additions: AdditionsOptions = AdditionsOptions()
    masks: Literal["rows", "shared"] = "rows"  # one bit per weight, or one threshold per group
    point: Literal["minimiser", "average"] = "minimiser"  # where the oracle is asked
    threshold: Share = 0.5  # of shared masks
    selection: Literal["oracle", "random"] = "oracle"  # the most violated masks or, to compare with, random ones


@dataclass(frozen=True)
class ActiveSet(MultiplierSolver):
    """Big-M first, then Adam on all multipliers while masks are added.

    A child starts from its parent's multipliers.  Those of the newest splits are found by the steps of Big-M that come
    first (`resumed`); the later ascent's are too short for them.  Masks that it may have inherited (their constants are
    computed anew for its bounds) count towards `additions.most`.
    """

    ascent: Ascent = field(default_factory=lambda: Ascent(600, Steps(1e-3, 1e-6, linear=True)))
    initial: Ascent = field(default_factory=lambda: Ascent(500, Steps(1e-2, 1e-4, linear=True)))
    additions: Additions = Additions()
    start: Start = Start.LINEAR
    masks: Form = Form.ROWS
    point: OraclePoint = OraclePoint.MINIMISER
    threshold: float = 0.5  # of shared masks
    selection: Selection = field(default_factory=MostViolated)
    resumed: Ascent = field(default_factory=lambda: Ascent(0, Steps(1e-2, 1e-4, linear=True)))  # on Big-M, in children

    @classmethod
    def of(cls, options: ActiveSetOptions) -> ActiveSet:
        return cls(
            Ascent.of(options, linear=True),
            Ascent.of(options.initial, linear=True),
            Additions(options.additions.every, options.additions.count, options.additions.most),
            Start(options.initial.start),
            Form(options.masks),
            OraclePoint(options.point),
            options.threshold,
            RandomMasks() if options.selection == "random" else MostViolated(),
        )

    def resuming(self, iterations: int) -> ActiveSet:
        """The same with so many iterations of Big-M in children, whose steps fall as on the whole boxes."""
        return replace(self, resumed=replace(self.initial, iterations=iterations))

    @property
    def proves(self) -> bool:
        return True

    def init(self, task: Task, parent: Variables | None = None) -> Variables:
        return self.begun_at(task, self.start) if parent is None else self.settled(task, parent)

    def begin(self, task: Task, until: Until, parent: Variables | None = None) -> Solved:
        """Big-M, then masks."""
        first = self.warmed(self.initial, task, self.init(task), until)
        return first.then(self.solve(task, variables_of(first), until))

    def resume(self, task: Task, until: Until, parent: Variables) -> Solved:
        """A little of Big-M, then masks."""
        first = self.warmed(self.resumed, task, self.init(task, parent), until)
        return first.then(self.solve(task, variables_of(first), until))

    def warmed(self, ascent: Ascent, task: Task, state: Variables, until: Until) -> Solved:
        """An ascent on the multipliers that there are, without new masks."""
        dual = state.dual(task)
        return proved(dual, ascent.run(dual, state.start(task, dual), until, watch=self.watch), state)

    def solve(self, task: Task, state: Variables, until: Until) -> Solved:
        dual = state.dual(task)
        assert isinstance(dual, Lagrangian)
        growing = Growing(self, task, dual, state.masks)
        best = self.ascent.run(dual, state.start(task, dual), until, watch=self.watch, grown=growing.grown)
        return proved(growing.dual, best, replace(state, masks=growing.masks))

    def bytes_each(self, task: Task) -> int:
        """What an ascent keeps of one objective in one region: sweeps, multipliers, masks, and one masked pass."""
        sweep, most = task.sweep, self.additions.most
        groups = range(len(sweep.kinks)) if most else ()
        found = (task.geometries.at(k, self.masks) for k in groups)
        known = [geometry for geometry in found if geometry is not None]
        kinks, size = sum(kinks.count for kinks in sweep.kinks), sweep.region.lower.element_size()
        floats = 40 * widest(sweep.net, sweep.layer) + COPIES * most * kinks
        passes = max((geometry.pass_bytes for geometry in known), default=0)
        return size * floats + most * sum(geometry.cut_bytes for geometry in known) + passes


class Growing:
    """A dual function to which masks are added while it is maximised."""

    def __init__(self, solver: ActiveSet, task: Task, dual: Lagrangian, masks: CutMasks) -> None:
        self.solver = solver
        self.task = task
        self.dual = dual  # of all regions, also of those that have left
        self.masks = masks
        self._seen: Average | None = None

    def grown(self, climb: Climb[Lagrangian], at: Inner, t: int) -> Inner:
        """What iteration t steps from, given the evaluation of its point: with new cuts, if it is time for some."""
        seen = self._seen = self._seen or Average(climb.rows)
        seen.follow(climb.rows)
        due = self.solver.additions.due(t, self.masks.count)
        if due or self.solver.point is OraclePoint.AVERAGE:
            seen.add(self.solver.point.values(climb.dual, at), at.z)
        if not due:
            return at
        solver, known = self.solver, self.masks.count
        found = solver.selection.masks(self.task.geometries, seen, solver.masks, solver.threshold, known)
        self.masks = self.masks.join(CutMasks((found,)))
        self.dual = self.dual.with_cuts(cuts_of(self.task.geometries, found))
        everyone = len(climb.rows) == self.task.sweep.region.count  # a selection copies all masks
        climb.extend(self.dual if everyone else self.dual.select(climb.rows), self.dual.variables)
        self._seen = None
        again: Inner = climb.record()
        return again


@BOUNDERS.register("active_set", ActiveSetOptions)
def active_set(options: ActiveSetOptions) -> Bounder:
    return Certified(ActiveSet.of(options))
