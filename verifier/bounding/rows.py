"""The rows of clauses, which must hold together, and the combinations of them.

A clause is empty if for some weights lambda >= 0 with sum 1 the combination of its rows stays above zero.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

from verifier.bounding.core.base import Objective, Region
from verifier.bounding.core.rounding import MARGIN, round_up, source_magnitude
from verifier.bounding.core.state import State
from verifier.bounding.core.sweep import Sweep, dot
from verifier.operators import gamma
from verifier.property.problem import Problem
from verifier.shapes import Bool, Float, Tensor


@dataclass(frozen=True, eq=False)
class Conjunction(State):
    """The rows A y + B x - c of each region; regions with fewer rows than others are padded (`present` False)."""

    A: Float[Tensor, "D m n_y"]
    B: Float[Tensor, "D m n0"] | None
    c: Float[Tensor, "D m"]
    present: Bool[Tensor, "D m"]

    @classmethod
    def of(cls, problem: Problem, clauses: Sequence[Sequence[int]]) -> Conjunction:
        """For each region the rows of some clauses, one below the other; none at all become 0 <= 0, never refuted."""
        used = [[problem.rows[k] for k in some] for some in clauses]
        shape = (len(used), max([1, *(sum(len(rows.c) for rows in some) for some in used)]))
        new, takes_inputs = problem.lower.new_zeros, any(rows.B is not None for some in used for rows in some)
        A, c = new(*shape, problem.network.n_out), new(*shape)
        B = new(*shape, problem.network.n_in) if takes_inputs else None
        present = torch.zeros(shape, dtype=torch.bool, device=c.device)
        present[:, 0] = True
        for d, some in enumerate(used):
            start = 0
            for rows in some:
                place = (d, slice(start, start + len(rows.c)))
                A[place], c[place], present[place] = rows.A, rows.c, True
                if B is not None and rows.B is not None:
                    B[place] = rows.B
                start += len(rows.c)
        return cls(A, B, c, present)

    @classmethod
    def of_each(cls, problem: Problem, clauses: Sequence[int] | None = None) -> Conjunction:
        """The rows of every clause on its own (of all clauses by default); the same as `of`, without a loop."""
        rows = problem.rows if clauses is None else [problem.rows[k] for k in clauses]
        counts = torch.tensor([len(own.c) for own in rows], device=problem.lower.device)
        places = torch.arange(max(1, int(counts.max())), device=counts.device)
        present = places < counts.unsqueeze(1)
        shape, new = present.shape, problem.lower.new_zeros
        A, c = new(*shape, problem.network.n_out), new(*shape)
        A[present], c[present] = torch.cat([own.A for own in rows]), torch.cat([own.c for own in rows])
        B = None
        if any(own.B is not None for own in rows):
            B = new(*shape, problem.network.n_in)
            for own, target in zip(rows, B, strict=True):
                if own.B is not None:
                    target[: len(own.c)] = own.B
        return cls(A, B, c, present | (places == 0))

    def combined(self, layer: int, weights: Float[Tensor, "D S m"]) -> Objective:
        """The objective that the weights make of the rows."""
        inputs = None if self.B is None else weights @ self.B
        return Objective(layer, weights @ self.A, inputs, -(weights @ self.c.unsqueeze(-1)).squeeze(-1))

    def objective(self, sweep: Sweep, weights: Float[Tensor, "D S m"]) -> Objective:
        """The same, and what its rounding can cost on the sweep's regions, if bounds are to be rigorous."""
        objective = self.combined(sweep.layer, weights)
        if sweep.slacks is None:
            return objective
        return replace(objective, error=self.rounding(weights, sweep.region, sweep.slacks[-1]))

    def values(self, y: Float[Tensor, "D S n_y"], x0: Float[Tensor, "D S n0"]) -> Float[Tensor, "D S m"]:
        """Every row at a point; padding gives zero."""
        g = y @ self.A.transpose(1, 2) - self.c.unsqueeze(1)
        return g if self.B is None else g + x0 @ self.B.transpose(1, 2)

    def rounding(
        self, weights: Float[Tensor, "D S m"], region: Region, slack: Float[Tensor, "D n_y"]
    ) -> Float[Tensor, "D S"]:
        """How far the rounded combination can be from the exact one, on the region.

        Rows may cancel, so the sizes of the rows count, not that of their combination.  `slack`: what rounding costs
        per unit of the output's multiplier, at least gamma(MARGIN) times its size.
        """
        m = self.c.shape[-1]
        scalars = (weights @ self.c.abs().unsqueeze(-1)).squeeze(-1)
        if self.B is not None:
            scalars = scalars + dot(weights @ self.B.abs(), source_magnitude(region, 0))
        outputs = (1.0 + m / MARGIN) * dot(weights @ self.A.abs(), slack)
        return round_up(outputs + gamma(m + MARGIN) * scalars, MARGIN)

    def even(self) -> Float[Tensor, "D 1 m"]:
        """Equal weights for all rows."""
        weights = self.present.to(self.c.dtype)
        return (weights / weights.sum(dim=-1, keepdim=True)).unsqueeze(1)


def onto_simplex(v: Float[Tensor, "D S m"], present: Bool[Tensor, "D #S m"]) -> Float[Tensor, "D S m"]:
    """The nearest point with non-negative entries of sum 1 that is zero where `present` is False."""
    low = torch.finfo(v.dtype).min / 4
    ordered = v.masked_fill(~present, low).sort(dim=-1, descending=True).values
    rank = torch.arange(1, v.shape[-1] + 1, device=v.device, dtype=v.dtype)
    excess = (ordered.clamp(min=-1e30).cumsum(dim=-1) - 1) / rank
    count = (ordered > excess).sum(dim=-1, keepdim=True).clamp(min=1)
    shift = excess.gather(-1, count - 1)
    return (v - shift).clamp(min=0).masked_fill(~present, 0.0)
