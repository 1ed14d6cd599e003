"""What a way to split problems must be able to do: the steps of branch and bound, one method each."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar, cast

import torch

from verifier.bounding.core.state import State
from verifier.clock import Stopwatch
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.domains import DomainsT, outweighed
from verifier.search.journal import Journal, Superseded, Undecided
from verifier.search.saved import SavedRegion
from verifier.shapes import Bool, Int, Tensor


@dataclass(frozen=True, eq=False)
class Recipe:
    """How a space is made."""


ChildrenT = TypeVar("ChildrenT")
BoundedT = TypeVar("BoundedT")


@dataclass(frozen=True, eq=False)
class Remaining:
    """What is left of the domains of one step; `number` lists all of them, also those that are closed."""

    number: Int[Tensor, " D"]
    iterations: int


RemainingT = TypeVar("RemainingT", bound=Remaining)


@dataclass(frozen=True, eq=False)
class Leaves:
    """What became of domains that are not split any more, and which they were (None: there were none).

    What could not be decided at all and never will be is only counted: `doubt` says why, `undecided` is the worst bound
    among it.
    """

    rows: Bool[Tensor, " D"] | None = None
    witness: Counterexample | None = None
    doubt: Reason | None = None
    undecided: float = float("inf")


class Space(ABC, Generic[DomainsT, ChildrenT, BoundedT, RemainingT]):
    """A way to split a problem: by the signs of ReLUs, or by boxes of the input.

    Guarantee: a child that is neither open in the end nor counted as undecided holds no counterexample, proved in
    float64 with all rounding errors.  The journal hears what happens to every domain.
    """

    journal: Journal
    bounding: Stopwatch  # runs inside of bounding calls and linear programs

    def _numbers(self, count: int, device: torch.device) -> Int[Tensor, " D"]:
        """Numbers for new domains."""
        new = self.journal.numbers(count)
        return torch.arange(new.start, new.stop, device=device)

    def _doubtful(self, number: int, decided: Leaves, reason: Reason, lower: float) -> Leaves:
        """With one more leaf that stays undecided."""
        self.journal.hear(Undecided(number, reason))
        doubt, undecided = outweighed(decided.doubt, reason), min(decided.undecided, lower)
        return replace(decided, doubt=doubt, undecided=undecided)

    @property
    @abstractmethod
    def roots(self) -> int:
        """How many domains the whole problem is."""

    @property
    @abstractmethod
    def parents(self) -> int:
        """How many domains `split` wants at most."""

    @abstractmethod
    def whole(self) -> ChildrenT:
        """The whole problem."""

    @abstractmethod
    def split(self, parents: DomainsT) -> ChildrenT:
        """Children that cover their parents.  Require: all parents have the same tier."""

    def tighten(self, children: ChildrenT) -> ChildrenT:
        """The same with better bounds of hidden neurons, where that is worth its time."""
        return children

    @abstractmethod
    def bound(self, children: ChildrenT) -> BoundedT:
        """Lower bounds of the rows, in the precision of the search."""

    @abstractmethod
    def certify(self, bounded: BoundedT) -> RemainingT:
        """What is left when all that can be proved is closed."""

    @abstractmethod
    def attack(self, left: RemainingT) -> Counterexample | None:
        """Tries points of what is left."""

    @abstractmethod
    def leaves(self, left: RemainingT) -> Leaves:
        """Decides what need not or cannot be split any more."""

    @abstractmethod
    def open(self, left: RemainingT, leaves: Leaves) -> DomainsT:
        """What must be split further."""

    def adopt(self, domains: DomainsT, begun: DomainsT, before: Space[DomainsT, Any, Any, Any]) -> DomainsT:
        """What to go on with: open domains of `before`, a space with looser bounds, or those that this one began with.

        Guarantee: what is left out holds no counterexample, or is covered by what is not.
        """
        self.journal.hear(Superseded(domains.number, self.covering(domains)))
        return begun

    def kept(self, domains: DomainsT, room: int) -> State:
        """Open domains as another run wants them; `room` is for what only saves time, in bytes."""
        return domains

    def basis(self) -> tuple[SavedRegion | None, tuple[tuple[int, ...], ...]]:
        """What another run needs to make this space again: boxes with their bounds, and the clauses of each."""
        return None, ()

    def recipe(self) -> Recipe:
        """What another process needs to make this space for the same problem."""
        raise NotImplementedError(f"{type(self).__name__} is not made anywhere else")

    def begin_again(self, kept: Sequence[State]) -> list[DomainsT]:
        """Take the place of a space that was made of the same basis, and go on with domains that it kept.

        Require: nothing was asked of this space yet.  Guarantee: the same domains; the journal hears nothing.
        """
        return [cast("DomainsT", domains) for domains in kept]

    @abstractmethod
    def covering(self, domains: DomainsT) -> Int[Tensor, " D"]:
        """The numbers of the whole domains of this space that cover domains of another one."""
