"""The stratified scheduler: which tier bounds a domain's children, what the tiers cost, and when a subtree is hard.

A tree whose bound rises by `rise` per level closes a parent bound p < 0 after about -p / rise levels, so it has
2^(-p / rise + 1) - 1 nodes.  A tighter method starts `gain` higher.  The subtree is hard if the loose tree is larger by
more than what a node costs more in the tight one.  All sizes are logarithms, so nothing overflows.

source: [SCB] sec:stratified; exponents are at least 1, because a tree has at least one node
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass, field

import torch
from torch.nn.functional import pad

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Until
from verifier.search.look import Look
from verifier.search.rungs import slopes
from verifier.search.signs.root import Batch, Root
from verifier.search.tiers import Climbed, Climber, Kept, Tier
from verifier.shapes import Bool, Float, Int, Int8, Tensor

SMOOTHING = 0.5
"""The weight of the newest improvement in the moving average along a path."""

LATER = 8
"""How many times more domains there are before the lowest tier is compared again."""

SLOWEST = 1e-6
"""The least rise per level that is believed, relative to the root's bound."""


def _slopes() -> tuple[Tier, ...]:
    return (slopes(Ascent(60, Steps(0.2, 0.01), 5), Ascent(20, Steps(0.1, 0.02), 5)),)


@dataclass(frozen=True)
class Ladder:
    """Tiers from cheap and loose to dear and tight.

    `ratios`: how many times dearer a domain is on the next tier; without them it is measured while the search runs,
    and the tree then depends on the machine's mood.  `patience`: domains that a tier leaves open before the one above
    it is tried; 0 tries all tiers on the whole boxes first, as the paper does.  `look`: domains that the lowest tier
    bounds before it is compared with itself without cuts, and with masks that are not learned, on half as many at most;
    0 never does.
    """

    tiers: tuple[Tier, ...] = field(default_factory=_slopes)
    ratios: tuple[float, ...] | None = None
    patience: int = 0
    look: int = 0

    def lowest(self) -> Ladder:
        """The lowest tier alone."""
        return Ladder(self.tiers[:1], look=self.look)

    def plain(self) -> Ladder:
        """The lowest tier alone, without cuts."""
        lowest = self.tiers[0]
        return Ladder((lowest if lowest.plain is None else lowest.plain,))

    def after(self, look: Look | None) -> Ladder:
        """The same for a search that goes on from one that has looked: where cuts clearly lose, there are none."""
        return self.plain() if look is not None and look.clear else self


