"""Results counted and added up, and the table at the end of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from verifier.batch.judge import Finding, Kind
from verifier.batch.records import Record
from verifier.output import text_table
from verifier.result.result import PHASES
from verifier.result.verdict import Verdict

MOST = 20
"""Findings of a kind that are listed; contradictions are listed all."""


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
    seconds = sum(r.run_time for r in records)
    phases[OTHER] = max(seconds - sum(phases.values()), 0.0)
    return Tally(counts, seconds, sum(r.par2 for r in records), phases)


def table_lines(records: Sequence[Record]) -> list[str]:
    """One line per family, and one for all if there are several."""
    families = list(dict.fromkeys(record.category for record in records))
    rows = [["family", "instances", *(verdict.value for verdict in Verdict), "seconds", "PAR-2"]]
    rows += [_row(name, [r for r in records if r.category == name]) for name in families]
    return text_table(rows if len(families) < 2 else [*rows, _row("all", records)])


def finding_lines(findings: Sequence[Finding]) -> list[str]:
    """What is wrong, an instance per line."""
    lines = []
    for kind in Kind:
        own = [finding for finding in findings if finding.kind is kind]
        shown = own if kind is Kind.CONTRADICTION else own[:MOST]
        lines += [f"{kind.value}: {' '.join(finding.record.names)}: {finding.text}" for finding in shown]
        if len(shown) < len(own):
            lines.append(f"{kind.value}: and {len(own) - len(shown)} more")
    return lines


def last_line(records: Sequence[Record], total: int, findings: Sequence[Finding]) -> str:
    """The whole batch in one line."""
    counts = Counter(record.verdict for record in records)
    parts = [f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict]]
    kinds = Counter(finding.kind for finding in findings)
    names = {Kind.CONTRADICTION: "contradictions", Kind.LOST: "regressions", Kind.UNMET: "not as required"}
    names[Kind.VANISHED] = "vanished"
    names[Kind.UNPROVED] = "without a proof"
    parts += [f"{kinds[kind]} {name}" for kind, name in names.items() if kinds[kind]]
    return f"{len(records)} of {total} instances: {', '.join(parts) or 'nothing done'}"


def _row(name: str, records: Sequence[Record]) -> list[str]:
    found = tally(records)
    counts = [str(found.counts[verdict]) for verdict in Verdict]
    return [name, str(found.instances), *counts, f"{found.seconds:.1f}", f"{found.par2:.1f}"]
