"""The figures: violins and points of bounds, cactus plots, bars of memory; each as SVG and as PNG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from paper.complete import Run
from paper.ledger import Peak
from paper.tables import Bounds, common
from verifier.report.curves import check_matplotlib

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#999999", "#882255", "#F0E442")
"""Of Okabe and Ito: told apart by everybody."""
FORMATS = ("svg", "png")


def figure(width: float, height: float) -> Figure:
    check_matplotlib()
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    found = Figure(figsize=(width, height), dpi=150, layout="constrained")
    FigureCanvasAgg(found)
    return found


def save(found: Figure, folder: Path, name: str) -> list[str]:
    """Writes both formats; the names of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{name}.{kind}" for kind in FORMATS]
    for file in names:
        found.savefig(folder / file, metadata={"Date": None} if file.endswith("svg") else None)
    return names


def violins(bounds: Bounds, reference: str, title: str) -> Figure:
    """Above, seconds as boxes; below, how much higher each bound is than that of the reference."""
    places = common(bounds)
    methods = [method for method in bounds if method != reference]
    found = figure(1.5 + 0.75 * len(bounds), 6.5)
    above, below = found.subplots(2, 1)
    above.set_title(title, fontsize=10, loc="left")
    above.boxplot([[max(bounds[m][p].seconds, 1e-3) for p in places] for m in bounds], showfliers=False)
    above.set_yscale("log")
    above.set_ylabel("CPU seconds")
    above.set_xticks(range(1, len(bounds) + 1), labels=[""] * len(bounds))
    gaps = [[bounds[m][p].lower - bounds[reference][p].lower for p in places] for m in methods]
    at = [list(bounds).index(method) + 1 for method in methods]
    spread = [i for i, values in enumerate(gaps) if max(values) - min(values) > 0]  # no density without a spread
    if spread:
        below.violinplot([gaps[i] for i in spread], [at[i] for i in spread], showmeans=True, widths=0.8)
    for i, values in enumerate(gaps):
        below.plot([at[i]] * len(values), values, ".", color="#333333", markersize=2)
    below.axhline(0.0, color="#333333", linewidth=0.8)
    below.set_xlim(above.get_xlim())
    below.set_ylabel(f"bound - bound of {reference}")
    below.set_xticks(range(1, len(bounds) + 1), labels=list(bounds), rotation=60, ha="right", fontsize=7)
    return found


def pointwise(bounds: Bounds, reference: str, pairs: Sequence[tuple[str, str]], title: str) -> Figure:
    """For each pair of methods seconds (left) and the distance to the reference (right), one point per row."""
    places = common(bounds)
    found = figure(7.5, 3.4 * len(pairs))
    grid = found.subplots(len(pairs), 2, squeeze=False)
    found.suptitle(title, fontsize=10)
    for (left, right), pair in zip(grid, pairs, strict=True):
        seconds = [[bounds[method][place].seconds for place in places] for method in pair]
        above = [[bounds[method][p].lower - bounds[reference][p].lower for p in places] for method in pair]
        _points(left, seconds, pair, "CPU seconds")
        _points(right, above, pair, f"bound - bound of {reference}")
    return found


def _points(axes: Axes, values: Sequence[Sequence[float]], pair: tuple[str, str], what: str) -> None:
    """The second method against the first, and the line of equality."""
    axes.plot(values[0], values[1], "o", color=PALETTE[0], alpha=0.5, markersize=4)
    ends = [min(min(side) for side in values), max(max(side) for side in values)]
    axes.plot(ends, ends, ":", color="#333333", linewidth=1)
    axes.set_xlabel(f"{pair[0]}: {what}", fontsize=7)
    axes.set_ylabel(f"{pair[1]}: {what}", fontsize=7)
    axes.tick_params(labelsize=7)


def cactus(runs: Mapping[str, Mapping[str, Run]], baselines: Sequence[str], limit: float, title: str) -> Figure:
    """Per cent of the properties that are solved within how many seconds; baselines are dotted."""
    found = figure(7.5, 4.5)
    axes = found.subplots()
    axes.set_title(title, fontsize=10, loc="left")
    for i, (method, ran) in enumerate(runs.items()):
        times = sorted(run.spent(limit) for run in ran.values() if run.solved)
        shares = [100.0 * (k + 1) / len(ran) for k in range(len(times))]
        last = shares[-1] if shares else 0.0
        style = ":" if method in baselines else "-"
        colour = PALETTE[i % len(PALETTE)]
        axes.step([0.0, *times, limit], [0.0, *shares, last], style, where="post", color=colour, label=method)
    axes.set_xscale("symlog", linthresh=1.0)
    axes.set_xlim(0.0, limit)
    axes.set_ylim(0.0, 100.0)
    axes.set_xlabel("seconds")
    axes.set_ylabel("% of properties solved")
    axes.grid(True, color="#DDDDDD", linewidth=0.7)
    axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.01, 1.0))
    return found


def memory_bars(peaks: Sequence[Peak], title: str) -> Figure:
    """One bar per case."""
    found = figure(7.5, 0.6 + 0.3 * len(peaks))
    axes = found.subplots()
    axes.set_title(title, fontsize=10, loc="left")
    names = [f"{peak.method}, {peak.what}" for peak in peaks]
    axes.barh(names, [peak.megabytes for peak in peaks], color=PALETTE[0])
    axes.invert_yaxis()
    axes.set_xlabel("MB beside the network")
    return found
