"""Linear bounds (CROWN, Wong-Kolter): one backward sweep with the slopes fixed beforehand.

requires:   bounds of all groups before the objective's layer
guarantees: a valid lower bound of each objective; in float64 with all rounding errors subtracted
source:     CROWN's adaptive and Wong and Kolter's parallel lower faces of the triangle relaxation
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from verifier.bounding import BOUNDERS
from verifier.bounding.core.base import Bound, Bounder, Objective, Region, Until, together, widest
from verifier.bounding.core.sweep import Choice, Sweep
from verifier.bounding.relaxation.neurons import Neurons
from verifier.network.network import Network


class Slope(Enum):
    """How the lower face of an ambiguous neuron is chosen."""

    ADAPTIVE = "crown"
    PARALLEL = "wong_kolter"

    def choice(self, neurons: Neurons) -> Choice:
        return Choice(neurons.adaptive() if self is Slope.ADAPTIVE else neurons.parallel())


@dataclass(frozen=True)
class Linear(Bounder):
    """One sweep per objective; nothing is optimised, splits enter through the bounds only."""

    slope: Slope = Slope.ADAPTIVE

    @property
    def any_function(self) -> bool:
        return True

    def bound(self, net: Network, region: Region, objective: Objective, until: Until) -> Bound:
        sweep = Sweep.prepare(net, region, objective.layer)
        choices = self.choices(sweep)
        each = 6 * widest(net, objective.layer) * region.lower.element_size() * region.count
        chunk = together(each, self.memory_bytes)
        parts = (objective.part(start, start + chunk) for start in range(0, objective.count, chunk))
        planes = [sweep.plane(part, choices) for part in parts]
        return Bound.joined([Bound(plane.lower, plane.x0, error=plane.error) for plane in planes])

    def choices(self, sweep: Sweep) -> tuple[Choice, ...]:
        return tuple(self.slope.choice(neurons) for neurons in sweep.neurons)


@BOUNDERS.register("crown")
def crown() -> Bounder:
    return Linear(Slope.ADAPTIVE)


@BOUNDERS.register("wong_kolter")
def wong_kolter() -> Bounder:
    return Linear(Slope.PARALLEL)
