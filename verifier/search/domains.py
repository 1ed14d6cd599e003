"""Subproblems as structs of arrays, and how far a search of them is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import TypeVar

from verifier.bounding.core.state import State
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason, Verdict
from verifier.search.look import Look
from verifier.shapes import Float, Int, Int8, Tensor

Offer = Callable[[Tensor, Tensor], Counterexample | None]
"""Tries points [P, n0] for clauses [P] (numbers of the property): the falsifier."""


@dataclass(frozen=True, eq=False)
class Domains(State):
    """A batch of subproblems: every field is a tensor whose first axis counts them.  No Python object per domain.

    `number` names the domain: it is unique in all searches and processes that share a journal.  `clause` counts the
    clauses that are searched; `lower` is the best bound known, without regard to rounding; `tier` says how the domain's
    children are bounded.
    """

    number: Int[Tensor, " D"]
    clause: Int[Tensor, " D"]
    lower: Float[Tensor, " D"]
    depth: Int[Tensor, " D"]
    tier: Int8[Tensor, " D"]

    def __len__(self) -> int:
        return len(self.number)

    @property
    def bytes_each(self) -> int:
        """The memory of one domain."""
        arrays = (getattr(self, f.name) for f in fields(self))
        return sum(array[:1].numel() * array.element_size() for array in arrays) if len(self) else 1


DomainsT = TypeVar("DomainsT", bound=Domains)


@dataclass(frozen=True)
class Counts:
    """What has been done: every subproblem counts once, under the tier that bounded it or as an exact leaf."""

    tiers: dict[str, int] = field(default_factory=dict)
    leaves: int = 0
    batches: int = 0
    iterations: int = 0
    seconds: float = 0.0  # inside of bounding calls and linear programs
    looks: tuple[Look, ...] = ()

    @property
    def domains(self) -> int:
        return sum(self.tiers.values()) + self.leaves

    def __add__(self, other: Counts) -> Counts:
        names = {**self.tiers, **other.tiers}
        return Counts(
            {name: self.tiers.get(name, 0) + other.tiers.get(name, 0) for name in names},
            self.leaves + other.leaves,
            self.batches + other.batches,
            self.iterations + other.iterations,
            self.seconds + other.seconds,
            self.looks + other.looks,
        )

    def __sub__(self, other: Counts) -> Counts:
        """Without what another one has counted too."""
        less = Counts(
            {name: -count for name, count in other.tiers.items()},
            -other.leaves,
            -other.batches,
            -other.iterations,
            -other.seconds,
        )
        return replace(self + less, looks=self.looks[len(other.looks) :])


@dataclass(frozen=True)
class Progress:
    """How far a search is: counters, the domains that wait, and the worst bound among all that is not closed.

    `lower` is what the search knows in float32; +inf says that everything is closed.  `left` is the share of the tree
    that waits, if every split halves a domain.
    """

    counts: Counts = Counts()
    open: int = 0
    max_open: int = 0
    lower: float = float("inf")
    left: float = 0.0

    @property
    def domains(self) -> int:
        return self.counts.domains

    def __add__(self, other: Progress) -> Progress:
        """This search is over, and another one follows it."""
        return Progress(
            self.counts + other.counts,
            other.open,
            max(self.max_open, other.max_open),
            min(self.lower, other.lower),
            other.left,
        )

    def beside(self, other: Progress) -> Progress:
        """This search and one of another part of the same tree."""
        return Progress(
            self.counts + other.counts,
            self.open + other.open,
            self.max_open + other.max_open,
            min(self.lower, other.lower),
            self.left + other.left,
        )

    def waiting(self, lower: float) -> Progress:
        """The same, while something else with that bound has not begun."""
        return replace(self, lower=min(self.lower, lower))


@dataclass(frozen=True)
class Outcome:
    """The end of a search: a witness, a reason for being undecided, or neither (all domains are closed).

    `claimed` is what a solver without proofs says; it decides nothing.
    """

    witness: Counterexample | None
    reason: Reason | None
    progress: Progress
    claimed: Verdict | None = None


def outweighed(one: Reason | None, other: Reason | None) -> Reason | None:
    """Which of two reasons to tell: a lack of time outweighs doubt, because with more of it the answer might differ."""
    return Reason.TIMEOUT if Reason.TIMEOUT in (one, other) else one or other
