"""Figures of a run: verdicts, times and PAR-2 by family, and what two runs answered differently."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from verifier.report.records import Key, Record, Run
from verifier.result.statistics import PHASES
from verifier.result.verdict import Verdict

OTHER = "other"
"""The time of a run outside of its phases: imports, files, waiting."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Some instances of one run, counted."""

    counts: Mapping[Verdict, int]
    seconds: float
    par2: float
    phases: Mapping[str, float]  # `PHASES` and `OTHER`, in seconds

    @property
    def instances(self) -> int:
        return sum(self.counts.values())

    @property
    def solved(self) -> int:
        return sum(count for verdict, count in self.counts.items() if verdict.decided)


def tally(records: Sequence[Record]) -> Tally:
    """Counts, and the sums of seconds, PAR-2 and phases."""
    counts = {verdict: sum(r.verdict is verdict for r in records) for verdict in Verdict}
    phases = {name: sum(r.phases.get(name, 0.0) for r in records) for name in PHASES}
    seconds = sum(r.seconds for r in records)
    phases[OTHER] = max(seconds - sum(phases.values()), 0.0)
    return Tally(counts, seconds, sum(map(par2, records)), phases)


def par2(record: Record) -> float:
    """The seconds of a solved instance, twice the time limit of any other; without a limit, twice the time spent."""
    if record.verdict.decided:
        return record.seconds
    return 2 * (record.seconds if record.timeout is None else record.timeout)


def families(runs: Iterable[Run]) -> list[str]:
    """The names of all families, in alphabetical order."""
    return sorted({record.family for run in runs for record in run.records})


def of_family(run: Run, family: str) -> list[Record]:
    return [record for record in run.records if record.family == family]


def contradictions(runs: Sequence[Run]) -> list[Key]:
    """The instances that are `sat` in one run and `unsat` in another: one of them is wrong."""
    said: dict[Key, set[Verdict]] = {}
    for run in runs:
        for record in run.records:
            said.setdefault(record.key, set()).add(record.verdict)
    return [key for key, verdicts in said.items() if {Verdict.SAT, Verdict.UNSAT} <= verdicts]


def pairs(first: Run, second: Run) -> list[tuple[Record, Record]]:
    """The instances of both runs, in the order of the first."""
    others = second.by_key
    return [(record, others[record.key]) for record in first.records if record.key in others]


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
        setting = record.setting
        values: dict[str, object] = {"device": setting.device, "threads": setting.threads, "seed": setting.seed}
        values |= {f"version of {name}": version for name, version in setting.versions.items()}
        values["time limit"] = None if record.timeout is None else f"{record.timeout:g} s"
        values |= dict(_flat("", setting.config))
        for name, value in values.items():
            if value is not None:
                text = value if isinstance(value, str) else json.dumps(value, default=str)
                found.setdefault(name, {})[text] = None
    return {name: list(values) for name, values in found.items()}


def _flat(prefix: str, config: Mapping[str, object]) -> Iterable[tuple[str, object]]:
    for name, value in config.items():
        if isinstance(value, dict):
            yield from _flat(f"{prefix}{name}.", value)
        else:
            yield f"{prefix}{name}", value
