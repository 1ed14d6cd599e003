"""The proofs of a batch, judged by the independent checker, and what it said, read back.

Each `unsat` of `results.jsonl` gets a line of `checks.jsonl` beside it.  A line names the SHA-256 of its proof, so that
what was said about an older one is not taken for the new one.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any

from verifier.batch.instances import Key
from verifier.batch.jobs import file_digest
from verifier.batch.records import Record, read_bytes, split_lines
from verifier.batch.store import CHECKS, LINES
from verifier.checker.check import check
from verifier.errors import InputError
from verifier.files import blamed
from verifier.result.verdict import Verdict

Tell = Callable[[Any], None]
"""Hears of every node that the checker reads."""

_WRITTEN = {"prop": "property", "standing": "verdict"}
"""Names of fields in `checks.jsonl`, as in the JSON of other commands."""
_READ = {written: field for field, written in _WRITTEN.items()}


class Standing(Enum):
    """What is to be said of the proof of an `unsat`."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    UNREADABLE = "unreadable"
    MISSING = "missing"


@dataclass(frozen=True, slots=True)
class Check:
    """What became of one proof.  `sha256` is that of the file that the result speaks of."""

    category: str
    onnx: str
    vnnlib: str
    network: str
    prop: str
    proof: str | None
    sha256: str | None
    standing: Standing
    reason: str | None = None
    node: int | None = None
    nodes: int = 0
    closed: int = 0
    margin: float | None = None
    exact: bool = False
    seconds: float = 0.0

    @property
    def key(self) -> Key:
        return (self.category, (self.network, self.prop))

    @property
    def line(self) -> str:
        """Its line of `checks.jsonl`, without the end."""
        data = asdict(self) | {"standing": self.standing.value}
        return json.dumps({_WRITTEN.get(name, name): value for name, value in data.items()}, allow_nan=False)

    def __str__(self) -> str:
        names = f"{self.category} {self.onnx} {self.vnnlib}"
        if self.standing is Standing.ACCEPTED:
            return f"{self.standing.value} {names}"
        where = "" if self.node is None else f"node {self.node}: "
        return f"{self.standing.value} {names}: {where}{self.reason}"


def proved_of(folder: str) -> list[Record]:
    """The `unsat` results of a batch.  Raises InputError if there are no results to read."""
    path = Path(folder) / LINES
    if not path.exists():
        raise InputError(f"there is no {LINES} in this folder; `verify batch --out` writes it", folder)
    records, _ = split_lines(path, read_bytes(path))
    last = {record.key: record for record in records}
    return [record for record in last.values() if record.verdict is Verdict.UNSAT]


@contextlib.contextmanager
def kept(folder: str) -> Iterator[Callable[[Check], None]]:
    """Keeps checks in `checks.jsonl`, each as soon as it is known; those of an earlier time are forgotten."""
    path = Path(folder) / CHECKS
    with blamed("cannot be written", path):
        file = path.open("w", encoding="utf-8")

    def keep(found: Check) -> None:
        with blamed("cannot be written", path):
            file.write(found.line + "\n")
            file.flush()

    with file:
        yield keep


def check_proof(record: Record, exact: bool = False, tell: Tell | None = None) -> Check:
    """Judges the proof of one `unsat`.

    Guarantees: accepted only if the file is the one that the batch wrote, and the checker accepts it.
    """
    began, proof = time.monotonic(), record.proof
    names = (*record.names, record.network, record.prop)
    if proof is None:
        why = record.unproved or "no proof was asked for (`verify batch --proofs`)"
        return Check(*names, None, None, Standing.MISSING, why)
    missing = Check(*names, proof.file, proof.sha256, Standing.MISSING, "the file is not there")
    if not Path(proof.file).exists():
        return missing
    if (sha256 := file_digest(proof.file)) != proof.sha256:
        standing = Standing.UNREADABLE if sha256 is None else Standing.REJECTED
        why = "the file cannot be read" if sha256 is None else "this is not the file that the batch has written"
        return replace(missing, standing=standing, reason=why)
    found = check(record.network, record.prop, proof.file, exact, tell)
    told = found.record
    told["standing"] = Standing(told.pop("verdict"))
    return replace(missing, **told, seconds=round(time.monotonic() - began, 6))


def exit_code(checks: Sequence[Check]) -> int:
    """0 if all were accepted; 1 if one was rejected or is missing; 2 if one cannot be read."""
    found = {check.standing for check in checks}
    if found & {Standing.REJECTED, Standing.MISSING}:
        return 1
    return 2 if Standing.UNREADABLE in found else 0


def last_line(checks: Sequence[Check], total: int) -> str:
    """All checks in one line."""
    counts = Counter(check.standing for check in checks)
    parts = [f"{counts[standing]} {standing.value}" for standing in Standing if counts[standing]]
    margins = [check.margin for check in checks if check.margin is not None]
    least = f"; least margin {min(margins):.3g}" if margins else ""
    return f"{len(checks)} of {total} proofs: {', '.join(parts) or 'none is wanted where nothing is unsat'}{least}"


def read_checks(folder: str | os.PathLike[str]) -> dict[Key, Check]:
    """What was said last about the proofs of a batch; lines that cannot be read are passed over."""
    path = Path(folder) / CHECKS
    if not path.exists():
        return {}
    found = (_parse(line) for line in read_bytes(path).splitlines())
    return {check.key: check for check in found if check is not None}


def standing_of(record: Record, checks: Mapping[Key, Check]) -> Standing | None:
    """What is known of the proof of an `unsat`; None if it was not checked since it was written."""
    if record.proof is None:
        return Standing.MISSING
    found = checks.get(record.key)
    return found.standing if found is not None and found.sha256 == record.proof.sha256 else None


def _parse(line: bytes) -> Check | None:
    try:
        data = json.loads(line)
        fields = {_READ.get(name, name): value for name, value in data.items()}
        return Check(**fields | {"standing": Standing(fields["standing"])})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
