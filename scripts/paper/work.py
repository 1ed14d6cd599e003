"""The work that a plan makes of the data: which files, which cells, and what of it is done."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from paper import memory
from paper.bounding import Cell, missing
from paper.data import Ball, DataFolder, write_instances, write_properties
from paper.ledger import Bounded, Ledger, Peak, Root
from paper.plan import (
    ABLATED,
    CLASSES,
    COMMON,
    Listed,
    Method,
    Preset,
    Scale,
    ablations,
    bounders,
)
from verifier.config import presets

FIXED = 0
"""The clause that is bounded beside the worst one."""


@dataclass(frozen=True)
class Work:
    """A data folder, a folder for the results, and how much is to be run."""

    data: DataFolder
    out: Path
    scale: Scale

    def roots(self) -> Ledger[Root]:
        return Ledger(self.out / "roots.jsonl", Root)

    def bounds(self) -> Ledger[Bounded]:
        return Ledger(self.out / "bounds.jsonl", Bounded)

    def peaks(self) -> Ledger[Peak]:
        return Ledger(self.out / "memory.jsonl", Peak)

    def network(self, name: str) -> Path:
        onnx = {network.name: network.onnx for network in self.scale.networks}[name]
        return self.data.network(onnx)

    def file(self, network: str, problem: str) -> Path:
        return self.out / "properties" / network / f"{problem}.vnnlib.gz"

    # ------------------------------------------------------------ problems

    def balls(self, name: str) -> list[Ball]:
        """The properties of a network that are looked at."""
        pictured = {network.name: network for network in self.scale.pictured}
        if name in pictured:
            return list(self.data.pictured(pictured[name].onnx, CLASSES))[: self.scale.images]
        network = {network.name: network for network in self.scale.listed}[name]
        first, *others = self.data.listed(network.table)
        return [first, *(ball for ball in others if not network.decided or ball.name in network.decided)]

    def write(self) -> None:
        """All properties as VNN-LIB."""
        for network in self.scale.networks:
            write_properties(self.out / "properties" / network.name, self.balls(network.name), CLASSES)

    def problems(self, name: str) -> list[str]:
        """The names of the properties of a network, in the order of the data."""
        return self._problems[name]

    @cached_property
    def _problems(self) -> dict[str, list[str]]:
        return {network.name: [ball.name for ball in self.balls(network.name)] for network in self.scale.networks}

    def chosen(self, network: Listed, roots: Ledger[Root]) -> list[str]:
        """The properties that are decided: those that are named, or some from the smallest root gap to the largest."""
        if network.decided:
            return list(network.decided)
        gaps = {line.problem: min(line.lower) for line in roots if line.network == network.name}
        known = [problem for problem in self.problems(network.name) if problem in gaps]
        return quantiles(sorted(known, key=lambda problem: -gaps[problem]), self.scale.properties)

    def list_instances(self, network: Listed, roots: Ledger[Root]) -> Path:
        """Writes the list of the properties that are decided; its path."""
        path = self.out / "properties" / f"{network.name}.csv"
        files = [self.file(network.name, problem) for problem in self.chosen(network, roots)]
        write_instances(path, self.network(network.name), files, self.scale.seconds)
        return path

    # ------------------------------------------------------------ cells

    def bound_cells(self, network: str, problem: str, roots: Ledger[Root]) -> list[Cell]:
        """The worst and one fixed clause of an image; the only clause of a listed property."""
        lower = next(line.lower for line in roots if (line.network, line.problem) == (network, problem))
        worst = lower.index(min(lower))
        absent = self.missing_methods
        methods = [m for m in self.methods(network, problem) if m.name not in absent]
        return [Cell(network, problem, clause, tuple(methods)) for clause in dict.fromkeys((worst, FIXED))]

    def methods(self, network: str, problem: str) -> tuple[Method, ...]:
        """Who bounds a property."""
        tuning = {n.name: n.tuning for n in self.scale.networks}[network]
        found = bounders(tuning, self.scale.iterations)
        if network == ABLATED and problem in self.problems(network)[: self.scale.ablated]:
            found += ablations(tuning, self.scale.iterations)
        return tuple({(m.name, str(m.options)): m for m in found}.values())

    def bounded_problems(self) -> Iterator[tuple[str, str]]:
        """All images, and the first property of each list."""
        for pictured in self.scale.pictured:
            yield from ((pictured.name, problem) for problem in self.problems(pictured.name))
        for listed in self.scale.listed:
            yield listed.name, self.problems(listed.name)[0]

    def memory_cases(self) -> list[memory.Case]:
        return memory.cases(self.scale.width, self.scale.masks)

    def presets(self) -> list[Preset]:
        return [preset for preset in self.scale.presets if preset.config in presets()]

    def results(self, network: Listed, preset: Preset) -> Path:
        """The folder of a batch."""
        return self.out / "complete" / network.name / preset.folder

    def batch(self, network: Listed, preset: Preset) -> list[str]:
        """The command that decides the properties of a network under a preset; it skips what is done."""
        overrides = [*COMMON, *preset.overrides]
        if preset.config.startswith("paper/"):
            overrides += network.overrides
        limits = ["--timeout", f"{self.scale.seconds:g}", "--threads", "1", "--jobs", "1"]
        instances = str(self.out / "properties" / f"{network.name}.csv")
        words = [sys.executable, "-m", "verifier", "batch", instances, "--out", str(self.results(network, preset))]
        words += ["--config", preset.config, *limits, "--quiet"]
        return words + [word for override in overrides for word in ("--set", override)]

    @cached_property
    def missing_methods(self) -> dict[str, str]:
        """Methods of the plan that the verifier does not have, and why."""
        everyone = {m.name: m for network, problem in self.bounded_problems() for m in self.methods(network, problem)}
        return missing(everyone.values())

    @property
    def missing_presets(self) -> list[Preset]:
        return [preset for preset in self.scale.presets if preset.config not in presets()]


def quantiles(ordered: Sequence[str], count: int) -> list[str]:
    """So many of an ordered list, evenly spread: those at the shares (k + 1/2) / count."""
    if len(ordered) <= count:
        return list(ordered)
    return [ordered[int((k + 0.5) * len(ordered) / count)] for k in range(count)]
