"""Batch runs, read back, and their figures: by family, and what two runs answered differently."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from verifier.batch.checks import Check, Standing, read_checks, standing_of
from verifier.batch.instances import Key, Names
from verifier.batch.records import Record, flat, parsed, read_bytes
from verifier.batch.store import LINES
from verifier.errors import InputError
from verifier.result.verdict import Verdict
from verifier.robustness.accuracy import Accuracy
from verifier.robustness.listing import DataSet, read_dataset

NO_PROOF = "none"
UNCHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Run:
    """A result folder: its instances by family and in the order in which they were listed."""

    name: str
    source: str
    records: tuple[Record, ...]
    skipped: int = 0  # lines that could not be read
    checks: Mapping[Key, Check] = field(default_factory=dict)  # of proofs
    data: DataSet | None = None  # if the instances are the images of one

    @property
    def accuracy(self) -> Accuracy | None:
        """What is known of the data set."""
        return None if self.data is None else self.data.accuracy(self.records, self.source)

    @property
    def by_names(self) -> dict[Names, Record]:
        return {record.names: record for record in self.records}

    def proof(self, record: Record) -> str | None:
        """What is to be said of the proof of a result; None where none was wanted."""
        if not record.proof_wanted or record.verdict is not Verdict.UNSAT:
            return None
        if record.proof is None:
            return NO_PROOF
        standing = standing_of(record, self.checks)
        return UNCHECKED if standing is None else NO_PROOF if standing is Standing.MISSING else standing.value


def read_runs(folders: Sequence[str]) -> tuple[Run, ...]:
    """One run per folder (or `results.jsonl` file), in this order, with different names.

    Raises InputError for a folder without results.
    """
    names = _names([Path(folder) for folder in folders])
    return tuple(_read(folder, name) for folder, name in zip(folders, names, strict=True))


def _read(folder: str, name: str) -> Run:
    path = Path(folder)
    file = path / LINES if path.is_dir() else path
    if not file.exists():
        raise InputError(f"there is no {LINES} in this folder" if path.is_dir() else "no such folder", folder)
    lines = [(line, record) for _, line, record in parsed(read_bytes(file)) if line.strip()]
    found = {record.names: record for _, record in lines if record is not None}  # of several, the last one counts
    if not found:
        raise InputError("the file holds no result" + (" that can be read" if lines else ""), file)
    ordered = sorted(found.values(), key=lambda record: record.category)  # stable: else as listed
    skipped = sum(record is None for _, record in lines)
    return Run(name, folder, tuple(ordered), skipped, read_checks(file.parent), read_dataset(file.parent))


def _names(paths: list[Path]) -> list[str]:
    """The shortest ends of the paths that tell them apart; a number for a path that is given twice."""
    parts = [path.resolve().parts for path in paths]
    parts = [p[:-1] if p[-1] == LINES and len(p) > 1 else p for p in parts]
    short = {p: next(n for n in range(1, len(p) + 1) if _alone(p, n, parts)) for p in parts}
    names = ["/".join(p[-short[p] :]) for p in parts]
    return [n if names.count(n) == 1 else f"{n} ({names[: i + 1].count(n)})" for i, n in enumerate(names)]


def _alone(path: tuple[str, ...], length: int, others: list[tuple[str, ...]]) -> bool:
    """Whether no other path ends in the same `length` parts; all parts together always do."""
    return length == len(path) or all(other == path or other[-length:] != path[-length:] for other in others)


def families(runs: Iterable[Run]) -> list[str]:
    """The names of all families, in alphabetical order."""
    return sorted({record.category for run in runs for record in run.records})


def of_family(run: Run, family: str) -> list[Record]:
    return [record for record in run.records if record.category == family]


def contradictions(runs: Sequence[Run]) -> list[Names]:
    """The instances that are `sat` in one run and `unsat` in another: one of them is wrong."""
    said: dict[Names, set[Verdict]] = {}
    for run in runs:
        for record in run.records:
            said.setdefault(record.names, set()).add(record.verdict)
    return [key for key, verdicts in said.items() if {Verdict.SAT, Verdict.UNSAT} <= verdicts]


def pairs(first: Run, second: Run) -> list[tuple[Record, Record]]:
    """The instances of both runs, in the order of the first."""
    others = second.by_names
    return [(record, others[record.names]) for record in first.records if record.names in others]


def changed(first: Run, second: Run) -> list[tuple[Record, Record]]:
    """The instances of both runs with different verdicts."""
    return [(a, b) for a, b in pairs(first, second) if a.verdict is not b.verdict]


def differing(runs: Sequence[Run]) -> list[tuple[str, list[str]]]:
    """The settings in which runs differ: a name and the value of each run.

    A run whose own instances differ in a setting shows all values.
    """
    flat = [_settings(run) for run in runs]
    names = sorted({name for values in flat for name in values})
    table = [(name, [", ".join(values.get(name, ["-"])) for values in flat]) for name in names]
    return [(name, values) for name, values in table if len(set(values)) > 1]


def common(run: Run) -> dict[str, str]:
    """The settings of a run by name; several values are joined."""
    return {name: ", ".join(values) for name, values in _settings(run).items()}


def _settings(run: Run) -> dict[str, list[str]]:
    found: dict[str, dict[str, None]] = {}  # dictionaries as ordered sets
    for record in run.records:
        values: dict[str, object] = {"device": record.device, "threads": record.threads, "seed": record.seed}
        values |= {f"version of {name}": version for name, version in record.versions.items()}
        values["time limit"] = None if record.timeout is None else f"{record.timeout:g} s"
        values |= flat(record.config)
        for name, value in values.items():
            if value is not None:
                text = value if isinstance(value, str) else json.dumps(value, default=str)
                found.setdefault(name, {})[text] = None
    return {name: list(values) for name, values in found.items()}
