"""The rungs of the ladder of bounds: a tier is a solver with its ascents, on the whole boxes and in the tree.

`Tier.climber` makes the object that works on one problem.  The variables travel with the domains, as rows of one table:
a child starts where its parent ended.  Masks that are no variables are those of the whole boxes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Objective, Until
from verifier.bounding.core.closing import crossed
from verifier.bounding.core.state import repeated
from verifier.bounding.core.sweep import Sweep, Trace
from verifier.bounding.cuts.masks import CutMasks
from verifier.bounding.solvers.alpha_crown import AlphaCrown
from verifier.bounding.solvers.crown import Linear
from verifier.bounding.solvers.solver import (
    Proof,
    Retrace,
    Sizes,
    Solved,
    Solver,
    Task,
    Variables,
    converted,
    variables_of,
)
from verifier.search.signs.root import Batch, Root
from verifier.shapes import Bool, Float, Int, Tensor

CLOSE_TOGETHER = 128
"""How many domains are proved at once: float64 takes twice the memory."""

WEIGHING = Ascent(30, Steps(0.2, 0.02))
"""How the weights of several rows are found for solvers that do not choose them."""

Kept = Sequence[Int[Tensor, " _"]]
"""The kinks of each group that are still kinks, as places among those of a search with looser bounds."""


@dataclass(frozen=True, eq=False)
class Crossed(Proof):
    """The bounds of a hidden neuron contradict each other: the domains are empty, whatever the rows say."""

    kind = "crossed"

    def lower(self, task: Task) -> Float[Tensor, "D S"]:
        return torch.full_like(task.sweep.region.lower[:, :1], -torch.inf)

    def closed(self, task: Task) -> Bool[Tensor, " D"]:
        region = task.sweep.region
        sides = zip(region.l_hat, region.u_hat, strict=True)
        return torch.stack([crossed(low, high).any(dim=1) for low, high in sides]).any(dim=0)


@dataclass(frozen=True, eq=False)
class Computed(Proof):
    """Bounds that were computed in float64 at once."""

    found: Float[Tensor, "D S"]

    kind = "computed"

    def lower(self, task: Task) -> Float[Tensor, "D S"]:
        return self.found


@dataclass(frozen=True, eq=False)
class Climbed:
    """Bounds of a batch: in the precision of the search, and with what would prove them."""

    lower: Float[Tensor, " D"]
    variables: Float[Tensor, "D V"]  # what children start from
    proof: Proof
    state: Variables
    sweep: Sweep
    objective: Objective
    retrace: Retrace  # a backward sweep, for branching
    iterations: int
    x0: Float[Tensor, "D n0"] | None  # where the relaxation attains its bound; None: where the sweep says

    def minimisers(self, rows: Int[Tensor, " d"]) -> Float[Tensor, "d n0"]:
        """Where the relaxations of some domains attain their bounds."""
        return self.retrace(rows).x0[:, 0] if self.x0 is None else self.x0[rows]


@dataclass(frozen=True)
class Tier:
    """A rung of the ladder: a solver for the whole boxes, and one of the same kind for the domains of the tree."""

    name: str
    first: Solver
    solver: Solver
    iterations: int  # on each domain of the tree
    together: int | None = None  # domains that are bounded at a time; None: all
    plain: Tier | None = None  # the same without cuts, if it has some
    kept: Tier | None = None  # the same with masks that stay as they are, if it learns them

    def climber(self, root: Root) -> Climber:
        return Climber(self, root)


class Climber:
    """A tier at work on the domains of one problem.

    It runs in float32 if what the solver finds can be proved afterwards, else in float64.
    """

    def __init__(self, tier: Tier, root: Root) -> None:
        self.tier, self.root = tier, root
        self.name, self.iterations = tier.name, tier.iterations
        self.masks = CutMasks()  # a row per clause
        self.weights: Tensor | None = None  # of the rows of each clause, where they are no variables
        self.learned: dict[int, Tensor] = {}  # masks that are variables, by group: those of each clause's whole box

    @property
    def width(self) -> int:
        """No domain has more variables."""
        net = self.root.net
        sizes = Sizes(net.n_in, net.neurons, self.root.kinks, sum(group.inputs for group in net.groups))
        return self._row_weights + self.tier.first.inherits(sizes)

    @property
    def _row_weights(self) -> int:
        return self.root.rows.c.shape[1] if self.tier.solver.weighs else 0

    def beside(self, tier: Tier) -> Climber:
        """Another tier with the same variables, at work on the same domains."""
        found = tier.climber(self.root)
        found.masks, found.weights, found.learned = self.masks, self.weights, self.learned
        return found

    def begin(self, whole: Batch, below: Climbed | None, until: Until) -> Climbed:
        """Bound all clauses on their whole boxes; `below` is what the tier below found there."""
        solver = self.tier.first
        if not solver.weighs:
            self.weights = _weighed(whole, until)

        def begin(task: Task, rows: Tensor | slice) -> Solved:
            return solver.begin(task, until, None if below is None else below.state.select(rows))

        task = self._task(whole)
        bound = self._in_turn(whole, task, begin)
        bound = replace(bound, state=solver.lean(task, variables_of(bound)))
        state = solver.inherited(variables_of(bound))
        self.masks = state.masks
        self.learned = self._masks_of(state)
        return self._climbed(whole, task, bound)

    def climb(self, batch: Batch, start: Float[Tensor, "D V"], until: Until) -> Climbed:
        """Bound domains from the variables of their parents."""
        solver = self.tier.solver
        state = replace(self._state(start), masks=self._masks(batch))

        def solve(task: Task, rows: Tensor | slice) -> Solved:
            return solver.resume(task, until, state.select(rows))

        task = self._task(batch)
        return self._climbed(batch, task, self._in_turn(batch, task, solve))

    def probe(self, batch: Batch, start: Float[Tensor, "D V"]) -> Float[Tensor, " D"]:
        """Cheap bounds from given variables, for trying out splits."""
        state = replace(self._state(start), masks=self._masks(batch))
        return self.tier.solver.probe(self._task(batch), state)[:, 0]

    def adopt(
        self, batch: Batch, variables: Float[Tensor, "D V"], other: Climber, kept: Kept | None = None
    ) -> Float[Tensor, "D W"] | None:
        """Variables of another climber as a start for this one; None if there is no way.

        The other one is the tier below or, with `kept`, any tier of a search with looser bounds of hidden neurons.
        """
        solver, state = self.tier.solver, other._state(variables)
        if kept is not None and not (solver.weighs and other.tier.solver.weighs):
            return None  # the weights of the rows, which are no variables, were others
        if kept is None and other.masks.places:  # all are kept, but cuts may be at other groups
            kept = [torch.arange(size, device=variables.device) for size in self.root.sizes]
        if kept is not None:
            state = other._restricted(state, kept, self.masks)
        task = self._task(batch.select(slice(0, 1)) if solver.weighs else batch)  # faces ask for sizes only
        state = replace(converted(task, state, solver.kind), masks=self.masks).ready(task)
        for k, masks in self._masks_of(state).items():
            if k not in other.masks.learned:  # new variables begin where those of the whole box ended
                masks.copy_(self.learned[k][batch.clause])
        return self._row(state)

    def _restricted(self, state: Variables, kept: Kept, masks: CutMasks) -> Variables:
        """The variables of the kinks that are left, and of all masks; those of new cuts are zero."""
        # Of groups that are no ReLUs all neurons are left: the first entries of x_hat stand for them.
        neurons = [
            index[: len(index) // group.function.arity] for index, group in zip(kept, self.root.net.groups, strict=True)
        ]
        plain = [*self.root.neurons, *self.root.sizes]
        sizes = [*plain, *(self.root.sizes[k] for _, k in self.masks.places)]
        parts = state.point[..., : sum(sizes)].split(sizes, dim=-1)
        found = [part[..., index] for part, index in zip(parts, [*neurons, *kept], strict=False)]
        shares = dict(zip(self.masks.places, parts[len(plain) :], strict=True))
        for place in masks.places:
            index = kept[place[1]]
            old = shares.get(place)
            found.append(state.point.new_zeros(*state.point.shape[:2], len(index)) if old is None else old[..., index])
        own = self._masks_of(state)
        for k in masks.learned:
            size = self.root.net.groups[k].inputs
            found.append(own[k] if k in own else state.point.new_zeros(*state.point.shape[:2], size))
        return replace(state, point=torch.cat(found, dim=-1))

    def _masks_of(self, state: Variables) -> dict[int, Float[Tensor, "D S n"]]:
        """The masks among the variables, by group: views.  Require: the state has those of the pool."""
        sizes = {k: self.root.net.groups[k].inputs for k in self.masks.learned}
        if not sizes:
            return {}
        parts = state.point[..., -sum(sizes.values()) :].split([*sizes.values()], dim=-1)
        return dict(zip(sizes, parts, strict=True))

    def _task(self, batch: Batch, dtype: torch.dtype = torch.float32) -> Task:
        task = batch.task(dtype)
        return task if self.weights is None else Task(task.sweep, task.weighted(self.weights[batch.clause]))

    def _masks(self, batch: Batch) -> CutMasks:
        """The masks of each domain's clause."""
        if self.root.clauses == 1:  # all have the same
            return repeated(self.masks, len(batch))
        return self.masks.select(batch.clause)

    def _state(self, variables: Float[Tensor, "D V"]) -> Variables:
        """Rows of the table of variables as a state, without masks."""
        weights, point = variables.float().unsqueeze(1).tensor_split([self._row_weights], dim=-1)
        return replace(self.tier.solver.blank(point), weights=weights if self._row_weights else None)

    def _row(self, state: Variables) -> Float[Tensor, "D V"]:
        """What children inherit of a state, as rows of the table."""
        state = self.tier.solver.inherited(state)
        parts = [state.point] if not self._row_weights or state.weights is None else [state.weights, state.point]
        return torch.cat(parts, dim=-1)[:, 0].float()

    def _in_turn(self, batch: Batch, task: Task, bound: Callable[[Task, Tensor | slice], Solved]) -> Solved:
        """The bounds of all domains, as many at a time as the tier allows; `task` is that of all in float32."""
        together, proves = self.tier.together or len(batch), self.tier.solver.proves
        if proves and len(batch) <= together:
            return bound(task, slice(None))
        dtype = torch.float32 if proves else torch.float64
        parts = torch.arange(len(batch), device=self.root.device).split(together)
        return Solved.joined([bound(self._task(batch.select(rows), dtype), rows) for rows in parts], dim=0)

    def _climbed(self, batch: Batch, task: Task, bound: Solved) -> Climbed:
        state = variables_of(bound)
        if self.weights is not None:
            state = replace(state, weights=self.weights[batch.clause])
        objective = task.weighted(None if self.weights is not None else state.weights)

        def plain(rows: Tensor | slice) -> Trace:
            sweep = task.sweep.select(rows)
            return sweep.backward(objective.select(rows), Linear().choices(sweep))

        return Climbed(
            bound.lower[:, 0].float(),
            self._row(state),
            state if self.tier.solver.proves else Computed(bound.lower),
            state,
            task.sweep,
            objective,
            plain if bound.retrace is None else bound.retrace,
            bound.iterations - bound.scouted,
            None if bound.x0 is None else bound.x0[:, 0].float(),
        )


def _weighed(whole: Batch, until: Until) -> Float[Tensor, "C 1 m"]:
    """Weights of each clause's rows: those that alpha-CROWN finds on the whole box."""
    even = whole.root.rows.even()
    if even.shape[-1] == 1:
        return even
    weights = variables_of(AlphaCrown(WEIGHING).begin(whole.task(), until)).weights
    assert weights is not None
    return weights.double()
