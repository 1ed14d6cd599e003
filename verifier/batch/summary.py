"""The table at the end of a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from verifier.batch.judge import Finding, Kind
from verifier.batch.records import Record
from verifier.output import text_table
from verifier.result.verdict import Verdict

MOST = 20
"""Findings of a kind that are listed; contradictions are listed all."""


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
    parts += [f"{kinds[kind]} {name}" for kind, name in names.items() if kinds[kind]]
    return f"{len(records)} of {total} instances: {', '.join(parts) or 'nothing done'}"


def _row(name: str, records: Sequence[Record]) -> list[str]:
    counts = Counter(record.verdict for record in records)
    seconds = sum(record.run_time for record in records)
    par2 = sum(record.par2 for record in records)
    return [name, str(len(records)), *(str(counts[v]) for v in Verdict), f"{seconds:.1f}", f"{par2:.1f}"]
