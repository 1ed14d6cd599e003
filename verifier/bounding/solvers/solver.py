"""One interface for all dual solvers, at the root and in the tree: init, solve, and certify what was found.

A solver is its hyper-parameters, frozen.  Its variables come as a state of its own kind: `init` makes one from nothing
or from a parent's, `solve` improves it by an ascent (in float32 as a rule), and the state itself is what proves the
bound: `Proof.lower` evaluates it in float64 with all rounding errors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, TypeVar

import torch
from torch.nn.functional import pad

from verifier.bounding.core.ascent import Dual
from verifier.bounding.core.base import Bound, Bounder, Objective, Region, Until, Watch, together, widest
from verifier.bounding.core.closing import closes
from verifier.bounding.core.state import State
from verifier.bounding.core.sweep import Sweep, Trace
from verifier.bounding.cuts.masks import CutMasks, Geometries
from verifier.bounding.rows import Conjunction
from verifier.network.network import Network
from verifier.shapes import Bool, Float, Tensor


@dataclass(frozen=True, eq=False)
class Task:
    """What is to be bounded: objectives over a batch of regions or, with `rows`, the best combination of a clause's."""

    sweep: Sweep
    objective: Objective  # of a clause: with equal weights
    rows: Conjunction | None = None

    @classmethod
    def of_rows(cls, sweep: Sweep, rows: Conjunction) -> Task:
        return cls(sweep, rows.objective(sweep, rows.even()), rows)

    @cached_property
    def geometries(self) -> Geometries:
        """What the cuts of each group share."""
        return Geometries(self.sweep)

    @property
    def dtype(self) -> torch.dtype:
        return self.sweep.region.lower.dtype

    def weighted(self, weights: Float[Tensor, "D S m"] | None) -> Objective:
        """The objective that the weights of the rows make; there are none if nothing is left to choose."""
        if self.rows is None or weights is None:
            return self.objective
        return self.rows.objective(self.sweep, weights.to(self.dtype))

    def part(self, start: int, stop: int) -> Task:
        """The objectives from `start` up to `stop`; what cuts share is kept."""
        part = replace(self, objective=self.objective.part(start, stop))
        part.__dict__["geometries"] = self.geometries
        return part


class Proof(State, ABC):
    """What closes regions: all that is needed to compute their bounds again, apart from the task itself.

    `kind` says how the tensors, which are its fields, are to be read.
    """

    kind: ClassVar[str]

    @abstractmethod
    def lower(self, task: Task) -> Float[Tensor, "D S"]:
        """The bounds of the task; in float64 they are rigorous, and -inf where there is none."""

    def closed(self, task: Task) -> Bool[Tensor, " D"]:
        """Which regions hold no counterexample."""
        return closes(self.lower(task)).all(dim=1)


@dataclass(frozen=True, eq=False)
class Variables(Proof):
    """The variables of a dual function, with the masks of its cuts: a start for children, and a proof of the bound.

    Variables of cuts come last, and a cut whose variables are zero changes nothing.  `weights` are those of the rows,
    if the task is a clause.
    """

    point: Float[Tensor, "D S V"]
    masks: CutMasks = field(default_factory=CutMasks)
    weights: Float[Tensor, "D S m"] | None = None

    @abstractmethod
    def dual(self, task: Task) -> Dual[Any]:
        """The function whose variables these are, with constants of cuts for the task's regions."""

    def start(self, task: Task, dual: Dual[Any]) -> Float[Tensor, "D S V"]:
        """The variables as that function reads them, in the task's precision, and feasible."""
        point = self.point.to(task.dtype, copy=True)
        dual.project(point)
        return point

    def at(self: VariablesT, point: Float[Tensor, "D S V"]) -> VariablesT:
        """The same with other values, as the function reads them."""
        return replace(self, point=point)

    def lower(self, task: Task) -> Float[Tensor, "D S"]:
        dual = self.dual(task)
        lower: Tensor = dual.evaluate(self.start(task, dual)).lower
        return lower

    def widened(self: VariablesT, masks: CutMasks, variables: int) -> VariablesT:
        """With further cuts, whose variables are zero."""
        return replace(self, point=pad(self.point, (0, variables - self.point.shape[-1])), masks=masks)

    @abstractmethod
    def variables(self, task: Task) -> int:
        """How many there are for each objective, without the weights."""

    def ready(self: VariablesT, task: Task) -> VariablesT:
        """With zeros for the variables of cuts that it has no values for yet."""
        return self.widened(self.masks, self.variables(task))

    @classmethod
    def aligned(cls, parts: Sequence[Any]) -> Sequence[Any]:
        """A deadline may have ended one part before its masks were found."""
        longest = max(parts, key=lambda part: part.masks.count)
        return [p.widened(p.masks.padded(longest.masks, p.point.shape[:2]), longest.point.shape[-1]) for p in parts]


