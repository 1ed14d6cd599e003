"""Tiers of the paper's dual solvers: Big-M, Active Set, Saddle Point.

Children inherit the Big-M multipliers of their parents; masks are found anew in every domain, as in the paper.  The
weights of a clause's rows are those that alpha-CROWN finds on the whole box; leaves are decided by all rows together,
so the search stays complete.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Bound, Bounder, Objective, Proof, Until
from verifier.bounding.solvers.active_set import ActiveSet, ActiveSetOptions
from verifier.bounding.solvers.alpha_crown import SlopeProof
from verifier.bounding.solvers.big_m import BigM, BigMOptions
from verifier.bounding.solvers.conjunction import ConjunctionDual
from verifier.bounding.solvers.crown import Linear
from verifier.bounding.solvers.lagrangian import Lagrangian
from verifier.bounding.solvers.multipliers import Explicit, MultiplierProof, point_of
from verifier.bounding.solvers.saddle_point import SaddlePoint, SaddlePointOptions
from verifier.registry import Count
from verifier.search import TIERS
from verifier.search.propagated_tier import PropagatedClimber
from verifier.search.signs.root import Batch, Root
from verifier.search.tiers import Climbed, Climber, Computed, Evidence, Tier
from verifier.shapes import Float, Tensor

BIG_M = Lagrangian.FIXED
"""Multipliers of each kink without cuts."""

WEIGHING = Ascent(30, Steps(0.2, 0.02))
"""How the weights of several rows are found."""


@dataclass(frozen=True)
class Multipliers(Tier):
    """A dual solver with explicit multipliers, at most `together` domains at a time."""

    method: str
    bounder: Bounder
    iterations: int
    together: int = 64

    @property
    def name(self) -> str:
        return self.method

    def climber(self, root: Root) -> Climber:
        return MultiplierClimber(self, root)


@dataclass(frozen=True, eq=False)
class ProofEvidence(Evidence):
    """A bounder's own proof, and the weights of the rows."""

    proof: Proof
    weights: Float[Tensor, "D 1 m"]

    def select(self, rows: Tensor) -> ProofEvidence:
        index = torch.nonzero(rows).flatten() if rows.dtype is torch.bool else rows
        return ProofEvidence(self.proof.select(index), self.weights[rows])

    def lower(self, batch: Batch) -> Float[Tensor, " D"]:
        rows, sweep = batch.rows(torch.float64), batch.sweep(torch.float64)
        assert sweep.slacks is not None
        found = self.proof.evaluate(batch.root.net, sweep.region, rows.combined(batch.root.layer, self.weights))
        return (found - rows.rounding(self.weights, sweep.region, sweep.slacks[-1]))[:, 0]


