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

from verifier.bounding import BOUNDERS
from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Bound, Bounder, Objective, Proof, Region, Until, widest
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.solvers.certified import Certified
from verifier.bounding.solvers.crown import Linear
from verifier.bounding.solvers.lagrangian import Lagrangian
from verifier.bounding.solvers.multipliers import point_of, proved
from verifier.bounding.solvers.parts import in_parts
from verifier.network.network import Network
from verifier.registry import AscentOptions, Count, Literal, Step
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


class BigMOptions(AscentOptions, frozen=True):
    """The dual of the Big-M relaxation; the paper's values for incomplete verification."""

    iterations: Count = 850
    first_step: Step = 1e-2
    last_step: Step = 1e-4
    start: Literal["linear", "zero"] = "linear"  # the multipliers of the CROWN bound, or the paper's zeros


@dataclass(frozen=True)
class BigM(Bounder):
    """Adam on alpha, beta0, beta1 and the multipliers of splits."""

    ascent: Ascent = field(default_factory=lambda: Ascent(180, Steps(1e-2, 1e-4, linear=True)))
    start: Start = Start.LINEAR

    @classmethod
    def of(cls, options: BigMOptions) -> BigM:
        return cls(Ascent.of(options, linear=True), Start(options.start))

    @property
    def proves(self) -> bool:
        return True

    def bound(
        self, net: Network, region: Region, objective: Objective, until: Until, warm: Proof | None = None
    ) -> Bound:
        each = 24 * widest(net, objective.layer) * region.lower.element_size()
        sweep = Sweep.prepare(net, region, objective.layer)
        found = []
        for bounder, part, state in in_parts(self, region, objective, each, warm):
            dual = Lagrangian(sweep, part)
            start = self.start.point(dual) if state is None else point_of(state, dual)
            found.append(proved(dual, self.ascent.run(dual, start, until, watch=bounder.watch)))
        return Bound.joined(found)


@BOUNDERS.register("big_m", BigMOptions)
def big_m(options: BigMOptions) -> Bounder:
    return Certified(BigM.of(options))
