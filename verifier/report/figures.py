"""Numbers and verdicts as a reader wants to see them."""

from __future__ import annotations

from verifier.report.markup import Markup, tag
from verifier.result.verdict import Verdict

NOTHING = "\N{EN DASH}"


def seconds(value: float) -> str:
    """Three digits where they mean something, never an exponent."""
    if value < 10:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def count(value: int | None) -> str:
    return NOTHING if value is None else f"{value:,}"


def bound(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.4g}".replace("-", "\N{MINUS SIGN}")


def percent(part: int, whole: int) -> str:
    """Never 100 % or 0 % of what is not all or nothing."""
    if not whole:
        return NOTHING
    rounded = round(100 * part / whole)
    if part < whole:
        rounded = min(rounded, 99)
    return f"{max(rounded, 1) if part else 0} %"


def verdict(value: Verdict) -> Markup:
    """The word with a mark in its colour."""
    return tag("span", value.value, class_=f"chip {value.value}")