VariablesT = TypeVar("VariablesT", bound=Variables)

Conversion = Callable[[Task, Any], Variables]
CONVERSIONS: dict[tuple[str, str], Conversion] = {}
"""How variables of one kind become those of another.  Each stands beside the kind that it makes (`converts`)."""


def converts(kind: str, into: str) -> Callable[[Conversion], Conversion]:
    """Enters a conversion into the table."""

    def enter(conversion: Conversion) -> Conversion:
        CONVERSIONS[kind, into] = conversion
        return conversion

    return enter


def converted(task: Task, state: Variables, kind: str) -> Variables:
    """The variables as those of another kind.  Raises TypeError if there is no way."""
    if state.kind == kind:
        return state
    if (state.kind, kind) not in CONVERSIONS:
        raise TypeError(f"{kind} cannot start from {state.kind}")
    return CONVERSIONS[state.kind, kind](task, state)


Retrace = Callable[[Tensor | slice], Trace]
"""Makes the backward sweep that gave the bounds of some regions once more."""


@dataclass(frozen=True, eq=False)
class Solved(Bound):
    """A bound; branching looks at the coefficients of its sweep, but most regions are never split."""

    retrace: Retrace | None = None
    scouted: int = 0  # of the iterations, those before the last ascent


def variables_of(bound: Bound) -> Variables:
    """The variables that a solver has found."""
    assert isinstance(bound.state, Variables)
    return bound.state


@dataclass(frozen=True)
class TaskBounder(Bounder):
    """A bounder that takes a task as a whole or, if memory does not hold it, its objectives part by part."""

    @abstractmethod
    def begin(self, task: Task, until: Until) -> Bound:
        """Bound whole boxes: what comes before an ascent, and the ascent."""

    @abstractmethod
    def bytes_each(self, task: Task) -> int:
        """What it keeps of one objective in one region."""

    def bound(self, net: Network, region: Region, objective: Objective, until: Until) -> Bound:
        task = Task(Sweep.prepare(net, region, objective.layer), objective)
        found = [bounder.begin(part, until) for bounder, part in in_parts(self, task)]
        return Bound.joined([Bound(f.lower, f.x0, f.state, f.iterations) for f in found])


@dataclass(frozen=True)
class Sizes:
    """What the number of variables depends on, for all regions of a search."""

    inputs: int
    neurons: int  # of all groups
    kinks: int
    read: int = 0  # entries of sources that all groups read, each as often as it is read


@dataclass(frozen=True)
class Solver(TaskBounder):
    """A bounder whose variables can be kept, and from which it can go on."""

    kind: ClassVar[str]
    """Of its variables."""

    weighs: ClassVar[bool] = False
    """Whether the weights of a clause's rows are variables, too; else they must be given."""

    @abstractmethod
    def inherits(self, sizes: Sizes) -> int:
        """Variables that children inherit, at most."""

    @abstractmethod
    def blank(self, point: Float[Tensor, "D S V"]) -> Variables:
        """Variables of its kind, without cuts."""

    @abstractmethod
    def init(self, task: Task, parent: Variables | None = None) -> Variables:
        """A start: that of CROWN's bound, or the variables of regions that contain these, with the same kinks.

        Require: a parent of the solver's kind.
        """

    @abstractmethod
    def solve(self, task: Task, state: Variables, until: Until) -> Solved:
        """Improve a start.  Guarantee: a valid bound."""

    def begin(self, task: Task, until: Until, parent: Variables | None = None) -> Solved:
        """The same with what a parent knows, which may be of any kind."""
        return self.solve(task, self.init(task, None if parent is None else converted(task, parent, self.kind)), until)

    def resume(self, task: Task, until: Until, parent: Variables) -> Solved:
        """Bound parts of regions whose variables are known: what comes before an ascent there, and the ascent.

        Require: a parent of the solver's kind.
        """
        return self.solve(task, self.init(task, parent), until)

    def lean(self, task: Task, state: Variables) -> Variables:
        """What was found on whole boxes, without what is not worth its time in parts of them."""
        return state

    def inherited(self, state: Variables) -> Variables:
        """What children start from."""
        return state

    def probe(self, task: Task, state: Variables) -> Float[Tensor, "D S"]:
        """Cheap bounds from given variables, for trying out splits."""
        return state.lower(task)


