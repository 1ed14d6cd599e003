"""alpha-CROWN: the propagated dual of the Planet relaxation, with slopes and split multipliers optimised.

requires:   bounds of all groups before the objective's layer
guarantees: a valid lower bound at every iterate; the best one is returned.  With enough iterations it approaches the
            optimum of the linear program over the Planet relaxation with the split constraints
source:     alpha-CROWN and beta-CROWN, here with the supergradients written out

One backward and one forward sweep per iteration.  With lam the coefficient of x and x_hat taken from the forward
sweep of the minimiser:

    d/da = max(lam, 0) x_hat        d/ds = -x_hat (passing split), +x_hat (blocking split)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from verifier.bounding.ascent import Ascent, Dual, Evaluation, Steps
from verifier.bounding.base import Bound, Bounder, Objective, Proof, Region, Until, widest
from verifier.bounding.sweep import Choice, Sweep, Trace
from verifier.network.network import Network
from verifier.shapes import Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class SlopePoint(Evaluation):
    """A finished backward sweep, kept for the supergradient."""

    trace: Trace


@dataclass(frozen=True, eq=False)
class SlopeDual(Dual[SlopePoint]):
    """The variables are the lower slopes at all kinks, then (if there are splits) a multiplier for each kink."""

    sweep: Sweep
    objective: Objective
    split_scale: float = 0.5

    @property
    def kinks(self) -> int:
        return sum(len(kinks.index) for kinks in self.sweep.kinks)

    @property
    def has_splits(self) -> bool:
        return any(kinks.sign is not None for kinks in self.sweep.kinks)

    def start(self) -> Float[Tensor, "D S V"]:
        """CROWN's slopes, no split multipliers."""
        like, shape = self.sweep.region.lower, (self.sweep.region.count, self.objective.count)
        slopes = [kinks.adaptive().expand(*shape, -1) for kinks in self.sweep.kinks]
        if self.has_splits:
            slopes.append(like.new_zeros(*shape, self.kinks))
        return torch.cat(slopes, dim=-1) if slopes else like.new_zeros(*shape, 0)

    def choices(self, point: Float[Tensor, "D S V"]) -> tuple[Choice, ...]:
        """The groups' parts of the variables; neurons that are stable in a region have no choice there."""
        sizes = [len(kinks.index) for kinks in self.sweep.kinks]
        parts = point[..., : self.kinks].split(sizes, dim=-1)
        slopes = [kinks.faces(part) for kinks, part in zip(self.sweep.kinks, parts, strict=True)]
        if not self.has_splits:
            return tuple(Choice(a) for a in slopes)
        splits = point[..., self.kinks :].split(sizes, dim=-1)
        return tuple(Choice(a, s) for a, s in zip(slopes, splits, strict=True))

    def evaluate(self, point: Float[Tensor, "D S V"]) -> SlopePoint:
        trace = self.sweep.backward(self.objective, self.choices(point))
        return SlopePoint(trace.lower, trace.x0, trace)

    def supergradient(self, point: Float[Tensor, "D S V"], at: SlopePoint) -> Float[Tensor, "D S V"]:
        return self.gains(at.trace, self.sweep.forward(at.trace, self.choices(point)))

    def gains(self, trace: Trace, x_hat: tuple[Float[Tensor, "D S _"], ...]) -> Float[Tensor, "D S V"]:
        """The supergradient, given x_hat at the kinks on the way of the minimiser."""
        slopes, splits = [], []
        for kinks, value, lam in zip(self.sweep.kinks, x_hat, trace.coefficients, strict=True):
            gain = torch.zeros_like(value) if lam is None else lam.clamp(min=0) * value * kinks.ambiguous
            slopes.append(gain)
            splits.append(torch.zeros_like(value) if kinks.sign is None else -kinks.sign * value)
        nothing = trace.x0[..., :0]  # a network may have no group at all
        return torch.cat([nothing, *slopes, *(splits if self.has_splits else [])], dim=-1)

    def project(self, point: Float[Tensor, "D S V"]) -> None:
        point[..., : self.kinks].clamp_(0.0, 1.0)
        point[..., self.kinks :].clamp_(min=0.0)

    def step_scale(self) -> Float[Tensor, " V"] | float:
        if not self.has_splits:
            return 1.0
        scale = self.sweep.region.lower.new_ones(2 * self.kinks)
        scale[self.kinks :] = self.split_scale
        return scale

    def select(self, rows: Int[Tensor, " d"]) -> SlopeDual:
        return SlopeDual(self.sweep.select(rows), self.objective.select(rows), self.split_scale)


@dataclass(frozen=True, eq=False)
class SlopeProof(Proof):
    """Slopes and split multipliers at all kinks."""

    point: Float[Tensor, "D S V"]

    def evaluate(self, net: Network, region: Region, objective: Objective) -> Float[Tensor, "D S"]:
        dual = SlopeDual(Sweep.prepare(net, region, objective.layer), objective)
        point = self.point.to(region.lower.dtype).clone()
        dual.project(point)
        return dual.evaluate(point).lower

    def joined(self, parts: Sequence[SlopeProof]) -> SlopeProof:
        return SlopeProof(torch.cat([part.point for part in parts], dim=1))


@dataclass(frozen=True)
class AlphaCrown(Bounder):
    """Adam on slopes and split multipliers, from CROWN's slopes or from a parent's variables."""

    ascent: Ascent = field(default_factory=lambda: Ascent(100, Steps(0.2, 0.01)))

    @property
    def proves(self) -> bool:
        return True

    def bound(
        self,
        net: Network,
        region: Region,
        objective: Objective,
        until: Until,
        warm: SlopeProof | None = None,
    ) -> Bound:
        chunk = until.chunk(24 * widest(net, objective.layer) * region.lower.element_size() * region.count)
        sweep = Sweep.prepare(net, region, objective.layer)
        found = []
        for start in range(0, objective.count, chunk):
            dual = SlopeDual(sweep, objective.part(start, start + chunk))
            begin = dual.start() if warm is None else warm.point[:, start : start + chunk]
            best = self.ascent.run(dual, begin, until)
            found.append(Bound(best.lower, dual.evaluate(best.point).x0, SlopeProof(best.point), best.iterations))
        return Bound.joined(found)
