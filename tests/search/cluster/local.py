"""Workers of this process in the place of those of a cluster: some are lost, and some answer too late."""

from __future__ import annotations

import pickle
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from verifier.search.cluster.engine import ClusterEngine, Parcel
from verifier.search.cluster.policy import Order
from verifier.search.cluster.search import Pool
from verifier.search.cluster.worker import Answer, PartWorker
from verifier.search.saved import SavedPart


@dataclass
class Local(Pool):
    """What goes to and fro is pickled; `deadly` is how likely an order is a worker's last.

    Of every two that are lost, one has worked in vain, and its answer comes later.
    """

    make: Callable[[], PartWorker]  # type: ignore[type-arg]
    count: int
    rng: random.Random
    deadly: float = 0.0
    born: int = 0
    workers: dict[int, PartWorker] = field(default_factory=dict)  # type: ignore[type-arg]
    orders: dict[int, Order[SavedPart]] = field(default_factory=dict)
    late: list[tuple[int, Answer | None]] = field(default_factory=list)
    kills: int = 0
    ended: bool = False

    def come(self) -> list[int]:
        found = []
        while len(self.workers) < self.count:
            self.born += 1
            self.workers[self.born] = self.make()
            found.append(self.born)
        return found

    def send(self, worker: int, order: Order[SavedPart]) -> None:
        assert worker not in self.orders
        self.orders[worker] = pickle.loads(pickle.dumps(order))

    def heard(self, seconds: float) -> list[tuple[int, Answer | None]]:
        some = [worker for worker in self.orders if self.rng.random() < 0.7]
        found, self.late = self.late, []
        for worker in some:
            order = self.orders.pop(worker)
            if self.rng.random() < self.deadly:
                if self.rng.random() < 0.5:
                    self.late.append((worker, self._followed(worker, order)))
                del self.workers[worker]
                self.kills += 1
                found.append((worker, None))
            else:
                found.append((worker, self._followed(worker, order)))
        return found

    def _followed(self, worker: int, order: Order[SavedPart]) -> Answer:
        answer = pickle.loads(pickle.dumps(self.workers[worker].follow(order)))
        assert isinstance(answer, Answer)
        return answer

    def close(self) -> None:
        self.ended = True


@dataclass(frozen=True)
class LocalCluster(ClusterEngine):
    """Workers that got their parcel as bytes."""

    seed: int = 0
    deadly: float = 0.1
    pools: list[Local] = field(default_factory=list)

    def pool(self, parcel: Parcel) -> Pool:
        data = pickle.dumps(parcel)
        pool = Local(lambda: pickle.loads(data).worker(), 3, random.Random(self.seed), self.deadly)
        self.pools.append(pool)
        return pool
