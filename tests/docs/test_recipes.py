"""The recipes of the documentation: they can be read, their commands understood, and their Python runs."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest
import yaml
from docs.pages import Page, pages

from verifier.cli.main import program

CONTEXT = click.Context(program)


def test_the_yaml_of_ci_can_be_read(root: Path) -> None:
    found = [yaml.safe_load(text) for text in Page(root / "docs" / "ci.md").blocks("yaml")]
    assert [list(recipe) for recipe in found] == [["jobs"], ["verify"], ["repos"]]
    github, gitlab, hooks = found
    (uploaded,) = (step["with"]["path"] for step in github["jobs"]["verify"]["steps"] if "artifact" in str(step))
    assert uploaded.split() == ["results", "junit.xml"]
    assert gitlab["verify"]["artifacts"]["reports"] == {"junit": "junit.xml"}
    assert hooks["repos"][0]["hooks"][0]["entry"].startswith("verify batch ")


def commands(page: Page) -> list[str]:
    """The command lines of `verify` in blocks and, with an option, in running text."""
    blocks = "\n".join(page.blocks("sh", "console", "yaml", "")).replace("\\\n", " ")
    found = re.findall(r"(?:^|\$ |exec |entry: |- |run: )(?:\.venv/bin/)?verify ([^\n]+)", blocks, re.MULTILINE)
    return found + [span.removeprefix("verify ") for span in page.spans if re.match(r"verify .*--", span)]


def test_the_commands_have_options_that_exist(root: Path) -> None:
    found = [(page.path.name, command) for page in pages(root) for command in commands(page)]
    assert len(found) >= 25
    for name, command in found:
        words = shlex.split(re.sub(r"\.\.\.|[\[\]]", "", command).partition(" #")[0])
        if words[0] == "COMMAND" or words[-1] == "--help":
            continue
        chosen = program.get_command(CONTEXT, words[0])
        usual = program.get_command(CONTEXT, "verify")
        assert usual is not None
        arguments = words[1:] if chosen else words
        try:
            (chosen or usual).make_context("verify", [meant(word) for word in arguments])
        except (click.MissingParameter, click.BadOptionUsage):
            continue  # half a command line, in running text
        except click.ClickException as error:
            pytest.fail(f"{name}: verify {command}: {error}")


def meant(word: str) -> str:
    """A value for the word that stands for one."""
    return {"S": "1", "E": "0.1", "K": "1", "N": "1", "MB": "1", "NAME": "crown"}.get(word, word)


@pytest.mark.parametrize("name", ["README.md", "docs/python.md"])
def test_the_python_of_a_page_runs(root: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(root)
    blocks = Page(root / name).blocks("python")
    assert blocks
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, name, "exec"), names)  # from top to bottom, as a reader would
