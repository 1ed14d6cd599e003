"""Certified accuracy against the radius, drawn with matplotlib."""

from __future__ import annotations

from pathlib import Path

from verifier.report.curves import check_drawable, empty_figure, format_of
from verifier.robustness.radii import Radii

CERTIFIED, ATTACKED = "#0072B2", "#D55E00"


def draw(found: Radii, path: str) -> None:
    """One figure: the robust accuracy lies between both curves."""
    check_drawable(path)
    figure, axes = empty_figure()
    name = "" if found.setting.network is None else Path(found.setting.network).name
    axes.set_title(f"{name}, {len(found.radii)} images", fontsize=10, loc="left")
    axes.set_xlabel("eps" if found.norm == "inf" else f"eps, in the norm {found.norm}")
    axes.set_ylabel("share of the images")
    largest = max(found.ends, default=1.0)
    ends = [0.0, *found.ends, 1.05 * largest]
    certified = [found.certified_at(eps) for eps in ends]
    # A radius that is falsified counts no more from there on, one that is certified counts up to there.
    attacked = [found.attacked_at(eps) for eps in ends]
    axes.step(ends, attacked, where="post", color=ATTACKED, linewidth=1.6, label="no counterexample is known")
    axes.step(ends, certified, where="pre", color=CERTIFIED, linewidth=1.8, label="certified")
    axes.set_xlim(0, 1.05 * largest)
    axes.set_ylim(0, 1.03)
    axes.legend(frameon=False, fontsize=9)
    figure.savefig(path, format=format_of(path))
