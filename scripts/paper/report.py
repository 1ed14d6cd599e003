"""Everything that is known, written down: tables (Markdown, CSV), figures, and what is missing."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch

from paper import figures
from paper.complete import Run, read_runs
from paper.plan import ABLATED, ONE_CUT, PLANET, Listed, Tuning, ablations, bounders, pairs
from paper.tables import (
    Table,
    bounds_table,
    by_method,
    common,
    complete_table,
    memory_table,
    roots_table,
    runs_table,
)
from paper.work import Work

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass
class Report:
    """The files of a folder, and the page that holds them together."""

    work: Work
    sections: list[str] = field(default_factory=list)

    def write(self, failed: Sequence[str] = ()) -> None:
        """All tables and figures for which there is something to show."""
        self.sections = []
        self._bounds()
        self._ablations()
        self._roots()
        self._complete()
        self._memory()
        (self.work.out / "report.md").write_text("\n".join([self._head(failed), *self.sections]), encoding="utf-8")

    def _head(self, failed: Sequence[str]) -> str:
        machine = f"{platform.machine()}, {os.cpu_count()} cores, torch {torch.__version__}"
        lines = ["# The paper's experiments", "", f"One thread per run; {machine}.", ""]
        absent = [f"the method {name} ({why})" for name, why in self.work.missing_methods.items()]
        absent += [f"the preset {preset.config} ({preset.name})" for preset in self.work.missing_presets]
        absent += [f"a run that failed: {name}" for name in failed]
        if absent:
            lines += ["Missing:", "", *(f"- {what}" for what in absent), ""]
        return "\n".join(lines)

    def _table(self, table: Table) -> None:
        folder = self.work.out / "tables"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{table.name}.csv").write_text(table.csv(), encoding="utf-8")
        self.sections.append(table.markdown())

    def _figure(self, name: str, figure: Figure) -> None:
        svg, *_ = figures.save(figure, self.work.out / "figures", name)
        self.sections.append(f"![{name}](figures/{svg})\n")

    def _bounds(self) -> None:
        """Incomplete verification: a table, violins and points for each network of images."""
        lines, count = self.work.bounds(), self.work.scale.iterations
        for network in self.work.scale.pictured:
            methods = [name for m in bounders(network.tuning, count) for name in (*m.stages, m.name)]
            found = by_method(lines, methods, network.name)
            if not common(found):
                continue
            title = f"Incomplete verification: {network.name}"
            self._table(bounds_table(f"incomplete_{network.name}", title, found))
            tight = {m: places for m, places in found.items() if m not in ("Wong-Kolter", "CROWN")}
            if ONE_CUT in tight:
                self._figure(f"violins_{network.name}", figures.violins(tight, ONE_CUT, title))
            shown = [pair for pair in pairs(count) if all(method in found for method in pair)]
            if PLANET in found and shown:
                self._figure(f"pointwise_{network.name}", figures.pointwise(found, PLANET, shown, title))

    def _ablations(self) -> None:
        """Selection and frequency of masks, on a part of the images of one network."""
        count = self.work.scale.iterations
        tuning = {network.name: network.tuning for network in self.work.scale.pictured}.get(ABLATED)
        if tuning is None:
            return
        yardsticks = [m for m in bounders(tuning, count) if m.name in (PLANET, ONE_CUT)]
        names = [method.name for method in (*yardsticks, *ablations(tuning, count))]
        looked_at = self.work.problems(ABLATED)[: self.work.scale.ablated]
        lines = [line for line in self.work.bounds() if line.problem in looked_at]
        found = by_method(lines, names, ABLATED)
        if common(found):
            title = f"Active Set: selection of masks and frequency of addition, {ABLATED}"
            self._table(bounds_table("ablations", title, found))
            if ONE_CUT in found:
                self._figure("violins_ablations", figures.violins(found, ONE_CUT, title))

    def _roots(self) -> None:
        names = [network.name for network in self.work.scale.listed]
        methods = [name for m in bounders(Tuning(), self.work.scale.iterations) for name in (*m.stages, m.name)]
        table = roots_table(self.work.bounds(), names, methods)
        if table.rows:
            self._table(table)

    def _complete(self) -> None:
        """Complete verification: a table and a cactus plot for each network, and all runs."""
        roots, limit = self.work.roots(), self.work.scale.seconds
        everything: dict[str, Mapping[str, Mapping[str, Run]]] = {}
        for network in self.work.scale.listed:
            problems = self.work.chosen(network, roots)
            runs = self._runs(network, problems)
            if not runs:
                continue
            everything[network.name] = runs
            self._table(complete_table(network.name, runs, problems, limit))
            baselines = [preset.name for preset in self.work.presets() if preset.baseline]
            title = f"Properties solved: {network.name}"
            self._figure(f"cactus_{network.name}", figures.cactus(runs, baselines, limit, title))
        if everything:
            self._table(runs_table(everything))

    def _runs(self, network: Listed, problems: Sequence[str]) -> dict[str, dict[str, Run]]:
        """By method, those that have been asked about all properties."""
        found = {}
        for preset in self.work.presets():
            runs = read_runs(self.work.results(network, preset))
            if problems and all(problem in runs for problem in problems):
                found[preset.name] = {problem: runs[problem] for problem in problems}
        return found

    def _memory(self) -> None:
        width = self.work.scale.width
        order = {case.key: i for i, case in enumerate(self.work.memory_cases())}
        peaks = sorted((peak for peak in self.work.peaks() if peak.key in order), key=lambda peak: order[peak.key])
        if peaks:
            self._table(memory_table(peaks, width))
            self._figure("memory", figures.memory_bars(peaks, f"Two hidden layers of {width} units"))
