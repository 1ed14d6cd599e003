"""Who does the work of a batch: how many worker processes there are, and what each of them may use."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from verifier.batch.display import Telling
from verifier.batch.engine import LocalEngine
from verifier.batch.instances import Instance
from verifier.batch.jobs import Terms
from verifier.batch.process import Launch
from verifier.batch.run import Plan
from verifier.errors import InputError
from verifier.machine import Machine, cores_each, memory_each, workers


@dataclass(frozen=True, slots=True)
class Staff:
    """Worker processes on this machine or on a Ray cluster.  None: the usual number, the usual share of the memory."""

    jobs: int | None = None
    memory_mb: int | None = None
    ray: bool = False
    address: str | None = None  # of a cluster
    verbose: bool = False  # what workers write to stderr is shown

    def plan(
        self, instances: Sequence[Instance], terms: Terms, quiet: bool = False, telling: Telling | None = None
    ) -> Plan:
        """These instances, shared among the workers; `terms.machine` says what all of them may use together."""
        machine = terms.machine
        jobs = max(min(self.jobs or workers(machine), len(instances)), 1)
        threads = machine.threads or cores_each(jobs)
        memory = self.memory_mb * 10**6 if self.memory_mb else memory_each(jobs)
        launch = Launch(threads, memory, self.verbose)
        terms = replace(terms, machine=Machine(machine.device, threads))
        telling = telling or Telling()
        if self.ray:
            from verifier.batch.cluster import RayEngine

            engine = RayEngine(self.address, jobs * threads, launch)
            return Plan(tuple(instances), terms, engine, quiet=quiet, telling=telling)
        if self.address is not None:
            raise InputError("--address is that of a Ray cluster: add --engine ray")
        return Plan(tuple(instances), terms, LocalEngine(jobs, launch), jobs, quiet, telling)