class MultiplierClimber(Climber):
    """Runs the solver in float32 if what it finds can be proved afterwards, else in float64."""

    def __init__(self, tier: Multipliers, root: Root) -> None:
        self.tier, self.root = tier, root
        self.name, self.iterations, self.width = tier.name, tier.iterations, BIG_M * root.kinks
        self.weights = root.rows.even()

    def begin(self, whole: Batch, below: Climbed | None, until: Until) -> Climbed:
        if self.weights.shape[-1] > 1:
            dual = ConjunctionDual.of(whole.sweep(), whole.rows())
            best = WEIGHING.run(dual, dual.best_start(), until)
            self.weights = best.point[..., dual.plain :].double()
        return self._run(whole, None, until)

    def climb(self, batch: Batch, start: Float[Tensor, "D V"], until: Until) -> Climbed:
        return self._run(batch, start, until)

    def probe(self, batch: Batch, start: Float[Tensor, "D V"]) -> Float[Tensor, " D"]:
        sweep = batch.sweep()
        return sweep.backward(self._objective(batch, torch.float32), Linear().choices(sweep)).lower[:, 0]

    def adopt(self, batch: Batch, variables: Float[Tensor, "D V"], below: Climber) -> Float[Tensor, "D V"]:
        if isinstance(below, MultiplierClimber):
            return variables
        if not isinstance(below, PropagatedClimber):
            raise TypeError(f"{self.name} cannot start from {below.name}")
        dual = Lagrangian(batch.sweep(), self._objective(batch, torch.float32))
        return point_of(SlopeProof(variables[:, None, : 2 * self.root.kinks].float()), dual)[:, 0]

    def _objective(self, batch: Batch, dtype: torch.dtype) -> Objective:
        return batch.rows(dtype).combined(self.root.layer, self.weights[batch.clause].to(dtype))

    def _run(self, batch: Batch, start: Float[Tensor, "D V"] | None, until: Until) -> Climbed:
        parts = torch.arange(len(batch), device=self.root.device).split(self.tier.together)
        found = [self._solve(batch.select(rows), None if start is None else start[rows], until) for rows in parts]
        bound = found[0] if len(found) == 1 else _stacked(found)
        assert bound.x0 is not None
        assert bound.proof is not None
        weights = self.weights[batch.clause]
        sweep, objective = batch.sweep(), self._objective(batch, torch.float32)
        evidence: Evidence = ProofEvidence(bound.proof, weights)
        if not self.tier.bounder.proves:
            exact = batch.sweep(torch.float64)
            assert exact.slacks is not None
            rounding = batch.rows(torch.float64).rounding(weights, exact.region, exact.slacks[-1])
            evidence = Computed((bound.lower - rounding)[:, 0])
        return Climbed(
            bound.lower[:, 0].float(),
            bound.x0[:, 0].float(),
            _multipliers(bound.proof, self.width),
            evidence,
            sweep,
            objective,
            sweep.backward(objective, Linear().choices(sweep)),
            bound.iterations,
            batch.masks,
        )

    def _solve(self, batch: Batch, start: Float[Tensor, "D V"] | None, until: Until) -> Bound:
        dtype = torch.float32 if self.tier.bounder.proves else torch.float64
        net = self.root.single if self.tier.bounder.proves else self.root.net
        warm = None if start is None else MultiplierProof(start.to(dtype).unsqueeze(1))
        return self.tier.bounder.bound(net, batch.region(dtype), self._objective(batch, dtype), until, warm)


def _multipliers(proof: Proof, count: int) -> Float[Tensor, "D V"]:
    """The Big-M multipliers of a proof: they come first."""
    assert isinstance(proof, Explicit)
    return proof.explicit().point[:, 0, :count].float()


def _stacked(found: list[Bound]) -> Bound:
    """The bounds of several batches of domains."""
    points = [f.x0 for f in found if f.x0 is not None]
    proofs = [f.proof for f in found if f.proof is not None]
    return Bound(
        torch.cat([f.lower for f in found]),
        torch.cat(points),
        proofs[0].cat(proofs),
        max(f.iterations for f in found),
    )


class BigMTierOptions(BigMOptions, frozen=True):
    """Big-M in the tree, with the paper's values for complete verification."""

    iterations: Count = 180


class ActiveSetTierOptions(ActiveSetOptions, frozen=True):
    """Active Set in the tree; masks are found anew in every domain, Big-M multipliers are inherited."""

    iterations: Count = 100


@TIERS.register("big_m", BigMTierOptions)
def big_m_tier(options: BigMTierOptions) -> Tier:
    return Multipliers("big_m", BigM.of(options), options.iterations, together=256)


@TIERS.register("active_set", ActiveSetTierOptions)
def active_set_tier(options: ActiveSetTierOptions) -> Tier:
    return Multipliers("active_set", ActiveSet.of(options), options.iterations)


@TIERS.register("saddle_point", SaddlePointOptions)
def saddle_point_tier(options: SaddlePointOptions) -> Tier:
    return Multipliers("saddle_point", SaddlePoint.of(options), options.iterations)
