"""Splitting by the signs of ReLUs.

A domain is closed only by `certify`, on the float64 evaluation of its variables with all rounding errors subtracted,
by rigorous bounds that cross, or by an exact leaf.  Whatever is not a number counts as open.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from typing import Any

import torch

from verifier.bounding.core.base import Until
from verifier.bounding.core.closing import closes, crossed
from verifier.bounding.core.rounding import float32_below
from verifier.bounding.core.state import State, cat, halved
from verifier.bounding.solvers.solver import Proof
from verifier.branching.base import Brancher, View
from verifier.branching.intercept import Intercept
from verifier.clock import Stopwatch
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.domains import Domains, Offer
from verifier.search.journal import (
    Bounded,
    By,
    Closed,
    Implied,
    Journal,
    LeafSolved,
    Looked,
    Moved,
    Narrowed,
    Place,
    Split,
    Superseded,
)
from verifier.search.ladder import Ladder, Schedule, smoothed
from verifier.search.saved import SavedRegion
from verifier.search.signs.kept import BEST, KeptSigns, packed, unpacked
from verifier.search.signs.leaves import solve_leaf
from verifier.search.signs.points import halves, points, shares
from verifier.search.signs.proving import AsFound, Proved, Prover
from verifier.search.signs.root import Batch, Children, Root, split
from verifier.search.signs.tighten import Never, Tightening
from verifier.search.space import Leaves, Recipe, Remaining, Space
from verifier.search.tiers import CLOSE_TOGETHER, Climbed, Crossed
from verifier.shapes import Bool, Float, Int, Int8, Tensor

TOGETHER = 1024
"""Domains of an earlier run that are unpacked at a time."""


@dataclass(frozen=True, eq=False)
class SignDomains(Domains):
    """Domains of the sign tree, with what their children inherit."""

    signs: Int8[Tensor, "D A"]
    rise: Float[Tensor, " D"]  # moving average of the improvement per level; NaN at the root
    variables: Float[Tensor, "D V"]  # half precision: a warm start, never a proof
    scores: Float[Tensor, "D A"]  # half precision: what splitting each kink promises
    bounds: Float[Tensor, "D B"]  # l_hat and u_hat of the kinks; B = 0 if they are the root's
    shares: Float[Tensor, "D P"]  # half precision: where to split what is no ReLU; P = 0 if there are ReLUs only


@dataclass(frozen=True, eq=False)
class Brood:
    """Children that are bounded together, and what they have from their parents."""

    batch: Batch
    number: Int[Tensor, " D"]
    kinks: Int[Tensor, "D levels"]  # where they were split off; -1 where nothing was
    lower: Float[Tensor, " D"]
    rise: Float[Tensor, " D"]
    start: Float[Tensor, "D V"] | None  # None: these are whole boxes
    tier: int

    def risen(self, lower: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """The moving average of the improvement per level, with the newest bounds."""
        levels = (self.kinks >= 0).sum(dim=1)
        improvement = (lower - self.lower).clamp(min=0) / levels.clamp(min=1)
        return torch.where(levels > 0, smoothed(self.rise, improvement), self.rise)


@dataclass(frozen=True, eq=False)
class BoundedBrood:
    """Children with their bounds: by one tier, or on whole boxes by several, the lowest one first."""

    brood: Brood
    found: list[Climbed]


@dataclass(frozen=True, eq=False)
class RemainingBrood(Remaining):
    """Which children are closed, which kinks of them are ambiguous; `found` is what the lowest tier found."""

    brood: Brood
    found: Climbed
    lower: Float[Tensor, " D"]
    closed: Bool[Tensor, " D"]
    ambiguous: Bool[Tensor, "D A"]

    @property
    def affine(self) -> Bool[Tensor, " D"]:
        """The leaves: what is not closed, and cannot be split."""
        return ~self.closed & ~self.ambiguous.any(dim=1)


@dataclass(frozen=True)
class Policy:
    """How domains are bounded, split and tried."""

    ladder: Ladder = field(default_factory=Ladder)
    brancher: Brancher[View] = field(default_factory=Intercept)
    tightening: Tightening = field(default_factory=Never)
    batch: int = 256  # domains that are bounded together
    fill: int = 64  # with fewer children than this, several levels are split at once
    offers: int = 8  # minimisers handed to the falsifier after each batch
    prover: Prover = field(default_factory=AsFound)
    imply: bool = True  # whole boxes begin with the signs that their clauses imply
    certain: bool = False  # bounds of open domains are rigorous, too: one more evaluation of each


@dataclass(frozen=True, eq=False)
class SignRecipe(Recipe):
    """Boxes with their bounds, the clauses of each, and how domains are treated."""

    boxes: SavedRegion
    clauses: tuple[tuple[int, ...], ...]
    policy: Policy


class SignSpace(Space[SignDomains, Brood, BoundedBrood, RemainingBrood]):
    """The tree over the signs of all kinks of a problem."""

    def __init__(self, root: Root, policy: Policy, until: Until, offer: Offer, journal: Journal | None = None) -> None:
        self.root = root if policy.imply else replace(root, implied=torch.zeros_like(root.implied))
        self.policy, self.until, self.offer = policy, until, offer
        self.journal = journal or Journal()
        self.bounding = Stopwatch()
        self.schedule = Schedule(policy.ladder, self.root)
        self.margin = 1e-6  # a float32 bound above it has so far been confirmed in float64
        self._whole = self._numbers(0, root.device)  # of the clauses on their whole boxes

    @property
    def roots(self) -> int:
        return self.root.clauses

    @property
    def parents(self) -> int:
        return max(1, self.policy.batch // 2)

    def whole(self) -> Brood:
        """All clauses on their whole boxes, with the signs that they imply."""
        root, whole = self.root, Batch.whole(self.root)
        none = torch.full((root.clauses, 1), -1, device=root.device)
        self._whole = self._born(whole, none[:, 0], Children(none[:, 0], whole.signs, none))
        if bool(root.implied.any()):
            self.journal.hear(Implied(self._whole, root.numbers, lambda: _places(whole, whole.signs, _fixed(whole))))
        unknown = torch.full_like(root.known, torch.nan, dtype=torch.float32)
        return Brood(whole, self._whole, none, float32_below(root.known), unknown, None, 0)

    def split(self, parents: SignDomains) -> Brood:
        tier = int(parents.tier[0])  # they wait in main memory
        parents = parents.to(self.root.device)
        made = split(parents.signs, parents.scores, max(self.policy.fill, 2 * len(parents)))
        mine = parents.select(made.parent)
        batch = self._children(mine, made)
        number = self._born(batch, mine.number, made)
        return Brood(batch, number, made.kinks, mine.lower, mine.rise, mine.variables, tier)

    def _children(self, mine: SignDomains, made: Children) -> Batch:
        """The domains that splitting gives; `mine` are their parents, one for each."""
        curved = self.root.curved
        if curved is None:
            bounds = mine.bounds if mine.bounds.shape[1] else None
            return Batch(self.root, mine.clause, made.signs, bounds)
        side, signs = torch.where(curved, made.signs, 0), torch.where(curved, 0, made.signs)
        bounds = halves(mine.bounds, side, points(mine.bounds, mine.shares))
        halvings = mine.depth - (mine.signs != 0).sum(dim=1) + (side != 0).sum(dim=1)
        return Batch(self.root, mine.clause, signs, bounds, halvings)

    def tighten(self, children: Brood) -> Brood:
        with self.bounding:
            found = self.policy.tightening.tightened(children.batch, children.kinks, self.until)
        if len(found.rows):
            self.journal.hear(Narrowed(children.number[found.rows], found.first, found.looked))
        return replace(children, batch=found.batch)

    def bound(self, children: Brood) -> BoundedBrood:
        """By the tier of their parents; whole boxes by every tier that need not wait, so that all are compared."""
        with self.bounding:
            if children.start is None:
                return BoundedBrood(children, self.schedule.begin(children.batch, self._goal()))
            self.schedule.grow(self._goal())
            before = self.schedule.looked
            found = self.schedule.climb(children.tier, children.batch, children.start, self._goal())
        if self.schedule.looked is not None and self.schedule.looked is not before:
            self.journal.hear(Looked(self.schedule.looked))
        return BoundedBrood(children, [found])

    def certify(self, bounded: BoundedBrood) -> RemainingBrood:
        """Close domains whose bounds cross, and those with a float64 bound above zero by one of the tiers.

        What is left has the bound of the search, or the rigorous one if that is wanted.
        """
        brood, first = bounded.brood, bounded.found[0]
        batch = brood.batch
        lower = torch.fmax(first.lower, brood.lower)
        self.journal.hear(Bounded(brood.number, lower, self.schedule.name(brood.tier)))
        low, high = batch.cut()
        empty = closed = crossed(low, high).any(dim=1)
        self._close(brood.number[empty], By.CROSSED, lambda: (batch.select(empty), Crossed()))
        sure = brood.lower
        for found in bounded.found:
            closed, sure = self._proved(brood, found, empty, (closed, sure))
        lower = sure if self.policy.certain else lower
        ambiguous = self.root.splittable(batch.signs, low, high)
        return RemainingBrood(brood.number, first.iterations, brood, first, lower, closed, ambiguous)

    def attack(self, left: RemainingBrood) -> Counterexample | None:
        """Hand the minimisers of the worst domains to the falsifier."""
        open_rows = torch.nonzero(~left.closed).flatten()
        if not len(open_rows) or not self.policy.offers:
            return None
        count = min(self.policy.offers, len(open_rows))
        worst = open_rows[left.lower[open_rows].topk(count, largest=False).indices]
        return self.offer(left.found.minimisers(worst), self.root.numbers[left.brood.batch.clause[worst]].cpu())

    def leaves(self, left: RemainingBrood) -> Leaves:
        """Solve domains without ambiguous kinks that their bounds have not closed."""
        decided = Leaves(left.affine)
        for row in torch.nonzero(left.affine).flatten().tolist():
            with self.bounding:
                decided = self._solved(left, row, decided)
            if decided.witness is not None:
                break
        return decided

    def _solved(self, left: RemainingBrood, row: int, decided: Leaves) -> Leaves:
        """With one more leaf."""
        number, lower = int(left.number[row]), float(left.lower[row].clamp(max=0.0))
        if decided.doubt is Reason.TIMEOUT or self.until.expired():
            return self._doubtful(number, decided, Reason.TIMEOUT, lower)
        if self.root.curved is not None:  # no linear program: what is left is too narrow to be split
            return self._doubtful(number, decided, Reason.NUMERICS, lower)
        single = left.brood.batch.select(slice(row, row + 1))
        leaf = solve_leaf(single, self.until)
        self.journal.hear(LeafSolved(number, self.schedule.name(left.brood.tier)))
        if leaf.closed and leaf.proof is not None:
            for part in self.policy.prover.proved(leaf.proof, single):
                if bool(closes(part.lower).all()) and len(part.rows):
                    self._close(left.number[row : row + 1], By.LEAF, partial(tuple, (single, part.proof)))
                    return decided
        if leaf.x0 is not None:
            witness = self.offer(leaf.x0.unsqueeze(0), self.root.numbers[single.clause].cpu())
            if witness is not None:
                return replace(decided, witness=witness)
        reason = Reason.TIMEOUT if self.until.expired() else Reason.NUMERICS
        return self._doubtful(number, decided, reason, max(leaf.lower, lower))

    def open(self, left: RemainingBrood, leaves: Leaves) -> SignDomains:
        """The domains that can be split, with what their children need."""
        rows = torch.nonzero(~left.closed & ~left.affine).flatten()
        brood, found = left.brood, left.found
        batch = brood.batch.select(rows)
        lower, rise = left.lower.clamp(max=0.0)[rows], brood.risen(left.lower)[rows]
        variables = found.variables[rows].nan_to_num(0.0)
        tier, variables = self.schedule.place(brood.tier, batch, variables, (lower, rise))
        scores, shares = self._scores(left, batch, rows)
        return SignDomains(
            brood.number[rows],
            batch.clause,
            lower,
            batch.depth,
            tier,
            batch.signs,
            rise,
            halved(variables),
            scores,
            batch.kept(),
            shares,
        )

    def kept(self, domains: SignDomains, room: int) -> KeptSigns:
        domains = domains.select(domains.lower.nan_to_num(nan=-torch.inf).argsort())
        best = domains.scores.topk(min(BEST, domains.scores.shape[1]), dim=1)
        rows = room // max(1, domains.variables[:1].numel() * domains.variables.element_size())
        return KeptSigns(
            domains.number,
            domains.clause,
            domains.lower,
            domains.depth,
            domains.tier,
            packed(domains.signs),
            domains.rise,
            domains.variables[:rows].clone(),  # a view would be sent with all the rest
            best.indices.to(torch.int32),
            best.values,
            domains.bounds,
            domains.shares,
        )

    def basis(self) -> tuple[SavedRegion, tuple[tuple[int, ...], ...]]:
        numbers, box = self.root.numbers.tolist(), self.root.box.tolist()
        clauses = (
            tuple(k for k, own in zip(numbers, box, strict=True) if own == b) for b in range(self.root.region.count)
        )
        return SavedRegion.of(self.root.region), tuple(clauses)

    def recipe(self) -> SignRecipe:
        return SignRecipe(*self.basis(), self.policy)

    def begin_again(self, kept: Sequence[State]) -> list[SignDomains]:
        """Whole boxes are bounded once more, by all tiers that domains are on: masks and gains were not kept."""
        parts = [part for part in kept if isinstance(part, KeptSigns)]
        self._whole = self._numbers(self.root.clauses, self.root.device)
        highest = max((int(part.tier.max()) for part in parts), default=0)
        with self.bounding:
            self.schedule.begin_up_to(highest, Batch.whole(self.root), self._goal())
        self.bounding.lap()  # whatever it took was counted once
        return [self._unpacked(part) for part in parts]

    def _unpacked(self, kept: KeptSigns) -> SignDomains:
        device = self.root.device
        kept = kept.to(device)
        signs, clause = unpacked(kept.signs, self.root.kinks), kept.clause
        bounds = kept.bounds if kept.bounds.shape[1] else None
        batch = Batch(self.root, clause, signs, bounds)
        may = torch.cat([batch.select(rows).ambiguous() for rows in torch.arange(len(kept)).split(TOGETHER)])
        scores = torch.zeros_like(may, dtype=kept.scores.dtype).scatter_(1, kept.best.long(), kept.scores)
        variables = halved(self.schedule.starts(kept.tier, clause))
        if kept.variables.shape[1] == variables.shape[1]:
            variables[: len(kept.variables)] = kept.variables
        return SignDomains(
            kept.number,
            clause,
            kept.lower,
            kept.depth,
            kept.tier,
            signs,
            kept.rise,
            variables,
            torch.where(may, scores.clamp(min=0.0), -1.0).to(scores.dtype),
            kept.bounds,
            kept.shares,
        )

    def covering(self, domains: SignDomains) -> Int[Tensor, " D"]:
        return self._whole[domains.clause.to(self._whole.device)]

    def adopt(self, domains: SignDomains, begun: SignDomains, before: Space[SignDomains, Any, Any, Any]) -> SignDomains:
        """The open domains of a search with looser bounds of hidden neurons, or the whole boxes where these are better.

        `begun` are the open domains of this space, which has just begun.  Where the sharper bounds alone lift a clause
        above the worst of its old domains, those were split at the wrong places, and it begins anew.

        Require: the kinks of this space are among those of `before`.  Guarantee: what is left out holds no
        counterexample, because the bounds here contradict its signs, or because its whole clause is closed.
        """
        assert isinstance(before, SignSpace)
        domains = domains.to(self.root.device)
        begun = begun.to(self.root.device)
        worst = self._per_clause(domains)
        anew = begun.lower >= worst[begun.clause]
        left = torch.zeros_like(worst, dtype=torch.bool).index_copy(0, begun.clause, ~anew)  # not closed, nor anew
        ends = self._ends_at(domains, before.root)
        contradicted = (((domains.signs > 0) & (ends[1] < 0)) | ((domains.signs < 0) & (ends[0] > 0))).any(dim=1)
        going_on = left[domains.clause]
        some = domains.select(going_on & ~contradicted)
        moved = self._moved(some, before) if len(some) else some
        if moved is None or not before.policy.tightening.travels:
            return super().adopt(domains, begun, before)
        empty, gone = going_on & contradicted, domains.select(~going_on)
        here = Batch(before.root, domains.clause, domains.signs, torch.cat(ends, dim=1))
        self._close(domains.number[empty], By.CROSSED, lambda: (here.select(empty), Crossed()))
        self.journal.hear(Superseded(gone.number, self.covering(gone)))
        dropped = begun.number[~anew]
        self.journal.hear(Superseded(dropped, torch.full_like(dropped, -1)))
        self.journal.hear(Moved(some.number))
        return cat([begun.select(anew), moved]) if len(some) else begun.select(anew)

    def _per_clause(self, domains: SignDomains) -> Float[Tensor, " C"]:
        """The worst bound of each clause; NaN counts as the worst."""
        lower = torch.full((self.root.clauses,), torch.inf, device=domains.lower.device)
        return lower.scatter_reduce(0, domains.clause, domains.lower.nan_to_num(nan=-torch.inf), "amin")

    def _moved(self, domains: SignDomains, before: SignSpace) -> SignDomains | None:
        """Domains of another space with the kinks of this one; None if their variables make no sense here.

        They are on the lowest tier, whose cuts are those of the whole boxes.  Require: at least one.
        """
        kept = [torch.searchsorted(old, new) for old, new in zip(before.root.indices, self.root.indices, strict=True)]
        starts = accumulate([0, *before.root.sizes[:-1]])
        places = torch.cat([own + start for own, start in zip(kept, starts, strict=True)])
        parts = []
        for tier in domains.tier.unique().tolist():
            some = domains.select(domains.tier == tier)
            variables = self.schedule.adopt(tier, some.clause, some.variables.float(), before.schedule, kept)
            if variables is None:
                return None
            bounds = [side[:, places] for side in some.bounds.chunk(2, dim=1)] if some.bounds.shape[1] else []
            parts.append(
                replace(
                    some,
                    tier=torch.zeros_like(some.tier),
                    signs=some.signs[:, places],
                    variables=halved(variables),
                    scores=some.scores[:, places],
                    bounds=torch.cat(bounds, dim=1) if bounds else some.bounds,
                    shares=some.shares[:, places] if some.shares.shape[1] else some.shares,
                )
            )
        return cat(parts)

    def _ends_at(self, domains: SignDomains, before: Root) -> tuple[Float[Tensor, "D A"], Float[Tensor, "D A"]]:
        """The bounds of this root at the kinks of a looser one."""
        box = self.root.box[domains.clause]
        pairs = zip(self.root.region.l_hat, self.root.region.u_hat, before.indices, strict=True)
        ends = [(low[:, index][box], high[:, index][box]) for low, high, index in pairs]
        low, high = (torch.cat(side, dim=1) for side in zip(*ends, strict=True))
        return low, high

    def _goal(self) -> Until:
        """Domains leave an ascent as soon as their bound can be proved."""
        return replace(self.until, threshold=self.margin)

    def _born(self, batch: Batch, parent: Int[Tensor, " D"], made: Children) -> Int[Tensor, " D"]:
        """The numbers of new domains."""
        number = self._numbers(len(batch), self.root.device)
        clause = self.root.numbers[batch.clause]
        self.journal.hear(Split(number, parent, clause, batch, lambda: _places(batch, made.signs, made.kinks)))
        return number

    def _proved(
        self,
        brood: Brood,
        found: Climbed,
        empty: Bool[Tensor, " D"],
        known: tuple[Bool[Tensor, " D"], Float[Tensor, " D"]],
    ) -> tuple[Bool[Tensor, " D"], Float[Tensor, " D"]]:
        """Which domains are closed now, also by the float64 bounds of these variables, and those bounds.

        Where float32 was too optimistic, later ascents get a margin for it; else they would stop too early for ever.
        """
        closed, best = known
        # What overflowed in float32 need not do so in float64.
        hopeful = ~(found.lower <= 0)
        candidates = torch.nonzero(~empty if self.policy.certain else ~empty & hopeful).flatten()
        if not len(candidates):
            return known
        parts: list[tuple[Int[Tensor, " d"], Proved]] = []
        for some in candidates.split(CLOSE_TOGETHER):
            with self.bounding:
                own = self.policy.prover.proved(found.proof.select(some), brood.batch.select(some))
                parts += [(some[part.rows], part) for part in own if len(part.rows)]
        rows, lower = torch.cat([at for at, _ in parts]), torch.cat([part.lower for _, part in parts])
        sure = closes(lower)
        missing = torch.where(hopeful[rows] & ~sure, found.lower[rows] - lower, 0.0)
        self.margin = max(self.margin, 2 * float(missing.nan_to_num(0.0, 0.0, 0.0).max()))
        self._tell(brood, parts, sure & ~closed[rows])
        closed = closed.index_copy(0, rows, closed[rows] | sure)
        return closed, best.index_copy(0, rows, torch.fmax(best[rows], float32_below(lower)))

    def _tell(self, brood: Brood, parts: list[tuple[Int[Tensor, " d"], Proved]], new: Bool[Tensor, " D"]) -> None:
        """Say which domains are closed by now, part by part; those of all parts are looked up at once."""
        numbers, news = brood.number[torch.cat([at for at, _ in parts])].cpu(), new.cpu()
        sizes = [len(at) for at, _ in parts]
        for (at, part), number, mine in zip(parts, numbers.split(sizes), news.split(sizes), strict=True):
            self._close(number[mine], By.BOUND, partial(_evidence, brood.batch, at, part.proof, mine))

    def _close(self, number: Int[Tensor, " d"], by: By, evidence: Callable[[], object]) -> None:
        self.journal.hear(Closed(number, by, evidence))

    def _scores(
        self, left: RemainingBrood, batch: Batch, rows: Int[Tensor, " d"]
    ) -> tuple[Float[Tensor, "d A"], Float[Tensor, "d P"]]:
        """What splitting each kink of these rows promises, relative to the best; -1 for what may not be split.

        Also where to split it, as a share of its interval, if there are others than ReLUs.
        """
        curved, none = self.root.curved, batch.signs.half()
        if not len(rows):
            return none, none if curved is not None else none[:, :0]
        found, tier = left.found, left.brood.tier

        def probe(kinks: Int[Tensor, "d c"]) -> Float[Tensor, "d c 2"]:
            return self._probe(tier, batch, found.variables[rows], kinks)

        view = View(found.sweep.select(rows), found.objective.select(rows), found.retrace(rows), probe)
        with self.bounding:
            scores = self.policy.brancher.scores(view).nan_to_num(0.0).clamp(min=0.0)
        scores = scores / scores.amax(dim=1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)
        scores = torch.where(left.ambiguous[rows], scores, -1.0).half()
        if curved is None:
            return scores, none[:, :0]
        x_hat = [view.x_hat[k][:, index] for k, index in enumerate(self.root.indices)]
        return scores, shares(*batch.cut(), torch.cat(x_hat, dim=1)).half()

    def _tried(self, batch: Batch, signs: Int8[Tensor, "D A"]) -> Batch:
        """Domains split at some kinks; what is no ReLU, in the middle."""
        curved = self.root.curved
        if curved is None:
            return replace(batch, signs=signs)
        bounds, side = batch.kept(), torch.where(curved, signs, 0)
        bounds = halves(bounds, side, points(bounds, torch.full_like(side, 0.5, dtype=bounds.dtype)))
        return replace(batch, signs=torch.where(curved, 0, signs), bounds=bounds)

    def _probe(self, tier: int, batch: Batch, variables: Tensor, kinks: Int[Tensor, "d c"]) -> Float[Tensor, "d c 2"]:
        """Cheap bounds of the children that splitting at each of these kinks would give."""
        parent = torch.arange(len(batch), device=kinks.device).repeat_interleave(2 * kinks.shape[1])
        sides = torch.tensor([-1, 1], dtype=torch.int8, device=kinks.device).repeat(kinks.numel())
        signs = batch.signs[parent].scatter_(1, kinks.flatten().repeat_interleave(2)[:, None], sides[:, None])
        children = self._tried(batch.select(parent), signs)
        found = [
            self.schedule.probe(tier, children.select(rows), variables[parent[rows]])
            for rows in torch.arange(len(children), device=kinks.device).split(self.policy.batch)
        ]
        return torch.cat(found).view(*kinks.shape, 2)


def _evidence(batch: Batch, rows: Int[Tensor, " d"], proof: Proof, chosen: Bool[Tensor, " d"]) -> tuple[Batch, Proof]:
    """Some of the domains that a proof is about; `rows` are their places in the batch."""
    chosen = chosen.to(rows.device)
    return batch.select(rows[chosen]), proof.select(chosen)


def _places(batch: Batch, signs: Int8[Tensor, "D A"], kinks: Int[Tensor, "D levels"]) -> list[list[Place]]:
    """Group, neuron and sign of some kinks of every domain, for others than ReLUs also the point; -1 stands for none.

    `signs` may hold the sides of points.
    """
    root = batch.root
    if not kinks.shape[1] or not root.kinks:
        return [[] for _ in range(len(batch))]
    at = kinks.clamp(min=0)
    sign = signs.gather(1, at).long()
    table = torch.cat([root.places[at], sign.unsqueeze(2)], dim=2).tolist()
    ends = _points(batch, sign, at)
    return [
        [(*place, *end) for place, end, kink in zip(row, points, some, strict=True) if kink >= 0]
        for row, points, some in zip(table, ends, kinks.tolist(), strict=True)
    ]


def _points(batch: Batch, sign: Int[Tensor, "D levels"], at: Int[Tensor, "D levels"]) -> list[list[tuple[float, ...]]]:
    """The points where domains were split at some kinks, from above (-1) or below; nothing for ReLUs."""
    root = batch.root
    if root.curved is None or batch.bounds is None:
        return [[()] * at.shape[1] for _ in range(len(batch))]
    curved = root.curved[at].tolist()
    ends = batch.bounds.gather(1, torch.where(sign > 0, at, at + root.kinks)).tolist()
    return [[(x,) if c else () for x, c in zip(*pair, strict=True)] for pair in zip(ends, curved, strict=True)]


def _fixed(batch: Batch) -> Int[Tensor, "D levels"]:
    """The kinks of every domain that have a sign; -1 stands for none."""
    fixed = batch.signs != 0
    order = fixed.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, : int(fixed.sum(dim=1).max())]
    return torch.where(fixed.gather(1, order), order, -1)
