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

from verifier.bounding.ascent import Ascent, Best, Climb, Steps
from verifier.bounding.base import Bound, Bounder, Objective, Region, Until, widest
from verifier.bounding.big_m import Start
from verifier.bounding.lagrangian import Lagrangian
from verifier.bounding.multipliers import proved
from verifier.bounding.oracle import Average, Masks, Oracle
from verifier.bounding.sweep import Sweep
from verifier.network.network import Network


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


@dataclass(frozen=True)
class ActiveSet(Bounder):
    """Big-M first, then Adam on all multipliers while masks are added."""

    ascent: Ascent = field(default_factory=lambda: Ascent(600, Steps(1e-3, 1e-6, linear=True)))
    initial: Ascent = field(default_factory=lambda: Ascent(500, Steps(1e-2, 1e-4, linear=True)))
    additions: Additions = Additions()
    start: Start = Start.LINEAR
    masks: Masks = Masks.ROWS
    point: OraclePoint = OraclePoint.MINIMISER
    threshold: float = 0.5  # of shared masks

    @property
    def proves(self) -> bool:
        return True

    def bound(self, net: Network, region: Region, objective: Objective, until: Until) -> Bound:
        chunk = until.chunk(40 * widest(net, objective.layer) * region.lower.element_size() * region.count)
        sweep = Sweep.prepare(net, region, objective.layer)
        found = []
        for first in range(0, objective.count, chunk):
            dual, best = self.climb(Lagrangian(sweep, objective.part(first, first + chunk)), until)
            found.append(proved(dual, best))
        return Bound.joined(found)

    def climb(self, dual: Lagrangian, until: Until) -> tuple[Lagrangian, Best]:
        """Maximise; the dual with the cuts that were added, and the best multipliers."""
        begin = self.initial.run(dual, self.start.point(dual), until)
        oracle = Oracle.of(dual.sweep, self.masks, self.threshold)
        climb = Climb(dual, begin.point, until)
        seen = Average(climb.rows)
        for t in range(self.ascent.iterations):
            if t % self.ascent.check_every == 0 and climb.finished():
                return dual, climb.best(begin.iterations + t)
            seen.follow(climb.rows)
            at = climb.record()
            if self.additions.due(t, len(dual.cuts)):
                seen.add(climb.dual.primal(at)[0], at.z)
                dual = dual.with_cuts(oracle.cuts(seen))
                climb.extend(dual.select(climb.rows), dual.variables)
                at, seen = climb.record(), Average(climb.rows)
            elif self.point is OraclePoint.AVERAGE:
                seen.add(climb.dual.primal(at)[0], at.z)
            climb.step(at, self.ascent.steps.at(t, self.ascent.iterations), t)
        climb.record()
        return dual, climb.best(begin.iterations + self.ascent.iterations)
