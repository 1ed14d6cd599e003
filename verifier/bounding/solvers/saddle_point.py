"""Saddle Point: Frank-Wolfe on the saddle-point problem of the Anderson relaxation, with all its masks.

requires:   bounds of all groups before the objective's layer
guarantees: a valid lower bound at every iterate; the best one is returned.  Memory does not grow with the iterations
source:     [SCB] sec:sp, algorithm alg:sp-fw; price caps and primal start from its appendices
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch

from verifier.bounding import BOUNDERS
from verifier.bounding.core.ascent import LEAVE_BELOW, Adam, Ascent, Best, Steps
from verifier.bounding.core.base import Bound, Bounder, Objective, Proof, Region, Until, Watch, widest
from verifier.bounding.core.state import State, cat, halved, tree_map
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.oracle import Oracle
from verifier.bounding.solvers.active_set import (
    ActiveSet,
    ActiveSetOptions,
    Additions,
    AdditionsOptions,
    InitialOptions,
)
from verifier.bounding.solvers.certified import Certified
from verifier.bounding.solvers.lagrangian import Lagrangian
from verifier.bounding.solvers.multipliers import Explicit, MultiplierProof, masks_of, point_of, proof_of, with_cuts_of
from verifier.bounding.solvers.parts import in_parts
from verifier.bounding.solvers.saddle import Caps, Prices, Primal, Saddle, blend, row_geometries
from verifier.network.network import Network
from verifier.registry import AscentOptions, Count, Options, Positive, Step
from verifier.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class Standing(State):
    """Where Frank-Wolfe is: prices and caps of each group, and a primal point."""

    prices: tuple[Prices, ...]
    caps: tuple[Caps, ...]
    primal: Primal


@dataclass(frozen=True, eq=False)
class SaddleProof(Explicit):
    """The multipliers of the initial ascent, and the state that Frank-Wolfe has reached, its prices settled.

    Prices are sums of multipliers of forgotten masks: rounding makes them inconsistent with each other.  In float64
    that is accounted for; prices of another precision than the regions' count for nothing.
    """

    multipliers: MultiplierProof
    state: Standing

    def explicit(self) -> MultiplierProof:
        return self.multipliers

    def as_precise_as(self, region: Region) -> bool:
        """Whether the prices have the precision of the regions."""
        return all(prices.g.dtype is region.lower.dtype for prices in self.state.prices)

    def evaluate(self, net: Network, region: Region, objective: Objective) -> Float[Tensor, "D S"]:
        plain = Lagrangian(Sweep.prepare(net, region, objective.layer), objective)
        dual = self.multipliers.dual(plain)
        point = self.multipliers.start(dual)
        lower = dual.evaluate(point).lower
        if not self.as_precise_as(region):
            return lower
        return torch.maximum(lower, Saddle.without_cuts(dual, point).answer(self.state.prices, 0).lower)

    def joined(self, parts: Sequence[SaddleProof]) -> SaddleProof:
        return self._together(parts, dim=1)

    def cat(self, parts: Sequence[SaddleProof]) -> SaddleProof:
        return self._together(parts, dim=0)

    def part(self, start: int, stop: int) -> SaddleProof:
        state = self.state.part(start, stop)
        return SaddleProof(self.multipliers.part(start, stop), state)

    def select(self, rows: Int[Tensor, " d"]) -> SaddleProof:
        return SaddleProof(self.multipliers.select(rows), self.state.select(rows))

    def compact(self) -> SaddleProof:
        """Prices keep their precision: in half of it they would prove nothing."""
        caps, primal = tree_map(halved, self.state.caps), self.state.primal.half()
        return SaddleProof(self.multipliers.compact(), Standing(self.state.prices, caps, primal))

    def _together(self, parts: Sequence[SaddleProof], dim: int) -> SaddleProof:
        """Raises ValueError if the prices differ in precision: the coarser ones would pass for the finer ones."""
        if len({prices.g.dtype for part in parts for prices in part.state.prices}) > 1:
            raise ValueError("prices of different precisions cannot be put together")
        state = cat([part.state for part in parts], dim)
        explicit = [part.multipliers for part in parts]
        together = self.multipliers.joined(explicit) if dim == 1 else self.multipliers.cat(explicit)
        return SaddleProof(together, state)


@dataclass(frozen=True, eq=False)
class Reached(State):
    """The best bounds so far, where they are attained, and the prices behind them."""

    lower: Float[Tensor, "D S"]
    x0: Float[Tensor, "D S n0"]
    prices: tuple[Prices, ...]


class FrankWolfe:
    """A run under way: the regions that are still in it (`rows`), and the best prices of all."""

    def __init__(self, saddle: Saddle, state: Standing, until: Until, watch: Watch | None = None) -> None:
        self.saddle, self.state, self.until, self.watch = saddle, state, until, watch
        self.blends = 0
        self.now = saddle.answer(state.prices, 0)
        self.rows = torch.arange(saddle.sweep.region.count, device=self.now.lower.device)
        self._best = self._all_best = Reached(self.now.lower, self.now.vertex.x0, state.prices)
        self._all_states = state

    def step(self, weight: float) -> None:
        """Either side moves towards its best answer to where the other one was."""
        reply = self.saddle.reply(self.state.primal, self.state.caps, with_cuts=True)
        primal = blend(self.state.primal, self.now.vertex, weight)
        self.state = replace(self.state, prices=blend(self.state.prices, reply, weight), primal=primal)
        self.blends += 1
        self.now = self.saddle.answer(self.state.prices, self.blends)
        reached = Reached(self.now.lower, self.now.vertex.x0, self.state.prices)
        self._best = better_of(reached, self._best, reached.lower > self._best.lower)
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
        self._write_back()
        self.rows, self.saddle = self.rows[open_rows], self.saddle.select(open_rows)
        self.state, self.now, self._best = tree_map(lambda t: t[open_rows], (self.state, self.now, self._best))
        return len(open_rows) == 0

    def _write_back(self) -> None:
        if len(self.rows) == len(self._all_best.lower):
            self._all_best, self._all_states = self._best, self.state
        else:
            mine, whole = (self._best, self.state), (self._all_best, self._all_states)
            self._all_best, self._all_states = tree_map(lambda a, b: a.index_copy(0, self.rows, b), whole, mine)

    def result(self) -> tuple[Reached, Standing]:
        """The best of all regions, also of those that have left, and the state with the best prices."""
        self._write_back()
        return self._all_best, replace(self._all_states, prices=self._all_best.prices)


def better_of(first: Reached, second: Reached, use_first: Bool[Tensor, "D S"]) -> Reached:
    """The first where `use_first` says so, else the second."""

    def pick(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(use_first.reshape(*use_first.shape, *[1] * (a.dim() - 2)), a, b)

    return tree_map(pick, first, second)


def _no_ascent() -> Ascent:
    return Ascent(0, Steps(1e-3, 1e-6, linear=True))


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
class SaddlePoint(Bounder):
    """Frank-Wolfe with step 1 / (t + offset), after an ascent on Big-M (or Active Set) multipliers.

    A child that starts from its parent's state needs neither that ascent (`resume` takes its place) nor a primal start.
    """

    iterations: int = 1000
    offset: int = 10
    initial: ActiveSet = field(default_factory=lambda: ActiveSet(additions=Additions(most=0), ascent=_no_ascent()))
    primal_start: Ascent = field(default_factory=lambda: Ascent(100, Steps(1e-2, 1e-5, linear=True)))
    check_every: int = 10
    resume: Ascent = field(default_factory=_no_ascent)

    @classmethod
    def of(cls, options: SaddlePointOptions | AsSpOptions) -> SaddlePoint:
        initial = options.initial
        if isinstance(initial, InitialOptions):
            initial = ActiveSetOptions(iterations=0, initial=initial, additions=AdditionsOptions(most=0))
        primal_start = Ascent.of(options.primal_start, linear=True)
        return cls(options.iterations, options.offset, ActiveSet.of(initial), primal_start)

    def watched(self, watch: Watch) -> SaddlePoint:
        return replace(self, watch=watch, initial=self.initial.watched(watch))

    def bound(
        self, net: Network, region: Region, objective: Objective, until: Until, warm: Proof | None = None
    ) -> Bound:
        sweep = Sweep.prepare(net, region, objective.layer)
        rows, oracle = row_geometries(sweep), self.initial.oracle(sweep)
        passes = max((2 * geometry.pass_bytes for geometry in rows if geometry is not None), default=0)
        each = 20 * widest(net, objective.layer) * region.lower.element_size() + passes
        each += self.initial.bytes_each(sweep, oracle, masks_of(warm))
        found = []
        for bounder, part, state in in_parts(self, region, objective, each, warm):
            dual, begin = bounder._explicit(Lagrangian(sweep, part), oracle, until, state)
            saddle = Saddle.of(dual, begin.point, rows)
            found.append(bounder._run(saddle, begin, until, state))
        return Bound.joined(found)

    def _run(self, saddle: Saddle, begin: Best, until: Until, warm: Proof | None) -> Bound:
        """Frank-Wolfe from the multipliers that an ascent has found, or from the parent's state."""
        run, made = FrankWolfe(saddle, self._start(saddle, begin, until, warm), until, self.watch), 0
        for t in range(self.iterations):
            if t % self.check_every == 0 and run.finished():
                break
            run.step(1.0 / (t + self.offset))
            made = t + 1
        best, state = run.result()
        state = replace(state, prices=saddle.settled(state.prices, run.blends))
        proof = SaddleProof(proof_of(saddle.dual, begin.point), state)
        return Bound(torch.maximum(best.lower, begin.lower), best.x0, proof, begin.iterations + made)

    def _explicit(self, plain: Lagrangian, oracle: Oracle, until: Until, warm: Proof | None) -> tuple[Lagrangian, Best]:
        """Multipliers one by one, with the few masks that they know."""
        if warm is None:
            return self.initial.climb(plain, oracle, until)
        dual = with_cuts_of(warm, plain)
        return dual, self.resume.run(dual, point_of(warm, dual), until, watch=self.watch)

    def _start(self, saddle: Saddle, begin: Best, until: Until, warm: Proof | None) -> Standing:
        """The state that the multipliers give or, where its bound is better, the parent's."""
        prices = saddle.start(begin.point)
        now, caps = saddle.answer(prices, 0), tuple(Caps.of(p) for p in prices)
        if not isinstance(warm, SaddleProof) or not warm.as_precise_as(saddle.sweep.region):
            return Standing(prices, caps, self._descend(saddle, now.vertex, caps, until))
        old, like = warm.state, now.lower.dtype
        before = saddle.answer(old.prices, 0)
        fresh, known = Reached(now.lower, now.vertex.x0, prices), Reached(before.lower, before.vertex.x0, old.prices)
        chosen = better_of(known, fresh, known.lower > fresh.lower)
        caps = tree_map(lambda a, b: torch.maximum(a, b.to(like)), caps, old.caps)
        primal = tree_map(lambda p, low, high: p.to(like).clamp(low, high), old.primal, *_boxes(saddle, now.vertex))
        return Standing(chosen.prices, caps, primal)

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
