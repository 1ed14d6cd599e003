"""Plots: points lie where their values are."""

from __future__ import annotations

import math
import re
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from report.lines import folder, line

from verifier.report.markup import Markup
from verifier.report.plots import TimesCurve, Scale, cactus, scatter, seconds_range, shares
from verifier.report.summary import pairs, read_runs

SECONDS = st.floats(1e-6, 1e5)


def svg(made: Markup) -> ET.Element:
    return ET.fromstring(made.text)


def of_class(root: ET.Element, name: str) -> list[ET.Element]:
    return [e for e in root.iter() if name in e.attrib.get("class", "").split()]


@given(st.lists(SECONDS, min_size=2, max_size=5), st.booleans())
def test_scales_keep_ends_and_order(values: list[float], logarithmic: bool) -> None:
    low, high = seconds_range(values)
    scale = Scale(low, high, 10.0, 110.0, logarithmic)
    assert scale(low) == pytest.approx(10.0)
    assert scale(high) == pytest.approx(110.0)
    assert [scale(v) for v in sorted(values)] == sorted(scale(v) for v in values)


@given(st.lists(SECONDS, min_size=1, max_size=5), st.none() | SECONDS)
def test_a_time_axis_shows_all_and_is_labelled(values: list[float], limit: float | None) -> None:
    low, high = seconds_range(values, limit)
    shown = [max(v, 1e-3) for v in values] + ([] if limit is None else [max(limit, low)])
    assert all(low <= v * (1 + 1e-9) and v <= high for v in shown)
    ticks = Scale(low, high, 0.0, 1.0, True).ticks()
    assert len(ticks) >= 2
    assert all(low * (1 - 1e-6) <= t <= high * (1 + 1e-6) for t in ticks)


@pytest.mark.parametrize(("high", "ticks"), [(7.0, [0, 2, 4, 6]), (1.0, [0, 1]), (120.0, [0, 50, 100])])
def test_ticks_of_a_linear_axis_are_round(high: float, ticks: list[float]) -> None:
    assert Scale(0.0, high, 0.0, 1.0).ticks() == ticks


def test_the_cactus_plot_climbs_through_the_sorted_times() -> None:
    root = svg(cactus([TimesCurve("mine", "c0", [1.0, 0.01, 0.1])], 10.0))
    (path,) = [e for e in of_class(root, "curve") if e.tag == "path"]
    numbers = [float(n) for n in re.findall(r"[\d.]+", path.attrib["d"])]
    start, xs, ys = numbers[:2], numbers[2::2], numbers[3::2]
    assert xs == sorted(xs)
    assert len(xs) == 3
    assert xs[0] - start[0] == pytest.approx(xs[1] - xs[0], abs=0.02)  # one instance, one step
    assert start[1] - ys[0] == pytest.approx(ys[0] - ys[1], abs=0.02)  # a factor of ten each
    (limit,) = of_class(root, "limit")
    assert float(limit.attrib["y1"]) < ys[-1]
    assert [t.text for t in of_class(root, "legend")] == ["mine (3)"]


def test_a_cactus_plot_of_nothing_is_a_plot() -> None:
    root = svg(cactus([TimesCurve("none", "c0", [])], None))
    assert [e for e in of_class(root, "curve") if e.tag == "path"] == []


def test_the_scatter_plot_puts_open_instances_on_the_lines(tmp_path: Path) -> None:
    one = folder(tmp_path / "one", line("a", "sat", 0.1), line("b", "unsat", 1.0), line("c", "timeout", 10.0))
    two = folder(tmp_path / "two", line("a", "sat", 1.0), line("b", "unknown", 3.0), line("c", "timeout", 10.0))
    first, second = read_runs([one, two])
    root = svg(scatter((first, second), pairs(first, second), 10.0, lambda key: f"to-{key[2]}"))
    horizontal, vertical = of_class(root, "limit")
    top, right = float(horizontal.attrib["y1"]), float(vertical.attrib["x1"])
    sat, unsat, neither = (of_class(root, kind)[0] for kind in ("sat", "unsat", "open"))
    assert float(unsat.attrib["cy"]) == top
    assert float(unsat.attrib["cx"]) < right
    assert neither.attrib["transform"] == f"translate({right:g} {top:g})"
    x, y = map(float, re.findall(r"[\d.]+", sat.attrib["transform"]))
    assert x < float(unsat.attrib["cx"])
    assert y > top
    assert next(a.attrib["href"] for a in root.iter("a")) == "#to-vnnlib/a.vnnlib"
    assert "sat 0.10 s, sat 1.00 s" in "".join(sat.itertext())


def test_shares_fill_the_bar() -> None:
    root = svg(shares({"load": 1.0, "attack": 0.0, "search": 3.0}, " s"))
    parts = of_class(root, "part")
    assert [(p.attrib["x"], p.attrib["width"]) for p in parts] == [("0.00%", "25.00%"), ("25.00%", "75.00%")]
    assert "search: 3.0 s (75%)" in "".join(root.itertext())
    assert of_class(svg(shares({"load": 0.0})), "part") == []


def test_a_point_at_zero_seconds_has_a_place() -> None:
    assert not math.isnan(Scale(*seconds_range([0.0]), 0.0, 1.0, True)(0.0))
