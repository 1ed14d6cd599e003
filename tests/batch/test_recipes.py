"""The recipes of the README: they can be read, and their commands understood."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import yaml

from verifier.cli.batch import batch


def blocks(root: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", (root / "README.md").read_text(), re.DOTALL | re.MULTILINE)


def test_the_yaml_can_be_read(root: Path) -> None:
    found = [yaml.safe_load(text) for text in blocks(root, "yaml")]
    assert [list(recipe) for recipe in found] == [["jobs"], ["verify"], ["repos"]]
    github, gitlab, hooks = found
    (uploaded,) = (step["with"]["path"] for step in github["jobs"]["verify"]["steps"] if "artifact" in str(step))
    assert uploaded.split() == ["results", "junit.xml"]
    assert gitlab["verify"]["artifacts"]["reports"] == {"junit": "junit.xml"}
    assert hooks["repos"][0]["hooks"][0]["entry"].startswith("verify batch ")


def test_the_commands_have_options_that_exist(root: Path) -> None:
    text = (root / "README.md").read_text()
    commands = re.findall(r"verify batch ([^\n`]*--[^\n`]*)", text)
    assert len(commands) >= 6
    for command in commands:
        options = shlex.split(command.replace("CSV_OR_FOLDER...", "folder"))
        context = batch.make_context("batch", options)
        assert context.params["out"]
