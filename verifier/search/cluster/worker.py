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
from verifier.search.loop import BranchAndBound, Limits
from verifier.search.saved import SavedPart, SavedTree
from verifier.search.space import Space

Point = tuple[NDArray[np.floating], int]
"""A counterexample as a worker saw it, and its clause: whoever gets it replays it."""


@dataclass(frozen=True, eq=False)
class Answer:
    """A report, and the point that ends the search, if there is one."""

    report: Report[SavedPart]
    witness: Point | None = None
    seconds: float = 0.0  # of work


class PartWorker(Generic[DomainsT]):
    """Searches parts of one tree, one after the other.

    The space is one of its own, made of the same basis as that of whoever gives the orders.  `room` is for what only
    saves time in the pieces that are given away.
    """

    def __init__(
        self, space: Space[DomainsT, Any, Any, Any], until: Until, limits: Limits, room: int, seconds: float
    ) -> None:
        self._space, self._until, self._limits, self._room, self._seconds = space, until, limits, room, seconds
        self._tree: BranchAndBound[DomainsT] | None = None
        self._counted = Counts()

    def follow(self, order: Order[SavedPart], clock: Callable[[], float] = time.monotonic) -> Answer:
        """Do what is ordered; searching takes about as many seconds as this worker was told."""
        began = clock()
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
        total, progress = self._space.journal.counts, tree.progress
        done, self._counted = total - self._counted, total
        report = Report(
            order.ticket,
            done,
            tree.open,
            progress.lower,
            progress.left,
            tree.part(0) if order.tell or given else None,
            given,
            tree.doubt,
            tree.undecided,
        )
        witness = None if tree.witness is None else (tree.witness.x, tree.witness.clause)
        return Answer(report, witness, seconds)


def divided(tree: BranchAndBound[DomainsT], pieces: int) -> list[BranchAndBound[DomainsT]]:
    """So many pieces of a tree, which keeps the rest; fewer where domains do not suffice.  All are of similar size."""
    found: list[BranchAndBound[DomainsT]] = []
    for _ in range(pieces):
        largest = max((tree, *found), key=lambda some: some.open)
        if largest.open < 2:
            break
        found.append(largest.halve())
    return found
