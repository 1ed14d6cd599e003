"""The plots of a report, as SVG: cactus, scatter, bars of shares.  Colours and fonts are left to the style sheet."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from verifier.batch.instances import Names
from verifier.batch.records import Record
from verifier.report.markup import Child, Markup, joined, number, tag
from verifier.report.summary import Run
from verifier.result.verdict import Verdict

FLOOR = 1e-3
"""Seconds; what is faster is drawn as if it took that long."""


@dataclass(frozen=True, slots=True)
class TimesCurve:
    """The seconds of the instances that something solved; `kind` is its class in the style sheet."""

    name: str
    kind: str
    times: Sequence[float]


def cactus(curves: Sequence[TimesCurve], limit: float | None) -> Markup:
    """How many instances are solved within how many seconds each.

    `limit`: the time limit, if all instances have the same.
    """
    found = [replace(curve, times=sorted(max(t, FLOOR) for t in curve.times)) for curve in curves]
    most = max([len(curve.times) for curve in found] + [1])
    x = across(0, most * 1.02)
    y = up(*seconds_range([t for curve in found for t in curve.times], limit), logarithmic=True)
    lines = [_steps(x, y, curve) for curve in found]
    mark = None if limit is None else limit_line(x, y, "time limit", limit)
    labels = ("instances solved", "seconds per instance")
    return frame(x, y, labels, mark, *lines, _legend(found), title="Instances solved within a time per instance")


def _steps(x: Scale, y: Scale, curve: TimesCurve) -> Markup:
    if not curve.times:
        return joined()
    points = [(x(k + 1), y(t)) for k, t in enumerate(curve.times)]
    path = f"M{number(x(0))} {number(points[0][1])}"
    path += "".join(f"H{number(a)}V{number(b)}" for a, b in _corners(points))
    return joined(
        tag("path", d=path, class_=f"curve {curve.kind}"),
        tag("circle", cx=points[-1][0], cy=points[-1][1], r=3.5, class_=f"dot {curve.kind}"),
    )


def _corners(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Right to the end of each step, then up to the height of the next one."""
    heights = [b for _, b in points[1:]] + [points[-1][1]]
    return [(a, b) for (a, _), b in zip(points, heights, strict=True)]


def _legend(curves: Sequence[TimesCurve]) -> Markup:
    """At the lower right, where a cactus plot is empty."""
    entries = []
    right, bottom = WIDTH - RIGHT, HEIGHT - 60
    for i, curve in enumerate(curves):
        at = bottom - 18 * (len(curves) - 1 - i)
        label = f"{curve.name} ({len(curve.times)})"
        entries.append(tag("line", x1=right - 36, x2=right - 10, y1=at, y2=at, class_=f"curve {curve.kind}"))
        entries.append(tag("text", label, x=right - 42, y=at + 4, text_anchor="end", class_="legend"))
    return joined(*entries)


def scatter(
    runs: tuple[Run, Run], both: Sequence[tuple[Record, Record]], limit: float | None, anchor: Callable[[Names], str]
) -> Markup:
    """The seconds of two runs for each instance; what a run did not solve lies on its outer line.

    `limit`: the time limit, if all instances have the same; `anchor`: where the page speaks of an instance.
    """
    known = [max(r.run_time, FLOOR) for pair in both for r in pair if r.verdict.decided]
    low, high = seconds_range(known, limit)
    edge = limit if limit is not None else high
    high = max(high, edge * 1.3)
    x, y = across(low, high, logarithmic=True), up(low, high, logarithmic=True)
    lines = [
        tag("line", x1=x(low), y1=y(low), x2=x(edge), y2=y(edge), class_="diagonal"),
        limit_line(x, y, "not solved", edge),
        limit_line(x, y, "not solved", edge, vertical=True),
    ]
    marks = [_mark(x, y, edge, pair, anchor) for pair in both]
    labels = (f"seconds, {runs[0].name}", f"seconds, {runs[1].name}")
    return frame(x, y, labels, *lines, *marks, title=f"Seconds of {runs[0].name} against {runs[1].name}")


def _mark(x: Scale, y: Scale, edge: float, pair: tuple[Record, Record], anchor: Callable[[Names], str]) -> Markup:
    at = [max(r.run_time, FLOOR) if r.verdict.decided else edge for r in pair]
    decided = [r.verdict for r in pair if r.verdict.decided]
    kind = decided[0] if decided else pair[0].verdict
    told = ", ".join(f"{r.verdict.value} {r.run_time:.2f} s" for r in pair)
    title = tag("title", f"{pair[0].category}: {pair[0].onnx}, {pair[0].vnnlib}: {told}")
    return tag("a", _shape(kind, x(at[0]), y(at[1]), title), href=f"#{anchor(pair[0].names)}")


def _shape(kind: Verdict, x: float, y: float, title: Markup) -> Markup:
    """A triangle for `sat`, a circle for `unsat`, a cross for neither: not told by colour alone."""
    if kind is Verdict.UNSAT:
        return tag("circle", title, cx=x, cy=y, r=4, class_="mark unsat")
    paths = {Verdict.SAT: "M-4.5 3.5H4.5L0 -4.5Z"}
    path = paths.get(kind, "M-3.5 -3.5L3.5 3.5M-3.5 3.5L3.5 -3.5")
    name = kind.value if kind is Verdict.SAT else "open"
    where = f"translate({number(x)} {number(y)})"
    return tag("path", title, d=path, transform=where, class_=f"mark {name}")


