"""What a worker does with the part of a tree that it has, wherever it is."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
from numpy.typing import NDArray

from verifier.bounding.core.base import Until
from verifier.search.cluster.policy import Order, Report
from verifier.search.domains import Counts, DomainsT
from verifier.search.journal import Note
from verifier.search.loop import BranchAndBound, Limits
from verifier.search.saved import SavedPart, SavedTree
from verifier.search.space import Space

Point = tuple[NDArray[np.floating], int]
"""A counterexample as a worker saw it, and its clause: whoever gets it replays it."""


@dataclass(frozen=True, eq=False)
class Answer:
    """A report, and the point that ends the search, if there is one.

    `notes` are those for the journal, but for counts: of all that the report commits, and none if it commits nothing.
    """

    report: Report[SavedPart]
    witness: Point | None = None
    seconds: float = 0.0  # of work
    notes: tuple[Note, ...] = ()


class PartWorker(Generic[DomainsT]):
    """Searches parts of one tree, one after the other.

    The space is one of its own, made of the same basis as that of whoever gives the orders.  `room` is for what only
    saves time in the pieces that are given away.  Notes wait here until the work that they tell of counts: if this
    worker is lost before, somebody else does that work, and makes notes of it.
    """

    def __init__(
        self, space: Space[DomainsT, Any, Any, Any], until: Until, limits: Limits, room: int, seconds: float
    ) -> None:
        self._space, self._until, self._limits, self._room, self._seconds = space, until, limits, room, seconds
        self._tree: BranchAndBound[DomainsT] | None = None
        self._notes: list[Note] = []
        space.journal.go_abroad()

    def follow(self, order: Order[SavedPart], clock: Callable[[], float] = time.monotonic) -> Answer:
        """Do what is ordered; searching takes about as many seconds as this worker was told."""
        began = clock()
        if order.numbers is not None:
            self._space.journal.confine(order.numbers)
        if order.part is not None:
            self._tree = BranchAndBound(self._space, self._limits)
            self._tree.go_on(SavedTree(order.part, Counts(), 0))
        tree = self._tree
        assert tree is not None, "the first order brings a part"
        given = tuple(piece.part(self._room) for piece in divided(tree, order.give))
        while not given and tree.outcome is None:
            tree.step()
            if clock() - began >= self._seconds or self._until.expired():
                break
        return self._answer(order, tree, given, clock() - began)

    def _answer(
        self, order: Order[SavedPart], tree: BranchAndBound[DomainsT], given: tuple[SavedPart, ...], seconds: float
    ) -> Answer:
        journal, progress = self._space.journal, tree.progress
        sent = journal.sent()
        self._notes += [note for note in sent if note[1]]
        report = Report(
            order.ticket,
            journal.counted(sent),
            tree.open,
            progress.lower,
            progress.left,
            tree.part(0) if order.tell or given else None,
            given,
            tree.doubt,
            tree.undecided,
        )
        witness = None if tree.witness is None else (tree.witness.x, tree.witness.clause)
        notes, self._notes = (self._notes, []) if report.commits else ([], self._notes)
        return Answer(report, witness, seconds, tuple(notes))


def divided(tree: BranchAndBound[DomainsT], pieces: int) -> list[BranchAndBound[DomainsT]]:
    """So many pieces of a tree, which keeps the rest; fewer where domains do not suffice.  All are of similar size."""
    found: list[BranchAndBound[DomainsT]] = []
    for _ in range(pieces):
        largest = max((tree, *found), key=lambda some: some.open)
        if largest.open < 2:
            break
        found.append(largest.halve())
    return found
