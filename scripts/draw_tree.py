"""Draws the tree of a search: verify NET PROP --trace tree.jsonl; python scripts/draw_tree.py tree.jsonl -o tree.png

How large it is at each depth, how its bound rises, which tiers worked on it.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from verifier.errors import InputError, VerifierError
from verifier.report.curves import COLOURS, check_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OTHER = "#F0E442"


@dataclass(frozen=True, slots=True)
class Node:
    """One bounded domain; `depth` counts the splits on the way to it."""

    depth: int
    bound: float | None
    closed: bool
    tier: str
    time: float


@dataclass(frozen=True, slots=True)
class Tree:
    """All domains of a trace, and the global bound after each batch: the worst of what is open then."""

    nodes: tuple[Node, ...]
    rise: tuple[tuple[float, float], ...]

    def by_depth(self) -> dict[str, Counter[int]]:
        """For every tier, how many domains there are at each depth."""
        found: dict[str, Counter[int]] = {}
        for node in self.nodes:
            found.setdefault(node.tier, Counter())[node.depth] += 1
        return found

    def over_time(self) -> dict[str, list[tuple[float, int]]]:
        """For every tier, how many domains it had bounded at each moment."""
        found: dict[str, list[tuple[float, int]]] = {}
        for node in self.nodes:
            steps = found.setdefault(node.tier, [])
            steps.append((node.time, len(steps) + 1))
        return found


def read_trace(path: str) -> Tree:
    """The tree of a file of JSON lines; the last line may be torn.  Raises InputError for anything else."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"the trace cannot be read: {getattr(error, 'strerror', None) or error}", path) from error
    rows = []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(_row(line))
        except (ValueError, KeyError, TypeError) as error:
            if 1 < number == len(lines):
                break
            raise InputError("not a line of a search trace", path, number) from error
    if not rows:
        raise InputError("the trace is empty: the instance was decided without a search", path)
    return _tree(rows)


def _row(line: str) -> dict[str, Any]:
    found = json.loads(line)
    return {key: found[key] for key in ("id", "parent", "split", "bound", "closed", "tier", "time")}


def _tree(rows: Iterable[Mapping[str, Any]]) -> Tree:
    """Rows of several processes come in no order of time; a domain that comes again was closed later."""
    nodes: dict[int, Node] = {}
    depths: dict[int, int] = {}
    waiting: dict[int, float] = {}
    rise: list[tuple[float, float]] = []
    for row in sorted(rows, key=lambda row: row["time"]):
        parent = row["parent"]
        depths[row["id"]] = depth = (depths.get(parent, 0) if parent is not None else 0) + len(row["split"])
        waiting.pop(parent, None)
        waiting.pop(row["id"], None)
        if not row["closed"] and row["bound"] is not None:
            waiting[row["id"]] = row["bound"]
        begun = nodes[row["id"]].time if row["id"] in nodes else row["time"]
        nodes[row["id"]] = Node(depth, row["bound"], row["closed"], row["tier"] or "not bounded", begun)
        if waiting:
            worst = (row["time"], min(waiting.values()))
            rise = [*rise[:-1], worst] if rise and rise[-1][0] == row["time"] else [*rise, worst]
    return Tree(tuple(nodes.values()), tuple(rise))


def draw_tree(tree: Tree, path: str, title: str = "") -> None:
    """Three panels: size by depth, the global bound over time, and domains by tier over time."""
    check_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11.0, 3.6), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    depths, bounds, tiers = figure.subplots(1, 3)
    for axes in (depths, bounds, tiers):
        axes.grid(True, color="#DDDDDD", linewidth=0.7)
        axes.set_axisbelow(True)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.suptitle(title or f"{len(tree.nodes)} domains", fontsize=10, x=0.01, ha="left")
    _depths(depths, tree)
    bounds.step([t for t, _ in tree.rise], [b for _, b in tree.rise], where="post", color="#0072B2")
    bounds.set(xlabel="seconds of search", ylabel="worst bound of what is open")
    for tier, steps in tree.over_time().items():
        tiers.step(
            [t for t, _ in steps], [n for _, n in steps], where="post", color=COLOURS.get(tier, OTHER), label=tier
        )
    tiers.set(xlabel="seconds of search", ylabel="domains bounded")
    tiers.legend(frameon=False, fontsize=8)
    figure.savefig(path, format=Path(path).suffix.lstrip(".").lower() or "png")


def _depths(axes: Axes, tree: Tree) -> None:
    below: Counter[int] = Counter()
    for tier, counts in tree.by_depth().items():
        depth = sorted(counts)
        axes.bar(
            depth,
            [counts[d] for d in depth],
            bottom=[below[d] for d in depth],
            color=COLOURS.get(tier, OTHER),
            label=tier,
        )
        below.update(counts)
    axes.set(xlabel="depth (splits)", ylabel="domains")


@click.command()
@click.argument("trace")
@click.option("-o", "--output", default="tree.png", show_default=True, help="A png, svg or pdf file.")
def main(trace: str, output: str) -> None:
    """Size by depth, bounds over time and tiers of the search that wrote TRACE."""
    try:
        tree = read_trace(trace)
        draw_tree(tree, output, f"{trace}: {len(tree.nodes)} domains")
    except VerifierError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
