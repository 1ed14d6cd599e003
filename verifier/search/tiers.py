"""The rungs of the ladder of bounds: how a tier bounds a batch of domains, and how what it found is proved.

A `Tier` is its options; `Tier.climber` makes the object that works on one problem.  Its variables travel with the
domains: a child starts where its parent ended.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verifier.bounding.core.base import Objective, Until
from verifier.bounding.core.closing import closes, crossed
from verifier.bounding.core.sweep import Sweep, Trace
from verifier.search.signs.root import Batch, Root
from verifier.shapes import Bool, Float, Int, Tensor

CLOSE_TOGETHER = 128
"""How many domains are proved at once: float64 takes twice the memory."""


Kept = Sequence[Int[Tensor, " _"]]


class Evidence(ABC):
    """What closes domains: all that is needed to compute their bounds again, apart from the problem itself."""

    @abstractmethod
    def select(self, rows: Tensor) -> Evidence:
        """The evidence for some of the domains."""

    @abstractmethod
    def lower(self, batch: Batch) -> Float[Tensor, " D"]:
        """Rigorous lower bounds in float64; -inf where there is none."""

    def closed(self, batch: Batch) -> Bool[Tensor, " D"]:
        """Which domains hold no counterexample."""
        return closes(self.lower(batch))


@dataclass(frozen=True, eq=False)
class Crossed(Evidence):
    """The bounds of a hidden neuron contradict each other: the domains are empty, whatever the rows say."""

    def select(self, rows: Tensor) -> Crossed:
        return self

    def lower(self, batch: Batch) -> Float[Tensor, " D"]:
        return torch.full((len(batch),), -torch.inf, dtype=torch.float64, device=batch.root.device)

    def closed(self, batch: Batch) -> Bool[Tensor, " D"]:
        return crossed(*batch.cut()).any(dim=1)


@dataclass(frozen=True, eq=False)
class Computed(Evidence):
    """Bounds that were computed in float64 at once."""

    found: Float[Tensor, " D"]

    def select(self, rows: Tensor) -> Computed:
        return Computed(self.found[rows])

    def lower(self, batch: Batch) -> Float[Tensor, " D"]:
        return self.found


@dataclass(frozen=True, eq=False)
class Climbed:
    """Bounds of a batch: in the precision of the search, and with what would prove them."""

    lower: Float[Tensor, " D"]
    x0: Float[Tensor, "D n0"]  # where the relaxation attains its bound
    variables: Float[Tensor, "D V"]  # what children start from
    evidence: Evidence
    sweep: Sweep
    objective: Objective
    trace: Trace  # of one backward sweep, for branching
    iterations: int
    masks: Int[Tensor, " D"]  # the rows of cuts that children inherit


class Climber(ABC):
    """A bounding method at work on the domains of one problem."""

    name: str
    iterations: int  # on each domain of the tree
    width: int  # no domain has more variables

    @abstractmethod
    def begin(self, whole: Batch, below: Climbed | None, until: Until) -> Climbed:
        """Bound all clauses on their whole boxes; `below` is what the tier below found there."""

    @abstractmethod
    def climb(self, batch: Batch, start: Float[Tensor, "D V"], until: Until) -> Climbed:
        """Bound domains from the variables of their parents."""

    @abstractmethod
    def probe(self, batch: Batch, start: Float[Tensor, "D V"]) -> Float[Tensor, " D"]:
        """Cheap bounds from given variables, for trying out splits."""

    @abstractmethod
    def adopt(self, batch: Batch, variables: Float[Tensor, "D V"], below: Climber) -> Float[Tensor, "D V"]:
        """Variables of the tier below as a start for this one."""

    def transplanted(self, variables: Float[Tensor, "D V"], before: Climber, kept: Kept) -> Float[Tensor, "D W"] | None:
        """Variables of a search with looser bounds of hidden neurons as a start for this one; None if there is no way.

        `kept` are the kinks of each group that are still kinks here, as places among those of `before`.
        """
        return None


class Tier(ABC):
    """A rung of the ladder: a bounding method with its options."""

    @property
    @abstractmethod
    def name(self) -> str: ...

    @abstractmethod
    def climber(self, root: Root) -> Climber: ...
