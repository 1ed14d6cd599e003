"""Every link of the documentation that stays in the repository leads to a file, and to a heading in it."""

from __future__ import annotations

from pathlib import Path

import pytest
from docs.pages import Page, anchor, pages

ELSEWHERE = ("http://", "https://", "mailto:")


def broken(page: Page) -> list[str]:
    """The links that lead nowhere.  Addresses of other hosts are not looked at: tests need no network."""
    return [link for link in page.links if not link.startswith(ELSEWHERE) and not leads_somewhere(page, link)]


def leads_somewhere(page: Page, link: str) -> bool:
    name, _, heading = link.partition("#")
    target = page if not name else Page((page.path.parent / name).resolve())
    if not target.path.exists():
        return False
    return not heading or heading in target.anchors


def test_no_link_is_broken(root: Path) -> None:
    found = pages(root)
    assert len(found) > 20
    assert sum(len(page.links) for page in found) > 80
    assert {str(page.path.relative_to(root)): broken(page) for page in found if broken(page)} == {}


def test_every_page_can_be_reached_from_the_readme(root: Path) -> None:
    waiting, reached = [root / "README.md"], set()
    while waiting:
        path = waiting.pop()
        if path in reached or path.suffix != ".md":
            continue
        reached.add(path)
        inside = [link.partition("#")[0] for link in Page(path).links if not link.startswith(ELSEWHERE)]
        waiting += [(path.parent / name).resolve() for name in inside if name]
    assert {page.path for page in pages(root)} - reached - {root / "CHANGELOG.md"} == set()


@pytest.mark.parametrize("link", ["nowhere.md", "other.md#third", "#third", "sub/other.md"])
def test_a_broken_link_is_seen(tmp_path: Path, link: str) -> None:
    (tmp_path / "other.md").write_text("# First\n\n## The `second`, too\n")
    page = tmp_path / "page.md"
    page.write_text(f"# Title\n\n[fine](other.md#the-second-too) [fine](#title) `[code](x.md)` [wrong]({link})\n")
    assert broken(Page(page)) == [link]


def test_links_in_code_are_none(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text('# Title\n\n```python title="a.py"\nx[0](nowhere.md)\n# not a heading\n```\n')
    assert Page(page).links == []
    assert Page(page).anchors == {"title"}


def test_anchors_are_those_of_github() -> None:
    assert anchor("What `unsat` and `sat` mean, and why floats do not spoil them") == (
        "what-unsat-and-sat-mean-and-why-floats-do-not-spoil-them"
    )
    assert anchor("The paper's *combinations*") == "the-papers-combinations"


def test_the_site_makes_the_same_anchors(root: Path) -> None:
    """Python-Markdown runs blanks together and GitHub does not, so links to such headings work in one place only."""
    assert [name for page in pages(root) for name in page.anchors if "--" in name] == []
