"""Mixed-integer programs: the network itself, with a binary z for each ambiguous neuron, solved by HiGHS.

requires:   bounds of all hidden neurons; box inputs
guarantees: none.  What HiGHS says rests on its tolerances: it is a claim, a baseline for rigorous searches
source:     [SCB] sec:complete-verification, `MIP A_k`: the Big-M program, with Anderson cuts of the root's relaxation
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import highspy
import numpy as np

from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.lp.bounder import CutLP, cutting_planes, in_float64
from verifier.bounding.lp.cuts import cut_rows
from verifier.bounding.lp.model import NONE, Model
from verifier.bounding.lp.program import Floats, Ints, Program, Rows
from verifier.bounding.lp.solver import Solver, highs_lp
from verifier.network.network import Network

_OPTIONS: dict[str, bool | float | str] = {
    "output_flag": False,
    "parallel": "off",
    "threads": 1,
    "small_matrix_value": 1e-12,
    "mip_feasibility_tolerance": 1e-9,
    "primal_feasibility_tolerance": 1e-9,
}


@dataclass(frozen=True, eq=False)
class Claim:
    """What HiGHS says of the largest of some rows: a lower bound of it, and an input where it is small.

    `empty`: no input makes all rows at most the limit.  `late`: HiGHS had no time to finish.
    """

    lower: float
    x0: Floats | None
    empty: bool
    nodes: int
    late: bool = False


@dataclass(frozen=True)
class MixedInteger:
    """The Big-M program; before it is solved, `rounds` of the cuts that its relaxation violates most are added."""

    rounds: int = 0
    tolerance: float = 1e-6

    def refute(self, net: Network, region: Region, rows: Objective, until: Until) -> Claim:
        """Look for an input at which all rows are at most zero; the first one ends it."""
        return self._solve(net, region, rows, until, 0.0)

    def minimum(self, net: Network, region: Region, rows: Objective, until: Until) -> Claim:
        """Minimise the largest of the rows."""
        return self._solve(net, region, rows, until, math.inf)

    def _solve(self, net: Network, region: Region, rows: Objective, until: Until, limit: float) -> Claim:
        """Require: a region of one box.  Points are wanted where the largest row is at most `limit`."""
        net, region, rows = in_float64(net, region, rows)
        model = Model.planet(net, region, rows.layer, with_z=True)
        program = _with_largest(model, net, rows, limit)
        if program.crossed:
            return Claim(math.inf, None, True, 0)
        cost = np.zeros(program.width)
        cost[-1] = 1.0
        if self.rounds:
            method = CutLP(self.rounds, self.tolerance)
            added = cutting_planes(model, Solver(program), cost, method, until).cuts
            program = program.with_rows(cut_rows(model, [cut for cuts in added for cut in cuts]))
        binary = np.concatenate([np.zeros(0, np.int64), *(z[z != NONE] for z in model.z)])
        return _run(program, cost, binary, until, first=math.isfinite(limit), inputs=model.x[0])


def _with_largest(model: Model, net: Network, rows: Objective, limit: float) -> Program:
    """One more column, the last one: a bound of all rows, at most `limit`."""
    program, t = model.program, model.program.width
    given = [model.costs(net, rows, 0, s) for s in range(rows.count)]
    reach = np.maximum(np.abs(program.low), np.abs(program.high))
    size = 1.0 + 2.0 * max((float(np.abs(cost) @ reach) + abs(constant) for cost, constant in given), default=0.0)
    lines: list[tuple[Ints, Ints, Floats]] = []
    for s, (cost, _) in enumerate(given):
        columns = np.flatnonzero(cost)
        lines.append((np.full(len(columns) + 1, s), np.append(columns, t), np.append(cost[columns], -1.0)))
    low, high = np.append(program.low, -size), np.append(program.high, min(limit, size))
    wider = replace(program, low=low, high=high)
    if not lines:
        return wider
    row, column, value = (np.concatenate([line[i] for line in lines]) for i in range(3))
    right = np.array([-constant for _, constant in given])
    return wider.with_rows(Rows.collect((row, column, value), np.full(len(given), -np.inf), right))


def _run(program: Program, cost: Floats, binary: Ints, until: Until, first: bool, inputs: Ints) -> Claim:
    """Solve the program with binary columns; `first`: any point will do."""
    highs = highspy.Highs()
    for name, value in _OPTIONS.items():
        highs.setOptionValue(name, value)
    highs.setOptionValue("time_limit", max(0.0, until.clock.remaining()))
    if first:
        highs.setOptionValue("mip_max_improving_sols", 1)
    lp = highs_lp(program)
    lp.col_cost_ = cost
    kinds = [highspy.HighsVarType.kContinuous] * program.width
    for column in binary.tolist():
        kinds[column] = highspy.HighsVarType.kInteger
    lp.integrality_ = kinds
    highs.passModel(lp)
    highs.run()
    info, status = highs.getInfo(), highs.getModelStatus()
    empty = status in (highspy.HighsModelStatus.kInfeasible, highspy.HighsModelStatus.kUnboundedOrInfeasible)
    found = not empty and info.primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
    x0 = np.asarray(highs.getSolution().col_value)[inputs] if found else None
    lower = info.mip_dual_bound if len(binary) else info.objective_function_value
    late = status == highspy.HighsModelStatus.kTimeLimit
    return Claim(math.inf if empty else float(lower), x0, empty, max(1, int(info.mip_node_count)), late)
