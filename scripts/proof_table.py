"""Proofs of whole families: how large they are, and what searching, writing and checking take.

    python scripts/proof_table.py FAMILY... --out DIR [--first 10] [--timeout 30]

A FAMILY is a folder with an `instances.csv` and an `expected.csv`.  The first instances that are known to be `unsat`
are decided with `verify batch --proofs` and checked with `verify check --batch`, one thread each; the same command
goes on where it was.  The table is Markdown, a row per family.  DIR/FAMILY is the folder of a batch, which `verify
report` reads.
"""

from __future__ import annotations

import argparse
import csv
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from verifier.batch.checks import Check, Standing, read_checks, standing_of
from verifier.batch.instances import Key, read_expected, read_instances
from verifier.batch.records import Record, read_records
from verifier.batch.store import LINES
from verifier.result.verdict import Verdict

COLUMNS = ("family", "tried", "`unsat`", "accepted", "leaves", "bytes", "bytes / leaf")
TIMES = ("search", "writing", "checking", "least margin")


@dataclass(frozen=True)
class Row:
    """One family."""

    name: str
    records: Sequence[Record]
    checks: dict[Key, Check]

    def cells(self) -> list[str]:
        unsat = [record for record in self.records if record.verdict is Verdict.UNSAT]
        proved = [(record, record.proof) for record in unsat if record.proof is not None]
        accepted = sum(standing_of(record, self.checks) is Standing.ACCEPTED for record in unsat)
        leaves = sum(proof.leaves or 0 for _, proof in proved)
        size = sum(proof.bytes or 0 for _, proof in proved)
        searched = sum(record.phases["root"] + record.phases["search"] for record, _ in proved)
        written = sum(proof.seconds or 0.0 for _, proof in proved)
        checked = sum(check.seconds for check in self.checks.values())
        margins = [check.margin for check in self.checks.values() if check.margin is not None]
        counts = [str(len(self.records)), str(len(unsat)), str(accepted), f"{leaves:,}", f"{size:,}"]
        times = [f"{seconds:.1f} s" for seconds in (searched, written, checked)]
        least = f"{min(margins):.1e}" if margins else "-"
        return [self.name, *counts, f"{size / leaves:.0f}" if leaves else "-", *times, least]


def chosen(family: Path, folder: Path, first: int) -> Path:
    """A list of the first instances that are known to be `unsat`."""
    known = read_expected([str(family / "expected.csv")])
    instances = [i for i in read_instances([str(family)]) if known.get(i.files) is Verdict.UNSAT]
    target = folder / "lists" / family.name / "instances.csv"
    target.parent.mkdir(parents=True, exist_ok=True)
    with target.open("w", newline="") as stream:
        csv.writer(stream).writerows([*instance.files, instance.timeout or ""] for instance in instances[:first])
    return target


def measured(family: Path, folder: Path, first: int, timeout: float) -> Row:
    """Decides and checks; both may fail, which the table shows."""
    out = folder / family.name
    source, proofs = chosen(family, folder, first), str(out / "proofs")
    words = ["batch", str(source), "--out", str(out), "--proofs", proofs, "--timeout", f"{timeout:g}"]
    for command in ([*words, "--threads", "1", "--jobs", "1"], ["check", "--batch", str(out)]):
        subprocess.run([sys.executable, "-m", "verifier", *command], check=False)
    return Row(family.name, read_records(out / LINES), read_checks(out))


def main() -> None:
    parser = argparse.ArgumentParser(description="Proofs of whole families, as a table.")
    parser.add_argument("families", nargs="+", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--first", type=int, default=10, help="instances of each family")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds for each")
    given = parser.parse_args()
    rows = [measured(family.resolve(), given.out, given.first, given.timeout) for family in given.families]
    titles = [*COLUMNS, *TIMES]
    print(
        "\n".join(f"| {' | '.join(cells)} |" for cells in (titles, ["---"] * len(titles), *(r.cells() for r in rows)))
    )


if __name__ == "__main__":
    main()
