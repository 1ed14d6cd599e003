"""A tree that workers on many machines search; this process gives orders and keeps what is known.

Until the first worker has come, this process searches by itself.  Then it hands everything over: what waits here is
divided, and from then on it only listens, so that a report never waits for a batch of domains.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import cast

import torch

from verifier.errors import SoundnessError
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.cluster.policy import WORTHWHILE, Coordinator, Order
from verifier.search.cluster.worker import Answer, Point, divided
from verifier.search.domains import Domains, DomainsT, Outcome, Progress, outweighed
from verifier.search.journal import BLOCK
from verifier.search.loop import BranchAndBound, Limits, Search, conclusion
from verifier.search.saved import Keeping, SavedPart, SavedTree

log = logging.getLogger(__name__)

NAP = 0.05
"""Seconds after which whoever waits for reports looks around."""


class Pool(ABC):
    """Workers somewhere, by numbers that are never given again."""

    @abstractmethod
    def come(self) -> list[int]:
        """Workers that have come since the last call, and have nothing to do."""

    @abstractmethod
    def send(self, worker: int, order: Order[SavedPart]) -> None:
        """Require: the worker has no order."""

    @abstractmethod
    def heard(self, seconds: float) -> list[tuple[int, Answer | None]]:
        """What has arrived, after so many seconds at the latest; None: that worker is lost."""

    @abstractmethod
    def close(self) -> None:
        """Ends all workers."""


Confirm = Callable[[Point], Counterexample | None]
"""Replays a point here."""


@dataclass
class Traffic:
    """What went to and fro: messages, domains, and bytes of their tensors."""

    messages: int = 0
    sent: int = 0  # domains, in parts that workers begin with
    told: int = 0  # domains, in what workers tell and give
    sent_bytes: int = 0
    told_bytes: int = 0
    lost: int = 0  # workers
    again: int = 0  # domains, of what lost workers have done in vain
    stale: int = 0  # reports that came too late
    worked: float = 0.0  # seconds, of all workers


class ClusterSearch(Search):
    """One tree, searched by the workers of a pool.  The limits are those of all together, and the tree has none."""

    def __init__(
        self,
        tree: BranchAndBound[DomainsT],
        limits: Limits,
        pool: Callable[[], Pool],
        confirm: Confirm,
        keeping: Keeping,
    ) -> None:
        self._tree, self._limits, self._confirm, self._keeping = tree, limits, confirm, keeping
        self._make, self._pool = pool, cast("Pool | None", None)
        self._come: list[int] = []
        self._numbered: set[int] = set()  # workers that have numbers for their domains
        self._coordinator: Coordinator[SavedPart] | None = None
        self._witness: Counterexample | None = None
        self._refuted = False  # a point that a worker confirmed and this process did not
        self.traffic = Traffic()
        self.progress = tree.progress
        self.outcome = None

    def step(self) -> None:
        """Go on alone, hand over, or hear what the workers say and tell them what to do."""
        if self._pool is None:
            self._pool = self._make()
        self._come += self._pool.come()
        if self._coordinator is None and self._come and self._tree.open >= 2 * WORTHWHILE:
            self._coordinator = self._handed_over(len(self._come))
        if self._coordinator is None:
            self._tree.step()
            self.progress = self._tree.progress
            doubt, closed = self._tree.doubt, not self._tree.open
            self.outcome = conclusion(self._tree.witness, closed, doubt, self._limits, self.progress)
            return
        self._listen(self._pool, self._coordinator)
        self._conclude(self._coordinator)

    def _handed_over(self, pieces: int) -> Coordinator[SavedPart]:
        """All that waits here, in so many pieces; what is undecided stays here."""
        trees = (*divided(self._tree, pieces - 1), self._tree)
        parts = [replace(tree.part(self._keeping.room), doubt=None, undecided=float("inf")) for tree in trees]
        return Coordinator(parts, self._keeping.seconds)

    def _listen(self, pool: Pool, coordinator: Coordinator[SavedPart]) -> None:
        for worker in self._come:
            coordinator.joined(worker)
        heard = pool.heard(0.0 if self._come else NAP)
        self._come.clear()
        for worker, answer in heard:
            if answer is None:
                self.traffic.lost += 1
                self.traffic.again += coordinator.lost(worker).domains
            elif coordinator.heard(worker, answer.report, time.monotonic()):
                self._note(answer)
            else:
                self.traffic.stale += 1
        for worker, order in coordinator.orders(time.monotonic()):
            self.traffic.messages += 1
            self.traffic.sent += size_of(order.part)
            self.traffic.sent_bytes += bytes_of(order.part)
            pool.send(worker, order if worker in self._numbered else self._with_numbers(worker, order))

    def _with_numbers(self, worker: int, order: Order[SavedPart]) -> Order[SavedPart]:
        """The first order of a worker, whose domains have other numbers than any other one in this run."""
        self._numbered.add(worker)
        return replace(order, numbers=self._tree.space.journal.numbers(BLOCK))

    def _note(self, answer: Answer) -> None:
        """Points are replayed here, whatever the worker says of them."""
        report = answer.report
        if answer.notes and not report.commits:
            raise SoundnessError("a worker told of work that will be done again")
        self._tree.space.journal.receive(answer.notes)
        self.traffic.messages += 1
        self.traffic.told += size_of(report.part) + sum(map(size_of, report.given))
        self.traffic.told_bytes += bytes_of(report.part) + sum(map(bytes_of, report.given))
        self.traffic.worked += answer.seconds
        if answer.witness is not None and self._witness is None:
            self._witness = self._confirm(answer.witness)
            self._refuted = self._witness is None

    def _conclude(self, coordinator: Coordinator[SavedPart]) -> None:
        tree, reports, waiting = self._tree, coordinator.reports(), coordinator.waiting
        open_ = sum(report.open for report in reports) + sum(map(size_of, waiting))
        lower = min([tree.undecided, coordinator.undecided, *(report.lower for report in reports)])
        share = sum(report.share for report in reports) + sum(map(share_of, waiting)) / tree.space.roots
        most = max(self.progress.max_open, open_)
        counts = tree.space.journal.counts + coordinator.counts
        self.progress = Progress(counts, open_, most, min([lower, *map(lower_of, waiting)]), share)
        if self._refuted and self._witness is None:  # two runs of one network differ: nothing may be concluded
            self.outcome = Outcome(None, Reason.NUMERICS, self.progress)
            return
        doubt = outweighed(tree.doubt, coordinator.doubt)
        self.outcome = conclusion(self._witness, coordinator.over, doubt, self._limits, self.progress)

    def saved(self, room: int) -> SavedTree | None:
        """What is with workers as they last told it; what they have done since is not counted."""
        tree, coordinator = self._tree, self._coordinator
        if coordinator is None:
            return tree.saved(room)
        own = SavedPart((), outweighed(tree.doubt, coordinator.doubt), min(tree.undecided, coordinator.undecided))
        saved = tree.saved_as(SavedPart.joined([own, *coordinator.parts()]))
        return replace(saved, counts=saved.counts + coordinator.committed, most=self.progress.max_open)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.close()
            log.info("cluster: %s", self.traffic)


def size_of(part: SavedPart | None) -> int:
    """Open domains."""
    return 0 if part is None else sum(len(domains.number) for domains in _kept(part))


def bytes_of(part: SavedPart | None) -> int:
    """What its tensors take; the rest of a message is small."""
    arrays = (getattr(some, f.name) for some in _kept(part) for f in fields(some)) if part is not None else ()
    return sum(array.numel() * array.element_size() for array in arrays)


def lower_of(part: SavedPart) -> float:
    """The worst bound; what is no number hides nothing."""
    found = [float(domains.lower.nan_to_num(nan=-float("inf")).min()) for domains in _kept(part)]
    return min(found, default=float("inf"))


def share_of(part: SavedPart) -> float:
    """How much of a tree it is, if every split halves a domain."""
    return float(sum(torch.exp2(-domains.depth.float()).sum() for domains in _kept(part)))


def _kept(part: SavedPart) -> list[Domains]:
    """The domains of a part: in whatever form they are kept, they have numbers, bounds and depths."""
    return [cast("Domains", domains) for domains in part.domains]
