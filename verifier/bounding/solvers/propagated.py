"""The propagated Anderson bound: alpha-CROWN whose upper faces are bent by cuts, with all weights optimised.

requires:   bounds of all groups before the objective's layer
guarantees: a valid lower bound at every iterate; the best one is returned.  Never below alpha-CROWN after the same
            first ascent, and with enough iterations it approaches the linear program over the Planet relaxation with
            the same cuts
source:     [SCB] eq:primal-anderson with z eliminated (see `faces`); masks from the mean of the last forward points
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import torch
from torch.nn.functional import pad

from verifier.bounding import BOUNDERS
from verifier.bounding.core.ascent import Ascent, Best, Steps
from verifier.bounding.core.average import Averaging
from verifier.bounding.core.base import Bound, Bounder, Objective, Proof, Region, Until, widest
from verifier.bounding.core.state import cat, halved
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.masks import CutMasks
from verifier.bounding.cuts.oracle import Threshold, find_masks
from verifier.bounding.solvers.alpha_crown import AlphaCrownOptions, FaceDual, SlopeDual, SlopeProof
from verifier.bounding.solvers.certified import Certified
from verifier.bounding.solvers.parts import in_parts
from verifier.bounding.solvers.propagated_dual import PropagatedDual
from verifier.network.network import Network
from verifier.registry import AscentOptions, Count, Positive, Share, Step
from verifier.shapes import Float, Int, Tensor

__all__ = ["Propagated", "PropagatedDual", "PropagatedProof", "Threshold", "find_masks"]


@dataclass(frozen=True, eq=False)
class PropagatedProof(Proof):
    """Slopes, split multipliers and shares, and the masks of the cuts that the shares belong to."""

    point: Float[Tensor, "D S V"]
    masks: CutMasks

    def evaluate(self, net: Network, region: Region, objective: Objective) -> Float[Tensor, "D S"]:
        dual = PropagatedDual.of(Sweep.prepare(net, region, objective.layer), objective, self.masks)
        return dual.evaluate(self.start(dual)).lower

    def start(self, dual: PropagatedDual) -> Float[Tensor, "D S V"]:
        """The variables in the precision of `dual`; multipliers of its splits are zero if there were none before."""
        point = self.point.to(dual.sweep.region.lower.dtype, copy=True)
        plain, shares = point.split([point.shape[-1] - dual.layout.size, dual.layout.size], dim=-1)
        point = torch.cat([pad(plain, (0, dual.slopes.variables - plain.shape[-1])), shares], dim=-1)
        dual.project(point)
        return point

    def joined(self, parts: Sequence[PropagatedProof]) -> PropagatedProof:
        return _together(parts, dim=1)

    def cat(self, parts: Sequence[PropagatedProof]) -> PropagatedProof:
        return _together(parts, dim=0)

    def part(self, start: int, stop: int) -> PropagatedProof:
        return PropagatedProof(self.point[:, start:stop], self.masks.part(start, stop))

    def select(self, rows: Int[Tensor, " d"]) -> PropagatedProof:
        return PropagatedProof(self.point[rows], self.masks.select(rows))

    def compact(self) -> PropagatedProof:
        return replace(self, point=halved(self.point))


def _together(parts: Sequence[PropagatedProof], dim: int) -> PropagatedProof:
    """Proofs side by side, over regions or over objectives.

    A deadline may have ended one of them before its masks were found.  The shares come last, and a cut with share
    zero changes nothing.
    """
    longest = max(parts, key=lambda part: part.masks.count)
    masks = [part.masks.padded(longest.masks, part.point.shape[:2]) for part in parts]
    points = [pad(part.point, (0, longest.point.shape[-1] - part.point.shape[-1])) for part in parts]
    return PropagatedProof(torch.cat(points, dim=dim), cat(masks, dim))


@dataclass(frozen=True)
class Propagated(Bounder):
    """An ascent without cuts, then rounds that add a cut per threshold and go on.

    Every round asks the oracle at the mean of the last forward points of the ascent before it.  From a parent's
    variables and masks (their constants are computed anew) the last ascent goes on at once.
    """

    initial: Ascent = field(default_factory=lambda: Ascent(100, Steps(0.2, 0.01)))
    ascent: Ascent = field(default_factory=lambda: Ascent(150, Steps(0.05, 0.005)))
    thresholds: tuple[Threshold, ...] = (0.5,)
    rounds: int = 1
    averaged: int = 40  # forward points

    @property
    def proves(self) -> bool:
        return True

    def bound(
        self, net: Network, region: Region, objective: Objective, until: Until, warm: Proof | None = None
    ) -> Bound:
        if not isinstance(warm, SlopeProof | PropagatedProof | None):
            raise TypeError(f"propagated cuts start from slopes and shares, not from {type(warm).__name__}")
        sweep = Sweep.prepare(net, region, objective.layer)
        found = []
        for bounder, part, state in in_parts(self, region, objective, self.bytes_each(sweep), warm):
            assert isinstance(state, SlopeProof | PropagatedProof | None)
            found.append(bounder._climb(sweep, part, until, state))
        return Bound.joined(found)

    def bytes_each(self, sweep: Sweep) -> int:
        """What an ascent keeps of one objective in one region: sweeps, variables, masks, and one masked pass."""
        size, wide = sweep.region.lower.element_size(), widest(sweep.net, sweep.layer)
        kinks = [kinks.count for kinks in sweep.kinks]
        cuts = self.rounds * len(self.thresholds)
        exact = 4 * max(kinks, default=0) * wide * (None in self.thresholds)  # one entry per weight
        return size * (24 * wide + cuts * (4 * wide + 16 * sum(kinks)) + exact)

    def _climb(
        self, sweep: Sweep, objective: Objective, until: Until, warm: SlopeProof | PropagatedProof | None
    ) -> Bound:
        if isinstance(warm, PropagatedProof):
            bent = PropagatedDual.of(sweep, objective, warm.masks)
            return _proved(bent, warm.masks, self.ascent.run(bent, warm.start(bent), until, watch=self.watch))
        slopes, averaging, masks = SlopeDual(sweep, objective), Averaging(self.averaged), CutMasks()
        begin = slopes.start() if warm is None else warm.start(slopes)
        best = self.initial.run(slopes, begin, until, averaging, self.watch)
        dual: FaceDual = slopes
        done = best.iterations
        for _ in range(self.rounds):
            if averaging.average is None:  # time is up, or all regions are done
                break
            masks = masks.join(find_masks(dual, averaging.average, self.thresholds))
            dual, averaging = PropagatedDual.of(sweep, objective, masks), Averaging(self.averaged)
            start = pad(best.point, (0, dual.variables - best.point.shape[-1]))
            best = self.ascent.run(dual, start, until, averaging, self.watch)
            done += best.iterations
        return _proved(dual, masks, replace(best, iterations=done))


def _proved(dual: FaceDual, masks: CutMasks, best: Best) -> Bound:
    at = dual.evaluate(best.point)
    lower = torch.fmax(best.lower, at.lower)  # an ascent that time cut short knows no bound
    return Bound(lower, at.x0, PropagatedProof(best.point, masks), best.iterations)


class PropagatedOptions(AscentOptions, frozen=True):
    """alpha-CROWN first, then rounds that bend the upper faces by Anderson cuts, one per threshold."""

    iterations: Count = 150  # of each round
    first_step: Step = 0.05
    last_step: Step = 0.005
    initial: AlphaCrownOptions = AlphaCrownOptions()
    thresholds: tuple[Share | None, ...] = (0.5,)  # null: exact masks, one bit per weight
    rounds: Count = 1
    averaged: Positive = 40  # forward points at whose mean the masks are found


@BOUNDERS.register("propagated", PropagatedOptions)
def propagated(options: PropagatedOptions) -> Bounder:
    first, then = Ascent.of(options.initial), Ascent.of(options)
    return Certified(Propagated(first, then, options.thresholds, options.rounds, options.averaged))
