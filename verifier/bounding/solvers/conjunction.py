"""Rows that must hold together: bounding the best non-negative combination of them.

A clause is empty if for some weights lambda >= 0 with sum 1 the combination of its rows stays above zero.  The
weights are dual variables like the others; their supergradient is the value of each row at the point that minimises
the relaxation (not at the network's true output), relative to the combination's own.

requires:   bounds of all groups
guarantees: valid lower bounds of max_i g_i at every iterate
source:     multipliers on output constraints as in INVPROP; docs/notation.md
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from verifier.bounding.core.ascent import Dual
from verifier.bounding.core.average import Average
from verifier.bounding.core.base import Objective, Region
from verifier.bounding.core.rounding import MARGIN, round_up, source_magnitude
from verifier.bounding.core.state import State
from verifier.bounding.core.sweep import Sweep, dot
from verifier.bounding.cuts.masks import CutMasks
from verifier.bounding.solvers.alpha_crown import FaceDual, SlopeDual, SlopePoint
from verifier.bounding.solvers.propagated_dual import PropagatedDual
from verifier.operators import gamma
from verifier.shapes import Bool, Float, Tensor


@dataclass(frozen=True, eq=False)
class Conjunction(State):
    """The rows A y + B x - c of each region; regions with fewer rows than others are padded (`present` False)."""

    A: Float[Tensor, "D m n_y"]
    B: Float[Tensor, "D m n0"] | None
    c: Float[Tensor, "D m"]
    present: Bool[Tensor, "D m"]

    def combined(self, layer: int, weights: Float[Tensor, "D S m"]) -> Objective:
        """The objective that the weights make of the rows."""
        inputs = None if self.B is None else weights @ self.B
        return Objective(layer, weights @ self.A, inputs, -(weights @ self.c.unsqueeze(-1)).squeeze(-1))

    def objective(self, sweep: Sweep, weights: Float[Tensor, "D S m"]) -> Objective:
        """The same with what rounding has cost it, for the regions of a sweep."""
        combined = self.combined(sweep.layer, weights)
        if sweep.slacks is None:
            return combined
        return replace(combined, error=self.rounding(weights, sweep.region, sweep.slacks[-1]))

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


@dataclass(frozen=True, eq=False)
class ConjunctionDual(Dual[SlopePoint]):
    """The variables of another dual (slopes, split multipliers, cuts), then the weights of the rows; one objective."""

    slopes: FaceDual
    rows: Conjunction
    weight_scale: float = 0.5

    @classmethod
    def of(cls, sweep: Sweep, rows: Conjunction, masks: CutMasks | None = None) -> ConjunctionDual:
        """With the cuts of `masks`, if any; their constants are computed for the sweep's regions."""
        objective = rows.combined(sweep.layer, rows.even())
        if masks is None or not masks.count:
            return cls(SlopeDual(sweep, objective), rows)
        return cls(PropagatedDual.of(sweep, objective, masks), rows)

    @property
    def plain(self) -> int:
        """How many variables come before the weights."""
        return self.slopes.variables

    def start(self, weights: Float[Tensor, "D 1 m"] | None = None) -> Float[Tensor, "D 1 V"]:
        """CROWN's slopes and the given weights, or equal ones."""
        return torch.cat([self.slopes.start(), self.rows.even() if weights is None else weights], dim=-1)

    def best_start(self) -> Float[Tensor, "D 1 V"]:
        """CROWN's slopes with equal weights or with a single row, whatever bounds best in each region."""
        point = self.start()
        best = self.evaluate(point).lower
        for row in range(self.rows.c.shape[1] if self.rows.c.shape[1] > 1 else 0):
            weights = torch.zeros_like(point[..., self.plain :])
            weights[..., row] = 1.0
            single = self.start(weights)
            lower = self.evaluate(single).lower
            better = (lower > best) & self.rows.present[:, row : row + 1]
            point = torch.where(better.unsqueeze(-1), single, point)
            best = torch.where(better, lower, best)
        return point

    def _at(self, point: Float[Tensor, "D 1 V"]) -> FaceDual:
        return replace(self.slopes, objective=self.rows.objective(self.slopes.sweep, point[..., self.plain :]))

    def evaluate(self, point: Float[Tensor, "D 1 V"]) -> SlopePoint:
        return self._at(point).evaluate(point[..., : self.plain])

    def supergradient(
        self, point: Float[Tensor, "D 1 V"], at: SlopePoint, seen: Average | None = None
    ) -> Float[Tensor, "D 1 V"]:
        sweep = self.slopes.sweep
        route = sweep.forward(at.trace, at.choices)
        if seen is not None:
            seen.add(route.values)
        gains = self.slopes.gains(at, route)
        y = sweep.net.layers[sweep.layer - 1].forward(route.values)
        g, weights = self.rows.values(y, at.x0), point[..., self.plain :]
        # Only differences matter on the simplex.  Steps that look at each entry's sign would stall without this.
        return torch.cat([gains, g - (weights * g).sum(dim=-1, keepdim=True)], dim=-1)

    def project(self, point: Float[Tensor, "D 1 V"]) -> None:
        self.slopes.project(point[..., : self.plain])
        weights = point[..., self.plain :]
        if weights.shape[-1] > 1:  # the weight of a single row never moves
            weights.copy_(onto_simplex(weights, self.rows.present.unsqueeze(1)))

    def step_scale(self) -> Float[Tensor, " V"]:
        scale = self.rows.c.new_ones(self.plain + self.rows.c.shape[1])
        scale[: self.plain] = self.slopes.step_scale()
        scale[self.plain :] = self.weight_scale
        return scale


def onto_simplex(v: Float[Tensor, "D S m"], present: Bool[Tensor, "D #S m"]) -> Float[Tensor, "D S m"]:
    """The nearest point with non-negative entries of sum 1 that is zero where `present` is False."""
    low = torch.finfo(v.dtype).min / 4
    ordered = v.masked_fill(~present, low).sort(dim=-1, descending=True).values
    rank = torch.arange(1, v.shape[-1] + 1, device=v.device, dtype=v.dtype)
    excess = (ordered.clamp(min=-1e30).cumsum(dim=-1) - 1) / rank
    count = (ordered > excess).sum(dim=-1, keepdim=True).clamp(min=1)
    shift = excess.gather(-1, count - 1)
    return (v - shift).clamp(min=0).masked_fill(~present, 0.0)
