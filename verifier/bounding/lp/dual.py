"""Linear programs that prove: HiGHS solves the Planet relaxation, or Planet with rounds of Anderson cuts.

requires:   bounds of all groups before the objective's layer
guarantees: a valid lower bound; evaluated in float64 it is rigorous.  Without cuts it is the optimum over M, up to the
            tolerances of HiGHS and to bounds of hidden neurons that are tighter than M implies
source:     [SCB] eq:primal-bigm, eq:primal-anderson, and its cutting-plane algorithm (`Gurobi cut`)

HiGHS only proposes.  Its multipliers become those of a `Lagrangian`, which proves the bound as with any others.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch.nn.functional import pad

from verifier.bounding.core.base import Until, widest
from verifier.bounding.core.state import cat
from verifier.bounding.cuts.masks import CutMasks, Form
from verifier.bounding.lp.frame import Frame, Numbers
from verifier.bounding.lp.program import Floats, Program
from verifier.bounding.lp.separate import Separation, Violated
from verifier.bounding.lp.solver import Solver
from verifier.bounding.solvers.multipliers import MultiplierSolver, MultiplierVariables, Start
from verifier.bounding.solvers.solver import Solved, Task, Variables
from verifier.network.network import Network
from verifier.shapes import Bool, Float, Tensor

LENGTHS = (1e3, 1.0, 1e6, 1e9)
"""Of a ray that shows a region to be empty: its bound grows with it, and so do rounding errors."""


class Programs:
    """HiGHS at work on the regions of one problem, one after the other: each solve starts from the basis before.

    Require: all regions have the same kinks of the same network.
    """

    def __init__(self) -> None:
        self._frame: tuple[Network, Frame] | None = None
        self._held: tuple[Solver, Program] | None = None  # what HiGHS holds, without cuts

    def frame(self, task: Task, with_z: bool) -> tuple[Network, Frame]:
        """The network in float64 on the CPU, and the program that all regions share."""
        if self._frame is None:
            net = task.sweep.net.to("cpu", torch.float64)
            self._frame = net, Frame.of(net, task.sweep, with_z)
        return self._frame

    def ready(self, frame: Frame, numbers: Numbers) -> tuple[Solver, Program] | None:
        """The program of one region, to be solved; None if one of its boxes is empty."""
        program = frame.at(numbers, frame.program if self._held is None else self._held[1])
        if program.crossed:
            return None
        if self._held is None:
            self._held = Solver(program), program
        else:
            self._held[0].become(program)
            self._held = self._held[0], program
        return self._held


@dataclass(frozen=True, eq=False)
class Proposal:
    """Multipliers for one objective in one region, and the input at which the program has its optimum."""

    state: MultiplierVariables
    x0: Floats | None = None
    refutes: bool = False  # the multipliers are a ray, which shows that the region is empty


@dataclass(frozen=True)
class LinearPrograms(MultiplierSolver):
    """A program for each region and objective, then `rounds` of the most violated cut of every ambiguous neuron.

    Without rounds z is projected out.  `programs` is what HiGHS keeps from one call to the next, if it may.
    """

    rounds: int = 0
    tolerance: float = 1e-6
    programs: Programs | None = field(default=None, compare=False)

    @property
    def proves(self) -> bool:
        return True

    def at_work(self) -> LinearPrograms:
        """The same for the domains of one problem, each of which starts where the one before ended."""
        return replace(self, programs=Programs())

    def init(self, task: Task, parent: Variables | None = None) -> Variables:
        """What is left where there is no time for a program."""
        return self.begun_at(task, Start.LINEAR) if parent is None else self.settled(task, self.inherited(parent))

    def solve(self, task: Task, state: Variables, until: Until) -> Solved:
        start = state.start(task, state.dual(task))
        found = self._proposals(task, start, until)
        proposed = cat([cat([one.state for one in row], dim=1) for row in found])
        empty = torch.tensor([[one.refutes for one in row] for row in found], device=start.device)
        proposed = _stretched(task, proposed, start, empty)
        at = proposed.dual(task).evaluate(proposed.point)
        x0 = at.x0.clone()
        for d, row in enumerate(found):
            for s, one in enumerate(row):
                if one.x0 is not None:
                    x0[d, s] = torch.from_numpy(one.x0).to(x0)
        inside = x0.clamp(task.sweep.region.lower.unsqueeze(1), task.sweep.region.upper.unsqueeze(1))
        return Solved(at.lower, inside, proposed, 1 + self.rounds)

    def bytes_each(self, task: Task) -> int:
        known = [task.geometries.at(k, Form.ROWS) for k in range(len(task.sweep.kinks) if self.rounds else 0)]
        cuts = sum(g.cut_bytes * self.rounds + g.pass_bytes for g in known if g is not None)
        return 40 * widest(task.sweep.net, task.sweep.layer) * task.sweep.region.lower.element_size() + cuts

    def _proposals(self, task: Task, start: Float[Tensor, "D S V"], until: Until) -> list[list[Proposal]]:
        """Of every region, for every objective: the start itself where time is up, or where a box is empty."""
        programs = self.programs or Programs()
        net, frame = programs.frame(task, with_z=self.rounds > 0)
        costs = frame.costs(net, task.objective).numpy()
        separation = Separation(task, frame, self.tolerance)
        found: list[list[Proposal]] = []
        for d, numbers in enumerate(Numbers.of(task.sweep)):
            found.append([])
            for s, cost in enumerate(costs[min(d, len(costs) - 1)]):
                ready = None if until.expired() else programs.ready(frame, numbers)
                if ready is None:
                    found[d].append(Proposal(MultiplierVariables(start[d : d + 1, s : s + 1])))
                else:
                    one = _Solving(frame, numbers, *ready, cost).solved(separation, d, self.rounds, until)
                    found[d].append(replace(one, state=one.state.to(start.device)))
        return found


@dataclass(frozen=True, eq=False)
class _Solving:
    """One objective of one region."""

    frame: Frame
    numbers: Numbers
    solver: Solver
    program: Program
    cost: Floats

    def solved(self, separation: Separation, d: int, rounds: int, until: Until) -> Proposal:
        """Solve the program, and again after every round of cuts."""
        solution, cuts, program = self.solver.solve(self.cost, until), [], self.program
        for _ in range(rounds):
            violated = None if solution.point is None else separation.cuts(d, solution.point)
            if violated is None:
                break
            cuts.append(violated)
            self.solver.add_rows(violated.rows)
            program = program.with_rows(violated.rows)
            solution = self.solver.solve(self.cost, until)
        y = solution.multipliers
        refutes = np.isposinf(solution.lower)
        cost = np.zeros_like(self.cost) if refutes else self.cost
        state = self._state(program, cost, np.zeros(program.rows.count) if y is None else y, cuts)
        x0 = None if solution.point is None else solution.point[self.frame.x[0]]
        return Proposal(state, x0, bool(refutes))

    def _state(self, program: Program, cost: Floats, y: Floats, cuts: list[Violated]) -> MultiplierVariables:
        """Multipliers of the rows as those of the kinks."""
        blocks = [self.frame.multipliers(self.numbers, program, cost, y)]
        first = self.program.rows.count
        for violated in cuts:
            own = np.zeros(len(self.numbers.l_hat))
            own[violated.kinks] = np.maximum(-y[first : first + violated.rows.count], 0.0)
            blocks.append(own)
            first += violated.rows.count
        point = torch.from_numpy(np.concatenate(blocks)).view(1, 1, -1)
        return MultiplierVariables(point, CutMasks(tuple(violated.masks for violated in cuts)))


def _stretched(
    task: Task, found: MultiplierVariables, start: Float[Tensor, "D S V"], empty: Bool[Tensor, "D S"]
) -> MultiplierVariables:
    """With rays as long as it takes: added to a start, any length gives a bound."""
    if not bool(empty.any()):
        return found
    rows = empty.any(dim=1)
    part, rays = Task(task.sweep.select(rows), task.objective.select(rows)), found.select(rows)
    base = pad(start[rows], (0, rays.point.shape[-1] - start.shape[-1]))
    best, best_lower = base, torch.full_like(base[..., 0], -torch.inf)
    for length in LENGTHS:
        tried = replace(rays, point=base + length * rays.point)
        lower = tried.lower(part)
        best = torch.where((lower > best_lower).unsqueeze(-1), tried.point, best)
        best_lower = torch.maximum(lower, best_lower)
    point = found.point.clone()
    point[rows] = torch.where(empty[rows].unsqueeze(-1), best, rays.point)
    return replace(found, point=point)
