"""Branch and bound over the signs of ReLUs.

The main loop is `search`; what it decides about single domains is injected by `Policy`.  A domain is closed only by
`_certified`, on the float64 evaluation of its variables with all rounding errors subtracted, or by an exact leaf.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

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
from verifier.shapes import Float, Int, Tensor

Offer = Callable[[Tensor, Tensor], Counterexample | None]
"""Tries points [P, n0] for clauses [P] (numbers of the property): the falsifier."""

Report = Callable[["Progress"], None]


@dataclass(frozen=True)
class Policy:
    """How domains are bounded, split and queued."""

    root: Ascent = field(default_factory=lambda: Ascent(60, Steps(0.2, 0.01)))
    ascent: Ascent = field(default_factory=lambda: Ascent(20, Steps(0.1, 0.02)))
    brancher: Brancher = field(default_factory=Intercept)
    batch: int = 256
    memory_bytes: int = 2 * 2**30
    offers: int = 8  # minimisers handed to the falsifier after each batch
    max_domains: int | None = None


@dataclass(frozen=True)
class Progress:
    """How far a search is: counters, the domains that wait, and the worst bound among them."""

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
            other.lower,
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
    run.place(run.start())
    while run.frontier.open and run.witness is None:
        if (reason := run.must_stop()) is not None:
            return Outcome(None, reason, run.progress())
        parents = run.frontier.pop(max(1, policy.batch // 2))
        children = split(parents, policy.batch)
        leaves = ~run.is_open(children)
        run.decide_leaves(parents, children.select(leaves))
        run.place(run.bound(parents, children.select(~leaves)))
        report(run.progress())
    if run.witness is None and run.doubtful:
        return Outcome(None, Reason.NUMERICS, run.progress())
    return Outcome(run.witness, None, run.progress())


class _Run:
    """The state of one search: the frontier, counters, and what was found."""

    def __init__(self, root: Root, policy: Policy, until: Until, offer: Offer) -> None:
        self.root, self.policy, self.until, self.offer = root, policy, until, offer
        low, high = root.bounds()
        self.loose = (low < 0) & (high > 0)
        each = root.kinks * 7 + 16
        self.frontier = Frontier(policy.memory_bytes // each)
        self.witness: Counterexample | None = None
        self.doubtful = 0
        self.domains = self.batches = self.iterations = self.leaves = 0

    def must_stop(self) -> Reason | None:
        if self.until.expired():
            return Reason.TIMEOUT
        most = self.policy.max_domains
        return Reason.LIMIT if most is not None and self.domains >= most else None

    def progress(self) -> Progress:
        open_, most = self.frontier.open, self.frontier.most
        lower = self.frontier.lower()
        return Progress(self.domains, open_, most, self.batches, self.iterations, self.leaves, lower)

    def start(self) -> Domains:
        """The whole box, once for each clause."""
        count = len(self.root.clauses)
        clause = torch.arange(count)
        signs = torch.zeros(count, self.root.kinks, dtype=torch.int8)
        dual = self.root.dual(signs, clause)
        found = self._climb(dual, dual.start(), self.policy.root, clause, signs)
        if not bool(self.loose.any()):  # nothing to split: the box itself is a leaf
            for i in torch.nonzero(found.lower <= 0).flatten().tolist():
                self._leaf(signs[i], i)
            return found.select(found.lower > torch.inf)
        return found

    def bound(self, parents: Domains, children: Children) -> Domains:
        """Bound children from their parents' variables."""
        clause, signs = parents.clause[children.parent], children.signs
        if not len(signs):
            return parents.select(children.parent)
        dual = self.root.dual(signs, clause)
        start = parents.warm[children.parent].float().unsqueeze(1)
        dual.project(start)
        found = self._climb(dual, start, self.policy.ascent, clause, signs)
        inherited = parents.lower[children.parent]
        return Domains(found.clause, found.signs, torch.maximum(found.lower, inherited), found.warm, found.scores)

    def _climb(
        self, dual: ConjunctionDual, start: Tensor, ascent: Ascent, clause: Int[Tensor, " D"], signs: Tensor
    ) -> Domains:
        until = Until(self.until.clock, self.until.memory_bytes, threshold=1e-6)
        best = ascent.run(dual, start, until)
        at = dual.evaluate(best.point)
        self.domains += len(signs)
        self.batches += 1
        self.iterations += best.iterations
        lower = best.lower[:, 0]
        closed = self._certified(best.point, lower, clause, signs)
        self._offer(at.x0[:, 0], lower, clause, closed)
        lower = torch.where(closed, torch.inf, lower.clamp(max=0.0))
        scores = self.policy.brancher.scores(dual.slopes.sweep, at.trace)
        return Domains(clause, signs, lower, best.point[:, 0].half(), scores.half())

    def _certified(
        self, point: Float[Tensor, "D 1 V"], lower: Float[Tensor, " D"], clause: Tensor, signs: Tensor
    ) -> Tensor:
        """Which domains are closed: the float64 bound of their variables is above zero."""
        closed = torch.zeros_like(lower, dtype=torch.bool)
        candidates = torch.nonzero(lower > 0).flatten()
        for rows in candidates.split(128):
            dual = self.root.dual(signs[rows], clause[rows], torch.float64)
            variables = point[rows].double()
            dual.project(variables)
            closed[rows] = dual.evaluate(variables).lower[:, 0] > 0
        return closed

    def _offer(self, x0: Tensor, lower: Tensor, clause: Tensor, closed: Tensor) -> None:
        """Hand the minimisers of the worst domains to the falsifier."""
        open_rows = torch.nonzero(~closed).flatten()
        if not len(open_rows) or self.witness is not None:
            return
        worst = open_rows[lower[open_rows].topk(min(self.policy.offers, len(open_rows)), largest=False).indices]
        numbers = torch.tensor([self.root.clauses[i] for i in clause[worst].tolist()])
        self.witness = self.offer(x0[worst], numbers)

    def place(self, domains: Domains) -> None:
        """Queue what is not closed."""
        self.frontier.push(domains.select(domains.lower < torch.inf))

    def is_open(self, children: Children) -> Tensor:
        """Which children still have an ambiguous kink."""
        return ((children.signs == 0) & self.loose).any(dim=1)

    def decide_leaves(self, parents: Domains, leaves: Children) -> None:
        for i in range(len(leaves.parent)):
            if self.witness is not None or self.until.expired():
                # What was not decided stays open: a leaf has no children, so it is counted as doubtful.
                self.doubtful += int(self.witness is None)
                continue
            self._leaf(leaves.signs[i], int(parents.clause[leaves.parent[i]]))

    def _leaf(self, signs: Tensor, clause: int) -> None:
        self.leaves += 1
        self.domains += 1
        leaf = solve_leaf(self.root, signs, clause, self.until)
        if leaf.lower > 0:
            return
        if leaf.x0 is not None:
            self.witness = self.offer(leaf.x0.unsqueeze(0).float(), torch.tensor([self.root.clauses[clause]]))
        if self.witness is None:
            self.doubtful += 1
