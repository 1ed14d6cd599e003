"""Scales and axes of the plots, as SVG.  Colours and fonts are left to the style sheet."""

from __future__ import annotations

import math
from dataclasses import dataclass

from verifier.report.markup import Child, Markup, joined, tag

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
