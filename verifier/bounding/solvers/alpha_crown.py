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

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import torch

from verifier.bounding import BOUNDERS
from verifier.bounding.core.ascent import Ascent, Dual, Evaluation, Steps
from verifier.bounding.core.average import Average
from verifier.bounding.core.base import Bound, Bounder, Objective, Proof, Region, Until, together, widest
from verifier.bounding.core.state import halved
from verifier.bounding.core.sweep import Choice, Route, Sweep, Trace
from verifier.bounding.solvers.certified import Certified
from verifier.network.network import Network
from verifier.registry import AscentOptions, Count
from verifier.shapes import Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class SlopePoint(Evaluation):
    """A finished backward sweep, kept for the supergradient."""

    trace: Trace
    choices: tuple[Choice, ...]


@dataclass(frozen=True, eq=False)
class FaceDual(Dual[SlopePoint]):
    """A bound as a function of the faces that a sweep takes: one sweep back, and one forward for the supergradient."""

    sweep: Sweep
    objective: Objective

    @property
    @abstractmethod
    def variables(self) -> int:
        """How many variables each objective has."""

    @abstractmethod
    def start(self) -> Float[Tensor, "D S V"]:
        """Variables that give CROWN's bound."""

    @abstractmethod
    def choices(self, point: Float[Tensor, "D S V"]) -> tuple[Choice, ...]:
        """The faces that the variables choose, group by group."""

    @abstractmethod
    def gains(self, at: SlopePoint, route: Route) -> Float[Tensor, "D S V"]:
        """The supergradient, given the way of the minimiser."""

    def evaluate(self, point: Float[Tensor, "D S V"]) -> SlopePoint:
        choices = self.choices(point)
        trace = self.sweep.backward(self.objective, choices)
        return SlopePoint(trace.lower, trace.x0, trace, choices)

    def supergradient(
        self, point: Float[Tensor, "D S V"], at: SlopePoint, seen: Average | None = None
    ) -> Float[Tensor, "D S V"]:
        route = self.sweep.forward(at.trace, at.choices)
        if seen is not None:
            seen.add(route.values)
        return self.gains(at, route)


@dataclass(frozen=True, eq=False)
class SlopeDual(FaceDual):
    """The variables are the lower slopes at all kinks, then (if there are splits) a multiplier for each kink."""

    split_scale: float = 0.5

    @cached_property
    def kinks(self) -> int:
        return sum(kinks.count for kinks in self.sweep.kinks)

    @cached_property
    def has_splits(self) -> bool:
        return any(kinks.sign is not None for kinks in self.sweep.kinks)

    @property
    def variables(self) -> int:
        return (2 if self.has_splits else 1) * self.kinks

    def start(self) -> Float[Tensor, "D S V"]:
        """CROWN's slopes, no split multipliers."""
        like, shape = self.sweep.region.lower, (self.sweep.region.count, self.objective.count)
        slopes = [kinks.adaptive().expand(*shape, -1) for kinks in self.sweep.kinks]
        if self.has_splits:
            slopes.append(like.new_zeros(*shape, self.kinks))
        return torch.cat(slopes, dim=-1) if slopes else like.new_zeros(*shape, 0)

    def choices(self, point: Float[Tensor, "D S V"]) -> tuple[Choice, ...]:
        """The groups' parts of the variables; neurons that are stable in a region have no choice there."""
        sizes = [kinks.count for kinks in self.sweep.kinks]
        parts = point[..., : self.kinks].split(sizes, dim=-1)
        slopes = [kinks.faces(part) for kinks, part in zip(self.sweep.kinks, parts, strict=True)]
        if not self.has_splits:
            return tuple(Choice(a) for a in slopes)
        splits = point[..., self.kinks :].split(sizes, dim=-1)
        return tuple(Choice(a, s) for a, s in zip(slopes, splits, strict=True))

    def gains(self, at: SlopePoint, route: Route) -> Float[Tensor, "D S V"]:
        slopes, splits = [], []
        for kinks, value, lam in zip(self.sweep.kinks, route.x_hat, at.trace.coefficients, strict=True):
            gain = torch.zeros_like(value) if lam is None else lam.clamp(min=0) * value * kinks.ambiguous
            slopes.append(gain)
            splits.append(torch.zeros_like(value) if kinks.sign is None else -kinks.sign * value)
        nothing = at.x0[..., :0]  # a network may have no group at all
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


@dataclass(frozen=True, eq=False)
class SlopeProof(Proof):
    """Slopes and split multipliers at all kinks."""

    point: Float[Tensor, "D S V"]

    def evaluate(self, net: Network, region: Region, objective: Objective) -> Float[Tensor, "D S"]:
        dual = SlopeDual(Sweep.prepare(net, region, objective.layer), objective)
        return dual.evaluate(self.start(dual)).lower

    def start(self, dual: SlopeDual) -> Float[Tensor, "D S V"]:
        """The variables in the precision of `dual`; multipliers of its splits are zero if there were none before."""
        point = self.point.to(dual.sweep.region.lower.dtype, copy=True)
        point = torch.nn.functional.pad(point, (0, dual.variables - point.shape[-1]))
        dual.project(point)
        return point

    def joined(self, parts: Sequence[SlopeProof]) -> SlopeProof:
        return SlopeProof(torch.cat([part.point for part in parts], dim=1))

    def part(self, start: int, stop: int) -> SlopeProof:
        return SlopeProof(self.point[:, start:stop])

    def select(self, rows: Int[Tensor, " d"]) -> SlopeProof:
        return SlopeProof(self.point[rows])

    def cat(self, parts: Sequence[SlopeProof]) -> SlopeProof:
        return SlopeProof(torch.cat([part.point for part in parts]))

    def compact(self) -> SlopeProof:
        return SlopeProof(halved(self.point))


@dataclass(frozen=True)
class AlphaCrown(Bounder):
    """Adam on slopes and split multipliers, from CROWN's slopes or from a parent's variables."""

    ascent: Ascent = field(default_factory=lambda: Ascent(100, Steps(0.2, 0.01)))

    @property
    def proves(self) -> bool:
        return True

    def bound(
        self, net: Network, region: Region, objective: Objective, until: Until, warm: Proof | None = None
    ) -> Bound:
        if not isinstance(warm, SlopeProof | None):
            raise TypeError(f"alpha-CROWN starts from slopes, not from {type(warm).__name__}")
        each = 24 * widest(net, objective.layer) * region.lower.element_size() * region.count
        chunk = together(each, self.memory_bytes)
        sweep = Sweep.prepare(net, region, objective.layer)
        found = []
        for start in range(0, objective.count, chunk):
            dual = SlopeDual(sweep, objective.part(start, start + chunk))
            begin = dual.start() if warm is None else warm.part(start, start + chunk).start(dual)
            best = self.ascent.run(dual, begin, until, watch=self.watch)
            found.append(Bound(best.lower, dual.evaluate(best.point).x0, SlopeProof(best.point), best.iterations))
        return Bound.joined(found)


class AlphaCrownOptions(AscentOptions, frozen=True):
    """Slopes of the propagated Planet dual."""

    iterations: Count = 100


@BOUNDERS.register("alpha_crown", AlphaCrownOptions)
def alpha_crown(options: AlphaCrownOptions) -> Bounder:
    return Certified(AlphaCrown(Ascent.of(options)))
