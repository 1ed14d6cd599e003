"""Proofs of whole families: how large they are, and what searching, writing and checking take.

    python scripts/proof_table.py FAMILY... --out DIR [--resume] [--first 10] [--only '*2b*'] [--timeout 30]

A FAMILY is a folder with an `instances.csv` and an `expected.csv`.  Each of its instances that is known to be `unsat`
gets a process of its own with one thread, which decides it without a proof, with one, and checks the proof.  CPU
seconds (`time.process_time`) leave out start-up, reading and the attack; wall seconds, too; with `--repeats` they are
medians of several such rounds.  Every instance is a line of DIR/FAMILY.jsonl, where `--resume` goes on, also with other
families; the proofs are beside it.  The table is Markdown, a row per family, or per instance with `--each`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from verifier.batch.instances import Instance, read_expected, read_instances, select
from verifier.result.verdict import Verdict

ROOT = Path(__file__).resolve().parents[1]
Line = dict[str, Any]
OUTSIDE = ("load", "attack")
"""Phases that are no search."""

TITLES = (
    "instances",
    "`unsat`",
    "with a proof",
    "accepted",
    "domains",
    "with a proof",
    "leaves",
    "bytes",
    "bytes / leaf",
)
TIMES = ("search", "with a proof", "ratio", "check", "ratio", "wall", "with a proof", "check", "least margin")

# -- one instance, in a process of its own -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Spent:
    """What something took, and what came of it."""

    cpu: float
    wall: float
    found: Any


def spent(work: Callable[[], Any]) -> Spent:
    cpu, wall = time.process_time(), time.monotonic()
    found = work()
    return Spent(time.process_time() - cpu, time.monotonic() - wall, found)


def searched(net: str, prop: str, timeout: float, proof: str | None) -> Line:
    """Decides an instance; the seconds are those of root bounds, search and writing."""
    from verifier.config import load_config
    from verifier.loading import GivenFiles
    from verifier.machine import Machine
    from verifier.pipeline import Request, decide
    from verifier.result.status import Status

    class Clocked(Status):
        """Notes the CPU seconds of what is no search."""

        outside = 0.0

        @contextmanager
        def phase(self, name: str) -> Iterator[None]:
            began = time.process_time()
            with super().phase(name):
                yield
            if name in OUTSIDE:
                self.outside += time.process_time() - began

    machine = Machine("cpu", 1, timeout)
    request = Request(GivenFiles(net, prop), load_config("auto", ()), machine, proof=proof)
    given = request.status()
    status = Clocked(given.setting, given.clock, phases=given.phases)
    done = spent(lambda: decide(request, status))
    result = done.found
    wall = done.wall - sum(result.time[name] for name in OUTSIDE)
    line = {"verdict": result.verdict.value, "domains": result.statistics.domains, "message": result.message}
    return line | {"cpu": done.cpu - status.outside, "wall": wall, "proof": result.proof}


def checked(net: str, prop: str, proof: str) -> Line:
    """Checks a proof; the seconds are those that reading network and property does not take."""
    from verifier.checker.check import check
    from verifier.checker.graph import read_network
    from verifier.checker.vnnlib import read_property

    reading = spent(lambda: (read_network(unpacked(Path(net))), read_property(unpacked(Path(prop)).decode())))
    done = spent(lambda: check(net, prop, proof))
    return done.found.record | {"cpu": done.cpu - reading.cpu, "wall": done.wall - reading.wall}


def unpacked(path: Path) -> bytes:
    data = path.read_bytes()
    return gzip.decompress(data) if path.suffix == ".gz" else data


def measured(net: str, prop: str, proof: str, timeout: float, repeats: int) -> Line:
    """All of one instance: of several rounds the last, with medians of their seconds."""
    toy = ROOT / "properties"
    searched(str(toy / "onnx" / "toy.onnx"), str(toy / "vnnlib" / "toy_positive.vnnlib"), 60.0, None)  # warms up
    rounds: dict[str, list[Line]] = {"plain": [], "proved": [], "check": []}
    for _ in range(repeats):
        rounds["plain"].append(searched(net, prop, timeout, None))
        rounds["proved"].append(searched(net, prop, timeout, proof))
        if rounds["proved"][-1]["proof"] is not None:
            rounds["check"].append(checked(net, prop, proof))
    return {name: _median(lines) for name, lines in rounds.items() if lines}


def _median(lines: Sequence[Line]) -> Line:
    return lines[-1] | {key: round(statistics.median(line[key] for line in lines), 4) for key in ("cpu", "wall")}


# -- all of them -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wanted:
    """What to measure, and where it is kept."""

    out: Path
    first: int | None
    only: str | None
    timeout: float
    repeats: int

    def instances(self, family: Path) -> Sequence[Instance]:
        known = read_expected([str(family / "expected.csv")])
        unsat = [one for one in read_instances([str(family)]) if known.get(one.files) is Verdict.UNSAT]
        return select(unsat, self.only, self.first)

    def lines(self, family: Path) -> Path:
        return self.out / f"{family.name}.jsonl"

    def run(self, family: Path) -> list[Line]:
        """The lines of all instances; those that are there already, but for errors, are not measured again."""
        instances, path = self.instances(family), self.lines(family)
        proofs = self.out / family.name
        proofs.mkdir(parents=True, exist_ok=True)
        known = [line for line in read_lines(path) if "error" not in line]
        kept = {(line["network"], line["property"]): line for line in known}
        for number, one in enumerate(instances):
            if (one.onnx, one.vnnlib) in kept:
                continue
            names = {"network": one.onnx, "property": one.vnnlib}
            kept[one.onnx, one.vnnlib] = line = names | self._one(one, proofs / f"{Path(one.prop).name}.{number}.proof")
            with path.open("a") as stream:
                stream.write(json.dumps(line) + "\n")
            print(f"{family.name} {number + 1}/{len(instances)}", file=sys.stderr, flush=True)
        return [kept[one.onnx, one.vnnlib] for one in instances]

    def _one(self, one: Instance, proof: Path) -> Line:
        words = [*one.files, str(proof), f"{self.timeout:g}", str(self.repeats)]
        command = [sys.executable, str(Path(__file__).resolve()), "--one", *words]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **threads})
        if done.returncode:
            return {"error": done.stderr.strip().splitlines()[-1:]}
        found: Line = json.loads(done.stdout.splitlines()[-1])
        return found


def read_lines(path: Path) -> list[Line]:
    """What was measured; a last line that was not finished is left out."""
    if not path.exists():
        return []
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        path.write_text(whole)
    return [json.loads(line) for line in whole.splitlines()]


# -- the table ---------------------------------------------------------------------------------------------------------


def cells(name: str, lines: Sequence[Line]) -> list[str]:
    """One row; sums over the instances that both searches have proved, and medians of their ratios."""
    plain = [line for line in lines if _verdict(line, "plain") == "unsat"]
    proved = [line for line in lines if _verdict(line, "proved") == "unsat"]
    judged = [line for line in lines if "check" in line]
    accepted = [line for line in judged if line["check"]["verdict"] == "accepted"]
    both = [line for line in plain if line in accepted]
    leaves, size = (sum(line["proved"]["proof"][key] for line in judged) for key in ("leaves", "bytes"))
    domains = [sum(line[kind]["domains"] for line in both) for kind in ("plain", "proved")]
    margins = [line["check"]["margin"] for line in accepted if line["check"]["margin"] is not None]
    counts = [len(lines), len(plain), len(proved), len(accepted), *domains, leaves, size]
    total = {(kind, key): sum(line[kind][key] for line in both) for kind in KINDS for key in ("cpu", "wall")}
    cpu, wall = ([f"{total[kind, key]:.2f} s" for kind in KINDS] for key in ("cpu", "wall"))
    ratios = [_ratio(both, kind) for kind in ("proved", "check")]
    each = f"{size / leaves:.0f}" if leaves else "-"
    times = [cpu[0], cpu[1], ratios[0], cpu[2], ratios[1], *wall]
    return [name, *(f"{count:,}" for count in counts), each, *times, f"{min(margins):.1e}" if margins else "-"]


KINDS = ("plain", "proved", "check")


def _verdict(line: Line, kind: str) -> str | None:
    return line[kind]["verdict"] if kind in line else None


def _ratio(lines: Sequence[Line], kind: str) -> str:
    found = [line[kind]["cpu"] / line["plain"]["cpu"] for line in lines if line["plain"]["cpu"] > 0]
    return f"{statistics.median(found):.2f}" if found else "-"


def table(rows: Sequence[Sequence[str]]) -> str:
    titles = ["family", *TITLES, *TIMES]
    return "\n".join(f"| {' | '.join(row)} |" for row in (titles, ["---"] * len(titles), *rows))


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        net, prop, proof, timeout, repeats = sys.argv[2:]
        print(json.dumps(measured(net, prop, proof, float(timeout), int(repeats))))
        return
    parser = argparse.ArgumentParser(description="Proofs of whole families, as a table.")
    parser.add_argument("families", nargs="+", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--first", type=int, help="so many instances of each family (default: all)")
    parser.add_argument("--only", help="those whose network or property matches this pattern")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds for each search")
    parser.add_argument("--repeats", type=int, default=1, help="rounds of each instance")
    parser.add_argument("--resume", action="store_true", help="keep what DIR has, and go on")
    parser.add_argument("--each", action="store_true", help="a row for each instance")
    given = parser.parse_args()
    wanted = Wanted(given.out, given.first, given.only, given.timeout, given.repeats)
    families = [family.resolve() for family in given.families]
    known = [str(wanted.lines(family)) for family in families if wanted.lines(family).exists()]
    if known and not given.resume:
        parser.error(f"{known[0]} is there already; go on with --resume, or take another folder")
    rows = []
    for family in families:
        lines = wanted.run(family)
        rows += [
            cells(f"{Path(line['network']).name}, {Path(line['property']).name}", [line])
            for line in lines
            if given.each
        ]
        rows.append(cells(family.name, lines))
    print(table(rows))


if __name__ == "__main__":
    main()
