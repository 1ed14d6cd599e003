"""What workers are told of an instance, and what brings it to them."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch

from verifier.bounding.clauses import ClauseBounds
from verifier.bounding.core.base import Until
from verifier.clock import Clock
from verifier.falsify.target import Target
from verifier.property.problem import Problem
from verifier.result.counterexample import Counterexample, Runnable
from verifier.search.cluster.search import ClusterSearch, Pool
from verifier.search.cluster.worker import PartWorker, Point
from verifier.search.domains import DomainsT
from verifier.search.journal import Journal, Listener
from verifier.search.loop import BranchAndBound, Limits, Search
from verifier.search.offers import Offers
from verifier.search.saved import Keeping
from verifier.search.space import Recipe
from verifier.search.task import SearchTask
from verifier.shapes import Float, Tensor

if TYPE_CHECKING:
    from verifier.search.problem import ProblemSearch


@dataclass(frozen=True, eq=False)
class Parcel:
    """All that a worker needs, once for all of its orders: it can be sent anywhere."""

    problem: Problem
    model: Runnable
    lower: Float[Tensor, " clauses"]  # at the root
    options: ProblemSearch
    recipe: Recipe
    seconds: float  # that are left
    room: int
    slice_seconds: float
    listeners: tuple[Listener, ...] = ()

    def worker(self) -> PartWorker[Any]:
        """Where the parcel has arrived.  The time that is left counts from now."""
        clock = Clock.begin(None if self.seconds == float("inf") else self.seconds)
        options = replace(self.options, journal=Journal(self.listeners))
        target = Target.of(self.problem, self.model)
        seed = options.seed + os.getpid()  # or else all workers would attack in the same way
        found, offer = ClauseBounds(self.lower, {}, {}), Offers(options.falsifier, target, clock, seed)
        task = SearchTask(options, self.problem, found, Until(clock), offer)
        space = task.space(self.recipe)
        return PartWorker(space, task.until, Limits(options.limits.memory_bytes), self.room, self.slice_seconds)


@dataclass(frozen=True)
class ClusterEngine(ABC):
    """Searches trees elsewhere.  `model` is the network in its original form, with which witnesses are replayed."""

    model: Runnable
    keeping: Keeping = field(default_factory=Keeping)
    slice_seconds: float = 1.0  # after which a worker reports

    @abstractmethod
    def pool(self, parcel: Parcel) -> Pool:
        """Workers for an instance."""

    def close(self) -> None:  # noqa: B027 (there may be nothing to leave)
        """Nobody makes another pool."""

    def search(self, task: SearchTask, tree: BranchAndBound[DomainsT], limits: Limits) -> Search:
        """The search of a tree, which may have begun."""

        def pool() -> Pool:
            return self.pool(self._parcel(task, tree.space.recipe()))

        def confirm(point: Point) -> Counterexample | None:
            x, clause = point
            return task.offer(torch.from_numpy(x).unsqueeze(0), torch.tensor([clause]))

        return ClusterSearch(tree, limits, pool, confirm, self.keeping)

    def _parcel(self, task: SearchTask, recipe: Recipe) -> Parcel:
        options = replace(task.options, journal=Journal(), engine=None, cores=1, keeping=None)
        left, room = task.until.clock.remaining(), self.keeping.room
        return Parcel(
            task.problem,
            self.model,
            task.found.lower,
            options,
            recipe,
            left,
            room,
            self.slice_seconds,
            task.options.journal.envoys(),
        )
