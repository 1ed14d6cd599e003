"""The pages of the documentation, and what can be read off them without a Markdown library."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

FENCE = re.compile(
    r'^(?P<indent> *)```(?P<language>\w*)(?: title="(?P<title>[^"]+)")?[^\n`]*\n(?P<text>.*?)^(?P=indent)```$',
    re.DOTALL | re.MULTILINE,
)
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(\s*<?([^()\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)


@dataclass(frozen=True)
class Page:
    """A Markdown file of the repository."""

    path: Path

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def prose(self) -> str:
        """Without fenced blocks."""
        return FENCE.sub("", self.text)

    def blocks(self, *languages: str) -> list[str]:
        return [found["text"] for found in FENCE.finditer(self.text) if found["language"] in languages]

    def files(self) -> dict[str, str]:
        """Blocks with a title are files that the reader is to write."""
        return {found["title"]: found["text"] for found in FENCE.finditer(self.text) if found["title"]}

    def steps(self, *languages: str) -> list[tuple[str, str]]:
        """The other blocks, in order: language and text."""
        found = [block for block in FENCE.finditer(self.text) if not block["title"]]
        return [(block["language"], block["text"]) for block in found if block["language"] in languages]

    @cached_property
    def spans(self) -> list[str]:
        """What stands between single backticks."""
        return [" ".join(span.split()) for span in SPAN.findall(self.prose)]

    @cached_property
    def links(self) -> list[str]:
        return LINK.findall(SPAN.sub("`code`", self.prose))

    @cached_property
    def anchors(self) -> set[str]:
        """The names of the headings, as GitHub makes them."""
        seen: Counter[str] = Counter()
        names = set()
        for heading in HEADING.findall(self.prose):
            name = anchor(heading)
            names.add(f"{name}-{seen[name]}" if seen[name] else name)
            seen[name] += 1
        return names


def anchor(heading: str) -> str:
    """The name of a heading in links: lower case, no punctuation, hyphens for blanks."""
    plain = re.sub(r"[`*]|\]\([^)]*\)", "", heading).lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def pages(root: Path) -> list[Page]:
    """All pages that people read: at the top of the repository, in docs/ and beside the properties."""
    found = [*root.glob("*.md"), *root.glob("docs/**/*.md"), root / "properties" / "README.md"]
    return [Page(path) for path in sorted(found)]
