"""What searches leave behind, so that another run of the same instance can go on where they were.

Plain values and tensors, no objects at work: `verifier.search.codec` makes bytes of them.  Every kind of search has its
own form; what has none begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from verifier.bounding.clauses import ClauseBounds
from verifier.bounding.core.ball import InputBall
from verifier.bounding.core.base import Region
from verifier.bounding.core.state import State
from verifier.errors import InputError
from verifier.property.problem import Problem
from verifier.result.verdict import Reason
from verifier.search.domains import Counts, Domains, Progress, outweighed
from verifier.shapes import Float, Tensor

Members = tuple[int, tuple[int, ...]]
"""A box and those of its clauses that are open."""


@dataclass(frozen=True)
class Keeping:
    """How a run keeps what it needs to be continued: how often, and how much of what only saves time."""

    seconds: float = 30.0  # between two checkpoints, at least
    room: int = 64 * 2**20  # bytes of each process for the variables that children start from

    def among(self, processes: int) -> Keeping:
        """The same for each of several processes."""
        return Keeping(self.seconds, self.room // max(1, processes))


@dataclass(frozen=True, eq=False)
class SavedRegion:
    """Boxes with the bounds of their hidden neurons, in float64 to the last digit."""

    lower: Float[Tensor, "N n0"]
    upper: Float[Tensor, "N n0"]
    l_hat: tuple[Float[Tensor, "N _"], ...]
    u_hat: tuple[Float[Tensor, "N _"], ...]

    @classmethod
    def of(cls, region: Region) -> SavedRegion:
        return cls(region.lower, region.upper, region.l_hat, region.u_hat)

    def regions(self, problem: Problem) -> list[Region]:
        """Each box by itself (D = 1), on the device of the problem.  Raises InputError if the sizes are others."""
        net, device = problem.network, problem.lower.device
        widths = [low.shape[1] for low in self.l_hat]
        if self.lower.shape[1] != net.n_in or widths != [group.size for group in net.groups][: len(widths)]:
            raise InputError("the checkpoint does not fit this network: it has other groups of neurons")
        functions = tuple(group.function for group in net.groups[: len(widths)])
        found = []
        for row in range(len(self.lower)):
            at = slice(row, row + 1)
            lower, upper = self.lower[at].to(device), self.upper[at].to(device)
            low, high = (tuple(end[at].to(device) for end in ends) for ends in (self.l_hat, self.u_hat))
            ball = InputBall.of(problem.property.ball, lower)
            found.append(Region(lower, upper, low, high, functions, ball=ball))
        return found


@dataclass(frozen=True, eq=False)
class SavedRoot:
    """What the bounds of the root told: which clauses are closed, and what the search begins with."""

    lower: Float[Tensor, " clauses"]
    boxes: tuple[int, ...]
    regions: tuple[SavedRegion, ...]

    @classmethod
    def of(cls, found: ClauseBounds) -> SavedRoot:
        return cls(found.lower, tuple(found.regions), tuple(map(SavedRegion.of, found.regions.values())))

    def found(self, problem: Problem) -> ClauseBounds:
        """The bounds again, without the points of the relaxation.  Raises InputError if they are of another problem."""
        if len(self.lower) != len(problem.rows) or not all(0 <= box < len(problem.lower) for box in self.boxes):
            raise InputError("the checkpoint does not fit this property: it has other clauses or boxes")
        regions = [saved.regions(problem)[0] for saved in self.regions]
        return ClauseBounds(self.lower.to(problem.lower.device), {}, dict(zip(self.boxes, regions, strict=True)))


@dataclass(frozen=True, eq=False)
class Saved:
    """What a search needs to go on."""


@dataclass(frozen=True, eq=False)
class SavedPart:
    """A part of a tree that is not closed: domains in the form that their space keeps, in disjoint sets.

    Guarantee: whatever the part held when it was taken is closed, in `domains`, or counted as undecided.  `ahead` is
    what has been done for descendants of these domains and told already: it will be done, and told, again.
    """

    domains: tuple[State, ...]
    doubt: Reason | None = None
    undecided: float = float("inf")
    ahead: Counts = field(default_factory=Counts)

    @classmethod
    def joined(cls, parts: Sequence[SavedPart]) -> SavedPart:
        """Disjoint parts as one.  Require: at least one."""
        doubt, ahead = None, Counts()
        for part in parts:
            doubt, ahead = outweighed(doubt, part.doubt), ahead + part.ahead
        together = tuple(some for part in parts for some in part.domains)
        return cls(together, doubt, min(part.undecided for part in parts), ahead)


@dataclass(frozen=True, eq=False)
class SavedTree(Saved):
    """A tree: what is not closed, what was done for all the rest, and what its space is made of.

    `boxes` has the bounds of the boxes that signs belong to, `clauses` those of each box; of boxes of the input nothing
    is needed.
    """

    part: SavedPart
    counts: Counts
    most: int
    boxes: SavedRegion | None = None
    clauses: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, eq=False)
class SavedSharpening(Saved):
    """A tree of signs with the bounds that it uses now; the stages before `stage` are done."""

    tree: SavedTree
    stage: int
    wait: float


@dataclass(frozen=True, eq=False)
class SavedSlices(Saved):
    """A tree of signs over slices of boxes, and what was done before."""

    tree: SavedTree
    before: Progress


@dataclass(frozen=True, eq=False)
class SavedRunner:
    """One of the searches of a race; without a search it begins anew, unless it has ended."""

    search: Saved | None
    spent: float
    progress: Progress
    ended: bool


@dataclass(frozen=True, eq=False)
class SavedRace(Saved):
    """All searches of a race, in their order."""

    runners: tuple[SavedRunner, ...]
    seconds: float
    reason: Reason
    allowed: float


@dataclass(frozen=True, eq=False)
class SavedGroups(Saved):
    """Groups of boxes that are not done, with their open clauses; the search of the first one, if it has begun."""

    groups: tuple[tuple[Members, ...], ...]
    now: Saved | None
    done: Progress
    doubt: Reason | None


def open_numbers(saved: Saved | None) -> list[int]:
    """The numbers of all domains with which a search goes on."""
    match saved:
        case SavedTree(part=part):
            return [number for domains in part.domains for number in cast("Domains", domains).number.tolist()]
        case SavedSharpening(tree=tree) | SavedSlices(tree=tree):
            return open_numbers(tree)
        case SavedRace(runners=runners):
            return [number for runner in runners for number in open_numbers(runner.search)]
        case SavedGroups(now=now):
            return open_numbers(now)
    return []
