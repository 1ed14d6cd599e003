"""The notebook of the documentation runs from top to bottom, and what its cells show is something to look at."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest


def shown_by(source: str, names: dict[str, Any]) -> Any:
    """Runs a cell; the value of its last line if that is an expression, as a notebook shows it."""
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "cell", "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), "cell", "eval"), names)


def test_the_notebook_runs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    notebook = json.loads((root / "docs" / "notebook.ipynb").read_text())
    assert (notebook["nbformat"], notebook["cells"][0]["cell_type"]) == (4, "markdown")
    names: dict[str, Any] = {}
    shown = [shown_by("".join(c["source"]), names) for c in notebook["cells"] if c["cell_type"] == "code"]
    assert len(shown) == 6
    assert all(value is not None for value in shown)
    violated, shape, module, exported, searched, worst = shown
    assert "data:image/png" in violated._repr_html_()
    assert shape == (1, 1, 8, 8)
    assert module.verdict is exported.verdict
    assert searched.verdict.value == "unsat"
    assert worst < 0
    assert all(not cell.get("outputs") for cell in notebook["cells"])  # which would grow old
