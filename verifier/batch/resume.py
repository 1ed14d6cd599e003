"""What an earlier batch has left to do.

A result counts if it is a verdict, the files are the same and the question was the same.  Errors are tried again:
their cause may be gone (a library that was missing, a full disk).  Files that changed are decided again: their old
results are about other networks.  Another question (time limit, configuration, seed, version of this program) is
refused: results that answer different questions must not stand in one table, and hours of work must not vanish
because of a mistyped option.  Threads, device and engine do not change what a result means.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import verifier
from verifier.batch.instances import Instance
from verifier.batch.jobs import Terms, file_digest, network_digest
from verifier.batch.records import Record, flat
from verifier.batch.store import Key, Store
from verifier.errors import InputError
from verifier.result.result import finite
from verifier.result.verdict import Verdict


@dataclass(frozen=True, slots=True)
class Unfinished:
    """The instances that are still to be decided, and among them those with results that count no longer."""

    todo: tuple[Instance, ...]
    outdated: tuple[Key, ...] = ()  # about older files
    failed: tuple[Key, ...] = ()  # errors


def unfinished(instances: Sequence[Instance], terms: Terms, store: Store) -> Unfinished:
    """Raises InputError if a result in the store answers another question."""
    of_network, of_property = functools.cache(network_digest), functools.cache(file_digest)  # many share a network
    todo, outdated, failed = [], [], []
    for instance in instances:
        record = store.records.get((instance.category, instance.files))
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
    return Unfinished(tuple(todo), tuple(outdated), tuple(failed))


def _difference(record: Record, instance: Instance, terms: Terms) -> str | None:
    """How the question behind a result differs from the one that is asked now."""
    asked: dict[str, Any] = {"timeout": instance.timeout, "seed": terms.seed, "version": verifier.__version__}
    told: dict[str, Any] = {"timeout": record.timeout, "seed": record.seed}
    told["version"] = record.versions.get("strata-verifier", verifier.__version__)
    asked |= flat(json.loads(json.dumps(finite(terms.config.resolved()))))  # as the record has it: lists for tuples
    told |= flat(record.config)
    for name in (*asked, *told):
        if asked.get(name) != told.get(name):
            return f"{name} {_shown(told.get(name))} instead of {_shown(asked.get(name))}"
    return None


def _shown(value: object) -> str:
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
