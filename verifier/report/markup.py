"""HTML and SVG as nested calls, and numbers and verdicts as a reader wants to see them.

Plain strings are escaped; only `Markup` is taken as it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

from verifier.result.verdict import Verdict

NOTHING = "\N{EN DASH}"

VOID = frozenset(("meta", "img", "wbr"))
"""Elements of HTML without an end tag."""


@dataclass(frozen=True, slots=True)
class Markup:
    """Text that is HTML already.  Made by `tag` and `joined`; anything else must come from this package's own files."""

    text: str


Child = Markup | str | None
Value = str | float | bool | None


def tag(name: str, /, *children: Child, **attributes: Value) -> Markup:
    """An element.

    An underscore at the end of an attribute's name is dropped (`class_`), any other becomes a hyphen (`data_value`).
    None and False leave an attribute or a child out; True is an attribute without a value.
    """
    words = [name]
    for key, value in attributes.items():
        plain = key.rstrip("_").replace("_", "-")
        if value is True:
            words.append(plain)
        elif value is not None and value is not False:
            words.append(f'{plain}="{escape(number(value) if isinstance(value, float) else str(value))}"')
    opening = f"<{' '.join(words)}>"
    return Markup(opening if name in VOID else f"{opening}{joined(*children).text}</{name}>")


def joined(*children: Child) -> Markup:
    """The children one after another."""
    return Markup("".join(c.text if isinstance(c, Markup) else escape(c) for c in children if c is not None))


def breakable(text: str) -> Markup:
    """A long name that may go on in the next line after a separator."""
    return Markup(re.sub(r"(?<=[_/·-])(?=\w)", "<wbr>", escape(text)))


def number(value: float) -> str:
    """A coordinate: at most two decimals, and no more characters than it needs."""
    text = f"{value:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


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
