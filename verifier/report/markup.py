"""HTML and SVG as nested calls.  Plain strings are escaped; only `Markup` is taken as it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape

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
