"""Splitting by the signs of ReLUs.

A domain is closed only by `_certified`, on the float64 evaluation of its evidence with all rounding errors subtracted,
by rigorous bounds that cross, or by an exact leaf.  Whatever is not a number counts as open.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import accumulate

import torch

from verifier.bounding.core.base import Until
from verifier.bounding.core.closing import closes, crossed
from verifier.bounding.solvers.solver import Proof
from verifier.branching.base import Brancher, View
from verifier.branching.intercept import Intercept
from verifier.clock import Stopwatch
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.domains import Counts, Domains, Offer, Space, Step, cat, outweighed
from verifier.search.journal import Bounded, Journal
from verifier.search.ladder import Ladder, Schedule
from verifier.search.signs.leaves import solve_leaf
from verifier.search.signs.root import Batch, Root
from verifier.search.signs.split import split
from verifier.search.signs.tighten import Never, Tightening
from verifier.search.stratify import smoothed
from verifier.search.tiers import CLOSE_TOGETHER, Climbed, Crossed
from verifier.shapes import Bool, Float, Int, Int8, Tensor

HALF_MOST = 60000.0
"""The largest multiplier that a warm start keeps: half precision ends soon after it."""


@dataclass(frozen=True, eq=False)
class SignDomains(Domains):
    """Domains of the sign tree, with what their children inherit."""

    signs: Int8[Tensor, "D A"]
    rise: Float[Tensor, " D"]  # moving average of the improvement per level; NaN at the root
    masks: Int[Tensor, " D"]
    variables: Float[Tensor, "D V"]  # half precision: a warm start, never a proof
    scores: Float[Tensor, "D A"]  # half precision: what splitting each kink promises
    bounds: Float[Tensor, "D B"]  # l_hat and u_hat of the kinks; B = 0 if they are the root's


@dataclass(frozen=True, eq=False)
class Brood:
    """Children that are bounded together, and what they have from their parents."""

    batch: Batch
    number: Int[Tensor, " D"]
    parent: Int[Tensor, " D"]  # numbers; -1 at the root
    kinks: Int[Tensor, "D levels"]  # where they were split off; -1 where nothing was
    lower: Float[Tensor, " D"]
    rise: Float[Tensor, " D"]
    start: Float[Tensor, "D V"]
    tier: int

    def risen(self, lower: Float[Tensor, " D"]) -> Float[Tensor, " D"]:
        """The moving average of the improvement per level, with the newest bounds."""
        levels = (self.kinks >= 0).sum(dim=1)
        improvement = (lower - self.lower).clamp(min=0) / levels.clamp(min=1)
        return torch.where(levels > 0, smoothed(self.rise, improvement), self.rise)


@dataclass(frozen=True, eq=False)
class Closing:
    """Which domains of a batch are closed, and by what."""

    rows: Bool[Tensor, " D"]
    proofs: list[tuple[Batch, Proof]]


@dataclass(frozen=True)
class Policy:
    """How domains are bounded, split and tried."""

    ladder: Ladder = field(default_factory=Ladder)
    brancher: Brancher[View] = field(default_factory=Intercept)
    tightening: Tightening = field(default_factory=Never)
    batch: int = 256  # domains that are bounded together
    fill: int = 64  # with fewer children than this, several levels are split at once
    offers: int = 8  # minimisers handed to the falsifier after each batch


@dataclass(frozen=True)
class Decided:
    """What became of leaves."""

    witness: Counterexample | None = None
    doubt: Reason | None = None
    undecided: float = float("inf")
    solved: int = 0


class SignSpace(Space[SignDomains]):
    """The tree over the signs of all kinks of a problem."""

    def __init__(self, root: Root, policy: Policy, until: Until, offer: Offer, journal: Journal | None = None) -> None:
        self.root, self.policy, self.until, self.offer = root, policy, until, offer
        self.journal = journal or Journal()
        self.schedule = Schedule(policy.ladder, root)
        self.margin = 1e-6  # a float32 bound above it has so far been confirmed in float64
        self.bounding = Stopwatch()

    @property
    def parents(self) -> int:
        return max(1, self.policy.batch // 2)

    def begin(self) -> Step[SignDomains]:
        """All clauses on their whole boxes, by every tier; the search then starts with the lowest one."""
        none = torch.full((self.root.clauses,), -1, device=self.root.device)
        # Nothing was split yet, but all domains of the tree must carry the same fields.
        whole = self.policy.tightening.tightened(Batch.whole(self.root), none.unsqueeze(1), self.until)
        nothing = self.root.rough.lower.new_zeros(len(whole), 0)
        unknown = torch.full_like(self.root.known, torch.nan, dtype=torch.float32)
        known = self.root.known.float()
        brood = Brood(whole, self._numbers(len(whole)), none, none.unsqueeze(1), known, unknown, nothing, 0)
        with self.bounding:
            found = self.schedule.begin(whole, self._goal())
            closings = [self._certified(whole, climbed) for climbed in found]
        return self._digest(brood, found[0], closings)

    def expand(self, parents: SignDomains) -> Step[SignDomains]:
        brood = self._brood(parents.to(self.root.device))
        with self.bounding:
            self.schedule.grow(self._goal())
            found = self.schedule.climb(brood.tier, brood.batch, brood.start, self._goal())
            closing = self._certified(brood.batch, found)
        return self._digest(brood, found, [closing])

    def adopted(self, domains: SignDomains, begun: SignDomains, before: SignSpace) -> SignDomains:
        """The open domains of a search with looser bounds of hidden neurons, or the whole boxes where these are better.

        `begun` are the open domains of this space, which has just begun.  Where the sharper bounds alone lift a clause
        above the worst of its old domains, those were split at the wrong places, and it begins anew.

        Require: the kinks of this space are among those of `before`.  Guarantee: what is left out holds no
        counterexample, because the bounds here contradict its signs, or because its whole clause is closed.
        """
        domains = domains.to(self.root.device)
        worst = self._per_clause(domains)
        anew = begun.lower >= worst[begun.clause]
        left = torch.zeros_like(worst, dtype=torch.bool).index_copy(0, begun.clause, ~anew)  # not closed, nor anew
        some = domains.select(left[domains.clause] & ~self._contradicted(domains, before.root))
        if not len(some):
            return begun.select(anew)
        moved = self._moved(some, before)
        return begun if moved is None else cat([begun.select(anew), moved])

    def _per_clause(self, domains: SignDomains) -> Float[Tensor, " C"]:
        """The worst bound of each clause; NaN counts as the worst."""
        lower = torch.full((self.root.clauses,), torch.inf, device=domains.lower.device)
        return lower.scatter_reduce(0, domains.clause, domains.lower.nan_to_num(nan=-torch.inf), "amin")

    def _moved(self, domains: SignDomains, before: SignSpace) -> SignDomains | None:
        """Domains of another space with the kinks of this one; None if their variables make no sense here.

        Require: at least one.
        """
        kept = [torch.searchsorted(old, new) for old, new in zip(before.root.indices, self.root.indices, strict=True)]
        starts = accumulate([0, *before.root.sizes[:-1]])
        places = torch.cat([own + start for own, start in zip(kept, starts, strict=True)])
        parts = []
        for tier in domains.tier.unique().tolist():
            some = domains.select(domains.tier == tier)
            variables = self.schedule.adopt(tier, some.variables.float(), before.schedule, kept)
            if variables is None:
                return None
            parts.append(_replanted(some, variables.half(), places))
        return cat(parts)

    def _contradicted(self, domains: SignDomains, before: Root) -> Bool[Tensor, " D"]:
        """Which domains have a sign that the bounds of this root exclude."""
        box = self.root.box[domains.clause]
        pairs = zip(self.root.region.l_hat, self.root.region.u_hat, before.indices, strict=True)
        ends = [(low[:, index][box], high[:, index][box]) for low, high, index in pairs]
        low, high = (torch.cat(side, dim=1) for side in zip(*ends, strict=True))
        return (((domains.signs > 0) & (high < 0)) | ((domains.signs < 0) & (low > 0))).any(dim=1)

    def _goal(self) -> Until:
        """Domains leave an ascent as soon as their bound can be proved."""
        return replace(self.until, threshold=self.margin)

    def _numbers(self, count: int) -> Int[Tensor, " D"]:
        new = self.journal.numbers(count)
        return torch.arange(new.start, new.stop, device=self.root.device)

    def _brood(self, parents: SignDomains) -> Brood:
        """The children of domains."""
        made = split(parents.signs, parents.scores, max(self.policy.fill, 2 * len(parents)))
        mine = parents.select(made.parent)
        batch = Batch(self.root, mine.clause, made.signs, mine.masks, mine.bounds if mine.bounds.shape[1] else None)
        with self.bounding:
            batch = self.policy.tightening.tightened(batch, made.kinks, self.until)
        numbers, tier = self._numbers(len(batch)), int(parents.tier[0])
        return Brood(batch, numbers, mine.number, made.kinks, mine.lower, mine.rise, mine.variables, tier)

    def _digest(self, brood: Brood, found: Climbed, closings: list[Closing]) -> Step[SignDomains]:
        """Try minimisers, solve leaves, and score what stays open."""
        batch, name = brood.batch, self.schedule.name(brood.tier)
        lower = torch.fmax(found.lower, brood.lower)
        closed = torch.stack([closing.rows for closing in closings]).any(dim=0)
        for proved in (proof for closing in closings for proof in closing.proofs):
            self.journal.closed(*proved)
        self.journal.bounded(Bounded(batch, brood.number, brood.parent, brood.kinks, lower, closed, name))
        witness = self._try(found.x0, lower, batch.clause, closed)
        ambiguous = batch.ambiguous()
        affine = ~closed & ~ambiguous.any(dim=1)
        with self.bounding:
            leaves = Decided(witness) if witness is not None else self._decide(batch.select(affine), lower[affine])
        rows = torch.nonzero(~closed & ~affine).flatten()
        open_ = self._open(brood, found, lower, rows)
        tiers = {name: len(batch) - leaves.solved}
        counts = Counts(tiers, leaves.solved, 1, found.iterations, self.bounding.lap())
        return Step(open_, counts, leaves.witness, leaves.doubt, leaves.undecided)

    def _certified(self, batch: Batch, found: Climbed) -> Closing:
        """Which domains are closed: their bounds cross, or the float64 bound of their variables is above zero.

        Where float32 was too optimistic, later ascents get a margin for it; else they would stop too early for ever.
        """
        low, high = batch.cut()
        closed, proofs = crossed(low, high).any(dim=1), list[tuple[Batch, Proof]]()
        if bool(closed.any()):
            proofs.append((batch.select(closed), Crossed()))
        # What overflowed in float32 need not do so in float64.
        candidates = torch.nonzero(~closed & ~(found.lower <= 0)).flatten()
        for rows in candidates.split(CLOSE_TOGETHER) if len(candidates) else ():
            some, proof = batch.select(rows), found.proof.select(rows)
            proved = proof.lower(some.task(torch.float64))[:, 0]
            done = closes(proved)
            closed[rows] = done
            proofs.append((some.select(done), proof.select(done)))
            excess = torch.where(done, 0.0, found.lower[rows] - proved).nan_to_num(0.0, 0.0, 0.0)
            self.margin = max(self.margin, 2 * float(excess.max()))
        return Closing(closed, proofs)

    def _open(self, brood: Brood, found: Climbed, lower: Float[Tensor, " D"], rows: Int[Tensor, " d"]) -> SignDomains:
        """The domains of these rows, with what their children need."""
        batch = brood.batch.select(rows)
        lower, rise = lower.clamp(max=0.0)[rows], brood.risen(lower)[rows]
        variables = found.variables[rows].nan_to_num(0.0).clamp(max=HALF_MOST)
        tier, variables = self.schedule.place(brood.tier, batch, variables, (lower, rise))
        bounds = lower.new_zeros(len(rows), 0) if batch.bounds is None else batch.bounds
        return SignDomains(
            brood.number[rows],
            batch.clause,
            lower,
            (batch.signs != 0).sum(dim=1),
            tier,
            batch.signs,
            rise,
            torch.where(tier == brood.tier, found.masks[rows], batch.clause),  # a higher tier has cuts of its own
            variables.half(),
            self._scores(brood.tier, batch, found, rows),
            bounds,
        )

    def _scores(self, tier: int, batch: Batch, found: Climbed, rows: Int[Tensor, " d"]) -> Float[Tensor, "d A"]:
        """What splitting each kink promises, relative to the best; -1 for what may not be split."""
        if not len(rows):
            return batch.signs.half()

        def probe(kinks: Int[Tensor, "d c"]) -> Float[Tensor, "d c 2"]:
            return self._probe(tier, batch, found.variables[rows], kinks)

        view = View(found.sweep.select(rows), found.objective.select(rows), found.trace.select(rows), probe)
        with self.bounding:
            scores = self.policy.brancher.scores(view).nan_to_num(0.0).clamp(min=0.0)
        scores = scores / scores.amax(dim=1, keepdim=True).clamp(min=torch.finfo(scores.dtype).tiny)
        return torch.where(batch.ambiguous(), scores, -1.0).half()

    def _probe(self, tier: int, batch: Batch, variables: Tensor, kinks: Int[Tensor, "d c"]) -> Float[Tensor, "d c 2"]:
        """Cheap bounds of the children that splitting at each of these kinks would give."""
        parent = torch.arange(len(batch), device=kinks.device).repeat_interleave(2 * kinks.shape[1])
        sides = torch.tensor([-1, 1], dtype=torch.int8, device=kinks.device).repeat(kinks.numel())
        signs = batch.signs[parent].scatter_(1, kinks.flatten().repeat_interleave(2)[:, None], sides[:, None])
        children = replace(batch.select(parent), signs=signs)
        found = [
            self.schedule.probe(tier, children.select(rows), variables[parent[rows]])
            for rows in torch.arange(len(children), device=kinks.device).split(self.policy.batch)
        ]
        return torch.cat(found).view(*kinks.shape, 2)

    def _try(self, x0: Tensor, lower: Tensor, clause: Tensor, closed: Tensor) -> Counterexample | None:
        """Hand the minimisers of the worst domains to the falsifier."""
        open_rows = torch.nonzero(~closed).flatten()
        if not len(open_rows) or not self.policy.offers:
            return None
        worst = open_rows[lower[open_rows].topk(min(self.policy.offers, len(open_rows)), largest=False).indices]
        return self.offer(x0[worst], self.root.numbers[clause[worst]].cpu())

    def _decide(self, leaves: Batch, known: Float[Tensor, " D"]) -> Decided:
        """Solve domains without ambiguous kinks that their bounds have not closed."""
        decided = Decided()
        for i, lower in enumerate(known.clamp(max=0.0).tolist()):
            if self.until.expired():
                return _left(decided, Reason.TIMEOUT, lower)
            single = leaves.select(slice(i, i + 1))
            leaf = solve_leaf(single, self.until)
            decided = replace(decided, solved=decided.solved + 1)
            if leaf.closed:
                assert leaf.proof is not None
                self.journal.closed(single, leaf.proof)
                continue
            if leaf.x0 is not None:
                number = self.root.numbers[leaves.clause[i : i + 1]].cpu()
                witness = self.offer(leaf.x0.unsqueeze(0), number)
                if witness is not None:
                    return replace(decided, witness=witness)
            reason = Reason.TIMEOUT if self.until.expired() else Reason.NUMERICS
            decided = _left(decided, reason, max(leaf.lower, lower))
        return decided


def _replanted(domains: SignDomains, variables: Tensor, places: Int[Tensor, " A"]) -> SignDomains:
    """Domains with fewer kinks, on the lowest tier, whose cuts are those of the whole boxes."""
    bounds = [side[:, places] for side in domains.bounds.chunk(2, dim=1)] if domains.bounds.shape[1] else []
    return replace(
        domains,
        tier=torch.zeros_like(domains.tier),
        signs=domains.signs[:, places],
        masks=domains.clause.clone(),
        variables=variables,
        scores=domains.scores[:, places],
        bounds=torch.cat(bounds, dim=1) if bounds else domains.bounds,
    )


def _left(decided: Decided, reason: Reason, lower: float) -> Decided:
    """With one more leaf that stays undecided."""
    doubt, undecided = outweighed(decided.doubt, reason), min(decided.undecided, lower)
    return replace(decided, doubt=doubt, undecided=undecided)
