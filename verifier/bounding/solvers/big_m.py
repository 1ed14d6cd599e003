"""Big-M: supergradient ascent on the dual of the Big-M relaxation.

requires:   bounds of all groups before the objective's layer
guarantees: a valid lower bound at every iterate; the best one is returned
source:     [SCB] sec:bigm-solver, algorithm alg:bigm (with an empty active set)

The paper starts from zero multipliers, where the dual equals the interval bound.  The multipliers of a linear bound
are a better start: the dual then begins at CROWN's value.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from verifier.bounding import BOUNDERS
from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Bounder, Until, widest
from verifier.bounding.solvers.multipliers import MultiplierSolver, Start, proved
from verifier.bounding.solvers.solver import Certified, Solved, Task, Variables
from verifier.registry import AscentOptions, Count, Literal, Step


class BigMOptions(AscentOptions, frozen=True):
    """The dual of the Big-M relaxation; the paper's values for incomplete verification."""

    iterations: Count = 850
    first_step: Step = 1e-2
    last_step: Step = 1e-4
    start: Literal["linear", "zero"] = "linear"  # the multipliers of the CROWN bound, or the paper's zeros


@dataclass(frozen=True)
class BigM(MultiplierSolver):
    """Adam on alpha, beta0, beta1 and the multipliers of splits."""

    ascent: Ascent = field(default_factory=lambda: Ascent(180, Steps(1e-2, 1e-4, linear=True)))
    start: Start = Start.LINEAR

    @classmethod
    def of(cls, options: BigMOptions) -> BigM:
        return cls(Ascent.of(options, linear=True), Start(options.start))

    @property
    def proves(self) -> bool:
        return True

    def init(self, task: Task, parent: Variables | None = None) -> Variables:
        return self.begun_at(task, self.start) if parent is None else self.settled(task, self.inherited(parent))

    def solve(self, task: Task, state: Variables, until: Until) -> Solved:
        dual = state.dual(task)
        return proved(dual, self.ascent.run(dual, state.start(task, dual), until, watch=self.watch), state)

    def bytes_each(self, task: Task) -> int:
        return 24 * widest(task.sweep.net, task.sweep.layer) * task.sweep.region.lower.element_size()


@BOUNDERS.register("big_m", BigMOptions)
def big_m(options: BigMOptions) -> Bounder:
    return Certified(BigM.of(options))
