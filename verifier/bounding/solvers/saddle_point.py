"""Saddle Point: Frank-Wolfe on the saddle-point problem of the Anderson relaxation, with all its masks.

requires:   bounds of all groups before the objective's layer
guarantees: a valid lower bound at every iterate; the best one is returned.  Memory does not grow with the iterations
source:     [SCB] sec:sp, algorithm alg:sp-fw; price caps and primal start from its appendices
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from verifier.bounding import BOUNDERS
from verifier.bounding.core.ascent import LEAVE_BELOW, Adam, Ascent, Averaging, Steps
from verifier.bounding.core.base import Bound, Bounder, Until, Watch, widest
from verifier.bounding.core.state import State, tree_map
from verifier.bounding.solvers.active_set import (
    ActiveSet,
    ActiveSetOptions,
    Additions,
    AdditionsOptions,
    InitialOptions,
)
from verifier.bounding.solvers.lagrangian import Lagrangian
from verifier.bounding.solvers.multipliers import MultiplierSolver
from verifier.bounding.solvers.saddle import Caps, Prices, Primal, Saddle, blend
from verifier.bounding.solvers.solver import Certified, Task, Variables, variables_of
from verifier.registry import AscentOptions, Count, Options, Positive, Step
from verifier.shapes import Bool, Float, Tensor


@dataclass(frozen=True, eq=False)
class Standing(State):
    """Where Frank-Wolfe is: prices and caps of each group, and a primal point."""

    prices: tuple[Prices, ...]
    caps: tuple[Caps, ...]
    primal: Primal


@dataclass(frozen=True, eq=False)
class Reached(State):
    """The best bounds so far, and where they are attained."""

    lower: Float[Tensor, "D S"]
    x0: Float[Tensor, "D S n0"]


class FrankWolfe:
    """A run under way: the regions that are still in it (`rows`), and the best bounds of all."""

    def __init__(self, saddle: Saddle, standing: Standing, until: Until, watch: Watch | None = None) -> None:
        self.saddle = saddle
        self.standing = standing
        self.until = until
        self.watch = watch
        self.blends = 0
        self.now = saddle.answer(standing.prices, 0)
        self.rows = torch.arange(saddle.sweep.region.count, device=self.now.lower.device)
        self._best = self._all = Reached(self.now.lower, self.now.vertex.x0)

    def step(self, weight: float) -> None:
        """Either side moves towards its best answer to where the other one was."""
        reply = self.saddle.reply(self.standing.primal, self.standing.caps, with_cuts=True)
        primal = blend(self.standing.primal, self.now.vertex, weight)
        prices = blend(self.standing.prices, reply, weight)
        self.standing = replace(self.standing, prices=prices, primal=primal)
        self.blends += 1
        self.now = self.saddle.answer(prices, self.blends)
        self._best = better_of(Reached(self.now.lower, self.now.vertex.x0), self._best)
        if self.watch is not None:
            self.watch(self._best.lower)

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
        self.standing = self.standing.select(open_rows)
        self.now = self.now.select(open_rows)
        self._best = self._best.select(open_rows)
        return len(open_rows) == 0

    def result(self) -> Reached:
        """The best of all regions, also of those that have left."""
        if len(self.rows) == len(self._all.lower):
            return self._best
        return tree_map(lambda whole, mine: whole.index_copy(0, self.rows, mine), self._all, self._best)


def better_of(first: Reached, second: Reached) -> Reached:
    """The higher bounds."""
    use_first: Bool[Tensor, "D S"] = first.lower > second.lower
    return tree_map(
        lambda a, b: torch.where(use_first if a.dim() == 2 else use_first.unsqueeze(-1), a, b), first, second
    )


class PrimalStartOptions(AscentOptions, frozen=True):
    """The descent that finds the primal start of Saddle Point."""

    iterations: Count = 100
    first_step: Step = 1e-2
    last_step: Step = 1e-5


class SaddlePointOptions(Options, frozen=True):
    """Frank-Wolfe with all masks, after Big-M; steps 1 / (t + offset)."""

    iterations: Count = 1000
    offset: Positive = 10
    initial: InitialOptions = InitialOptions()
    primal_start: PrimalStartOptions = PrimalStartOptions()


class AsSpOptions(Options, frozen=True):
    """Saddle Point after Active Set."""

    iterations: Count = 3000
    offset: Positive = 10
    initial: ActiveSetOptions = ActiveSetOptions()
    primal_start: PrimalStartOptions = PrimalStartOptions()


@dataclass(frozen=True)
class SaddlePoint(MultiplierSolver):
    """Frank-Wolfe with step 1 / (t + offset), after an ascent on Big-M (or Active Set) multipliers.

    A child starts from its parent's multipliers, with a shorter ascent or none.  They are all that is left afterwards:
    the prices are sums of multipliers of forgotten masks, so that the state alone does not prove the bound.
    """

    iterations: int = 1000
    offset: int = 10
    initial: ActiveSet = field(
        default_factory=lambda: ActiveSet(Ascent(0, Steps(1e-3, 1e-6, linear=True)), additions=Additions(most=0))
    )
    primal_start: Ascent = field(default_factory=lambda: Ascent(100, Steps(1e-2, 1e-5, linear=True)))
    check_every: int = 10

    @classmethod
    def of(cls, options: SaddlePointOptions | AsSpOptions) -> SaddlePoint:
        initial = options.initial
        if isinstance(initial, InitialOptions):
            initial = ActiveSetOptions(iterations=0, initial=initial, additions=AdditionsOptions(most=0))
        primal_start = Ascent.of(options.primal_start, linear=True)
        return cls(options.iterations, options.offset, ActiveSet.of(initial), primal_start)

    def resuming(self, iterations: int) -> SaddlePoint:
        """The same with so many iterations of Big-M in children."""
        return replace(self, initial=self.initial.resuming(iterations))

    def watched(self, watch: Watch) -> SaddlePoint:
        return replace(self, watch=watch, initial=self.initial.watched(watch))

    def init(self, task: Task, parent: Variables | None = None) -> Variables:
        return self.initial.init(task, parent)

    def begin(self, task: Task, until: Until, parent: Variables | None = None) -> Bound:
        first = self.initial.begin(task, until)
        return first.then(self.solve(task, variables_of(first), until))

    def resume(self, task: Task, until: Until, parent: Variables, averaging: Averaging | None = None) -> Bound:
        first = self.initial.warmed(self.initial.resumed, task, self.init(task, parent), until)
        return first.then(self.solve(task, variables_of(first), until))

    def solve(self, task: Task, state: Variables, until: Until, averaging: Averaging | None = None) -> Bound:
        """Frank-Wolfe from the prices of given multipliers."""
        dual = state.dual(task)
        assert isinstance(dual, Lagrangian)
        point = state.start(task, dual)
        saddle = Saddle.of(dual, point, task.geometries.rows())
        run = FrankWolfe(saddle, self._standing(saddle, point, until), until, self.watch)
        made = 0
        for t in range(self.iterations):
            if t % self.check_every == 0 and run.finished():
                break
            run.step(1.0 / (t + self.offset))
            made = t + 1
        best = run.result()
        return Bound(torch.maximum(best.lower, dual.evaluate(point).lower), best.x0, state, made)

    def bytes_each(self, task: Task) -> int:
        passes = max((2 * rows.pass_bytes for rows in task.geometries.rows() if rows is not None), default=0)
        size = task.sweep.region.lower.element_size()
        return 20 * widest(task.sweep.net, task.sweep.layer) * size + passes + self.initial.bytes_each(task)

    def _standing(self, saddle: Saddle, point: Float[Tensor, "D S V"], until: Until) -> Standing:
        """The prices of the multipliers, caps for them, and a primal start."""
        prices = saddle.start(point)
        caps = tuple(Caps.of(p) for p in prices)
        return Standing(prices, caps, self._descend(saddle, saddle.answer(prices, 0).vertex, caps, until))

    def _descend(self, saddle: Saddle, start: Primal, caps: tuple[Caps, ...], until: Until) -> Primal:
        """Subgradient descent on the primal view, cuts left out ([SCB] sec:sp-fw-primalinit)."""
        point, low, high = (_flat(p) for p in (start, *_boxes(saddle, start)))
        adam = Adam.start(point)
        for t in range(self.primal_start.iterations):
            if t % self.check_every == 0 and until.expired():
                break
            reply = saddle.reply(_shaped(point, start), caps, with_cuts=False)
            against = saddle.answer(reply, 0)
            gradient = torch.cat([against.lam0, *against.f, *(-r.g for r in reply)], dim=-1)
            adam.step(point, -gradient, self.primal_start.steps.at(t, self.primal_start.iterations), t)
            torch.minimum(torch.maximum(point, low, out=point), high, out=point)
        return _shaped(point, start)


def _flat(primal: Primal) -> Float[Tensor, "D S V"]:
    return torch.cat([primal.x0, *primal.x, *primal.z], dim=-1)


def _shaped(point: Float[Tensor, "D S V"], like: Primal) -> Primal:
    """The inverse of `_flat`."""
    x0, *rest = point.split([like.x0.shape[-1], *(part.shape[-1] for part in (*like.x, *like.z))], dim=-1)
    return Primal(x0, tuple(rest[: len(like.x)]), tuple(rest[len(like.x) :]))


def _boxes(saddle: Saddle, like: Primal) -> tuple[Primal, Primal]:
    """The lower and the upper corner of the boxes."""
    region, kinks = saddle.sweep.region, saddle.sweep.kinks
    low = replace(tree_map(torch.zeros_like, like), x0=region.lower.unsqueeze(1).expand_as(like.x0))
    tops = tuple(k.u_hat.clamp(min=0).expand_as(x) for k, x in zip(kinks, like.x, strict=True))
    high = Primal(region.upper.unsqueeze(1).expand_as(like.x0), tops, tuple(torch.ones_like(z) for z in like.z))
    return low, high


@BOUNDERS.register("saddle_point", SaddlePointOptions)
def saddle_point(options: SaddlePointOptions) -> Bounder:
    return Certified(SaddlePoint.of(options))


@BOUNDERS.register("as_sp", AsSpOptions)
def as_sp(options: AsSpOptions) -> Bounder:
    return Certified(SaddlePoint.of(options))
