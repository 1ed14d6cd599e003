"""Workers of a Ray cluster.  Ray brings parcels, orders and answers to where they are needed, and tells who is lost.

An actor is a worker, on one core of some node.  The parcel is in the object store, once for each node.  An actor that
is lost is replaced by a new one, under a new number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from verifier import ray_cluster
from verifier.errors import InputError
from verifier.search.cluster.engine import ClusterEngine, Parcel
from verifier.search.cluster.policy import Order
from verifier.search.cluster.search import Pool
from verifier.search.cluster.worker import Answer
from verifier.search.saved import SavedPart

REPLACEMENTS = 100
"""Actors that are started for lost ones, at most: a cluster on which every actor dies is no cluster."""


class Actor:
    """Runs inside of a process of Ray."""

    def __init__(self, parcel: Parcel) -> None:
        import torch

        from verifier.precision import full_precision, own_defaults

        torch.set_num_threads(1)
        own_defaults().__enter__()  # for as long as this process lives
        full_precision().__enter__()
        self._worker = parcel.worker()

    def ready(self) -> None:
        """It has come."""

    def follow(self, order: Order[SavedPart]) -> Answer:
        return self._worker.follow(order)


class RayPool(Pool):
    """So many actors; those that are lost are replaced."""

    def __init__(self, ray: Any, parcel: Parcel, count: int) -> None:
        self._ray, self._parcel = ray, ray.put(parcel)
        self._made = ray.remote(num_cpus=1, max_restarts=0, max_task_retries=0)(Actor)
        self._actors: dict[int, Any] = {}
        self._coming: dict[Any, int] = {}
        self._answers: dict[Any, int] = {}
        self._started, self._spare = 0, REPLACEMENTS
        for _ in range(count):
            self._start()

    def _start(self) -> None:
        self._started += 1
        actor = self._made.remote(self._parcel)
        self._actors[self._started] = actor
        self._coming[actor.ready.remote()] = self._started

    def come(self) -> list[int]:
        found = []
        for reference, worker in self._ready(self._coming, 0.0):
            if self._got(reference, worker) is not None:
                found.append(worker)
        return found

    def send(self, worker: int, order: Order[SavedPart]) -> None:
        self._answers[self._actors[worker].follow.remote(order)] = worker

    def heard(self, seconds: float) -> list[tuple[int, Answer | None]]:
        found: list[tuple[int, Answer | None]] = []
        for reference, worker in self._ready(self._answers, seconds):
            got = self._got(reference, worker)
            found.append((worker, None if got is None else got[0]))
        return found

    def _ready(self, pending: dict[Any, int], seconds: float) -> list[tuple[Any, int]]:
        """What has arrived, taken out of what is pending."""
        if not pending:
            return []
        ready, _ = self._ray.wait(list(pending), num_returns=1, timeout=seconds)
        if ready and len(pending) > 1:
            ready, _ = self._ray.wait(list(pending), num_returns=len(pending), timeout=0)
        return [(reference, pending.pop(reference)) for reference in ready]

    def _got(self, reference: Any, worker: int) -> tuple[Any] | None:
        """What an actor has returned; None if it is lost.  What it has raised is raised here.

        Raises InputError if it cannot even begin: no other one could, where the package is missing.
        """
        try:
            return (self._ray.get(reference),)
        except (self._ray.exceptions.RayActorError, self._ray.exceptions.ObjectLostError) as error:
            if getattr(error, "actor_init_failed", False):
                raise InputError(f"a worker of Ray cannot begin: {_last_line(error)}") from error
            del self._actors[worker]
            if self._spare == 0:
                raise MemoryError("workers are lost again and again") from None
            self._spare -= 1
            self._start()
            return None

    def close(self) -> None:
        for actor in self._actors.values():
            self._ray.kill(actor)
        self._actors.clear()


def _last_line(error: Exception) -> str:
    """Which says what was raised, after where it was."""
    return [line for line in str(error).splitlines() if line.strip()][-1].strip()


@dataclass(frozen=True)
class RayCluster(ClusterEngine):
    """The cluster at an address, or one on this machine; so many workers, one for each core if nobody says."""

    address: str | None = None
    workers: int | None = None
    verbose: bool = False

    def pool(self, parcel: Parcel) -> Pool:
        ray = ray_cluster.imported()
        if not ray.is_initialized():
            from verifier.processes import cores

            ray_cluster.join(ray, self.address, self.workers or cores(), self.verbose)
        count = self.workers or int(ray.cluster_resources().get("CPU", 1))
        return RayPool(ray, parcel, count)

    def close(self) -> None:
        ray = ray_cluster.imported()
        if ray.is_initialized():
            ray.shutdown()  # a cluster of others goes on
