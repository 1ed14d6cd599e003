"""Small instances for the search, with exact answers from the oracle, which shares no code with the package."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import networks
import numpy as np
import oracle
import torch
from falsify import instances

from verifier.bounding.clauses import ClauseBounder, ClauseBounds
from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Until
from verifier.bounding.hidden import RootBounds
from verifier.bounding.solvers.big_m import BigM
from verifier.clock import Clock
from verifier.falsify.base import Falsifier
from verifier.network.network import Network
from verifier.property.problem import Problem
from verifier.property.property import ExactRow
from verifier.result.counterexample import Counterexample
from verifier.search import rungs
from verifier.search.domains import Domains, DomainsT, Offer, Outcome, Progress
from verifier.search.ladder import Ladder
from verifier.search.loop import BranchAndBound, Limits, Report, run
from verifier.search.offers import Offers
from verifier.search.problem import ProblemSearch, Splitting
from verifier.search.signs.root import Batch, Root
from verifier.search.signs.space import Policy, SignSpace
from verifier.search.space import Space
from verifier.search.tiers import Tier
from verifier.shapes import Float, Tensor

STILL = Ascent(0, Steps(0.1, 0.1))
"""No ascent at all: bounds close little, so that much depends on splits and leaves."""

GAP = 1e-3
"""How far thresholds are from exact minima."""

CUTS = rungs.cuts(Ascent(12, Steps(0.2, 0.02)), Ascent(6, Steps(0.1, 0.02)), (0.5,), Ascent(10, Steps(0.05, 0.02)))
BIG_M = rungs.multipliers("big_m", BigM(Ascent(12, Steps(0.1, 0.01))), 12)

UNIT = instances.boxes([[-1]], [[1]])

Box = tuple[np.ndarray, np.ndarray]


def small_dense(seed: int) -> Network:
    """A chain whose depth and widths depend on the seed."""
    rng = np.random.default_rng(seed)
    widths = [int(rng.integers(3, 7)) for _ in range(int(rng.integers(1, 4)))]
    return networks.dense(seed, (int(rng.integers(2, 5)), *widths, 2))


FAMILIES: dict[str, Callable[[int], Network]] = {
    "dense": small_dense,
    "conv": networks.conv,
    "residual": networks.residual,
}


MODERATE = [("dense", 10), ("conv", 5), ("residual", 0)]
"""Networks over which clauses of (3, 1) rows on two boxes grow trees of some ten narrow batches, by signs and boxes."""

EASY_OR_HARD = [(family, seed) for family in FAMILIES for seed in (1, 3)]
"""Others, with trees that end at once or are ten times as large."""


@dataclass(frozen=True, eq=False)
class Claim:
    """One clause in floats: A y + B x <= c on box number `box`; `least` is the exact minimum of its largest row."""

    box: int
    A: np.ndarray
    B: np.ndarray | None
    c: np.ndarray
    least: float

    def rows(self, margin: float) -> list[ExactRow]:
        """The rows, moved so that the minimum is `margin`."""
        moved = self.c + (self.least - margin)
        return [
            instances.row(terms(a), bound, {} if self.B is None else terms(self.B[i]))
            for i, (a, bound) in enumerate(zip(self.A, moved.tolist(), strict=True))
        ]


@dataclass(frozen=True, eq=False)
class Case:
    net: Network
    boxes: tuple[Box, ...]
    claims: tuple[Claim, ...]

    def problem(self, margins: Sequence[float]) -> Problem:
        """The instance in which the largest row of clause k has the exact minimum margins[k], up to rounding."""
        sides = ([side.tolist() for side in each] for each in zip(*self.boxes, strict=True))
        made = [(claim.box, claim.rows(margin)) for claim, margin in zip(self.claims, margins, strict=True)]
        return instances.problem(self.net, instances.boxes(*sides), made)


def terms(row: np.ndarray) -> dict[int, object]:
    return {i: value for i, value in enumerate(row.tolist()) if value}


def twin(net: Network) -> oracle.Dag:
    """The same network as dense matrices of numpy."""

    def matrix(term: object) -> np.ndarray:
        return term.forward(torch.eye(term.n_in, dtype=torch.float64)).T.numpy()  # type: ignore[attr-defined]

    nodes = [
        (tuple(j for j, _ in layer.terms), tuple(matrix(w) for _, w in layer.terms), layer.bias.numpy())
        for layer in net.layers
    ]
    return oracle.dag(net.n_in, nodes)


def random_case(family: str, seed: int, counts: Sequence[int], mixed: bool = False, boxes: int = 1) -> Case:
    """Random clauses with the given numbers of rows on one or several boxes; `mixed` rows look at the input too.

    The last row of a mixed clause with several rows does not look at the output at all.
    """
    return _random_case(family, seed, tuple(counts), mixed, boxes)


@cache
def _random_case(family: str, seed: int, counts: tuple[int, ...], mixed: bool, boxes: int) -> Case:
    """Exact minima take a moment, and nobody changes a case."""
    net, rng = (networks.FAMILIES | FAMILIES)[family](seed), np.random.default_rng(seed)
    radius = {"dense": 1.6, "conv": 0.28, "residual": 0.6, "unread": 0.6}[family]
    lower, upper = (side.numpy() for side in networks.box(net, seed, radius, boxes))
    claims = []
    for k, m in enumerate(counts):
        A, c = rng.normal(size=(m, net.n_out)), 0.3 * rng.normal(size=m)
        B = 0.4 * rng.normal(size=(m, net.n_in)) if mixed else None
        if mixed and m > 1:
            A[-1] = 0.0
        box = lower[k % boxes], upper[k % boxes]
        least = oracle.minimum_of_max(twin(net), box, A, c, B)
        claims.append(Claim(k % boxes, A, B, c, least.value))
    return Case(net, tuple(zip(lower, upper, strict=True)), tuple(claims))


def slopes(first: Ascent, ascent: Ascent) -> Ladder:
    """A single tier."""
    return Ladder((rungs.slopes(first, ascent),))


def long(first: Ascent, ascent: Ascent) -> Tier:
    """A tier with the same bounds after more steps."""
    return replace(rungs.slopes(first, ascent), name="long")


def narrow(batch: int) -> Policy:
    """Batches of at most that many children, one level at a time; short ascents."""
    return Policy(slopes(Ascent(15, Steps(0.2, 0.02)), Ascent(6, Steps(0.1, 0.03))), batch=batch, fill=1)


def wedge(offset: float = 0.25) -> Network:
    """y = |x - offset|."""
    hidden = instances.layer("hidden", 0, [[1.0], [-1.0]], [-offset, offset])
    return Network((1,), (hidden,), instances.layer("out", 1, [[1.0, 1.0]], [0.0]))


def hard(margin: float = 1e-3, rows: int = 3) -> Problem:
    """More than a hundred domains with the default policy."""
    return random_case("residual", 1, (rows,)).problem([margin])


def decide(
    problem: Problem,
    policy: Policy | None = None,
    falsifier: Falsifier | None = None,
    limits: Limits | None = None,
    clock: Clock | None = None,
    bounded: bool = False,
) -> Outcome:
    """The answer of the tree of signs; without `bounded` it gets no help from bounds of single rows."""
    found = unbounded(problem)
    if bounded:
        found = ClauseBounder().bound(problem, Until())
    whole = ProblemSearch(policy or Policy(), limits or Limits(), falsifier=falsifier, splitting=Splitting.RELUS)
    return whole.run(problem, found, instances.target(problem), clock or Clock.begin(120), ignore)


def unbounded(problem: Problem) -> ClauseBounds:
    """Nothing is known of any clause."""
    return ClauseBounds(torch.full((len(problem.rows),), -torch.inf, dtype=torch.float64), {}, {})


def ignore(progress: Progress) -> None:
    """Nobody listens."""


def nobody(x: torch.Tensor, clauses: torch.Tensor) -> Counterexample | None:
    """A falsifier that never finds anything."""


def grow(
    root: Root,
    policy: Policy | None = None,
    offer: Offer = nobody,
    limits: Limits | None = None,
    until: Until | None = None,
    report: Report = ignore,
) -> Outcome:
    """The tree of signs over one root; without an offer nothing is confirmed."""
    until = until or Until()
    space = SignSpace(root, policy or Policy(), until, offer)
    return run(BranchAndBound(space, limits or Limits()), until, report)


def begun(space: Space[DomainsT, Any, Any, Any], steps: int = 1) -> DomainsT:
    """What is open after so many steps."""
    tree = BranchAndBound(space, Limits())
    for _ in range(steps):
        if tree.outcome is None:
            tree.step()
    waiting = tree.waiting()
    assert waiting is not None
    return waiting


def expanded(space: Space[DomainsT, Any, Any, Any], parents: DomainsT) -> DomainsT:
    """What is open of the children of domains."""
    left = space.certify(space.bound(space.tighten(space.split(parents))))
    return space.open(left, space.leaves(left))


def root_of(problem: Problem, *boxes: int) -> Root:
    """What the domains of these boxes (all if none is named) share, with all of their clauses."""
    named = boxes or range(len(problem.lower))
    regions = [
        RootBounds().region(problem.network, problem.lower[b : b + 1], problem.upper[b : b + 1], Until()) for b in named
    ]
    return Root.of(problem, regions, [problem.clauses_of[b] for b in named])


def unsigned(root: Root) -> Root:
    """The same without the signs that clauses imply, so that there is something to split."""
    return replace(root, implied=torch.zeros_like(root.implied))


def domains_of(root: Root, signs: torch.Tensor, clause: int | torch.Tensor = 0) -> Batch:
    """Domains with these signs, all of one clause or each of its own."""
    clauses = torch.full((len(signs),), clause) if isinstance(clause, int) else clause
    return Batch(root, clauses, signs.to(torch.int8))


def patterns(kinks: int) -> torch.Tensor:
    """All sign vectors of that length, int8."""
    return torch.tensor(list(itertools.product((-1, 1), repeat=kinks)), dtype=torch.int8)


def signs_at(root: Root, x: torch.Tensor) -> torch.Tensor:
    """The signs of all kinks at points [P, n0]; a kink at exactly zero is 0."""
    return values_at(root, x).sign().to(torch.int8)


def values_at(root: Root, x: torch.Tensor) -> torch.Tensor:
    """x_hat of all kinks at points [P, n0]."""
    x_hat = root.net.preactivations(x)[:-1]
    parts = [values[:, index] for values, index in zip(x_hat, root.indices, strict=True)]
    return torch.cat(parts, dim=1)


def inside(signs: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
    """Which points [P], given by their signs [P, A], belong to the domain with signs [A]."""
    return ((signs == 0) | (at == 0) | (signs == at)).all(dim=1)


class Late(Clock):
    """Expires after some looks at it, so that time can run out anywhere in a search."""

    def __init__(self, looks: int) -> None:
        super().__init__(time.monotonic())
        object.__setattr__(self, "looks", iter(range(looks)))

    def expired(self) -> bool:
        return next(self.looks, None) is None  # type: ignore[attr-defined]


class Hours:
    """Stands for the module `time`: a clock that stands still unless somebody works."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def perf_counter(self) -> float:
        return self.now


@dataclass(frozen=True, eq=False)
class Named(Domains):
    """Domains whose fields all say which one they are."""

    name: Float[Tensor, "D 4"]


def domains(
    lower: list[float], first: int = 0, depths: list[int] | None = None, tiers: list[int] | None = None
) -> Named:
    number = torch.arange(first, first + len(lower))
    depth = torch.tensor(depths or [0] * len(lower), dtype=torch.long)
    tier = torch.tensor(tiers or [0] * len(lower), dtype=torch.int8)
    name = (number % 1000).half()[:, None].repeat(1, 4)
    return Named(number, number % 7, torch.tensor(lower), depth, tier, name)


EACH = domains([0.0]).bytes_each


def some_witness() -> Counterexample:
    """A real one: there are no others."""
    rows = [(0, [instances.row({0: 1}, 1)])]
    problem = instances.problem(instances.identity(1), instances.boxes([[0]], [[1]]), rows)
    target = instances.target(problem)
    found = Offers(None, target, Clock.begin())(torch.zeros(1, 1), torch.zeros(1, dtype=torch.long))
    assert found is not None
    return found
