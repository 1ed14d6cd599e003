"""Bound against time, drawn with matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from verifier.errors import InputError
from verifier.result.lower_bounds import LowerBounds

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = {  # of Okabe and Ito: told apart by everybody, and the same for a method in every figure
    "interval": "#999999",
    "wong_kolter": "#BBBBBB",
    "crown": "#000000",
    "alpha_crown": "#0072B2",
    "propagated": "#882255",
    "big_m": "#56B4E9",
    "active_set": "#D55E00",
    "saddle_point": "#009E73",
    "as_sp": "#CC79A7",
    "bdd_plus": "#44AA99",
    "lp": "#666666",
    "lp_cuts": "#E69F00",
}
MARKERS = {"interval": "v", "wong_kolter": "D", "crown": "o", "lp": "s", "lp_cuts": "P"}
PROGRAMS = ("lp", "lp_cuts")  # references, drawn as levels


FORMATS = ("png", "svg", "pdf", "jpg", "jpeg", "webp", "tif", "tiff", "eps", "ps")
"""Formats of figures that need nothing but matplotlib."""


def check_matplotlib() -> None:
    """Raises InputError if there is nothing to draw with."""
    if find_spec("matplotlib") is None:
        raise InputError("a plot needs matplotlib: pip install matplotlib")


def check_drawable(path: str) -> None:
    """Raises InputError if there is nothing to draw with, or if the file's name asks for a format that is not there."""
    check_matplotlib()
    if format_of(path) not in FORMATS:
        raise InputError(f"a plot cannot have the format '{format_of(path)}'; there are {', '.join(FORMATS)}", path)


def empty_figure() -> tuple[Figure, Axes]:
    """A figure with a grid, for a screen or a page.  Requires: matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.0, 4.8), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.grid(True, which="major", color="#DDDDDD", linewidth=0.7)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def draw(found: Sequence[LowerBounds], path: str) -> None:
    """One figure for one instance: how the worst bound of each method grows, final values in the legend.

    Methods without iterations are marks at the moment when they were done, linear programs are levels.
    """
    check_drawable(path)
    known = [result for result in found if result.curve and result.worst is not None]
    figure, axes = empty_figure()
    axes.set_title(_title(found[0]), fontsize=10, loc="left")
    axes.set_xlabel("seconds of bounding (the bounds of hidden neurons are not counted)")
    axes.set_ylabel("lower bound of the worst clause")
    if known:
        _fill(axes, known)
    else:
        axes.text(0.5, 0.5, "no bounds were found in time", ha="center", va="center", transform=axes.transAxes)
    figure.savefig(path, format=format_of(path))


def _fill(axes: Axes, known: list[LowerBounds]) -> None:
    first, last = _times(known)
    axes.set_xlim(first, last)
    if last > 20 * first:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    low, high = _levels(known)
    axes.set_ylim(low, high)
    for result in sorted(known, key=lambda r: -(r.worst or 0.0)):
        _method(axes, result, low, last)
    if low < 0 < high:
        axes.axhline(0.0, color="#333333", linewidth=0.8)
        axes.annotate(
            "all clauses closed above",
            (1.0, 0.0),
            xytext=(-2, 3),
            xycoords=("axes fraction", "data"),
            textcoords="offset points",
            ha="right",
            fontsize=7,
            color="#333333",
        )
    axes.legend(
        title="worst bound, seconds",
        title_fontsize=8,
        fontsize=8,
        frameon=False,
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        borderaxespad=0.0,
    )


def _method(axes: Axes, result: LowerBounds, low: float, last: float) -> None:
    assert result.curve is not None
    assert result.worst is not None
    colour = COLOURS.get(result.method, "#F0E442")
    seconds, final = result.curve[-1]
    label = f"{result.method}  {final:.4g}, {seconds:.2g} s"
    marker = MARKERS.get(result.method, "o")
    if result.method in PROGRAMS:
        axes.axhline(final, color=colour, linestyle="--" if result.method == "lp" else "-.", linewidth=1.2)
    if len(result.curve) == 1 or result.method in PROGRAMS:
        below = final < low  # outside of what is shown: a mark at the lower edge says so
        axes.plot(
            [seconds],
            [low if below else final],
            color=colour,
            marker=7 if below else marker,
            markersize=7,
            linestyle="--" if result.method in PROGRAMS else "none",
            label=label + (" (below)" if below else ""),
            clip_on=False,
            zorder=3,
        )
        return
    times, values = [t for t, _ in result.curve], [v for _, v in result.curve]
    axes.step([*times, last], [*values, final], where="post", color=colour, linewidth=1.6, alpha=0.25)
    axes.step(times, values, where="post", color=colour, linewidth=1.8)
    axes.plot([seconds], [final], color=colour, marker="o", markersize=5, linewidth=1.8, label=label)


def _times(known: list[LowerBounds]) -> tuple[float, float]:
    """The range of the time axis: from the first thing to be seen, past the last."""
    times = [t for result in known for t, _ in (result.curve or ())]
    first, last = max(min(times), 1e-4), max(times)
    return 0.8 * first, 1.25 * max(last, 1.1 * first)


def _levels(known: list[LowerBounds]) -> tuple[float, float]:
    """The range of the bound axis: the final bounds and most of each curve, but nothing that is far below the rest."""
    finals = sorted(result.worst for result in known if result.worst is not None)
    middle, best = finals[len(finals) // 2], finals[-1]
    near = max(best - middle, 0.05 * max(abs(best), abs(middle), 1e-6))
    lowest = min([final for final in finals if final >= middle - 4 * near])
    lowest = min([lowest, *(max(_at_a_tenth(result), best - 20 * near) for result in known)])
    room = 0.08 * max(best - lowest, near)
    top = 0.0 if -room < best <= 0.0 else best
    return lowest - room, top + 1.5 * room


def _at_a_tenth(result: LowerBounds) -> float:
    """The bound of an iterative method after a tenth of its time: what comes before is the climb from a bad start."""
    curve = result.curve or ()
    if len(curve) < 2:
        return math.inf
    early = [value for t, value in curve if t <= curve[-1][0] / 10]
    return early[-1] if early else curve[0][1]


def _title(result: LowerBounds) -> str:
    names = [Path(name).name for name in (result.setting.network, result.setting.property) if name]
    return ", ".join(names)


def format_of(path: str) -> str:
    """By the suffix of a file."""
    return Path(path).suffix.lstrip(".").lower() or "png"
