"""`verify config`, usage lines, and what shells are told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from verifier.cli.main import run
from verifier.config import Config, load_config, presets


def test_presets_and_what_they_come_to(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "list"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(presets())
    assert run(["config", "show", "no_cuts", "--set", "search.batch=7"]) == 0
    plain = yaml.safe_load(capsys.readouterr().out)
    assert Config.of(plain) == load_config("no_cuts", ["search.batch=7"])


def test_all_options_or_those_that_begin_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["config", "options", "search.max_d"]) == 0
    assert capsys.readouterr().out == (
        "search.max_domains\n    give up after so many, with the bound so far\n"
        "    whole number >= 1, or null; default null\n"
    )
    assert run(["config", "options"]) == 0
    assert "search.tiers.N.learn  (method: propagated)" in capsys.readouterr().out
    assert run(["config", "options", "--schema"]) == 0
    assert "$defs" in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["config", "show", "outo"], "outo: there is no such preset"),
        (["config", "options", "nothing"], "no option begins with 'nothing'"),
        (["a.onnx", "b.vnnlib", "--config", "outo"], "--config: outo: there is no such preset or file"),
        (["a.onnx", "b.vnnlib", "--set", "falsfy.steps=1"], "--set falsfy.steps=1: falsfy: there is no such option"),
    ],
)
def test_what_is_wrong_is_named(capsys: pytest.CaptureFixture[str], words: list[str], said: str) -> None:
    assert run(words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"error: {said}")
    assert err.count("\n") == 1


def test_usage_lines_do_not_name_the_command_twice(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["net.onnx"]) == 2
    assert "Usage: verify [OPTIONS] NET PROP\nTry 'verify --help'" in capsys.readouterr().err
    assert run(["net.onnx", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: verify [OPTIONS] NET PROP\n")
    assert run(["attack", "--help"]) == 0
    assert capsys.readouterr().out.startswith("Usage: verify attack [OPTIONS] NET PROP\n")


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("verify ro", ["plain,robust"]),
        ("verify nets/a", ["file,nets/a"]),
        ("verify net.onnx prop", ["file,prop"]),
        ("verify net.onnx prop.vnnlib --config no", ["plain,no_cuts"]),
        ("verify net.onnx prop.vnnlib --set search.max_d", ["plain,search.max_domains="]),
    ],
)
def test_a_shell_that_asks_is_answered(root: Path, line: str, offered: list[str]) -> None:
    asked = {"COMP_WORDS": line, "COMP_CWORD": str(line.count(" ")), "_VERIFY_COMPLETE": "bash_complete"}
    command = [sys.executable, "-m", "verifier"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, env={**os.environ, **asked})
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, offered, "")
