"""What batches have decided, read back from their folders."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from verifier.batch.records import Record, parse

DECIDED = ("sat", "unsat")


@dataclass(frozen=True)
class Run:
    """One property under one preset.

    `claimed` is what a solver says whose answer proves nothing (a mixed-integer program); it counts as an answer in
    tables, because the paper counts it.
    """

    problem: str
    verdict: str
    seconds: float
    domains: int | None
    claimed: str | None = None

    @property
    def solved(self) -> bool:
        return self.verdict in DECIDED or self.claimed in DECIDED

    @property
    def answer(self) -> str:
        """The verdict, or what was claimed in its place."""
        return self.verdict if self.claimed is None else f"claimed {self.claimed}"

    def spent(self, limit: float) -> float:
        """Its seconds, as the paper's averages take them: the limit if there was no answer."""
        return min(self.seconds, limit) if self.solved else limit


def read_runs(folder: Path) -> dict[str, Run]:
    """The runs of a batch by the name of the property, the last of several."""
    path = folder / "results.jsonl"
    if not path.exists():
        return {}
    found = {}
    for line in path.read_bytes().splitlines():
        record = parse(line)
        if record is not None:
            run = _run(record, json.loads(line))
            found[run.problem] = run
    return found


def _run(record: Record, data: dict[str, object]) -> Run:
    statistics = data.get("statistics")
    claimed = statistics.get("claimed") if isinstance(statistics, dict) else None
    problem = Path(record.vnnlib).name.removesuffix(".vnnlib")
    return Run(problem, record.verdict.value, record.run_time, record.domains, claimed)
