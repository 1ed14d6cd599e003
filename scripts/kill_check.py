"""Kills workers and coordinators of `--engine ray` in the middle of a search, and checks what comes of it.

    python scripts/kill_check.py --out DIR --kill workers --kills 20 --each 5 [--workers 2] [--seed 0]
    python scripts/kill_check.py --out DIR --kill coordinator --kills 20 --each 4 --case sat

A run is `verify NET PROP --engine ray --threads W --resume FOLDER` in processes of its own.  `workers`: every now and
then an actor of Ray that is at work gets SIGKILL.  `coordinator`: the process itself or its guardian does, a moment
after one of its checkpoints, `--early` ones before workers have come, and the same command is started again at
once, until it answers.  `--each` kills belong to one run.

The bounds of these runs do not depend on how the search came to a domain (no iterations, no warm starts, one level at a
time, no attack), so neither does the tree: one process, which is asked first, and any workers that live or die have to
count the same domains.  A lost domain, or one that counts twice, is another number.  A run with a witness ends
wherever that is found, so its domains are not compared.

Checked besides: verdict and exit code, that counters of the tiers make up the domains, that as many earlier runs are
told as have written a checkpoint, that no more workers are missed than were killed, that the folder has no checkpoint
in the end, and that no process is left.  Ray's own agents take up to a minute to notice that they are alone.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TICK = 0.2
PATIENCE = 120.0
"""Seconds within which whatever a run has started has to be gone."""

SAME_TREE = (
    "search.splitting=relus",
    "search.sharpen.after=null",
    "search.tiers=[{method: big_m, iterations: 0}]",
    "search.fill=1",
    "falsify.enabled=false",
)
"""A domain has one bound and one way to be split, whoever meets it when."""


@dataclass(frozen=True)
class Case:
    """An instance with its answer, and options that make its search take long enough."""

    network: str
    prop: str
    verdict: str
    options: tuple[str, ...]

    @property
    def code(self) -> int:
        return {"unsat": 0, "sat": 1}[self.verdict]

    def command(self, *more: str) -> list[str]:
        files = [
            str(ROOT / f"properties/onnx/{self.network}.onnx"),
            str(ROOT / f"properties/vnnlib/{self.prop}.vnnlib"),
        ]
        options = (*SAME_TREE, *self.options)
        return [sys.executable, "-m", "verifier", *files, *(w for o in options for w in ("--set", o)), *more]


CASES = {
    "unsat": Case("digits_conv", "conv_v2_1446", "unsat", ("bounding.intermediate=interval", "search.batch=16")),
    "sat": Case(
        "digits_fc",
        "fc_minimal_1441",
        "sat",
        ("bounding.intermediate=interval", "search.batch=2", "search.tiers=[{method: planet_lp}]"),
    ),
    "short": Case("digits_fc", "fc_branch_1438", "unsat", ("bounding.intermediate=interval", "search.batch=4")),
}


@dataclass(frozen=True)
class Plan:
    """What to do to a run."""

    kill: str  # workers, coordinator
    kills: int
    workers: int
    seconds: float  # between two checkpoints
    gap: float  # until the next kill, at most
    early: float  # the share of coordinators that die before workers have come
    timeout: float


@dataclass
class Life:
    """One process of a run, from its start to its answer or its death."""

    killed: bool = False
    wrote: bool = False  # a checkpoint
    code: int | None = None
    lost: int = 0  # workers, as the coordinator says
    again: int = 0  # domains that they had done in vain
    told: str = ""  # the coordinator's line on messages


@dataclass
class Run:
    """What happened, and what was wrong with it."""

    seed: int
    kills: int = 0
    since: list[float] = field(default_factory=list)  # seconds between a checkpoint and the coordinator's death
    lives: list[Life] = field(default_factory=list)
    seconds: float = 0.0
    gone: float = 0.0  # seconds until no process was left
    answer: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)


# -- processes ---------------------------------------------------------------------------------------------------------


class Family:
    """A process, all that come from it, and whatever else comes from these; also those whose parents have died."""

    def __init__(self, first: int) -> None:
        self._known = {first: _started(first)}

    def look(self) -> None:
        """To be called often: a process whose parent has died unseen is not known."""
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and (stat := _stat(int(folder.name))) is not None:
                parent, began = int(stat[1]), int(stat[19])
                if parent in self._known and self._known[parent] == _started(parent):
                    self._known[int(folder.name)] = began

    def alive(self) -> list[int]:
        return [
            p for p, began in self._known.items() if (s := _stat(p)) is not None and s[0] != "Z" and int(s[19]) == began
        ]

    def actors(self) -> list[int]:
        """The processes of Ray that hold a worker which follows an order: that is in their titles."""
        return [process for process in self.alive() if _title(process).startswith("ray::Actor.follow")]


def children(process: int) -> list[int]:
    """Of the guardian: the coordinator."""
    try:
        return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]
    except OSError:  # it has just ended
        return []


def _stat(process: int) -> list[str] | None:
    """State, parent and so on, from the third field of /proc/N/stat; None: there is no such process."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return None


