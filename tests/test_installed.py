"""What an installation needs: the dependencies that it declares, the files that it ships, a name that may be taken."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli", reason="Python 3.10 has no reader of TOML")


def run(*words: str, cwd: Path, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": str(path)} if path is not None else {**os.environ}
    return subprocess.run([sys.executable, *words], capture_output=True, text=True, cwd=cwd, env=env)


@pytest.mark.parametrize("name", ["verifier.py", "verifier/__init__.py"])
def test_a_module_of_the_same_name_is_named(root: Path, tmp_path: Path, name: str) -> None:
    """The user's own `verifier` comes first on the path: no traceback, and nothing of it is run."""
    mine = tmp_path / name
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("raise RuntimeError('must not be run')")
    command = f"import sys; sys.path.insert(1, {str(root)!r}); import strata_verifier; strata_verifier.main()"
    done = run("-c", command, "--version", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith(f"error: {mine} hides Strata's package 'verifier', which is in {root}:")


def test_a_folder_without_code_is_no_such_module(root: Path, tmp_path: Path) -> None:
    """A folder of results that is called `verifier` hides nothing."""
    (tmp_path / "verifier").mkdir()
    done = run("-m", "strata_verifier", "--version", cwd=tmp_path, path=root)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("strata-verifier, version ")


def test_all_that_is_imported_is_declared(root: Path) -> None:
    """`pip install .` suffices: nothing is left to be installed by hand, but for what extras are for."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    declared = {requirement.partition(">=")[0] for requirement in project["dependencies"]}
    extras = {"matplotlib", "ray", "beartype"}
    called = {"yaml": "pyyaml", "google": "onnx"}  # protobuf, without which there is no onnx
    found = {name for path in (root / "verifier").rglob("*.py") for name in _imported(path)}
    foreign = {called.get(name, name) for name in found - set(sys.stdlib_module_names) - {"verifier"}}
    assert foreign - extras <= declared
    assert "onnx2torch" in declared  # which is imported by its name as text


def _imported(path: Path) -> set[str]:
    """The first names of all modules that a file imports, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.add(str(node.module))
    return {name.partition(".")[0] for name in names}


def test_the_source_archive_has_what_the_tests_look_at(root: Path) -> None:
    build = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    kept = {name for name in os.listdir(root) if not name.startswith(".")} & set(_tracked(root))
    added_anyway = {"pyproject.toml"}
    assert kept - added_anyway <= set(build["sdist"]["include"])


def _tracked(root: Path) -> list[str]:
    done = subprocess.run(["git", "ls-tree", "--name-only", "HEAD"], capture_output=True, text=True, cwd=root)
    if done.returncode:
        pytest.skip("not a clone")
    return done.stdout.split()
