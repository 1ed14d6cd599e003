"""A batch from its lists to its last line, and what an earlier one has left to do.

A result counts if it is a verdict, the files are the same and the question was the same.  Errors are tried again:
their cause may be gone (a library that was missing, a full disk).  Files that changed are decided again: their old
results are about other networks.  Another question (time limit, configuration, seed, version of this program) is
refused: results that answer different questions must not stand in one table, and hours of work must not vanish
because of a mistyped option.  Threads, device and engine do not change what a result means.  Where proofs are wanted,
an `unsat` counts as long as the proof that it speaks of is there as it was written.
"""

from __future__ import annotations

import contextlib
import functools
import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import verifier
from verifier.batch.display import Telling, display
from verifier.batch.engine import Engine, Observer
from verifier.batch.instances import Instance, Key
from verifier.batch.jobs import Terms, file_digest, line_of, network_digest
from verifier.batch.judge import Demands, Finding
from verifier.batch.records import Record, flat
from verifier.batch.store import Store
from verifier.errors import InputError
from verifier.files import blamed
from verifier.output import clear, tell
from verifier.result.delivery import interruptible
from verifier.result.result import finite
from verifier.result.verdict import Verdict

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Plan:
    """What to decide, and how.  `workers` is the number of those that tell what they are doing."""

    instances: tuple[Instance, ...]
    terms: Terms
    engine: Engine
    workers: int = 0
    quiet: bool = False
    telling: Telling = field(default_factory=Telling)


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
    keys = [instance.key for instance in plan.instances]
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
    if left.robbed:
        log.warning("%d proofs are gone or have changed; their instances are decided again", len(left.robbed))
    if left.failed and not plan.quiet:
        tell(f"{len(left.failed)} instances ended in an error; they are tried again")
    store.remove_table()  # until the end: an old one may hold what is forgotten here
    store.forget((*left.outdated, *left.failed, *left.robbed))
    done = len(plan.instances) - len(left.todo)
    for record in store.records.values():
        plan.telling.hear(record)
    if done and not plan.quiet:
        tell(f"{done} of {len(plan.instances)} instances are done already")
    if left.todo:
        with display(len(plan.instances), done, plan.workers, plan.quiet, plan.telling) as observer:
            _decide(plan, left.todo, store, observer)


def _decide(plan: Plan, todo: Sequence[Instance], store: Store, observer: Observer) -> None:
    for instance in todo:
        _remove_proof(instance, plan.terms)
    finished = plan.engine.run(todo, plan.terms, observer)
    with contextlib.closing(finished):
        for instance, reply in finished:
            record = store.append(line_of(instance, plan.terms, reply))
            if record.proof is None:  # one that was written too late for the answer
                _remove_proof(instance, plan.terms)
            observer.recorded(record)


def _remove_proof(instance: Instance, terms: Terms) -> None:
    """No proof lies there that no result speaks of."""
    file = terms.proof(instance)
    if file is not None:
        with blamed("the old proof cannot be removed", file):
            clear(file)


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The instances that are still to be decided, and among them those with results that count no longer."""

    todo: tuple[Instance, ...]
    outdated: tuple[Key, ...] = ()  # about older files
    failed: tuple[Key, ...] = ()  # errors
    robbed: tuple[Key, ...] = ()  # of their proofs


def unfinished(instances: Sequence[Instance], terms: Terms, store: Store) -> Unfinished:
    """Raises InputError if a result in the store answers another question."""
    of_network, of_property = functools.cache(network_digest), functools.cache(file_digest)  # many share a network
    todo, outdated, failed, robbed = [], [], [], []
    for instance in instances:
        record = store.records.get(instance.key)
        if record is None:
            todo.append(instance)
        elif record.verdict is Verdict.ERROR:
            todo.append(instance)
            failed.append(record.key)
        elif record.digests != (of_network(instance.network), of_property(instance.prop)):
            todo.append(instance)
            outdated.append(record.key)
        elif difference := _difference(record, instance, terms):
            raise InputError(
                f"the folder holds results with {difference}; --fresh starts anew, another --out keeps both",
                store.folder,
            )
        elif record.proof is not None and file_digest(record.proof.file) != record.proof.sha256:
            todo.append(instance)
            robbed.append(record.key)
    return Unfinished(tuple(todo), tuple(outdated), tuple(failed), tuple(robbed))


def _difference(record: Record, instance: Instance, terms: Terms) -> str | None:
    """How the question behind a result differs from the one that is asked now."""
    asked: dict[str, Any] = {"timeout": instance.timeout, "seed": terms.seed, "version": verifier.__version__}
    told: dict[str, Any] = {"timeout": record.timeout, "seed": record.seed}
    asked["proofs"], told["proofs"] = ("wanted" if w else None for w in (terms.proofs, record.proof_wanted))
    told["version"] = record.versions.get("strata-verifier", verifier.__version__)
    asked |= flat(json.loads(json.dumps(finite(terms.config.resolved()))))  # as the record has it: lists for tuples
    told |= flat(record.config)
    for name in (*asked, *told):
        if asked.get(name) != told.get(name):
            return f"{name} {_shown(told.get(name))} instead of {_shown(asked.get(name))}"
    return None


def _shown(value: object) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
