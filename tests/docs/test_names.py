"""What the documentation says about the tree is true: files, modules, classes and make targets that it names exist."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from docs.pages import Page, pages

PLACE = re.compile(r"\.?[\w*+-]+(?:[./][\w*+-]+)*/?")
MADE = {".git", "build", "runs", "results", "dist", "path"}
"""Folders that commands make, or that stand for the reader's own."""
HISTORY = {"CHANGELOG.md"}
"""Pages that speak of what was."""


@cache
def packages(root: Path) -> frozenset[str]:
    return frozenset(path.name for path in (root / "verifier").iterdir() if path.is_dir())


def names_a_file(span: str, root: Path) -> bool:
    """Whether a span claims that a file of the repository exists, rather than one of the reader's."""
    if not PLACE.fullmatch(span):
        return False
    first = span.partition("/")[0]
    inside = "/" in span and (first in packages(root) or ((root / first).is_dir() and first not in MADE))
    return inside or span.endswith(".py")


def exists(span: str, page: Path, root: Path) -> bool:
    """Paths count from the top, from the package or from the page; the suffix of a module may be missing."""
    bare = span.rstrip("/")
    return any(
        next(folder.glob(name), None) is not None
        for folder in (root, root / "verifier", root / "configs", page.parent)
        for name in (bare, f"{bare}.py")
    )


@cache
def defined(path: Path) -> frozenset[str]:
    """What a module defines at its top, the members of its classes as `Class.member`."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        for name in _named(node):
            found.add(name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{name}" for member in ast.walk(node) for name in _named(member)}
    return frozenset(found)


def _named(node: ast.AST) -> list[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return [node.name]
    if isinstance(node, ast.AnnAssign):
        node = node.target
    if isinstance(node, ast.Assign):
        return [name for target in node.targets for name in _named(target)]
    if isinstance(node, ast.Attribute):
        return [node.attr]
    return [node.id] if isinstance(node, ast.Name) else []


@cache
def everything(root: Path) -> frozenset[str]:
    return frozenset(name for path in (root / "verifier").rglob("*.py") for name in defined(path))


def module_or_member(dotted: str, root: Path) -> bool:
    """Whether `verifier.a.b.c` is a module, or a name that a module defines or, for the doors, hands on."""
    place, rest = root, dotted.split(".")
    while rest and (place / rest[0]).is_dir():
        place = place / rest.pop(0)
    if not rest:
        return True
    module = place / f"{rest[0]}.py"
    if module.is_file():
        return not rest[1:] or ".".join(rest[1:]) in defined(module)
    door = (place / "__init__.py").read_text()
    return re.search(rf"\b{re.escape(rest[0])}\b", door) is not None


def targets(root: Path) -> set[str]:
    return set(re.findall(r"^([a-z][a-z-]*):", (root / "Makefile").read_text(), re.MULTILINE))


def wrong(page: Page, root: Path) -> list[str]:
    """Everything that a page names and that is not there."""
    lost = [span for span in page.spans if names_a_file(span, root) and not exists(span, page.path, root)]
    dotted = re.findall(r"^::: (verifier[\w.]*)$", page.text, re.MULTILINE)
    dotted += [span for span in page.spans if re.fullmatch(r"verifier(\.\w+)+", span)]
    lost += [name for name in dotted if not module_or_member(name, root)]
    members = [span for span in page.spans if re.fullmatch(r"[A-Z][a-z]\w*\.[a-z]\w*", span)]
    lost += [name for name in members if name not in everything(root) and not (root / name).exists()]
    commands = [*page.spans, *page.blocks("sh", "console", "")]
    made = [name for text in commands for name in re.findall(r"(?:^|\$ )make ([a-z][a-z-]*)", text, re.MULTILINE)]
    return lost + [f"make {name}" for name in made if name not in targets(root)]


def test_everything_that_is_named_exists(root: Path) -> None:
    found = {
        str(page.path.relative_to(root)): wrong(page, root) for page in pages(root) if page.path.name not in HISTORY
    }
    assert {name: lost for name, lost in found.items() if lost} == {}


@pytest.mark.parametrize(
    "name",
    [
        "search/inputs/planes",
        "verifier/run/away.py",
        "nowhere.py",
        "tests/test_nothing.py",
        "verifier.errors.NoSuchError",
        "verifier.nowhere",
        "Page.no_such_member",
        "make nothing",
    ],
)
def test_a_name_of_nothing_is_seen(root: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "page.md"
    path.write_text(
        f"# Title\n\n`bounding/core`, `verifier.errors.InputError`, `make test`, `{name}` and `runs/x.csv`.\n"
    )
    assert wrong(Page(path), root) == [name]


def rows(page: Page) -> list[list[list[str]]]:
    """The tables of a page: of each row the spans of each cell."""
    lines = [line for line in page.text.splitlines() if line.startswith("|")]
    return [[re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split("|")] for line in lines]


def test_the_map_names_functions_where_they_are(root: Path) -> None:
    """In the tables of the architecture page a cell with one module is followed by a cell with names of its."""
    page = Page(root / "docs" / "architecture.md")
    seen, lost = 0, []
    for row in rows(page):
        for place, names in pairwise(row):
            if len(place) != 1 or not place[0].endswith(".py"):
                continue
            modules = [folder / place[0] for folder in (root, root / "verifier") if (folder / place[0]).is_file()]
            lost += [f"{place[0]}: {name}" for name in names if not any(name in defined(m) for m in modules)]
            seen += len(names)
    assert lost == []
    assert seen >= 20


def test_the_map_shows_every_package(root: Path) -> None:
    text = (root / "docs" / "architecture.md").read_text()
    assert [name for name in sorted(packages(root)) if f"`{name}/`" not in text and name != "__pycache__"] == []


def test_the_code_points_to_pages_that_exist(root: Path) -> None:
    kept = [path for folder in ("verifier", "scripts", "tests", "configs") for path in (root / folder).rglob("*")]
    texts = {path: path.read_text() for path in kept if path.suffix in {".py", ".yaml", ".sh"}}
    texts |= {root / "Makefile": (root / "Makefile").read_text()}
    named = {(path, name) for path, text in texts.items() for name in re.findall(r"\bdocs/[\w/]+\.md\b", text)}
    assert [f"{path}: {name}" for path, name in sorted(named) if not (root / name).is_file()] == []


def test_the_shell_scripts_import_modules_that_exist(root: Path) -> None:
    found = [path.read_text() for path in (root / "scripts").rglob("*.sh")]
    names = [name for text in found for name in re.findall(r"(?:import|from) (verifier(?:\.\w+)+)", text)]
    assert names
    assert [name for name in names if not module_or_member(name, root)] == []


def test_the_makefile_names_files_that_exist(root: Path) -> None:
    names = re.findall(r"(?:tests|scripts|configs)/[\w/]+(?:\.py)?", (root / "Makefile").read_text())
    assert len(names) > 10
    assert [name for name in names if not (root / name).exists()] == []
