"""A part of the package imports only parts that stand above it."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import pytest

LAYERS = (
    "checker errors files naming registry arguments output clock pixels precision cgroups processes machine "
    "ray_cluster shapes operators functions network property result bounding branching falsify search proofs config "
    "loading pipeline survey ranging api batch robustness report cli"
).split()
# Those before the operators are one layer of leaves; __init__ and __main__ open the door to everything.
DOORS = {"__init__", "__main__"}
ALONE = "checker"  # imports nothing of ours, and runs where only its folder is


def imported(path: Path, package: Path) -> set[str]:
    """The parts of the package that a file imports, inside functions too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [f"{node.module}.{a.name}" for a in node.names] if node.module == package.name else [node.module]
        elif isinstance(node, ast.ImportFrom) and ALONE in path.parts and node.level == 1:
            continue  # its own files
        elif isinstance(node, ast.ImportFrom):
            raise AssertionError(f"{path}:{node.lineno}: imports are absolute here")
        found |= {name.split(".")[1] for name in names if name.startswith(f"{package.name}.")}
    return found - {"__version__"}


def part(path: Path, package: Path) -> str:
    return path.relative_to(package).parts[0].removesuffix(".py")


def violations(package: Path) -> list[str]:
    wrong = []
    for path in sorted(package.rglob("*.py")):
        own = part(path, package)
        if own in DOORS:
            continue
        allowed = set(LAYERS[: LAYERS.index(own) + 1])
        wrong += [f"{path.relative_to(package)} imports {name}" for name in sorted(imported(path, package) - allowed)]
    return wrong


def test_each_part_imports_only_parts_above_it(root: Path) -> None:
    assert violations(root / "verifier") == []


def test_the_checker_imports_numpy_and_onnx_only(root: Path) -> None:
    for path in sorted((root / "verifier" / ALONE).glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [str(node.module)] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            foreign = {name.split(".")[0] for name in names} - set(sys.stdlib_module_names)
            assert foreign <= {"numpy", "onnx"}, f"{path.name} imports {foreign}"
            assert not isinstance(node, ast.ImportFrom) or node.level <= 1, f"{path.name} imports from outside"


@pytest.mark.parametrize(
    "line", ["from verifier.search import loop", "import verifier.cli", "from verifier import api"]
)
def test_an_upward_import_is_seen(tmp_path: Path, line: str) -> None:
    package = tmp_path / "verifier"
    (package / "bounding").mkdir(parents=True)
    (package / "bounding" / "base.py").write_text(f"def f():\n    {line}\n")
    assert len(violations(package)) == 1
