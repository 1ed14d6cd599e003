"""Branch and bound over the signs of ReLUs.

The main loop is `search`; what it decides about single domains is injected by `Policy`.  A domain is closed only by
`_certified`, on the float64 evaluation of its variables with all rounding errors subtracted, or by an exact leaf.
Whatever is not a number counts as open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch

from verifier.bounding.ascent import Ascent, Steps
from verifier.bounding.base import Until
from verifier.bounding.conjunction import ConjunctionDual
from verifier.branching.base import Brancher
from verifier.branching.intercept import Intercept
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.frontier import Domains, Frontier
from verifier.search.leaves import solve_leaf
from verifier.search.root import Root
from verifier.search.split import Children, split
from verifier.shapes import Bool, Float, Int, Int8, Tensor

Offer = Callable[[Tensor, Tensor], Counterexample | None]
"""Tries points [P, n0] for clauses [P] (numbers of the property): the falsifier."""

Report = Callable[["Progress"], None]

HALF_MOST = 60000.0
"""The largest multiplier that a warm start keeps: half precision ends soon after it."""


@dataclass(frozen=True)
class Policy:
    """How domains are bounded, split and queued."""

    root: Ascent = field(default_factory=lambda: Ascent(60, Steps(0.2, 0.01), check_every=5))
    ascent: Ascent = field(default_factory=lambda: Ascent(20, Steps(0.1, 0.02), check_every=5))
    brancher: Brancher = field(default_factory=Intercept)
    batch: int = 256
    memory_bytes: int = 2 * 2**30
    offers: int = 8  # minimisers handed to the falsifier after each batch
    max_domains: int | None = None


@dataclass(frozen=True)
class Progress:
    """How far a search is: counters, the domains that wait, and the worst bound among all that is not closed.

    `lower` is what the search knows in float32; +inf says that everything is closed.  `domains` counts every
    subproblem once; `leaves` counts those of them that had to be solved exactly.
    """

    domains: int = 0
    open: int = 0
    max_open: int = 0
    batches: int = 0
    iterations: int = 0
    leaves: int = 0
    lower: float = float("inf")

    def __add__(self, other: Progress) -> Progress:
        """This search is over, and another one follows it."""
        return Progress(
            self.domains + other.domains,
            other.open,
            max(self.max_open, other.max_open),
            self.batches + other.batches,
            self.iterations + other.iterations,
            self.leaves + other.leaves,
            min(self.lower, other.lower),
        )


@dataclass(frozen=True)
class Outcome:
    """The end of a search: a witness, a reason for being undecided, or neither (all domains are closed)."""

    witness: Counterexample | None
    reason: Reason | None
    progress: Progress


def search(root: Root, policy: Policy, until: Until, offer: Offer, report: Report = lambda progress: None) -> Outcome:
    """Decide all clauses of one box."""
    run = _Run(root, policy, until, offer)
    run.begin()
    while run.frontier.open and run.witness is None:
        if (reason := run.must_stop()) is not None:
            return Outcome(None, reason, run.progress())
        parents = run.frontier.pop(max(1, policy.batch // 2)).to(root.device)
        found = run.bound(parents, split(parents, policy.batch))
        leaves = ~run.is_open(found.signs)
        run.decide(found.select(leaves))
        run.frontier.push(found.select(~leaves))
        report(run.progress())
    return run.outcome()


class _Run:
    """The state of one search: the frontier, counters, and what was found."""

    def __init__(self, root: Root, policy: Policy, until: Until, offer: Offer) -> None:
        self.root, self.policy, self.until, self.offer = root, policy, until, offer
        low, high = root.bounds()
        self.loose = (low < 0) & (high > 0)
        each = root.kinks * 7 + 2 * root.rows.c.shape[1] + 20
        self.frontier = Frontier(policy.memory_bytes // each)
        self.witness: Counterexample | None = None
        self.doubt: Reason | None = None  # why leaves are left undecided
        self.undecided = float("inf")  # the worst bound among them
        self.margin = 1e-6  # a float32 bound above it has so far been confirmed in float64
        self.domains = self.batches = self.iterations = self.leaves = 0

    def must_stop(self) -> Reason | None:
        if self.until.expired():
            return Reason.TIMEOUT
        most = self.policy.max_domains
        return Reason.LIMIT if most is not None and self.domains >= most else None

    def progress(self) -> Progress:
        open_, most = self.frontier.open, self.frontier.most
        lower = min(self.frontier.lower(), self.undecided)
        return Progress(self.domains, open_, most, self.batches, self.iterations, self.leaves, lower)

    def outcome(self) -> Outcome:
        """The end, once nothing is open or a witness is found."""
        return Outcome(self.witness, None if self.witness is not None else self.doubt, self.progress())

    def begin(self) -> None:
        """The whole box, once for each clause."""
        clause = torch.arange(len(self.root.clauses), device=self.root.device)
        signs = torch.zeros(len(clause), self.root.kinks, dtype=torch.int8, device=self.root.device)
        known = self.root.known.float()
        if not bool(self.loose.any()):  # nothing to split: the box itself is a leaf
            self.domains = len(clause)
            unbounded = known.new_zeros(len(clause), 0)
            return self.decide(Domains(clause, signs, known, unbounded, unbounded))
        dual = self.root.dual(signs, clause)
        return self.frontier.push(self._climb(dual, dual.best_start(), self.policy.root, clause, signs).open(known))

    def bound(self, parents: Domains, children: Children) -> Domains:
        """Bound children from their parents' variables; those that are not closed are left."""
        clause, signs = parents.clause[children.parent], children.signs
        dual = self.root.dual(signs, clause)
        start = parents.warm[children.parent].float().unsqueeze(1)
        dual.project(start)
        found = self._climb(dual, start, self.policy.ascent, clause, signs)
        return found.open(parents.lower[children.parent])

    def _climb(
        self, dual: ConjunctionDual, start: Tensor, ascent: Ascent, clause: Int[Tensor, " D"], signs: Tensor
    ) -> Domains:
        """Bounds of domains: +inf where they are closed, else at most 0, or NaN."""
        best = ascent.run(dual, start, replace(self.until, threshold=self.margin))
        at = dual.evaluate(best.point)
        self.domains += len(signs)
        self.batches += 1
        self.iterations += best.iterations
        lower = torch.fmax(best.lower, at.lower)[:, 0]  # an ascent that time cut short may know nothing
        closed = self._certified(best.point, lower, clause, signs)
        self._offer(at.x0[:, 0], lower, clause, closed)
        lower = torch.where(closed, torch.inf, lower.clamp(max=0.0))
        scores = self.policy.brancher.scores(dual.slopes.sweep, at.trace).nan_to_num(0.0).clamp(min=0.0)
        # What may be split is decided by the signs: in float32 a tiny ambiguous neuron can look stable.
        scores = torch.where((signs == 0) & self.loose, scores, -1.0)
        warm = best.point[:, 0].nan_to_num(0.0).clamp(max=HALF_MOST)
        return Domains(clause, signs, lower, warm.half(), scores.half())

    def _certified(
        self, point: Float[Tensor, "D 1 V"], lower: Float[Tensor, " D"], clause: Tensor, signs: Tensor
    ) -> Tensor:
        """Which domains are closed: the float64 bound of their variables is above zero.

        Where float32 was too optimistic, later ascents get a margin for it; else they would stop too early for ever.
        """
        closed = torch.zeros_like(lower, dtype=torch.bool)
        candidates = torch.nonzero(lower > 0).flatten()
        for rows in candidates.split(128) if len(candidates) else ():
            dual = self.root.dual(signs[rows], clause[rows], torch.float64)
            variables = point[rows].double()
            dual.project(variables)
            proved = dual.evaluate(variables).lower[:, 0]
            closed[rows] = proved > 0
            excess = torch.where(closed[rows], 0.0, lower[rows] - proved).nan_to_num(0.0, 0.0, 0.0)
            self.margin = max(self.margin, 2 * float(excess.max()))
        return closed

    def _offer(self, x0: Tensor, lower: Tensor, clause: Tensor, closed: Tensor) -> None:
        """Hand the minimisers of the worst domains to the falsifier."""
        open_rows = torch.nonzero(~closed).flatten()
        if not len(open_rows) or self.witness is not None:
            return
        worst = open_rows[lower[open_rows].topk(min(self.policy.offers, len(open_rows)), largest=False).indices]
        numbers = torch.tensor([self.root.clauses[i] for i in clause[worst].tolist()])
        self.witness = self.offer(x0[worst], numbers)

    def is_open(self, signs: Int8[Tensor, "D A"]) -> Bool[Tensor, " D"]:
        """Which domains still have an ambiguous kink."""
        return ((signs == 0) & self.loose).any(dim=1)

    def decide(self, leaves: Domains) -> None:
        """Solve domains without ambiguous kinks that their bounds have not closed."""
        for signs, clause, lower in zip(leaves.signs, leaves.clause.tolist(), leaves.lower.tolist(), strict=True):
            if self.witness is None:
                self._leaf(signs, clause, lower)

    def _leaf(self, signs: Int8[Tensor, " A"], clause: int, known: float) -> None:
        """Close a domain without ambiguous kinks, or find a witness in it, or say why neither was possible."""
        if self.until.expired():
            return self._leave(Reason.TIMEOUT, known)
        self.leaves += 1
        leaf = solve_leaf(self.root, signs, clause, self.until)
        if leaf.lower > 0:
            return None
        if leaf.x0 is not None:
            number = torch.tensor([self.root.clauses[clause]])
            self.witness = self.offer(leaf.x0.unsqueeze(0).float(), number)
        if self.witness is None:
            reason = Reason.TIMEOUT if self.until.expired() else Reason.NUMERICS
            self._leave(reason, max(leaf.lower, known))
        return None

    def _leave(self, reason: Reason, lower: float) -> None:
        """A leaf stays undecided.  A lack of time outweighs doubt: with more of it the answer might be another."""
        self.doubt = Reason.TIMEOUT if Reason.TIMEOUT in (reason, self.doubt) else reason
        self.undecided = min(self.undecided, lower)
