"""Big-M: supergradient ascent on the dual of the Big-M relaxation.

requires:   bounds of all groups before the objective's layer
guarantees: a valid lower bound at every iterate; the best one is returned
source:     [SCB] sec:bigm-solver, algorithm alg:bigm (with an empty active set)

The paper starts from zero multipliers, where the dual equals the interval bound.  The multipliers of a linear bound
are a better start: the dual then begins at CROWN's value.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from verifier.bounding.ascent import Ascent, Steps
from verifier.bounding.base import Bound, Bounder, Objective, Region, Until, widest
from verifier.bounding.lagrangian import Lagrangian
from verifier.bounding.linear import Linear
from verifier.bounding.multipliers import MultiplierProof, proved
from verifier.bounding.sweep import Sweep
from verifier.network.network import Network
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


@dataclass(frozen=True)
class BigM(Bounder):
    """Adam on alpha, beta0, beta1 and the multipliers of splits."""

    ascent: Ascent = field(default_factory=lambda: Ascent(180, Steps(1e-2, 1e-4, linear=True)))
    start: Start = Start.LINEAR

    @property
    def proves(self) -> bool:
        return True

    def bound(
        self,
        net: Network,
        region: Region,
        objective: Objective,
        until: Until,
        warm: MultiplierProof | None = None,
    ) -> Bound:
        chunk = until.chunk(24 * widest(net, objective.layer) * region.lower.element_size() * region.count)
        sweep = Sweep.prepare(net, region, objective.layer)
        found = []
        for first in range(0, objective.count, chunk):
            dual = Lagrangian(sweep, objective.part(first, first + chunk))
            start = self.start.point(dual) if warm is None else warm.point[:, first : first + chunk]
            best = self.ascent.run(dual, start, until)
            found.append(proved(dual, best))
        return Bound.joined(found)