def _started(process: int) -> int:
    stat = _stat(process)
    return -1 if stat is None else int(stat[19])


def _title(process: int) -> str:
    try:
        return Path(f"/proc/{process}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


# -- one run -----------------------------------------------------------------------------------------------------------


class Killer:
    """Decides when the next one dies."""

    def __init__(self, plan: Plan, run: Run, checkpoint: Path) -> None:
        self._plan, self._run, self._file = plan, run, checkpoint
        self._rng = random.Random(run.seed)
        self._early = False
        self._next = float("inf")
        self.before: int | None = None

    def begins(self) -> None:
        """A new process: nothing is planned for it yet."""
        self._next, self.before = float("inf"), _written(self._file)
        self._early = self._plan.kill == "coordinator" and self._rng.random() < self._plan.early

    def look(self, process: int, family: Family) -> bool:
        """Whether the coordinator was killed."""
        if self._run.kills >= self._plan.kills:
            return False
        workers, busy = self._plan.kill == "workers", family.actors()
        if (busy or self._early) and (workers or _written(self._file) != self.before) and self._next == float("inf"):
            self._next = time.monotonic() + self._rng.uniform(0.0, self._plan.gap)
        if time.monotonic() < self._next or (workers and not busy):
            return False
        self._next = float("inf")
        since = round(time.time() - (_written(self._file) or 0) / 1e9, 2)
        try:
            os.kill(self._rng.choice(busy if workers else [process, *children(process)]), signal.SIGKILL)
        except ProcessLookupError:  # it has just ended
            return False
        self._run.kills += 1
        self._run.since += [] if workers else [since]
        return not workers


def _written(file: Path) -> int | None:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return None


def one_run(case: Case, plan: Plan, seed: int, folder: Path, domains: int | None) -> Run:
    """A run that answers in the end, with so many processes as it takes."""
    run, kept = Run(seed), folder / "kept"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    killer, families, began = Killer(plan, run, kept / "checkpoint"), list[Family](), time.monotonic()
    while not run.lives or run.lives[-1].killed:
        run.lives.append(one_life(case, plan, folder, killer, families))
    run.seconds = round(time.monotonic() - began, 1)
    answer = folder / "answer.json"
    run.answer = json.loads(answer.read_text()) if answer.exists() else {}
    while (
        left := [p for family in families for p in family.alive()]
    ) and time.monotonic() - began - run.seconds < PATIENCE:
        time.sleep(TICK)
    run.gone = round(max(0.0, time.monotonic() - began - run.seconds), 1)
    run.wrong = [*judged(case, run, domains), *(f"process {p} is left: {_title(p)}" for p in left)]
    run.wrong += [f"{path.name} is left in the folder" for path in kept.iterdir() if path.name != "lock"]
    return run


def one_life(case: Case, plan: Plan, folder: Path, killer: Killer, families: list[Family]) -> Life:
    life, log = Life(), folder / "log"
    words = ["--engine", "ray", "--threads", str(plan.workers), "--resume", str(folder / "kept"), "-v"]
    words += ["--timeout", str(plan.timeout), "--set", f"search.checkpoint.seconds={plan.seconds}"]
    killer.begins()
    with log.open("wb") as stderr:
        command = case.command(*words, "--json", str(folder / "answer.json"))
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=stderr)
        family = Family(process.pid)
        families.append(family)
        while process.poll() is None:
            family.look()
            life.killed = life.killed or killer.look(process.pid, family)
            time.sleep(TICK)
    life.code = process.returncode
    life.killed &= life.code not in (0, 1)  # or else it had just answered
    life.wrote = _written(folder / "kept/checkpoint") != killer.before
    if found := re.search(r"cluster: (Traffic\(.*\))", log.read_text()):
        life.told = found[1]
        life.lost, life.again = (int(re.findall(rf"\b{name}=(\d+)", found[1])[0]) for name in ("lost", "again"))
    return life


