"""Tiers of propagated bounds: alpha-CROWN, and with cuts whose masks are found at the root and inherited."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate

import torch

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.average import Averaging
from verifier.bounding.core.base import Until
from verifier.bounding.core.state import cat
from verifier.bounding.cuts.masks import CutMasks, refreshed
from verifier.bounding.cuts.oracle import Threshold, find_masks
from verifier.bounding.solvers.conjunction import ConjunctionDual
from verifier.bounding.solvers.propagated_dual import PropagatedDual
from verifier.registry import AscentOptions, Positive, Share, Step
from verifier.search import TIERS
from verifier.search.signs.root import Batch, Root
from verifier.search.tiers import Climbed, Climber, Evidence, Kept, Tier
from verifier.shapes import Float, Int, Tensor

POOL_BYTES = 2**28
"""The memory of all masks; beyond it none are found anew."""


@dataclass(frozen=True)
class Propagated(Tier):
    """Slopes, split multipliers and row weights, and for every threshold a cut at each kink.

    `first` climbs on the whole boxes, `ascent` in the tree; the masks of each cut come from the mean of the last
    forward points of `scout`, an ascent with the cuts before it on the whole boxes.  Without thresholds this is
    alpha-CROWN.
    """

    first: Ascent
    ascent: Ascent
    thresholds: tuple[Threshold, ...] = ()
    scout: Ascent = field(default_factory=lambda: Ascent(40, Steps(0.05, 0.02), check_every=5))
    refresh: int | None = None  # masks are found anew in domains whose depth is a multiple of it

    @property
    def name(self) -> str:
        cuts = len(self.thresholds)
        return "alpha_crown" if not cuts else "propagated" if cuts == 1 else f"propagated_{cuts}"

    def climber(self, root: Root) -> Climber:
        return PropagatedClimber(self, root)


@dataclass(frozen=True, eq=False)
class PropagatedEvidence(Evidence):
    """The variables of the dual function, and the masks of its cuts."""

    point: Float[Tensor, "D 1 V"]
    masks: CutMasks | None

    def select(self, rows: Tensor) -> PropagatedEvidence:
        return PropagatedEvidence(self.point[rows], None if self.masks is None else self.masks.select(rows))

    def lower(self, batch: Batch) -> Float[Tensor, " D"]:
        dual = ConjunctionDual.of(batch.sweep(torch.float64), batch.rows(torch.float64), self.masks)
        point = self.point.double()
        dual.project(point)
        return dual.evaluate(point).lower[:, 0]


class PropagatedClimber(Climber):
    """One float32 ascent per batch.  The masks of all domains lie in one pool; at first it has a row per clause."""

    def __init__(self, tier: Propagated, root: Root) -> None:
        self.tier, self.root = tier, root
        self.name, self.iterations = tier.name, tier.ascent.iterations
        self.width = (2 + len(tier.thresholds)) * root.kinks + root.rows.c.shape[1]
        self.pool: CutMasks | None = None
        self.rows = 0  # of the pool

    def begin(self, whole: Batch, below: Climbed | None, until: Until) -> Climbed:
        if below is not None and isinstance(below.evidence, PropagatedEvidence):
            self.pool, self.rows = below.evidence.masks, len(whole)  # the cuts of the tier below stay
        dual = self._dual(whole)
        point = dual.best_start() if below is None else below.variables.unsqueeze(1)
        known = 0 if self.pool is None else self.pool.count
        for threshold in self.tier.thresholds[known:]:  # each cut is found where those before it leave the relaxation
            averaging = Averaging(self.tier.scout.iterations // 2)
            point = self.tier.scout.run(dual, point, until, averaging).point
            if averaging.average is None:  # closed, or out of time
                break
            found = find_masks(dual.slopes, averaging.average, (threshold,))
            self.pool = found if self.pool is None else self.pool.join(found)
            self.rows, dual, point = len(whole), self._dual(whole), self._widened(whole, point)
        return self._run(whole, point, self.tier.first, until)

    def climb(self, batch: Batch, start: Float[Tensor, "D V"], until: Until) -> Climbed:
        return self._run(batch, start.float().unsqueeze(1), self.tier.ascent, until)

    def probe(self, batch: Batch, start: Float[Tensor, "D V"]) -> Float[Tensor, " D"]:
        dual, point = self._dual(batch), start.float().unsqueeze(1)
        dual.project(point)
        return dual.evaluate(point).lower[:, 0]

    def adopt(self, batch: Batch, variables: Float[Tensor, "D V"], below: Climber) -> Float[Tensor, "D V"]:
        if not isinstance(below, PropagatedClimber):
            raise TypeError(f"{self.name} cannot start from {below.name}")
        return self._widened(batch, variables.unsqueeze(1))[:, 0]

    def transplanted(self, variables: Float[Tensor, "D V"], before: Climber, kept: Kept) -> Float[Tensor, "D W"] | None:
        if not isinstance(before, PropagatedClimber):
            return None
        old, mine, weights = before._groups(), self._groups(), self.root.rows.c.shape[1]
        plain = 2 * len(kept)
        shared = mine if mine == old[: len(mine)] else mine[:plain]  # other cuts than before have no shares yet
        sizes = before.root.sizes
        starts = [0, *accumulate(sizes[group] for group in old)]
        columns = torch.cat([kept[group] + start for group, start in zip(shared, starts, strict=False)])
        point = torch.cat([variables[:, columns], variables[:, starts[-1] : starts[-1] + weights]], dim=1)
        return self._widened(Batch.whole(self.root), point.unsqueeze(1))[:, 0]

    def _groups(self) -> list[int]:
        """To which group each block of the variables belongs, but for the row weights at the end."""
        dual = self._dual(Batch.whole(self.root).select(slice(0, 1))).slopes
        groups, blocks = range(len(self.root.sizes)), dual.layout.blocks if isinstance(dual, PropagatedDual) else ()
        return [*groups, *groups, *(block.group for block in blocks)]

    def _dual(self, batch: Batch) -> ConjunctionDual:
        return ConjunctionDual.of(batch.sweep(), batch.rows(), self._masks(batch))

    def _masks(self, batch: Batch) -> CutMasks | None:
        return None if self.pool is None else self.pool.select(batch.masks)

    def _widened(self, batch: Batch, point: Float[Tensor, "D 1 V"]) -> Float[Tensor, "D 1 V"]:
        """With shares of zero for cuts that the variables do not know yet: they come before the row weights."""
        weights = self.root.rows.c.shape[1]
        missing = self._dual(batch.select(slice(0, 1))).plain + weights - point.shape[-1]
        shares = point.new_zeros(*point.shape[:2], missing)
        return torch.cat([point[..., :-weights], shares, point[..., -weights:]], dim=-1)

    def _run(self, batch: Batch, start: Float[Tensor, "D 1 V"], ascent: Ascent, until: Until) -> Climbed:
        masks = self._masks(batch)
        dual = ConjunctionDual.of(batch.sweep(), batch.rows(), masks)
        start = start.clone()
        dual.project(start)
        averaging = self._averaging(ascent)
        best = ascent.run(dual, start, until, averaging)
        at = dual.evaluate(best.point)
        lower = torch.fmax(best.lower, at.lower)[:, 0]  # an ascent that time cut short may know nothing
        return Climbed(
            lower,
            at.x0[:, 0],
            best.point[:, 0],
            PropagatedEvidence(best.point, masks),
            dual.slopes.sweep,
            dual.rows.combined(self.root.layer, best.point[..., dual.plain :]),
            at.trace,
            best.iterations,
            batch.masks if averaging is None else self._refreshed(batch, dual, best.point, averaging),
        )

    def _averaging(self, ascent: Ascent) -> Averaging | None:
        room = self.pool is not None and self.rows * self.pool.bytes_each < POOL_BYTES
        return Averaging(max(1, ascent.iterations // 2)) if self.tier.refresh and room else None

    def _refreshed(
        self, batch: Batch, dual: ConjunctionDual, point: Float[Tensor, "D 1 V"], averaging: Averaging
    ) -> Int[Tensor, " D"]:
        """The rows of masks for the children: where it is time, the least used cut has given way to a new one.

        Shares are relative, so the new cut starts with those of the old one.
        """
        average = averaging.average
        if average is None or self.pool is None or self.tier.refresh is None:
            return batch.masks
        depth = (batch.signs[average.rows] != 0).sum(dim=1)
        due = average.rows[(depth > 0) & (depth % self.tier.refresh == 0)]
        if not len(due):
            return batch.masks
        assert isinstance(dual.slopes, PropagatedDual)
        fresh = find_masks(dual.slopes, average, self.tier.thresholds[:1]).select(due)
        plain = point[..., : dual.plain]
        uses = dual.slopes.uses(plain, dual.evaluate(point))
        masks = refreshed(self.pool.select(batch.masks[due]), uses[due], fresh)
        self.pool = cat([self.pool, masks])
        numbers = torch.arange(self.rows, self.rows + len(due), device=due.device)
        self.rows += len(due)
        return batch.masks.index_copy(0, due, numbers)


class SlopeTierOptions(AscentOptions, frozen=True):
    """alpha-CROWN in the tree: slopes, split multipliers and row weights go from parent to child."""

    iterations: Positive = 10
    first_step: Step = 0.1
    last_step: Step = 0.02
    root: AscentOptions = AscentOptions()  # on the whole box


class CutTierOptions(SlopeTierOptions, frozen=True):
    """Propagated Anderson cuts in the tree, one per threshold; masks are found at the root and inherited."""

    root: AscentOptions = AscentOptions(first_step=0.1, last_step=0.005)
    scout: AscentOptions = AscentOptions(40, 0.05, 0.02)  # without cuts; its forward points are where masks are found
    thresholds: tuple[Share | None, ...] = (0.5,)  # null: exact masks, one bit per weight
    # In domains whose depth is a multiple of it, a new mask takes the place of the least used one; null: never.
    refresh: Positive | None = None


@TIERS.register("alpha_crown", SlopeTierOptions)
def slope_tier(options: SlopeTierOptions) -> Tier:
    return Propagated(_short(options.root), _short(options))


@TIERS.register("propagated", CutTierOptions)
def cut_tier(options: CutTierOptions) -> Tier:
    first, then, scout = _short(options.root), _short(options), _short(options.scout)
    return Propagated(first, then, options.thresholds, scout, options.refresh)


def _short(options: AscentOptions) -> Ascent:
    """An ascent that looks often at who is done."""
    return Ascent.of(options, check_every=5)
