"""What runs instances: the contract of an engine, and the engine of this machine."""

from __future__ import annotations

import queue
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field

from verifier.batch.instances import Instance
from verifier.batch.jobs import Reply, Terms
from verifier.batch.process import Launch, Supervisor, WorkerLost, lost
from verifier.batch.records import Record

Run = Generator[tuple[Instance, Reply], None, None]
"""Instances with their replies, one after the other."""


class Observer:
    """Is told what goes on, partly by the threads of an engine; this one does nothing with it."""

    def began(self, slot: int, instance: Instance) -> None:
        """Worker number `slot` has an instance."""

    def ended(self, slot: int) -> None:
        """Worker number `slot` has none."""

    def recorded(self, record: Record) -> None:
        """A result is on disk."""


class Engine(ABC):
    """Runs instances, in any order."""

    @abstractmethod
    def run(self, instances: Sequence[Instance], terms: Terms, observer: Observer) -> Run:
        """Yields each instance once, when it is done.

        Guarantees: one reply per instance, whatever happens to the process that works on it.  Closing the generator
        ends all work.  Raises VerifierError if nothing can be run at all.
        """


@dataclass(frozen=True, slots=True)
class LocalEngine(Engine):
    """Worker processes on this machine, each with a thread that supervises it."""

    jobs: int = 1
    launch: Launch = field(default_factory=Launch)

    def run(self, instances: Sequence[Instance], terms: Terms, observer: Observer) -> Run:
        waiting: queue.SimpleQueue[Instance] = queue.SimpleQueue()
        for instance in instances:
            waiting.put(instance)
        done: queue.SimpleQueue[tuple[Instance, Reply] | Exception] = queue.SimpleQueue()
        crew = [_Member(slot, Supervisor(self.launch), observer) for slot in range(min(self.jobs, len(instances)))]
        threads = [threading.Thread(target=member.work, args=(waiting, terms, done), daemon=True) for member in crew]
        try:
            for thread in threads:
                thread.start()
            for _ in instances:
                finished = done.get()
                if isinstance(finished, Exception):
                    raise finished
                yield finished
        finally:
            for member in crew:
                member.supervisor.stop()
            for thread in threads:
                if thread.ident is not None:  # an interrupt may come before the last one started
                    thread.join()


@dataclass(frozen=True, slots=True)
class _Member:
    """A supervised worker that takes instances as long as there are any."""

    slot: int
    supervisor: Supervisor
    observer: Observer

    def work(
        self,
        waiting: queue.SimpleQueue[Instance],
        terms: Terms,
        done: queue.SimpleQueue[tuple[Instance, Reply] | Exception],
    ) -> None:
        try:
            while not waiting.empty():
                instance = waiting.get_nowait()
                done.put((instance, self._solve(instance, terms)))
                self.observer.ended(self.slot)
        except queue.Empty:  # another one was faster
            pass
        except Exception as error:  # of any kind: it ends the batch, in the main thread
            done.put(error)
        finally:
            self.supervisor.close()

    def _solve(self, instance: Instance, terms: Terms) -> Reply:
        began = time.monotonic()

        def begun() -> None:
            self.observer.began(self.slot, instance)

        try:
            return self.supervisor.solve(terms.job(instance), begun)
        except WorkerLost as error:
            return lost(terms.job(instance), error, time.monotonic() - began)
