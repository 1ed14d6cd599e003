"""Linear programs as reference bounds: what the dual solvers ascend to, solved by HiGHS.

requires:   bounds of all groups before the objective's layer; box inputs
guarantees: a lower bound over the stated relaxation, +inf where that is empty.  Each value is the Lagrangian at the
            multipliers that HiGHS proposes, evaluated in float64; its rounding is not priced, so these bounders are a
            yardstick and never close a problem.
source:     [SCB] eq:primal-bigm, eq:primal-anderson, and its section on the cutting-plane algorithm

One program per region and objective, one after the other: a reference may be slow.  Within a region only the costs
change, so every solve starts from the basis of the one before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from verifier.bounding import BOUNDERS
from verifier.bounding.core.base import Bound, Bounder, Objective, Region, Until
from verifier.bounding.lp.cuts import RowCut, cut_rows, violated_cuts
from verifier.bounding.lp.model import Model
from verifier.bounding.lp.program import Floats
from verifier.bounding.lp.solver import Solution, Solver
from verifier.network.network import Network
from verifier.registry import Count, Options, Step

__all__ = ["CutLP", "PlanetLP", "RowCut", "cutting_planes", "lp_with_cuts"]


@BOUNDERS.register("lp", mark="reference")
@dataclass(frozen=True)
class PlanetLP(Bounder):
    """The LP over M with z projected out: triangles for ambiguous neurons, boxes, split constraints."""

    @property
    def rigorous(self) -> bool:
        return False

    def bound(self, net: Network, region: Region, objective: Objective, until: Until) -> Bound:
        return _Reference(with_z=False).bound(net, region, objective, until)


@dataclass(frozen=True)
class CutLP(Bounder):
    """The LP over M, then rounds that add the most violated Anderson cut of every ambiguous neuron and solve again.

    A cut is added where it is violated by more than `tolerance`.  Every objective starts from M without cuts.  Its
    first optimum may still be another vertex than without the objectives before it, and so may its cuts.
    """

    rounds: int = 1
    tolerance: float = 1e-6

    @property
    def rigorous(self) -> bool:
        return False

    def bound(self, net: Network, region: Region, objective: Objective, until: Until) -> Bound:
        return _Reference(with_z=True, separate=self).bound(net, region, objective, until)


def lp_with_cuts(
    net: Network, region: Region, objective: Objective, cuts: Sequence[RowCut], until: Until | None = None
) -> Bound:
    """The LP over M with exactly these cuts, the same for every region and objective.

    Their constants come from the boxes of each region.  Guarantee: as the module says.
    """
    return _Reference(with_z=True, fixed=tuple(cuts)).bound(net, region, objective, until or Until())


@dataclass(frozen=True, eq=False)
class Rounds:
    """The best solution of some rounds of cutting planes, and the cuts that each of them added."""

    best: Solution
    cuts: tuple[tuple[RowCut, ...], ...] = ()


def cutting_planes(model: Model, solver: Solver, cost: Floats, method: CutLP, until: Until) -> Rounds:
    """The primal cutting-plane algorithm for one objective; it ends early when no cut is violated.

    requires: a model with z, and a solver that holds its program
    """
    best = solution = solver.solve(cost, until)
    added: list[tuple[RowCut, ...]] = []
    for _ in range(method.rounds):
        if solution.point is None:
            break
        cuts = violated_cuts(model, solution.point, method.tolerance)
        if not cuts:
            break
        solver.add_rows(cut_rows(model, cuts))
        added.append(tuple(cuts))
        solution = solver.solve(cost, until)
        if solution.lower >= best.lower:
            best = solution
    return Rounds(best, tuple(added))


@dataclass(frozen=True, eq=False)
class _Reference:
    """One program after the other, for every region and objective."""

    with_z: bool
    separate: CutLP | None = None
    fixed: tuple[RowCut, ...] = ()

    def bound(self, net: Network, region: Region, objective: Objective, until: Until) -> Bound:
        exact_net, exact_region, exact_objective = in_float64(net, region, objective)
        lower = torch.full((region.count, objective.count), -torch.inf, dtype=torch.float64)
        centre = (exact_region.lower + exact_region.upper) / 2
        x0 = centre.unsqueeze(1).repeat(1, objective.count, 1)
        rounds = 0
        for d in range(region.count):
            if until.expired():
                break
            model = Model.planet(exact_net, exact_region.select(torch.tensor([d])), objective.layer, self.with_z)
            solver = Solver(model.program.with_rows(cut_rows(model, self.fixed)))
            for s in range(objective.count):
                cost, constant = model.costs(exact_net, exact_objective, d, s)
                found = self._solve(model, solver, cost, until)
                lower[d, s], rounds = found.best.lower + constant, max(rounds, len(found.cuts))
                if found.best.point is not None:
                    inputs = torch.from_numpy(found.best.point[model.x[0]])
                    x0[d, s] = inputs.clamp(exact_region.lower[d], exact_region.upper[d])
        return Bound(lower.to(region.lower), x0.to(region.lower), iterations=rounds)

    def _solve(self, model: Model, solver: Solver, cost: Floats, until: Until) -> Rounds:
        if self.separate is None:
            return Rounds(solver.solve(cost, until))
        found = cutting_planes(model, solver, cost, self.separate, until)
        solver.forget_added_rows()
        return found


def in_float64(net: Network, region: Region, objective: Objective) -> tuple[Network, Region, Objective]:
    """Everything on the CPU in double precision."""

    def moved(values: torch.Tensor) -> torch.Tensor:
        return values.to("cpu", torch.float64)

    boxes = replace(
        region,
        lower=moved(region.lower),
        upper=moved(region.upper),
        l_hat=tuple(map(moved, region.l_hat)),
        u_hat=tuple(map(moved, region.u_hat)),
        splits=None if region.splits is None else tuple(split.cpu() for split in region.splits),
    )
    rows = Objective(
        objective.layer,
        moved(objective.coefficients),
        None if objective.inputs is None else moved(objective.inputs),
        None if objective.constant is None else moved(objective.constant),
    )
    return net.to("cpu", torch.float64), boxes, rows


class LpCutsOptions(Options, frozen=True):
    """Linear programs with rounds of cuts that are violated by more than `tolerance`."""

    rounds: Count = 1  # of cuts, each followed by a program
    tolerance: Step = 1e-6  # by which a cut must be violated to be added


@BOUNDERS.register("lp_cuts", LpCutsOptions, mark="reference")
def lp_cuts(options: LpCutsOptions) -> Bounder:
    return CutLP(options.rounds, options.tolerance)
