"""One runner for all cells: a cell is a process of its own, and what it finds it writes itself."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from paper.bounding import Clauses
from paper.complete import read_runs
from paper.work import Work

Start = Callable[[Sequence[str]], int]
"""Runs a command; its exit code."""

CHOICE = "best"  # the bounds of hidden neurons by which problems are chosen
INTERMEDIATE = "paper"  # and those that all methods share


@dataclass(frozen=True)
class Errand:
    """A command, and what to call it."""

    name: str
    words: tuple[str, ...]


@dataclass
class Runner:
    """Runs errands, `jobs` of them at a time, and counts those that failed."""

    jobs: int
    start: Start
    failed: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, stage: str, errands: Sequence[Errand]) -> None:
        """All of a stage; one that fails does not stop the others."""
        done = 0

        def run(errand: Errand) -> None:
            nonlocal done
            begun = time.monotonic()
            code = self.start(errand.words)
            with self._lock:
                done += 1
                if code:
                    self.failed.append(f"{stage}: {errand.name}")
                end = f"failed ({code})" if code else f"{time.monotonic() - begun:.0f} s"
                print(f"{stage} {done}/{len(errands)}: {errand.name}, {end}", file=sys.stderr, flush=True)

        with ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(run, errands))


def in_process(words: Sequence[str]) -> int:
    """A child process that shares our stderr.  Batches tell their last line on stdout, which nobody asked for here."""
    return subprocess.run(words, stdout=subprocess.DEVNULL, check=False).returncode


# ---------------------------------------------------------------- stages: which errands are left


def roots(work: Work, again: Sequence[str]) -> list[Errand]:
    known = work.roots()
    names = [network.name for network in work.scale.networks]
    left = [name for name in names if any(f"{name} {problem}" not in known for problem in work.problems(name))]
    return [Errand(name, (*again, "--cell", "root", name)) for name in left]


def bounds(work: Work, again: Sequence[str]) -> list[Errand]:
    known, chosen = work.bounds(), work.roots()
    found = []
    for network, problem in work.bounded_problems():
        cells = work.bound_cells(network, problem, chosen)
        if any(cell.left(known.lines) for cell in cells):
            found.append(Errand(f"{network} {problem}", (*again, "--cell", "bound", network, problem)))
    return found


def memory(work: Work, again: Sequence[str]) -> list[Errand]:
    known = work.peaks()
    left = [case for case in work.memory_cases() if case.key not in known]
    return [Errand(c.key, (*again, "--cell", "memory", c.method, str(c.count))) for c in left]


def complete(work: Work, again: Sequence[str]) -> list[Errand]:
    chosen = work.roots()
    for network in work.scale.listed:
        work.list_instances(network, chosen)
    found = []
    for preset in work.presets():
        for network in work.scale.listed:
            known = read_runs(work.results(network, preset))
            if any(problem not in known for problem in work.chosen(network, chosen)):
                found.append(Errand(f"{network.name}, {preset.folder}", tuple(work.batch(network, preset))))
    return found


STAGES: dict[str, Callable[[Work, Sequence[str]], list[Errand]]] = {
    "roots": roots,
    "bounds": bounds,
    "complete": complete,
    "memory": memory,
}
"""In this order: problems are chosen by their root bounds.  `again` is the command that runs one cell."""


# ---------------------------------------------------------------- cells: what an errand does


def root_cell(work: Work, network: str) -> None:
    """CROWN's bounds of all properties of a network."""
    ledger = work.roots()
    for problem in work.problems(network):
        if f"{network} {problem}" not in ledger:
            clauses = Clauses.load(work.network(network), work.file(network, problem), CHOICE)
            ledger.add(ledger.kind(network, problem, clauses.lower("crown")))


def bound_cell(work: Work, network: str, problem: str) -> None:
    """The clauses of a property by all methods that have not bounded them."""
    ledger = work.bounds()
    clauses = Clauses.load(work.network(network), work.file(network, problem), INTERMEDIATE)
    for cell in work.bound_cells(network, problem, work.roots()):
        for method in cell.left(ledger.lines):
            for line in cell.bounded(clauses, method):
                ledger.add(line)


def memory_cell(work: Work, method: str, count: str) -> None:
    """The peak of one case."""
    case = next(c for c in work.memory_cases() if (c.method, str(c.count)) == (method, count))
    work.peaks().add(case.measured())


CELLS: dict[str, Callable[..., None]] = {"root": root_cell, "bound": bound_cell, "memory": memory_cell}


def run_cell(work: Work, words: Iterable[str]) -> None:
    """One cell in this process."""
    kind, *names = words
    CELLS[kind](work, *names)
