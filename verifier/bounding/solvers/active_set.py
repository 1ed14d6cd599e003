"""Active Set: supergradient ascent on the dual of the Anderson relaxation, restricted to a few masks.

requires:   bounds of all groups before the objective's layer
guarantees: a valid lower bound at every iterate; the best one is returned.  With no mask it is Big-M
source:     [SCB] sec:active, algorithm alg:active-set

Every so many iterations the oracle adds a mask per neuron: the most violated cut at a primal point.  The paper takes
the inner minimiser, a vertex of the boxes, where a neuron with z = 1 gets a mask that Big-M already has.  The average
of the last minimisers is an interior point and gives better masks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from verifier.bounding import BOUNDERS
from verifier.bounding.core.ascent import Ascent, Best, Climb, Steps
from verifier.bounding.core.base import Bound, Bounder, Objective, Proof, Region, Until, widest
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.oracle import Average, Masks, Oracle
from verifier.bounding.solvers.big_m import BigMOptions, Start
from verifier.bounding.solvers.certified import Certified
from verifier.bounding.solvers.lagrangian import Lagrangian
from verifier.bounding.solvers.multipliers import MaskSet, masks_of, point_of, proved, with_cuts_of
from verifier.bounding.solvers.parts import in_parts
from verifier.network.network import Network
from verifier.registry import AscentOptions, Count, Literal, Options, Positive, Share, Step

COPIES = 6
"""Of the multipliers, in an ascent: the point, the best points, Adam's moments, the supergradient."""


class OraclePoint(Enum):
    """Where the oracle is asked."""

    MINIMISER = "minimiser"  # the paper's: the current inner minimiser
    AVERAGE = "average"  # the mean of all minimisers since the last addition


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

    every: Positive = 450
    count: Count = 2
    most: Count = 7


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


@dataclass(frozen=True)
class ActiveSet(Bounder):
    """Big-M first, then Adam on all multipliers while masks are added.

    A child that starts from its parent's multipliers and masks (their constants are computed anew for its bounds)
    needs no Big-M: `resume` takes the place of `initial`.  Inherited masks count towards `additions.most`.
    """

    ascent: Ascent = field(default_factory=lambda: Ascent(600, Steps(1e-3, 1e-6, linear=True)))
    initial: Ascent = field(default_factory=lambda: Ascent(500, Steps(1e-2, 1e-4, linear=True)))
    additions: Additions = Additions()
    start: Start = Start.LINEAR
    masks: Masks = Masks.ROWS
    point: OraclePoint = OraclePoint.MINIMISER
    threshold: float = 0.5  # of shared masks
    resume: Ascent = field(default_factory=lambda: Ascent(0, Steps(1e-3, 1e-6, linear=True)))  # replaces `initial`

    @classmethod
    def of(cls, options: ActiveSetOptions) -> ActiveSet:
        return cls(
            Ascent.of(options, linear=True),
            Ascent.of(options.initial, linear=True),
            Additions(options.additions.every, options.additions.count, options.additions.most),
            Start(options.initial.start),
            Masks(options.masks),
            OraclePoint(options.point),
            options.threshold,
        )

    @property
    def proves(self) -> bool:
        return True

    def bound(
        self, net: Network, region: Region, objective: Objective, until: Until, warm: Proof | None = None
    ) -> Bound:
        sweep = Sweep.prepare(net, region, objective.layer)
        oracle, found = self.oracle(sweep), []
        each = self.bytes_each(sweep, oracle, masks_of(warm))
        for bounder, part, state in in_parts(self, region, objective, each, warm):
            found.append(proved(*bounder.climb(Lagrangian(sweep, part), oracle, until, state)))
        return Bound.joined(found)

    def oracle(self, sweep: Sweep) -> Oracle:
        """What finds the masks; it holds the weights of all kinks, unless no mask is wanted."""
        if not self.additions.most:
            return Oracle((None,) * len(sweep.kinks), sweep.region.count, self.threshold)
        return Oracle.of(sweep, self.masks, self.threshold)

    def bytes_each(self, sweep: Sweep, oracle: Oracle, inherited: tuple[MaskSet, ...]) -> int:
        """What an ascent keeps of one objective in one region: sweeps, multipliers, masks, and one masked pass."""
        known = [geometry for geometry in oracle.geometries if geometry is not None]
        old = [masks.bytes_each for group in inherited for masks in group if masks is not None]
        new = max(0, self.additions.most - len(inherited))
        kinks, size = sum(kinks.count for kinks in sweep.kinks), sweep.region.lower.element_size()
        floats = 40 * widest(sweep.net, sweep.layer) + COPIES * (new + len(inherited)) * kinks
        passes = [geometry.pass_bytes for geometry in known] + [3 * size * entries for entries in old]
        return size * floats + new * sum(g.cut_bytes for g in known) + sum(old) + max(passes, default=0)

    def climb(
        self, plain: Lagrangian, oracle: Oracle, until: Until, warm: Proof | None = None
    ) -> tuple[Lagrangian, Best]:
        """Maximise; the dual with the cuts that were added or inherited, and the best multipliers."""
        if warm is None:
            dual, begin = plain, self.initial.run(plain, self.start.point(plain), until, watch=self.watch)
        else:
            dual = with_cuts_of(warm, plain)
            begin = self.resume.run(dual, point_of(warm, dual), until, watch=self.watch)
        climb = Climb(dual, begin.point, until, self.watch)
        seen = Average(climb.rows)
        for t in range(self.ascent.iterations):
            if t % self.ascent.check_every == 0 and climb.finished():
                return dual, climb.best(begin.iterations + t)
            seen.follow(climb.rows)
            at = climb.record()
            if self.additions.due(t, len(dual.cuts)):
                seen.add(climb.dual.primal(at)[0], at.z)
                dual = dual.with_cuts(oracle.cuts(seen))
                everyone = len(climb.rows) == oracle.count  # a selection copies all masks
                climb.extend(dual if everyone else dual.select(climb.rows), dual.variables)
                at, seen = climb.record(), Average(climb.rows)
            elif self.point is OraclePoint.AVERAGE:
                seen.add(climb.dual.primal(at)[0], at.z)
            climb.step(at, self.ascent.steps.at(t, self.ascent.iterations), t)
        climb.record()
        return dual, climb.best(begin.iterations + self.ascent.iterations)


@BOUNDERS.register("active_set", ActiveSetOptions)
def active_set(options: ActiveSetOptions) -> Bounder:
    return Certified(ActiveSet.of(options))