def judged(case: Case, run: Run, domains: int | None) -> list[str]:
    """What is wrong with the answer."""
    statistics, last = run.answer.get("statistics", {}), run.lives[-1]
    expected: dict[str, tuple[Any, Any]] = {
        "verdict": (run.answer.get("verdict"), case.verdict),
        "exit code": (last.code, case.code),
        "earlier runs": (statistics.get("earlier_runs"), sum(life.wrote for life in run.lives[:-1])),
    }
    if domains is not None:
        expected["domains"] = statistics.get("domains"), domains
    tiers = sum(statistics.get("domains_by_tier", {}).values()) + statistics.get("leaves_lp", 0)
    expected["domains of all tiers"] = tiers, statistics.get("domains")
    wrong = [f"{name}: {found}, not {wanted}" for name, (found, wanted) in expected.items() if found != wanted]
    missed = sum(life.lost for life in run.lives)
    return [*wrong, f"{missed} workers were missed, {run.kills} were killed"] if missed > run.kills else wrong


# -- all of them -------------------------------------------------------------------------------------------------------


def alone(case: Case, folder: Path) -> int | None:
    """How many domains one process counts without Ray; None where that depends on when a witness is found."""
    if case.verdict == "sat":
        return None
    out = folder / "alone.json"
    if not out.exists():
        folder.mkdir(parents=True, exist_ok=True)
        subprocess.run(case.command("--threads", "1", "--json", str(out)), cwd=ROOT, check=True, capture_output=True)
    return int(json.loads(out.read_text())["statistics"]["domains"])


def table(runs: Sequence[Run]) -> str:
    """Markdown, a line per run."""
    head = ("seed", "kills", "lives", "verdict", "domains", "lost", "done again", "seconds", "gone after", "wrong")
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for run in runs:
        lost, again = sum(life.lost for life in run.lives), sum(life.again for life in run.lives)
        domains = run.answer.get("statistics", {}).get("domains")
        row = run.seed, run.kills, len(run.lives), run.answer.get("verdict"), domains, lost, again, run.seconds
        lines.append("| " + " | ".join(map(str, (*row, run.gone, "; ".join(run.wrong) or "nothing"))) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for logs, answers and the summary")
    parser.add_argument("--case", choices=CASES, default="unsat")
    parser.add_argument("--kill", choices=["workers", "coordinator"], default="workers")
    parser.add_argument("--kills", type=int, default=20, help="in all runs together, at least; 0: one run, as it is")
    parser.add_argument("--each", type=int, default=5, help="kills of one run, at most")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=2.0, help="between two checkpoints")
    parser.add_argument("--gap", type=float, default=4.0, help="seconds until the next kill, at most")
    parser.add_argument("--early", type=float, default=1 / 3, help="share of coordinators that die without workers")
    parser.add_argument("--timeout", type=float, default=900.0, help="of a run")
    options = parser.parse_args()
    names = ("kill", "workers", "seconds", "gap", "early", "timeout")
    case, plan = CASES[options.case], Plan(kills=options.each, **{name: getattr(options, name) for name in names})
    domains, runs = alone(case, options.out / options.case), list[Run]()
    while not runs or sum(run.kills for run in runs) < options.kills:
        seed = options.seed + len(runs)
        each = min(plan.kills, options.kills - sum(run.kills for run in runs))
        folder = options.out / options.case / f"{plan.kill}-{seed}"
        runs.append(one_run(case, replace(plan, kills=each), seed, folder, domains))
        summary = {
            "case": asdict(case),
            "plan": asdict(plan),
            "domains": domains,
            "runs": [asdict(run) for run in runs],
        }
        (options.out / f"{options.case}-{plan.kill}.json").write_text(json.dumps(summary, indent=1))
        print(table(runs[-1:]).splitlines()[-1], flush=True)
        if len(runs) > 10 * max(1, options.kills):
            break
    print(table(runs))
    return 1 if any(run.wrong for run in runs) else 0


if __name__ == "__main__":
    sys.exit(main())
