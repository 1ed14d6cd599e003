"""The Dockerfile, read as a builder reads it: instructions, arguments, stages, and the files that it copies."""

from __future__ import annotations

import json
import re
import shlex
import sys
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

KNOWN = {"ADD", "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "ONBUILD", "RUN"}
KNOWN |= {"SHELL", "STOPSIGNAL", "USER", "VOLUME", "WORKDIR"}


@dataclass(frozen=True)
class Instruction:
    word: str
    rest: str

    def words(self) -> list[str]:
        return shlex.split(self.rest)


def instructions(text: str) -> list[Instruction]:
    """Lines without comments, joined where they end in a backslash."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [Instruction(*line.split(maxsplit=1)) for line in joined.splitlines()]


def ignored(path: str, rules: list[str]) -> bool:
    """The last rule that fits decides; a rule also fits all that is inside of a folder."""
    found = False
    for rule in rules:
        pattern = rule.removeprefix("!").removeprefix("**/")
        if fnmatch(path, pattern) or fnmatch(path.split("/", maxsplit=1)[0], pattern):
            found = not rule.startswith("!")
    return found


@pytest.fixture
def dockerfile(root: Path) -> list[Instruction]:
    return instructions((root / "Dockerfile").read_text())


@pytest.fixture
def rules(root: Path) -> list[str]:
    lines = (root / ".dockerignore").read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


@pytest.fixture
def project(root: Path) -> dict:
    return tomllib.loads((root / "pyproject.toml").read_text())


def copied(dockerfile: list[Instruction]) -> list[str]:
    """What COPY takes from the clone."""
    words = [i.words() for i in dockerfile if i.word == "COPY"]
    return [source for some in words if not some[0].startswith("--from") for source in some[:-1]]


def test_instructions_are_known_and_begin_with_a_stage(dockerfile: list[Instruction]) -> None:
    assert {i.word for i in dockerfile} <= KNOWN
    assert next(i.word for i in dockerfile if i.word != "ARG") == "FROM"


def test_arguments_and_stages_are_declared_before_they_are_used(dockerfile: list[Instruction]) -> None:
    everywhere, here, stages = set[str](), set[str](), list[str]()
    for i in dockerfile:
        used = set(re.findall(r"\$\{?(\w+)", i.rest)) - {"PATH"}
        assert used <= (everywhere if i.word == "FROM" else here), i
        if i.word == "ARG":
            (here if stages else everywhere).add(i.rest.split("=")[0])
        if i.word == "FROM":
            here = set()
            words = i.words()
            stages.append(words[2] if len(words) == 3 and words[1] == "AS" else "")
        for stage in re.findall(r"--from=(\S+)", i.rest):
            assert stage in stages


def test_what_is_copied_exists_and_reaches_the_builder(
    root: Path, dockerfile: list[Instruction], rules: list[str]
) -> None:
    assert copied(dockerfile)
    for source in copied(dockerfile):
        assert (root / source).exists(), source
        assert not ignored(source, rules), source
    for name in (".git", ".venv", "tests", "docs", "properties", "build", "results"):
        assert ignored(name, rules), name


def test_the_package_is_built_from_what_is_copied(dockerfile: list[Instruction], project: dict) -> None:
    build = project["tool"]["hatch"]["build"]["targets"]["wheel"]
    needed = [*build["only-include"], *build["force-include"], project["project"]["readme"]]
    needed += project["project"]["license-files"]
    assert set(needed) <= set(copied(dockerfile))


def test_the_entry_point_is_a_command_of_the_package(dockerfile: list[Instruction], project: dict) -> None:
    (entry,) = [json.loads(i.rest) for i in dockerfile if i.word == "ENTRYPOINT"]
    assert entry[0] in project["project"]["scripts"]
    assert all(json.loads(i.rest) for i in dockerfile if i.word == "CMD")


def test_versions_are_those_of_the_project(root: Path, dockerfile: list[Instruction], project: dict) -> None:
    arguments = dict(i.rest.split("=") for i in dockerfile if i.word == "ARG")
    assert f"TORCH ?= torch=={arguments['TORCH_VERSION']}\n" in (root / "Makefile").read_text()
    least = project["project"]["requires-python"].removeprefix(">=")
    assert tuple(map(int, arguments["PYTHON"].split("."))) >= tuple(map(int, least.split(".")))
    assert arguments["TORCH"] == "cpu"
