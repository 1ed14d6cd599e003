"""The tables: averages of what the ledgers and batches hold, as Markdown and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import mean

from paper.complete import Run
from paper.ledger import Bounded, Peak
from paper.plan import ONE_CUT, PLANET, PUBLISHED

Value = str | float | int | None
Place = tuple[str, str, int]
Bounds = Mapping[str, Mapping[Place, Bounded]]
"""By method, then by what was bounded."""


@dataclass(frozen=True)
class Table:
    """`name` is that of its file."""

    name: str
    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]
    note: str = ""

    def markdown(self) -> str:
        lines = [f"## {self.title}", ""]
        if self.note:
            lines += [self.note, ""]
        lines += [f"| {' | '.join(self.header)} |", f"|{'---|' * len(self.header)}"]
        lines += [f"| {' | '.join(map(shown, row))} |" for row in self.rows]
        return "\n".join([*lines, ""])

    def csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(self.header)
        writer.writerows(["" if value is None else value for value in row] for row in self.rows)
        return text.getvalue()


def shown(value: Value) -> str:
    """Four digits behind the point of small numbers, none of large ones."""
    if value is None:
        return "-"
    if isinstance(value, float):
        size = abs(value)
        return f"{value:.4f}" if size < 20 else f"{value:.2f}" if size < 1000 else f"{value:.0f}"
    return str(value)


# ---------------------------------------------------------------- bounds


def by_method(lines: Iterable[Bounded], methods: Iterable[str], network: str) -> Bounds:
    """The results of one network, in the order of the methods; those without any are left out."""
    found: dict[str, dict[Place, Bounded]] = {method: {} for method in methods}
    for line in lines:
        if line.network == network and line.method in found:
            found[line.method][line.place] = line
    return {method: places for method, places in found.items() if places}


def common(bounds: Bounds) -> list[Place]:
    """What all methods have bounded: only there can averages be compared."""
    return sorted(set.intersection(*(set(places) for places in bounds.values()))) if bounds else []


def bounds_table(name: str, title: str, bounds: Bounds) -> Table:
    """Mean bounds and seconds, and how the bounds lie to the Planet optimum and to one round of cuts."""
    places = common(bounds)
    rows = []
    for method, found in bounds.items():
        lower = [found[place].lower for place in places]
        rows.append(
            (
                method,
                mean(lower) if lower else None,
                mean(found[place].seconds for place in places) if places else None,
                difference(bounds, method, PLANET, places),
                difference(bounds, method, ONE_CUT, places),
                tighter(bounds, method, ONE_CUT, places),
            )
        )
    header = ("method", "mean bound", "CPU s", "above Planet", "above 1 cut", "% tighter than 1 cut")
    note = f"{len(places)} rows that all methods have bounded; lower bounds, so higher is better."
    return Table(name, title, header, tuple(rows), note)


def difference(bounds: Bounds, method: str, other: str, places: Sequence[Place]) -> float | None:
    """How much higher the bounds of a method are than those of another, on average."""
    if other not in bounds or not places:
        return None
    return mean(bounds[method][place].lower - bounds[other][place].lower for place in places)


def tighter(bounds: Bounds, method: str, other: str, places: Sequence[Place]) -> float | None:
    """On how many per cent of the rows a method is tighter than another."""
    if other not in bounds or not places or method == other:
        return None
    return 100.0 * mean(bounds[method][place].lower > bounds[other][place].lower for place in places)


def roots_table(lines: Iterable[Bounded], networks: Sequence[str], methods: Iterable[str]) -> Table:
    """Bounds of single properties beside each other, with CPU seconds."""
    kept = [line for line in lines if line.network in networks]
    places = sorted({line.place for line in kept}, key=lambda place: networks.index(place[0]))
    found = {(line.method, line.place): line for line in kept}
    rows: list[tuple[Value, ...]] = []
    for method in methods:
        cells: list[Value] = []
        for place in places:
            line = found.get((method, place))
            cells += [None, None] if line is None else [line.lower, line.seconds]
        if any(cell is not None for cell in cells):
            rows.append((method, *cells))
    header = ("method", *(word for place in places for word in (f"{place[0]} {place[1]}", "CPU s")))
    return Table("roots", "Root bounds of listed properties", header, tuple(rows))


# ---------------------------------------------------------------- complete verification


def complete_table(network: str, runs: Mapping[str, Mapping[str, Run]], problems: Sequence[str], limit: float) -> Table:
    """Averages as the paper takes them: over all properties, with the limit as the time of those without an answer.

    `runs`: by method, then by property.  Methods that have not been asked about all properties are left out.
    """
    rows: list[tuple[Value, ...]] = []
    solved_by_all = [p for p in problems if all(p in found and found[p].solved for found in runs.values())]
    for method, found in runs.items():
        if any(problem not in found for problem in problems) or not problems:
            continue
        asked = [found[problem] for problem in problems]
        published = PUBLISHED.get(method, {}).get(network, (None, None, None))
        rows.append(
            (
                method,
                mean(run.spent(limit) for run in asked),
                mean_domains(asked),
                100.0 * mean(not run.solved for run in asked),
                mean_domains([found[problem] for problem in solved_by_all]),
                *published,
            )
        )
    header = ("method", "time (s)", "subproblems", "% time-outs", "subproblems, solved by all")
    header += ("paper: time (s)", "paper: subproblems", "paper: % time-outs")
    note = (
        f"{len(problems)} properties, {limit:g} s each, one thread, no attack; {len(solved_by_all)} were solved by all"
        " methods.  The paper's columns: 100 properties, an hour each, on other hardware."
    )
    return Table(f"complete_{network}", f"Complete verification: {network}", header, tuple(rows), note)


def mean_domains(runs: Sequence[Run]) -> float | None:
    known = [run.domains for run in runs if run.domains is not None]
    return float(mean(known)) if known else None


def runs_table(runs: Mapping[str, Mapping[str, Mapping[str, Run]]]) -> Table:
    """Every run: network, method, property, and what came of it."""
    rows = [
        (network, method, run.problem, run.answer, run.seconds, run.domains)
        for network, methods in runs.items()
        for method, found in methods.items()
        for run in found.values()
    ]
    header = ("network", "method", "property", "answer", "seconds", "subproblems")
    return Table("complete", "Complete verification: all runs", header, tuple(rows))


# ---------------------------------------------------------------- memory


def memory_table(peaks: Iterable[Peak], width: int) -> Table:
    """Peaks at one width."""
    rows = tuple((peak.method, peak.what, peak.megabytes) for peak in peaks if peak.width == width)
    title = f"Peak memory, two hidden layers of {width} units"
    return Table("memory", title, ("method", "after", "MB beside the network"), rows)
