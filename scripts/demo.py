"""Decides a few of the bundled instances with the command `verify` and says what the answers mean."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MEANING = {
    "unsat": "the property holds: no input of the box leads to an unsafe output",
    "sat": "the property is violated: onnxruntime confirmed the witness below",
    "unknown": "not decided",
    "timeout": "not decided in time",
}


def chosen(table: Path, each: int = 2) -> list[tuple[str, str, str]]:
    """A few instances of each expected verdict, the first ones of the table."""
    expected = table.with_name("expected.csv")
    with expected.open(newline="") as stream:
        verdicts = {(row["onnx"], row["vnnlib"]): row["expected"] for row in csv.DictReader(stream)}
    with table.open(newline="") as stream:
        rows = [(row[0], row[1], row[2]) for row in csv.reader(stream) if row]
    picked = []
    for verdict in ("unsat", "sat"):
        picked += [row for row in rows if verdicts.get(row[:2]) == verdict][:each]
    return picked


def shorten(witness: list[str], most: int = 8) -> list[str]:
    """The witness without most of its middle."""
    if len(witness) <= most:
        return witness
    return [*witness[: most // 2], f"  ... ({len(witness) - most} more lines)", *witness[-most // 2 :]]


def main() -> int:
    folder = ROOT / "properties"
    seen = set()
    for network, prop, timeout in chosen(folder / "instances.csv"):
        command = [sys.executable, "-m", "verifier", str(folder / network), str(folder / prop), "--timeout", timeout]
        print(f"$ verify properties/{network} properties/{prop} --timeout {timeout}", flush=True)
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=False)
        if done.returncode in (2, 4):
            return done.returncode
        verdict, *witness = done.stdout.splitlines()
        print(f"{verdict}    ({MEANING[verdict]})", *shorten(witness), "", sep="\n", flush=True)
        seen.add(verdict)
    missing = {"sat", "unsat"} - seen
    if missing:
        print(f"the demo should have shown {' and '.join(sorted(missing))}", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
