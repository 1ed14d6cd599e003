"""Saddle Point: Frank-Wolfe on the saddle-point problem of the Anderson relaxation, with all its masks.

requires:   bounds of all groups before the objective's layer
guarantees: a valid lower bound at every iterate; the best one is returned, with prices that prove it.  Memory does not
            grow with the iterations: there is one number per weight of a kink, whatever the number of masks
source:     [SCB] sec:sp, algorithm alg:sp-fw; price caps and primal start from its appendices
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch

from verifier.bounding import BOUNDERS
from verifier.bounding.core.ascent import LEAVE_BELOW, Adam, Ascent, Dual, Steps
from verifier.bounding.core.base import Bounder, Until, Watch, widest
from verifier.bounding.core.state import State, tree_map
from verifier.bounding.solvers.active_set import (
    ActiveSet,
    ActiveSetOptions,
    Additions,
    AdditionsOptions,
    InitialOptions,
)
from verifier.bounding.solvers.face_dual import FaceVariables
from verifier.bounding.solvers.lagrangian import Lagrangian
from verifier.bounding.solvers.multipliers import MultiplierSolver, MultiplierVariables, multipliers_of
from verifier.bounding.solvers.saddle import Caps, Prices, Primal, Saddle, blend
from verifier.bounding.solvers.solver import (
    Certified,
    Sizes,
    Solved,
    Task,
    Variables,
    converted,
    converts,
    variables_of,
)
from verifier.registry import AscentOptions, Count, Options, Positive, Step
from verifier.shapes import Bool, Float, Tensor


@dataclass(frozen=True, eq=False)
class Heritage(Variables):
    """What children start from: the multipliers of Big-M, then a primal point as `Primal.flat` has it."""

    kind = "saddle"

    def dual(self, task: Task) -> Lagrangian:
        return Lagrangian(task.sweep, task.weighted(self.weights))

    def start(self, task: Task, dual: Dual[Any]) -> Float[Tensor, "D S V"]:
        return self.multipliers(task).start(task, dual)

    def variables(self, task: Task) -> int:
        kinks = sum(k.count for k in task.sweep.kinks)
        return (Lagrangian.FIXED + 2) * kinks + task.sweep.net.n_in

    def multipliers(self, task: Task) -> MultiplierVariables:
        """Both parts."""
        sizes = [Lagrangian.FIXED * sum(k.count for k in task.sweep.kinks)]
        point, primal = self.point.tensor_split(sizes, dim=-1)
        return MultiplierVariables(point, weights=self.weights, primal=primal)


@converts("saddle", "multipliers")
def multipliers_of_heritage(task: Task, state: Heritage) -> MultiplierVariables:
    return state.multipliers(task)


@converts("multipliers", "saddle")
def heritage_of_multipliers(task: Task, state: MultiplierVariables) -> Heritage:
    """The multipliers of Big-M, and the primal point that they answer to."""
    plain = state.without_cuts()
    dual = plain.dual(task)
    at = dual.evaluate(plain.start(task, dual))
    return Heritage(torch.cat([plain.point, Primal(at.x0, at.x, at.z).flat()], dim=-1), weights=state.weights)


@converts("slopes", "saddle")
@converts("shares", "saddle")
def heritage_of_faces(task: Task, state: FaceVariables) -> Variables:
    return heritage_of_multipliers(task, multipliers_of(task, state))


@dataclass(frozen=True, eq=False)
class Reached(State):
    """The best bounds so far, the prices that they are attained at, and where the primal points are."""

    lower: Float[Tensor, "D S"]
    x0: Float[Tensor, "D S n0"]
    prices: tuple[Prices, ...]
    primal: Primal


class FrankWolfe:
    """A run under way: the regions that are still in it (`rows`), and the best bounds of all."""

    def __init__(
        self, saddle: Saddle, prices: tuple[Prices, ...], primal: Primal, until: Until, watch: Watch | None = None
    ) -> None:
        self.saddle = saddle
        self.prices = prices
        self.caps = tuple(Caps.of(p) for p in prices)
        self.until = until
        self.watch = watch
        self.now = saddle.answer(prices)
        self.rows = torch.arange(saddle.sweep.region.count, device=self.now.lower.device)
        self._best = self._all = Reached(self.now.lower, self.now.x0, prices, primal)

    def step(self, weight: float) -> None:
        """Either side moves towards its best answer to where the other one was."""
        replies = self.saddle.reply(self._best.primal, self.caps, with_cuts=True)
        primal = blend(self._best.primal, Primal(self.now.x0, self.now.x, self.now.z), weight)
        self.prices = tuple(p.towards(reply, weight) for p, reply in zip(self.prices, replies, strict=True))
        self.now = self.saddle.answer(self.prices)
        self._best = self._better(primal)
        if self.watch is not None:
            self.watch(self._best.lower)

    def _better(self, primal: Primal) -> Reached:
        """The higher bounds, and the primal point of now."""
        improved: Bool[Tensor, "D S"] = self.now.lower > self._best.lower

        def choose(new: Tensor, old: Tensor) -> Tensor:
            return torch.where(improved.reshape(*improved.shape, *[1] * (new.dim() - 2)), new, old)

        found = Reached(self.now.lower, self.now.x0, self.prices, primal)
        return tree_map(choose, found, replace(self._best, primal=primal))

    def finished(self) -> bool:
        """Let regions leave that are done; True when none is left or time is up."""
        if self.until.expired():
            return True
        if self.until.threshold is None:
            return False
        open_rows = torch.nonzero((self._best.lower <= self.until.threshold).any(dim=1)).flatten()
        if len(open_rows) > LEAVE_BELOW * len(self.rows):
            return False
        self._all = self.result()
        self.rows = self.rows[open_rows]
        self.saddle = self.saddle.select(open_rows)
        self.prices = tuple(p.select(open_rows) for p in self.prices)
        self.caps = tuple(c.select(open_rows) for c in self.caps)
        self.now = self.now.select(open_rows)
        self._best = self._best.select(open_rows)
        return len(open_rows) == 0

    def result(self) -> Reached:
        """The best of all regions, also of those that have left."""
        if len(self.rows) == len(self._all.lower):
            return self._best
        return tree_map(lambda whole, mine: whole.index_copy(0, self.rows, mine), self._all, self._best)


class PrimalStartOptions(AscentOptions, frozen=True):
    """The descent that finds the primal start of Saddle Point."""

    iterations: Count = 100
    first_step: Step = 1e-2
    last_step: Step = 1e-5


class SaddlePointOptions(Options, frozen=True):
    """Frank-Wolfe with all masks, after Big-M; steps 1 / (t + offset)."""

    iterations: Count = 1000  # steps of Frank-Wolfe
    offset: Positive = 10  # steps are 1 / (t + offset)
    initial: InitialOptions = InitialOptions()
    primal_start: PrimalStartOptions = PrimalStartOptions()


class AsSpOptions(Options, frozen=True):
    """Saddle Point after Active Set."""

    iterations: Count = 3000  # steps of Frank-Wolfe
    offset: Positive = 10  # steps are 1 / (t + offset)
    initial: ActiveSetOptions = ActiveSetOptions()
    primal_start: PrimalStartOptions = PrimalStartOptions()


@dataclass(frozen=True)
class SaddlePoint(MultiplierSolver):
    """Frank-Wolfe with step 1 / (t + offset), after an ascent on Big-M (or Active Set) multipliers.

    A child starts from the Big-M multipliers that its parent began with, after a shorter ascent on them or none, and
    from the primal point where its parent ended.  The prices prove the bound: they are multipliers of a Lagrangian with
    one cut per neuron, whose mask mixes all that were met.
    """

    kind = "saddle"

    iterations: int = 1000
    offset: int = 10
    initial: ActiveSet = field(
        default_factory=lambda: ActiveSet(Ascent(0, Steps(1e-3, 1e-6, linear=True)), additions=Additions(most=0))
    )
    primal_start: Ascent = field(default_factory=lambda: Ascent(100, Steps(1e-2, 1e-5, linear=True)))
    check_every: int = 10

    @classmethod
    def of(cls, options: SaddlePointOptions) -> SaddlePoint:
        """After Big-M: an Active Set without masks or iterations of its own."""
        initial = ActiveSetOptions(iterations=0, initial=options.initial, additions=AdditionsOptions(most=0))
        primal_start = Ascent.of(options.primal_start, linear=True)
        return cls(options.iterations, options.offset, ActiveSet.of(initial), primal_start)

    @classmethod
    def after_active_set(cls, options: AsSpOptions) -> SaddlePoint:
        primal_start = Ascent.of(options.primal_start, linear=True)
        return cls(options.iterations, options.offset, ActiveSet.of(options.initial), primal_start)

    def resuming(self, iterations: int) -> SaddlePoint:
        """The same with so many iterations of Big-M in children."""
        return replace(self, initial=self.initial.resuming(iterations))

    def watched(self, watch: Watch) -> SaddlePoint:
        return replace(self, watch=watch, initial=self.initial.watched(watch))

    @property
    def proves(self) -> bool:
        return True

    def inherits(self, sizes: Sizes) -> int:
        return (Lagrangian.FIXED + 2) * sizes.kinks + sizes.inputs

    def blank(self, point: Float[Tensor, "D S V"]) -> Variables:
        return Heritage(point)

    def inherited(self, state: Variables) -> Variables:
        if state.kind == self.kind:
            return state
        assert isinstance(state, MultiplierVariables)
        assert state.origin is not None
        assert state.primal is not None
        return Heritage(torch.cat([state.origin, state.primal], dim=-1), weights=state.weights)

    def init(self, task: Task, parent: Variables | None = None) -> Variables:
        return self.initial.init(task, None if parent is None else converted(task, parent, self.initial.kind))

    def begin(self, task: Task, until: Until, parent: Variables | None = None) -> Solved:
        first = self.initial.begin(task, until)
        return first.then(self.solve(task, variables_of(first), until))

    def resume(self, task: Task, until: Until, parent: Variables) -> Solved:
        first = self.initial.warmed(self.initial.resumed, task, self.init(task, parent), until)
        return first.then(self.solve(task, variables_of(first), until))

    def solve(self, task: Task, state: Variables, until: Until) -> Solved:
        """Frank-Wolfe from the prices of given multipliers, and from their primal point, if they have one."""
        assert isinstance(state, MultiplierVariables)
        dual = state.dual(task)
        point = state.start(task, dual)
        saddle = Saddle.of(dual, point, task.geometries.rows())
        prices = saddle.start(dual, point, state.masks)
        run = FrankWolfe(saddle, prices, self._primal(saddle, prices, state.primal, until), until, self.watch)
        made = 0
        for t in range(self.iterations):
            if t % self.check_every == 0 and run.finished():
                break
            run.step(1.0 / (t + self.offset))
            made = t + 1
        best = run.result()
        origin = point[..., : Lagrangian.FIXED * sum(dual.sizes)]
        point, masks = saddle.multipliers(best.prices)
        found = MultiplierVariables(point, masks, state.weights, best.primal.flat(), origin)
        return Solved(best.lower, best.x0, found, made)

    def bytes_each(self, task: Task) -> int:
        """Vectors; mixtures of masks, now and best; and one pass over the largest group's weights."""
        known = [rows for rows in task.geometries.rows() if rows is not None]
        size = task.sweep.region.lower.element_size()
        passes = max((2 * rows.pass_bytes for rows in known), default=0)
        mixtures = 3 * size * sum(rows.columns.numel() for rows in known)
        vectors = 20 * widest(task.sweep.net, task.sweep.layer) * size
        return vectors + passes + mixtures + self.initial.bytes_each(task)

    def _primal(
        self, saddle: Saddle, prices: tuple[Prices, ...], known: Float[Tensor, "D S P"] | None, until: Until
    ) -> Primal:
        """A primal start: one that is known, inside of the boxes, or else one that a descent finds."""
        sizes, (low, high) = saddle.dual.sizes, _boxes(saddle)
        if known is not None:
            return Primal.shaped(known.to(low.dtype).clamp(low, high), sizes)
        at, caps = saddle.answer(prices), tuple(Caps.of(p) for p in prices)
        return self._descend(saddle, Primal(at.x0, at.x, at.z), caps, until)

    def _descend(self, saddle: Saddle, start: Primal, caps: tuple[Caps, ...], until: Until) -> Primal:
        """Subgradient descent on the primal view, cuts left out ([SCB] sec:sp-fw-primalinit)."""
        point, sizes, (low, high) = start.flat(), saddle.dual.sizes, _boxes(saddle)
        adam = Adam.start(point)
        for t in range(self.primal_start.iterations):
            if t % self.check_every == 0 and until.expired():
                break
            reply = saddle.reply(Primal.shaped(point, sizes), caps, with_cuts=False)
            step = self.primal_start.steps.at(t, self.primal_start.iterations)
            adam.step(point, -saddle.gradient(reply), step, t)
            torch.minimum(torch.maximum(point, low, out=point), high, out=point)
        return Primal.shaped(point, sizes)


def _boxes(saddle: Saddle) -> tuple[Float[Tensor, "D 1 P"], Float[Tensor, "D 1 P"]]:
    """The lower and the upper corner of the boxes, as `Primal.flat` has them."""
    region, kinks = saddle.sweep.region, saddle.sweep.kinks
    tops = [k.u_hat.clamp(min=0) for k in kinks]
    high = torch.cat([region.upper.unsqueeze(1), *tops, *(torch.ones_like(top) for top in tops)], dim=-1)
    zeros = [torch.zeros_like(top) for top in (*tops, *tops)]
    return torch.cat([region.lower.unsqueeze(1), *zeros], dim=-1), high


@BOUNDERS.register("saddle_point", SaddlePointOptions)
def saddle_point(options: SaddlePointOptions) -> Bounder:
    return Certified(SaddlePoint.of(options))


@BOUNDERS.register("as_sp", AsSpOptions)
def as_sp(options: AsSpOptions) -> Bounder:
    return Certified(SaddlePoint.after_active_set(options))