class Schedule:
    """The tiers at work on one problem: gains at the root, seconds per domain, promotions.

    A hard subtree stays hard: a domain's children are never bounded by a lower tier than itself.
    """

    def __init__(self, ladder: Ladder, root: Root) -> None:
        self.ladder, self.root = ladder, root
        self.climbers = [tier.climber(root) for tier in ladder.tiers]
        self.widths = [0] * len(self.climbers)
        self._width = max(climber.width for climber in self.climbers)  # of the table of variables, for good
        self.gains = torch.zeros(len(self.climbers), root.clauses, device=root.device)  # of tier t over t - 1
        self.floor = torch.zeros(root.clauses, device=root.device)  # the least rise per level that is believed
        self._costs = [Cost(climber.iterations) for climber in self.climbers]
        self.looked: Look | None = None
        self._ways: list[tuple[Climber, int]] = []  # that the lowest tier may go on with, and their variables
        self._bounded, self._next_look = 0, ladder.look or math.inf  # domains of the lowest tier
        self._whole: Batch | None = None
        self._found: list[Climbed] = []

    def name(self, tier: int) -> str:
        return self.climbers[tier].name

    @property
    def whole(self) -> Climbed:
        """The bounds of all clauses on their whole boxes, by the lowest tier.  Require: they have been bounded."""
        return self._found[0]

    @property
    def worst(self) -> float:
        """The worst of them."""
        return float(self.whole.lower.min())

    def begin(self, whole: Batch, until: Until) -> list[Climbed]:
        """Bound all clauses on their whole boxes by the lowest tier, and by those above it that need not wait."""
        self._whole = whole
        self._begin_next(until)
        self.floor = SLOWEST * self._found[0].lower.abs()
        self.grow(until)
        return self._found

    def begin_up_to(self, tier: int, whole: Batch, until: Until) -> None:
        """The same by all tiers up to that one at least, for domains of an earlier run."""
        if not self._found:
            self.begin(whole, until)
        while len(self._found) <= tier:
            self._begin_next(until)

    def starts(self, tier: Int8[Tensor, " D"], clause: Int[Tensor, " D"]) -> Float[Tensor, "D W"]:
        """The variables of the whole boxes, for domains of these tiers and clauses that have lost their own."""
        tables = torch.stack([self._padded(found.variables) for found in self._found])
        return tables[tier.long(), clause].nan_to_num(0.0)

    def _begin_next(self, until: Until) -> None:
        """Bound the whole boxes by one more tier, and so measure what it gains over the one below."""
        assert self._whole is not None
        t, began = len(self._found), time.perf_counter()
        found = self.climbers[t].begin(self._whole, self._found[-1] if self._found else None, until)
        self._costs[t].at_root(time.perf_counter() - began, len(self._whole) * max(1, found.iterations))
        self.widths[t] = found.variables.shape[1]
        if t:
            self.gains[t] = found.lower - self._found[t - 1].lower
        self._found.append(found)

    def grow(self, until: Until) -> None:
        """Bring further tiers into play, once the one below has bounded enough domains: easy trees never pay."""
        while len(self._found) < len(self.climbers) and not until.expired():
            some_open = bool((self._found[-1].lower <= 0).any())
            if int(self._costs[len(self._found) - 1].left) < self.ladder.patience or not some_open:
                return
            self._begin_next(until)

    def climb(self, tier: int, batch: Batch, variables: Float[Tensor, "D V"], until: Until) -> Climbed:
        began = time.perf_counter()
        found = self.climbers[tier].climb(batch, variables[:, : self.widths[tier]], until)
        self._costs[tier].in_tree(time.perf_counter() - began, found.lower)
        if tier == 0:
            self._bounded += len(batch)
            if self._next_look <= self._bounded and self._can_choose():
                some = spread(torch.nonzero(found.lower < 0).flatten(), max(1, self.ladder.look // 2))
                if len(some):
                    self._look(batch.select(some), variables[some], until)
        return found

    def _can_choose(self) -> bool:
        """Whether there is another way to bound domains than the one that the lowest tier takes."""
        if self.looked is None:
            lowest, first = self.ladder.tiers[0], self.climbers[0]
            self._ways = [(first, self.widths[0])]
            if lowest.kept is not None and first.learned:
                self._ways.append((first.beside(lowest.kept), self.widths[0]))
            if lowest.plain is not None:
                bare = lowest.plain.climber(self.root)
                self._ways.append((bare, bare.width))
        return len(self._ways) > 1

    def _look(self, batch: Batch, variables: Float[Tensor, "D V"], until: Until) -> None:
        """Bound domains in all ways; the tree goes on with the one that will be the fastest, until it is much larger.

        The variables of cuts come last, so what is left of them is a start for the same bounds without cuts, from which
        there is no way back.
        """
        lower, seconds = [], []
        for climber, width in self._ways:
            began = time.perf_counter()
            lower.append(climber.climb(batch, variables[:, :width], until).lower)
            seconds.append(time.perf_counter() - began)
        names, groups = [climber.name for climber, _ in self._ways], (k + 1 for k in self.climbers[0].masks.groups)
        found = None if until.expired() else Look.at(names, lower, seconds, groups)
        if found is None:  # if time is up all were cut short
            return
        self.looked, self._next_look = found, LATER * self._bounded
        chosen, width = self._ways[names.index(found.chosen)]
        if chosen is not self.climbers[0]:
            self.climbers[0], self.widths[0], self._costs[0] = chosen, width, Cost(chosen.iterations)
        if width < self._ways[0][1]:
            self._ways = []

    def probe(self, tier: int, batch: Batch, variables: Float[Tensor, "D V"]) -> Float[Tensor, " D"]:
        return self.climbers[tier].probe(batch, variables[:, : self.widths[tier]])

    def place(
        self,
        tier: int,
        batch: Batch,
        variables: Float[Tensor, "D V"],
        seen: tuple[Float[Tensor, " D"], Float[Tensor, " D"]],
    ) -> tuple[Int8[Tensor, " D"], Float[Tensor, "D W"]]:
        """The tier of each domain's children and their start; `seen`: its bound and its rise per level.

        The rule is applied pairwise upwards.
        """
        (lower, rise), clause = seen, batch.clause
        tiers = torch.full_like(clause, tier, dtype=torch.int8)
        variables = self._padded(variables)
        rise = torch.maximum(rise, self.floor[clause])
        for above in range(tier + 1, len(self.climbers)):
            if above >= len(self._found):
                break
            promoted = (tiers == above - 1) & hard(lower, rise, self.gains[above][clause], self.ratio(above))
            rows = torch.nonzero(promoted).flatten()
            if not len(rows):
                break
            tiers[rows] = above
            below, mine = self.climbers[above - 1], variables[rows, : self.widths[above - 1]]
            adopted = self.climbers[above].adopt(batch.select(rows), mine, below)
            assert adopted is not None
            variables[rows] = self._padded(adopted)
            lower = lower + self.gains[above][clause]
        return tiers, variables

    def adopt(
        self,
        tier: int,
        clause: Int[Tensor, " D"],
        variables: Float[Tensor, "D V"],
        other: Schedule,
        kept: Kept,
    ) -> Float[Tensor, "D W"] | None:
        """Variables of a tier of another search as a start for the lowest tier of this one; None if there is no way."""
        whole = Batch.whole(self.root).select(clause)
        found = self.climbers[0].adopt(whole, variables[:, : other.widths[tier]], other.climbers[tier], kept)
        return None if found is None else self._padded(found)

    def _padded(self, variables: Float[Tensor, "D V"]) -> Float[Tensor, "D W"]:
        """As wide as the variables of any tier."""
        return pad(variables, (0, self._width - variables.shape[1]))

    def ratio(self, tier: int) -> float:
        """How many times dearer a domain is on `tier` than on the one below."""
        if self.ladder.ratios is not None:
            return self.ladder.ratios[tier - 1]
        above, below = self._costs[tier], self._costs[tier - 1]
        if above.domains and below.domains:
            return max(1.0, above.seconds / above.domains / (below.seconds / below.domains))
        share = above.iteration_seconds * above.iterations / max(1e-12, below.iteration_seconds * below.iterations)
        return max(1.0, share)


@dataclass
class Cost:
    """What a tier has taken: in the tree, and per iteration and domain at the root, where it is first seen."""

    iterations: int  # on each domain of the tree
    seconds: float = 0.0
    domains: int = 0
    left: Tensor | int = 0  # of these domains, those that it has not closed; on the device until somebody asks
    iteration_seconds: float = 0.0

    def at_root(self, seconds: float, iterations: int) -> None:
        self.iteration_seconds = seconds / iterations

    def in_tree(self, seconds: float, lower: Float[Tensor, " D"]) -> None:
        self.seconds += seconds
        self.domains += len(lower)
        self.left = self.left + (~(lower > 0)).sum()


def spread(rows: Int[Tensor, " d"], most: int) -> Int[Tensor, " _"]:
    """At most so many of the rows, evenly."""
    return rows[:: -(-len(rows) // most)] if len(rows) > most else rows


def log2_size(lower: Float[Tensor, " D"], rise: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
    """log2 of the nodes of a tree whose root has that bound.  Require: rise > 0."""
    exponent = (1 - lower / rise).clamp(min=1.0)
    return exponent + torch.log2(1 - torch.exp2(-exponent))


def hard(
    lower: Float[Tensor, " D"], rise: Float[Tensor, " D"], gain: Float[Tensor, " D"], cost_ratio: float
) -> Bool[Tensor, " D"]:
    """Which subtrees would be searched faster with the tighter method; never where a number is missing (NaN)."""
    saved = log2_size(lower, rise) - log2_size(lower + gain.clamp(min=0.0), rise)
    return saved > math.log2(cost_ratio)


def smoothed(before: Float[Tensor, " D"], improvement: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
    """The moving average along a path; the first improvement replaces what is not known (NaN)."""
    return torch.where(before.isnan(), improvement, SMOOTHING * improvement + (1 - SMOOTHING) * before)