TaskBounderT = TypeVar("TaskBounderT", bound=TaskBounder)


def in_parts(bounder: TaskBounderT, task: Task) -> Iterator[tuple[TaskBounderT, Task]]:
    """Consecutive parts of a task, if memory does not hold all objectives at once.

    Each comes with the bounder to be used for it: whoever watches hears of all objectives each time, with -inf for
    those whose turn has not come.
    """
    region, count = task.sweep.region, task.objective.count
    chunk = together(bounder.bytes_each(task) * region.count, bounder.memory_bytes)
    if chunk >= count:
        yield bounder, task
        return
    known = region.lower.new_full((region.count, count), -torch.inf)
    for start in range(0, count, chunk):
        stop = min(start + chunk, count)
        hear = None if bounder.watch is None else _part_of(bounder.watch, known, start, stop)
        yield bounder if hear is None else bounder.watched(hear), task.part(start, stop)


def _part_of(watch: Watch, known: Float[Tensor, "D S"], start: int, stop: int) -> Watch:
    """The listener for one part: what it hears goes to its place among all that is known."""

    def hear(lower: Float[Tensor, "D s"]) -> None:
        if len(lower) < len(known):  # of some regions only, the others have left
            return
        known[:, start:stop] = lower
        watch(known.clone())

    return hear


@dataclass(frozen=True)
class Certified(Bounder):
    """Search in float32, prove in float64: runs another bounder in single precision and evaluates what it found.

    requires:   a network, region and objective in float64, the region's bounds rigorous
    guarantees: a rigorous lower bound: the float64 evaluation of the variables that a float32 ascent found
    source:     docs/numerics.md

    A bounder that `proves` nothing (it has no variables, or they lose too much in single precision) runs in double
    precision itself, once.
    """

    inner: Bounder

    @property
    def proves(self) -> bool:
        return self.inner.proves

    @property
    def any_function(self) -> bool:
        return self.inner.any_function

    @property
    def rigorous(self) -> bool:
        return self.inner.rigorous

    def watched(self, watch: Watch) -> Certified:
        return replace(self, inner=self.inner.watched(watch))

    def learning(self) -> Certified:
        return replace(self, inner=self.inner.learning())

    def bound(self, net: Network, region: Region, objective: Objective, until: Until) -> Bound:
        if not self.inner.proves:
            return self.inner.bound(net, region, objective, until)
        sweep = Sweep.prepare(net, region, objective.layer)
        region = replace(region, kinks=tuple(neurons.index for neurons in sweep.neurons))
        quick_net = net.to(dtype=torch.float32)
        quick_region = region.to(torch.float32)
        # The evaluation holds as many vectors as the ascent, and each takes twice the memory.
        each = 24 * widest(net, objective.layer) * region.lower.element_size() * region.count
        chunk = together(each, self.memory_bytes)
        found = []
        for start in range(0, objective.count, chunk):
            part = objective.part(start, start + chunk)
            quick = self.inner.bound(quick_net, quick_region, part.to(torch.float32), until)
            assert isinstance(quick.state, Proof), f"{type(self.inner).__name__} has promised a proof"
            lower = quick.state.lower(Task(sweep, part))
            found.append(replace(quick, lower=lower, x0=None if quick.x0 is None else quick.x0.double()))
        return Bound.joined(found)
