"""A batch from its lists to its last line."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from verifier.batch.display import display
from verifier.batch.engine import Engine, Observer
from verifier.batch.instances import Instance
from verifier.batch.jobs import Terms, line_of
from verifier.batch.judge import Demands, Finding
from verifier.batch.records import Record
from verifier.batch.resume import unfinished
from verifier.batch.store import Store
from verifier.output import tell
from verifier.result.delivery import interruptible

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to decide, and how.  `workers` is the number of those that tell what they are doing."""

    instances: tuple[Instance, ...]
    terms: Terms
    engine: Engine
    workers: int = 0
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What is known at the end: results in the order of the lists, and what is wrong with them."""

    records: tuple[Record, ...]
    findings: tuple[Finding, ...]
    interrupted: bool = False

    @property
    def exit_code(self) -> int:
        """3 if the batch was interrupted before it was done, else 1 if something is wrong."""
        if self.interrupted:
            return 3
        return int(any(finding.fails for finding in self.findings))


def run(plan: Plan, store: Store, demands: Demands) -> Verdicts:
    """Decides what the store does not hold yet, and judges all results of the plan.

    Guarantees: `results.csv` is written also if Ctrl-C or an error ends the batch.  Only Ctrl-C (or SIGTERM) is no
    error.
    """
    interrupted = False
    keys = [(instance.category, instance.files) for instance in plan.instances]
    try:
        with interruptible():
            _complete(plan, store)
    except KeyboardInterrupt:
        interrupted = True
        store.load()  # it may have come while a line was being written
    finally:
        # Not at the cost of the error that is on its way: it says more than this one.
        with contextlib.suppress(Exception) if sys.exc_info()[0] else contextlib.nullcontext():
            store.write_table(keys)
    records = tuple(store.records[key] for key in keys if key in store.records)
    return Verdicts(records, tuple(demands.judge(records)), interrupted)


def _complete(plan: Plan, store: Store) -> None:
    left = unfinished(plan.instances, plan.terms, store)
    if left.outdated:
        log.warning("%d networks or properties have changed; they are decided again", len(left.outdated))
    if left.failed and not plan.quiet:
        tell(f"{len(left.failed)} instances ended in an error; they are tried again")
    store.remove_table()  # until the end: an old one may hold what is forgotten here
    store.forget((*left.outdated, *left.failed))
    done = len(plan.instances) - len(left.todo)
    if done and not plan.quiet:
        tell(f"{done} of {len(plan.instances)} instances are done already")
    if left.todo:
        with display(len(plan.instances), done, plan.workers, plan.quiet) as observer:
            _decide(plan, left.todo, store, observer)


def _decide(plan: Plan, todo: Sequence[Instance], store: Store, observer: Observer) -> None:
    finished = plan.engine.run(todo, plan.terms, observer)
    with contextlib.closing(finished):
        for instance, reply in finished:
            observer.recorded(store.append(line_of(instance, plan.terms, reply)))
