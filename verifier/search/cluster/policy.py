"""Who works on which part of a tree: orders, reports, and what is known of every part at any moment.

Nothing here knows where workers are or how messages travel, nor what a part is.  A worker has one order at a time and
answers it by one report.  It begins with a part, goes on, and gives pieces away while others have nothing to do.

The law: the parts that wait and the parts that workers were last known to have left cover all that is not closed, and
what is committed was done for everything else.  So a worker may be lost at any moment: its part waits again, and what
it has done since it last told what is left is not committed.  Pieces count as given only with the word on what is left
of the part that they come from, in the same report.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from verifier.errors import SoundnessError
from verifier.result.verdict import Reason
from verifier.search.domains import Counts, outweighed

PartT = TypeVar("PartT")

WORTHWHILE = 8
"""Open domains that are worth a worker of their own."""

MOST_PIECES = 8
"""That a worker gives away at a time: with many idle ones, those that got a piece give in turn."""


@dataclass(frozen=True)
class Order(Generic[PartT]):
    """What a worker is to do.  No two orders have the same ticket."""

    ticket: int
    part: PartT | None = None  # with which it begins; None: it goes on with its own
    give: int = 0  # pieces, at once; without any it searches for a while
    tell: bool = False  # what is left afterwards
    numbers: range | None = None  # of the domains that it makes; with its first order


@dataclass(frozen=True)
class Report(Generic[PartT]):
    """The answer to one order: what was done since the last one, and how far the worker's part is.

    `doubt` and `undecided` are those of the whole part.  With nothing open the part is done.
    """

    ticket: int
    counts: Counts = field(default_factory=Counts)
    open: int = 0
    lower: float = float("inf")
    share: float = 0.0
    part: PartT | None = None  # what is left; told if it was asked for, and whenever something was given
    given: tuple[PartT, ...] = ()
    doubt: Reason | None = None
    undecided: float = float("inf")

    @property
    def commits(self) -> bool:
        """Whether all that the worker has done for its part counts from now on: nobody will do it again."""
        return self.open == 0 or self.part is not None


@dataclass(frozen=True)
class Assigned(Generic[PartT]):
    """A worker's part as it was last told, what was done since, and the last report."""

    part: PartT
    since: Counts
    told: float
    report: Report[PartT]
    ticket: int  # of the order that is not answered yet
    asked: int = 0  # pieces, by that order


class Coordinator(Generic[PartT]):
    """Keeps the law.  `tell_every` is how often a worker tells what is left, in seconds of whatever clock is used.

    What a report and its order take does not depend on how many workers there are.
    """

    def __init__(self, parts: list[PartT], tell_every: float = 30.0) -> None:
        self._waiting, self._tell_every = deque(parts), tell_every
        self._working: dict[int, Assigned[PartT]] = {}
        self._idle: dict[int, None] = {}  # workers without a part, in the order in which they ended
        self._ready: dict[int, None] = {}  # workers with a part that wait for an order
        self._asked = 0  # pieces, of those that have an order
        self._tickets = 0
        self.committed = Counts()
        self.doubt: Reason | None = None
        self.undecided = float("inf")

    # -- what is known

    @property
    def over(self) -> bool:
        """Whether nothing is left."""
        return not self._waiting and not self._working

    @property
    def idle(self) -> int:
        """Workers that have nothing to do."""
        return len(self._idle)

    @property
    def counts(self) -> Counts:
        """All that was done, committed or not."""
        total = self.committed
        for assigned in self._working.values():
            total = total + assigned.since
        return total

    def parts(self) -> list[PartT]:
        """Parts that cover all that is not closed."""
        return [*self._waiting, *(assigned.part for assigned in self._working.values())]

    def reports(self) -> list[Report[PartT]]:
        """The last word of every worker that has a part."""
        return [assigned.report for assigned in self._working.values()]

    @property
    def waiting(self) -> list[PartT]:
        """Parts that nobody has."""
        return list(self._waiting)

    # -- what happens

    def joined(self, worker: int) -> None:
        """A worker has come that has nothing to do.  Require: its name is new."""
        self._idle[worker] = None

    def lost(self, worker: int) -> Counts:
        """A worker will never answer: somebody else begins with its part, as it was last told.

        Returns what it has done since then, which will be done again.
        """
        self._idle.pop(worker, None)
        self._ready.pop(worker, None)
        assigned = self._working.pop(worker, None)
        if assigned is None:
            return Counts()
        self._asked -= assigned.asked
        self._waiting.appendleft(assigned.part)
        return assigned.since

    def heard(self, worker: int, report: Report[PartT], now: float) -> bool:
        """Whether the report counts: one of an order that is no longer known does not."""
        assigned = self._working.get(worker)
        if assigned is None or assigned.ticket != report.ticket or worker in self._ready:
            return False
        if report.given and report.part is None and report.open:
            raise SoundnessError("pieces were given without a word on what is left of their part")
        self._waiting += report.given
        self._asked -= assigned.asked
        done = assigned.since + report.counts
        if report.open == 0:
            self.committed = self.committed + done
            self.doubt = outweighed(self.doubt, report.doubt)
            self.undecided = min(self.undecided, report.undecided)
            del self._working[worker]
        elif report.part is not None:
            self.committed = self.committed + done
            self._working[worker] = Assigned(report.part, Counts(), now, report, report.ticket)
        else:
            self._working[worker] = replace(assigned, since=done, report=report, asked=0)
        (self._ready if report.open else self._idle)[worker] = None
        return True

    def orders(self, now: float) -> list[tuple[int, Order[PartT]]]:
        """What those are to do that have no order; who stays idle gets none."""
        found = []
        while self._waiting and self._idle:
            worker = next(iter(self._idle))
            del self._idle[worker]
            found.append((worker, self._begin(worker, self._waiting.popleft(), now)))
        for worker in self._ready:
            assigned = self._working[worker]
            room = assigned.report.open // WORTHWHILE - 1
            give = max(0, min(self.idle - self._asked, room, MOST_PIECES))
            self._asked += give
            tell = give > 0 or now - assigned.told >= self._tell_every
            order: Order[PartT] = Order(self._ticket(), None, give, tell)
            self._working[worker] = replace(assigned, ticket=order.ticket, asked=give)
            found.append((worker, order))
        self._ready.clear()
        return found

    def _begin(self, worker: int, part: PartT, now: float) -> Order[PartT]:
        order = Order(self._ticket(), part)
        self._working[worker] = Assigned(part, Counts(), now, Report(order.ticket), order.ticket)
        return order

    def _ticket(self) -> int:
        self._tickets += 1
        return self._tickets
