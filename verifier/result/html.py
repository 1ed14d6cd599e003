"""A result as a notebook shows it: a small table, and the witness as a picture where it is one."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

import numpy as np

from verifier.pixels import data_uri, layout, pixels_of, shares_of_white

if TYPE_CHECKING:
    from verifier.result.counterexample import Counterexample
    from verifier.result.result import Result

COLOURS = {"sat": "#d55e00", "unsat": "#009e73"}
MEANINGS = {"sat": "the property is violated", "unsat": "the property holds"}
SHOWN = 8
"""Numbers of a witness that is no picture."""
SIDE = 112
"""Pixels of a picture's shorter side on the screen, at least."""


def result_html(result: Result) -> str:
    """Verdict, time, bound and witness; why and what to try if it is undecided.  Nothing comes from elsewhere."""
    verdict = result.verdict.value
    colour = COLOURS.get(verdict, "#666666")
    said = MEANINGS.get(verdict) or result.message or "undecided"
    rows = [("time", " + ".join(_seconds(result)))]
    if result.lower_bound is not None and result.counterexample is None:
        rows.append(("lower bound", f"{result.lower_bound:.6g}"))
    if result.statistics.domains:
        rows.append(("domains", f"{result.statistics.domains:,}"))
    cells = [f"<tr><td>{escape(name)}</td><td>{escape(text)}</td></tr>" for name, text in rows]
    if result.counterexample is not None:
        cells += [f"<tr><td>witness</td><td>{_witness(result.counterexample)}</td></tr>"]
        cells += [f"<tr><td>outputs</td><td>{escape(_numbers(result.counterexample.y))}</td></tr>"]
    if result.note is not None:
        cells.append(f"<tr><td>note</td><td>{escape(result.note)}</td></tr>")
    head = f'<b style="color:{colour}">{escape(verdict)}</b>: {escape(said)}'
    return f"<div>{head}<table>{''.join(cells)}</table></div>"


def _seconds(result: Result) -> list[str]:
    """The phases that took time, the longest first."""
    phases = {name: spent for name, spent in result.time.items() if name != "total" and spent >= 0.005}
    parts = [f"{spent:.2f} s {name}" for name, spent in sorted(phases.items(), key=lambda pair: -pair[1])]
    return parts or [f"{result.time.get('total', 0.0):.2f} s"]


def _witness(point: Counterexample) -> str:
    values = point.input if point.image is None else point.image
    found = layout(values.shape)
    if found is None:
        return escape(_numbers(point.x))
    image = found.image(np.asarray(values.reshape(-1), np.float64))
    pixels = pixels_of(shares_of_white(image))
    height, width = pixels.shape[:2]
    times = max(1, -(-SIDE // min(height, width)))
    size = f'width="{times * width}" height="{times * height}"'
    return f'<img src="{data_uri(pixels)}" {size} style="image-rendering:pixelated" alt="the witness as an image">'


def _numbers(values: np.ndarray[tuple[int, ...], np.dtype[np.floating]]) -> str:
    shown = ", ".join(f"{value:.6g}" for value in values[:SHOWN].tolist())
    return shown if len(values) <= SHOWN else f"{shown}, ... ({len(values)} numbers)"
