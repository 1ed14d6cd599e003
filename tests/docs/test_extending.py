"""The page on adding methods does what it says: its files, its commands and its programs are run as they stand."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from docs.pages import Page

RUNNER = """
import contextlib, io, json, shlex
from verifier.cli.main import run

def console(text):
    for part in text.split("$ ")[1:]:
        command, _, expected = part.partition("\\n")
        heard = io.StringIO()
        with contextlib.redirect_stdout(heard):
            run(shlex.split(command.removeprefix("verify ")))
        print(json.dumps([command, expected, heard.getvalue()]))

for kind, text in json.load(open("steps.json")):
    console(text) if kind == "console" else exec(text, {"__name__": "__main__"})
"""


@pytest.fixture
def page(root: Path) -> Page:
    return Page(root / "docs" / "extending.md")


def run(folder: Path, script: str, package: Path) -> str:
    """What a script says, in a process of its own: what has been registered stays."""
    environment = {"PYTHONPATH": str(package), "PATH": "/usr/bin:/bin", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_code_of_the_page_runs(page: Page, root: Path, tmp_path: Path) -> None:
    (tmp_path / "properties").symlink_to(root / "properties")
    for name, text in page.files().items():
        (tmp_path / name).write_text(text)
    steps = page.steps("console", "python")
    assert [kind for kind, _ in steps] == ["console", "python", "console", "python", "python"]
    (tmp_path / "steps.json").write_text(json.dumps(steps))
    said = [json.loads(line) for line in run(tmp_path, RUNNER, root).splitlines()]
    assert len(said) == 3
    for command, expected, heard in said:
        assert re.sub(r"; \S+ s$", "", heard.strip()) == re.sub(r"; \S+ s$", "", expected.strip()), command


def test_the_same_files_work_inside_of_the_package(page: Page, root: Path, tmp_path: Path) -> None:
    """Names and options are known at once, and torch is not loaded for them."""
    shutil.copytree(root / "verifier", tmp_path / "verifier", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(root / "configs", tmp_path / "configs")
    for package, name in {"branching": "widest.py", "bounding/solvers": "sliced.py", "functions": "asinh.py"}.items():
        (tmp_path / "verifier" / package / name).write_text(page.files()[name])
    script = """
import sys
from verifier.bounding import BOUNDERS
from verifier.config import load_config
config = load_config("auto", ["search.branching={method: widest, power: 3}", "bounding.sliced.pieces=5"])
print(config.bounding.sliced.pieces, "sliced" in BOUNDERS.names(), "torch" in sys.modules)
print(config.search.policy().brancher.options.power, config.bounding.bounder("sliced").options.pieces)
from verifier.functions import FUNCTIONS
print(FUNCTIONS.build("Asinh"))
"""
    assert run(tmp_path, script, tmp_path) == "5 True False\n3.0 5\nAsinh()\n"
