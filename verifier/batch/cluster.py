"""The engine of a Ray cluster: instances are tasks, and Ray decides where they run.

Ray brings a task to a node and repeats it when the node or its process is lost.  There the task uses the same
supervised worker process as the engine of one machine, so that limits and verdicts are the same.  Needed on every
node: this package, and the files of the instances at the same paths (a shared file system).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from verifier.batch.engine import Engine, Observer, Run
from verifier.batch.instances import Instance
from verifier.batch.jobs import Job, Reply, Terms
from verifier.batch.process import Launch, Supervisor, WorkerLost, lost
from verifier.errors import InputError
from verifier.ray_cluster import imported, join

RETRIES = 3
"""How often Ray repeats a task whose node, or whose process, was lost."""


@dataclass(frozen=True, slots=True)
class RayEngine(Engine):
    """A Ray cluster: the one at `address`, or one of `cpus` cores that is started here for this batch."""

    address: str | None = None
    cpus: int = 1
    launch: Launch = field(default_factory=Launch)

    def run(self, instances: Sequence[Instance], terms: Terms, observer: Observer) -> Run:
        ray = imported()
        join(ray, self.address, self.cpus, self.launch.verbose)
        try:
            self._check_nodes(ray, terms)
            solve = ray.remote(_solve).options(**self._demand(terms))
            pending = {solve.remote(terms.job(instance), self.launch): instance for instance in instances}
            while pending:
                ready, _ = ray.wait(list(pending), num_returns=1)
                for reference in ready:
                    instance = pending.pop(reference)
                    yield instance, _reply(ray, reference, terms.job(instance))
        finally:
            ray.shutdown()  # ends the tasks of this batch; a cluster of others goes on

    def _check_nodes(self, ray: Any, terms: Terms) -> None:
        """A task that fits on no node would wait for ever."""
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        if not any(node.get("CPU", 0) >= terms.machine.cores for node in nodes):
            raise InputError(f"no node of the Ray cluster has {terms.machine.cores} cores, as --threads asks for")
        if _gpus(terms) and not any(node.get("GPU", 0) >= 1 for node in nodes):
            raise InputError(f"no node of the Ray cluster has a GPU, as --device {terms.machine.device} asks for")

    def _demand(self, terms: Terms) -> dict[str, Any]:
        """What a task needs of a node, and when it is repeated."""
        demand = {"num_cpus": terms.machine.cores, "num_gpus": _gpus(terms)}
        return {**demand, "max_retries": RETRIES, "retry_exceptions": [WorkerLost]}


def _gpus(terms: Terms) -> int:
    return int(terms.machine.device.startswith("cuda"))


def _solve(job: Job, launch: Launch) -> Reply:
    """Runs inside of a process of Ray."""
    return _supervisor(launch).solve(job)


@functools.cache
def _supervisor(launch: Launch) -> Supervisor:
    """The worker process of this process of Ray: kept for the tasks that come after."""
    return Supervisor(launch)


def _reply(ray: Any, reference: Any, job: Job) -> Reply:
    try:
        reply: Reply = ray.get(reference)
        return reply
    except ray.exceptions.RayError as error:  # after all retries
        cause = getattr(error, "cause", None)
        if cause is None:
            cause = WorkerLost(f"the process of Ray was lost ({type(error).__name__})")
        if not isinstance(cause, WorkerLost):  # no worker can be started there: so it will be for all
            raise cause from error
        return lost(job, cause, 0.0)
