"""Domains without an ambiguous neuron: the network is affine there, and one linear program decides them.

Where only the part of the box in a ball counts, the program gets planes that touch the ball, a few more in each round:
at the point that it has found, and where the combination of its rows that it has found is least over the ball.

HiGHS only proposes.  Its multipliers close the leaf if their rigorous float64 evaluation is positive; its point is a
candidate counterexample.  If neither holds the leaf is doubtful, and the whole answer is `unknown`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch

from verifier.bounding.core.base import Region, Until
from verifier.bounding.core.closing import closes
from verifier.bounding.lp.program import Floats, Program, Rows
from verifier.bounding.lp.solver import Solution, Solver
from verifier.bounding.solvers.alpha_crown import AlphaCrown, Slopes
from verifier.search.signs.root import Batch
from verifier.shapes import Tensor

ROUNDS = 40
"""How often planes that touch a ball are added to the program of a leaf."""


@dataclass(frozen=True, eq=False)
class Leaf:
    """The outcome of one leaf: a rigorous lower bound, and a point of the box if the program has one."""

    lower: float
    x0: Tensor | None
    proof: Slopes | None  # the variables that give the bound; None if the program gave none

    @property
    def closed(self) -> bool:
        """Whether the leaf holds no counterexample."""
        return self.proof is not None and bool(closes(torch.tensor(self.lower, dtype=torch.float64)))


@dataclass(frozen=True, eq=False)
class _Affine:
    """An affine function of the input: matrix x + offset, row by row."""

    matrix: Floats
    offset: Floats

    @property
    def finite(self) -> bool:
        return bool(np.isfinite(self.matrix).all() and np.isfinite(self.offset).all())


def solve_leaf(leaf: Batch, until: Until) -> Leaf:
    """Minimise the largest row of the clause over the box and the signs of the kinks.

    Require: a single domain without ambiguous kinks.
    """
    region = leaf.region()
    hidden, rows = _affine_pieces(leaf, region)
    if not (hidden.finite and rows.finite):
        return Leaf(-float("inf"), None, None)
    program, sides = _program(leaf, region, hidden, rows)
    cost = np.zeros(program.width)
    cost[-1] = 1.0
    solver = Solver(program)
    found = solver.solve(cost, until)
    lower, proof = _certify(leaf, found, sides)
    best = Leaf(lower, None if found.point is None else torch.from_numpy(found.point[:-1]), proof)
    if region.ball is None:
        return best
    for _ in range(ROUNDS):
        touching = None if best.closed else _touching(region, found, program)
        if touching is None or until.expired():
            break
        solver.add_rows(touching)
        found = solver.solve(cost, until)
        lower, proof = _certify(leaf, found, sides)
        point = best.x0 if found.point is None else torch.from_numpy(found.point[:-1])
        best = Leaf(lower, point, proof) if lower > best.lower else replace(best, x0=point)
    return best


def _touching(region: Region, found: Solution, program: Program) -> Rows | None:
    """Planes that touch the ball, as rows of the program; None if its point lies inside, or if it found nothing."""
    ball, y = region.ball, found.multipliers
    assert ball is not None
    beyond = None if found.point is None else ball.touching(torch.from_numpy(found.point[:-1]))
    if y is None or (found.point is not None and beyond is None):
        return None
    slope = -program.rows.transposed_times(y[: program.rows.count], program.width)[:-1]
    d, _ = ball.share(torch.from_numpy(slope).view(1, 1, -1), region.lower, region.upper)
    normals = [normal for normal in (d[0, 0], beyond) if normal is not None and bool(normal.any())]
    if not normals:
        return None
    planes = torch.stack(normals)
    planes = planes / planes.abs().amax(dim=1, keepdim=True)
    least = ball.support(planes).numpy()
    entries = np.nonzero(planes.numpy())
    return Rows.collect((entries[0], entries[1], planes.numpy()[entries]), least, np.full(len(least), np.inf))


def _affine_pieces(leaf: Batch, region: Region) -> tuple[_Affine, _Affine]:
    """x_hat at all kinks, and the rows of the clause, as functions of the input on this domain."""
    root, n0 = leaf.root, leaf.root.net.n_in
    units = torch.cat([region.lower.new_zeros(1, n0), torch.eye(n0, dtype=torch.float64, device=root.device)])
    values: list[Tensor | None] = [units]
    hidden = [units[:, :0]]
    for k, group in enumerate(root.net.groups):
        x_hat = group.forward(values).expand(n0 + 1, -1)
        hidden.append(x_hat[:, root.indices[k]])
        values.append(x_hat * (region.l_hat[k] >= 0))
    y = root.net.output.forward(values).expand(n0 + 1, -1)
    table = leaf.rows(torch.float64)
    kept = table.present[0]
    g = y @ table.A[0][kept].T - table.c[0][kept]
    if table.B is not None:
        g = g + units @ table.B[0][kept].T
    return _difference(torch.cat(hidden, dim=1)), _difference(g)


def _difference(at_units: Tensor) -> _Affine:
    matrix = (at_units[1:] - at_units[:1]).T
    return _Affine(matrix.cpu().numpy(), at_units[0].cpu().numpy())


def _program(leaf: Batch, region: Region, hidden: _Affine, rows: _Affine) -> tuple[Program, Floats]:
    """Variables: the input, then t; rows: sign constraints, then g <= t.  Also the sign of each constraint."""
    imposed = leaf.signs[0].cpu().numpy()
    fixed = np.flatnonzero(imposed)
    sides: Floats = imposed[fixed].astype(np.float64)
    low, high = region.lower[0].cpu().numpy(), region.upper[0].cpu().numpy()
    matrix = np.concatenate([hidden.matrix[fixed] * sides[:, None], -rows.matrix])
    with_t = np.concatenate(
        [matrix, np.concatenate([np.zeros(len(fixed)), np.ones(len(rows.offset))])[:, None]], axis=1
    )
    right = np.concatenate([-hidden.offset[fixed] * sides, rows.offset])
    size = np.abs(rows.matrix) @ np.maximum(np.abs(low), np.abs(high)) + np.abs(rows.offset)
    reach = 2.0 * float(size.max()) + 1.0  # no row can be further from zero, so the box of t cuts nothing off
    entries = np.nonzero(with_t)
    collected = Rows.collect((entries[0], entries[1], with_t[entries]), right, np.full(len(right), np.inf))
    return Program(np.append(low, -reach), np.append(high, reach), collected), sides


def _certify(leaf: Batch, found: Solution, sides: Floats) -> tuple[float, Slopes | None]:
    """The rigorous bound that the program's multipliers prove, and the variables of the dual function that give it."""
    if found.multipliers is None:
        return -float("inf"), None
    y = np.maximum(found.multipliers, 0.0)
    root, task = leaf.root, leaf.task(torch.float64)
    fixed = torch.nonzero(leaf.signs[0]).flatten()
    splits = torch.from_numpy(y[: len(sides)]).to(root.device)
    weights = leaf.rows(torch.float64).even()
    rows = int(root.rows.present[leaf.clause[0]].sum())
    multipliers = torch.from_numpy(y[len(sides) : len(sides) + rows]).to(root.device)
    total = float(multipliers.sum())
    if total > 0:
        weights[0, 0, root.rows.present[leaf.clause[0]]] = multipliers / total
        splits = splits / total
    point = AlphaCrown().blank(weights[..., :0]).faces(task).start()
    proof, best = Slopes(point, weights=weights), -float("inf")
    # The bound of an infeasible program grows with the length of its ray; rounding errors do so too.
    for scale in (1.0,) if total > 0 and np.isfinite(found.lower) else (1e3, 1.0, 1e6, 1e9):
        point[0, 0, root.kinks :].index_copy_(0, fixed, scale * splits)
        best = max(best, float(proof.lower(task)))
        if bool(closes(torch.tensor(best, dtype=torch.float64))):
            break
    return best, proof
