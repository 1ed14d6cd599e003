"""Runs the verifier over whole benchmark families and counts its answers: sat, unsat, undecided, contradictions.

    .venv/bin/python scripts/families.py FAMILY... --timeout 20 --workers 2

Each folder holds `instances.csv` (onnx,vnnlib,timeout) and, if verdicts are known, `expected.csv`.  Exit code 1 if a
verdict contradicts an expected one.
"""

from __future__ import annotations

import argparse
import csv
import json
import multiprocessing
import sys
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Instance:
    """One line of an instances.csv."""

    family: Path
    network: str
    property: str
    expected: str

    def key(self) -> str:
        return f"{self.family.name} {Path(self.network).name} {Path(self.property).name}"


@dataclass(frozen=True)
class Answer:
    """What the verifier said, by which phase, and after how long."""

    instance: Instance
    verdict: str
    phase: str
    seconds: float
    detail: str

    @property
    def contradicts(self) -> bool:
        decided = {"sat", "unsat"}
        return {self.verdict, self.instance.expected} == decided

    def line(self) -> str:
        mark = "  CONTRADICTION" if self.contradicts else ""
        known = self.instance.expected
        return f"{self.instance.key()} {self.verdict} ({known}) {self.phase} {self.seconds:.2f} s {self.detail}{mark}"


def instances(folder: Path, limit: int | None) -> list[Instance]:
    """The instances of a family, spread evenly if there is a limit."""
    known = {}
    if (folder / "expected.csv").exists():
        with (folder / "expected.csv").open(newline="") as file:
            known = {(row["onnx"], row["vnnlib"]): row["expected"] for row in csv.DictReader(file)}
    with (folder / "instances.csv").open(newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    chosen = rows if limit is None or limit >= len(rows) else [rows[i * len(rows) // limit] for i in range(limit)]
    return [Instance(folder, row[0], row[1], known.get((row[0], row[1]), "unknown")) for row in chosen]


def run(job: tuple[Instance, float, tuple[str, list[str]], int]) -> Answer:
    """Decides one instance in this process."""
    import torch

    import verifier
    from verifier.config import load_config
    from verifier.errors import VerifierError

    instance, timeout, config, threads = job
    torch.set_num_threads(threads)
    begun = time.monotonic()
    try:
        result = verifier.verify(
            instance.family / instance.network,
            instance.family / instance.property,
            config=load_config(*config),
            timeout=timeout,
            threads=threads,
        )
    except VerifierError as error:
        return Answer(instance, "error", "load", time.monotonic() - begun, str(error))
    times = {name: took for name, took in result.time.items() if name not in ("total", "load") and took > 0}
    phase = list(times)[-1] if times else "load"
    return Answer(instance, result.verdict.value, phase, time.monotonic() - begun, json.dumps(result.lower_bound))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("families", nargs="+", type=Path)
    parser.add_argument("--timeout", type=float, default=20.0)
    parser.add_argument("--config", default="auto")
    parser.add_argument("--set", dest="overrides", action="append", default=[], metavar="A.B=VALUE")
    parser.add_argument("--limit", type=int, help="at most so many instances of each family, spread evenly")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("-v", "--verbose", action="store_true", help="print every answer as it comes")
    options = parser.parse_args()
    folders = [folder for folder in options.families if (folder / "instances.csv").exists()]
    jobs = [
        (instance, options.timeout, (options.config, options.overrides), options.threads)
        for folder in folders
        for instance in instances(folder, options.limit)
    ]
    answers: list[Answer] = []
    with multiprocessing.get_context("spawn").Pool(options.workers) as pool:
        for answer in pool.imap(run, jobs):
            answers.append(answer)
            if options.verbose or answer.contradicts:
                print(answer.line(), flush=True)
    return table(folders, answers)


def table(folders: list[Path], answers: list[Answer]) -> int:
    """Prints counts per family; 1 if a verdict is contradicted."""
    print("| family | instances | sat | of expected | unsat | of expected | undecided | error | median s | wrong |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    wrong = 0
    for folder in folders:
        mine = [a for a in answers if a.instance.family == folder]
        said = Counter(a.verdict for a in mine)
        known = Counter(a.instance.expected for a in mine)
        bad = sum(a.contradicts for a in mine)
        wrong += bad
        middle = sorted(a.seconds for a in mine)[len(mine) // 2] if mine else 0.0
        undecided = said["unknown"] + said["timeout"]
        print(
            f"| {folder.name} | {len(mine)} | {said['sat']} | {known['sat']} | {said['unsat']} | {known['unsat']} "
            f"| {undecided} | {said['error']} | {middle:.2f} | {bad} |"
        )
    print(f"{len(answers)} instances, {wrong} contradictions")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