def shares(parts: Mapping[str, float], unit: str = "") -> Markup:
    """A bar that is as wide as its surroundings, divided as the values are; each part has its name as class."""
    whole = sum(parts.values())
    pieces, start = [], 0.0
    for name, value in parts.items():
        if value > 0:
            told = f"{value:,.1f}{unit}" if unit else f"{value:,.0f}"
            title = tag("title", f"{name}: {told} ({value / whole:.0%})")
            left, width = f"{100 * start / whole:.2f}%", f"{100 * value / whole:.2f}%"
            pieces.append(tag("rect", title, x=left, width=width, y=0, height="100%", class_=f"part {name}"))
            start += value
    told = ", ".join(f"{name} {value:.3g}{unit}" for name, value in parts.items() if value > 0)
    return tag("svg", tag("title", told or "nothing"), *pieces, class_="shares", role="img")


WIDTH, HEIGHT = 480, 340
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 14, 44
"""The frame of a plot, in units of its own; the page scales it."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to coordinates; `start` and `end` are the coordinates of `low` and `high`."""

    low: float
    high: float
    start: float
    end: float
    logarithmic: bool = False

    def __call__(self, value: float) -> float:
        clipped = min(max(value, self.low), self.high)
        return self.start + self._share(clipped) * (self.end - self.start)

    def _share(self, value: float) -> float:
        if self.logarithmic:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Round values to label: powers of ten (and 2, 5 between few of them), or some five steps of 1, 2 or 5."""
        if self.logarithmic:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            steps = (1, 2, 5) if self.high < 50 * self.low else (1,)
            values = [k * 10.0**power for power in range(first, last + 1) for k in steps]
            return [v for v in values if self.low * (1 - 1e-9) <= v <= self.high * (1 + 1e-9)]
        step = _round_step((self.high - self.low) / 5)
        return [step * k for k in range(math.ceil(self.low / step), math.floor(self.high / step + 1e-9) + 1)]


def across(low: float, high: float, logarithmic: bool = False) -> Scale:
    """The scale of a horizontal axis."""
    return Scale(low, high, LEFT, WIDTH - RIGHT, logarithmic)


def up(low: float, high: float, logarithmic: bool = False) -> Scale:
    """The scale of a vertical axis."""
    return Scale(low, high, HEIGHT - BOTTOM, TOP, logarithmic)


def seconds_range(values: list[float], limit: float | None = None) -> tuple[float, float]:
    """Where a logarithmic axis of seconds begins and ends: at least a decade, and the limit is inside."""
    known = [max(value, 1e-3) for value in values] or [0.1]
    power = 10.0 ** math.floor(math.log10(min(known)) + 1e-9)
    low = max(power * k for k in (1, 2, 5) if power * k <= min(known) * (1 + 1e-9))
    high = max([*known, 10 * low, *([] if limit is None else [limit])])
    return low, high * 1.3


def frame(x: Scale, y: Scale, labels: tuple[str, str], *content: Child, title: str) -> Markup:
    """A plot: grid, axes with their labels, and the content; `title` is read out by screen readers."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    grid: list[Markup] = []
    for value in x.ticks():
        at = x(value)
        grid += [_line(at, TOP, at, bottom, "grid"), _text(at, bottom + 16, short(value), "middle")]
    for value in y.ticks():
        at = y(value)
        grid += [_line(LEFT, at, right, at, "grid"), _text(LEFT - 6, at + 4, short(value), "end")]
    middle = (TOP + bottom) / 2
    return tag(
        "svg",
        tag("title", title),
        *grid,
        _line(LEFT, bottom, right, bottom, "axis"),
        _line(LEFT, TOP, LEFT, bottom, "axis"),
        _text((LEFT + right) / 2, HEIGHT - 8, labels[0], "middle"),
        tag("text", labels[1], x=14, y=middle, text_anchor="middle", transform=f"rotate(-90 14 {middle:g})"),
        joined(*content),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        class_="plot",
    )


def limit_line(x: Scale, y: Scale, name: str, at: float, vertical: bool = False) -> Markup:
    """A dashed line at a value of one axis, with its name beside it."""
    if vertical:
        where = x(at)
        return joined(
            _line(where, y.start, where, y.end, "limit"),
            tag("text", name, x=where - 5, y=y.start - 6, text_anchor="end", class_="note"),
        )
    where = y(at)
    return joined(
        _line(x.start, where, x.end, where, "limit"),
        tag("text", name, x=x.start + 6, y=where - 5, class_="note"),
    )


def short(value: float) -> str:
    """A number on an axis."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _round_step(least: float) -> float:
    """The smallest of 1, 2, 5, 10, ... that is not less."""
    power = 10.0 ** math.floor(math.log10(max(least, 1.0)))
    return next(power * k for k in (1, 2, 5, 10) if power * k >= least - 1e-9)


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> Markup:
    return tag("line", x1=float(x1), y1=float(y1), x2=float(x2), y2=float(y2), class_=kind)


def _text(x: float, y: float, text: str, anchor: str) -> Markup:
    return tag("text", text, x=float(x), y=float(y), text_anchor=anchor)
