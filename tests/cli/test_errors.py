"""Bad input: one sentence on stderr, nothing on stdout, exit code 2, `error` in the files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import verifier.pipeline


def refused(outcome: Any, *words: str) -> None:
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ")
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err
    for word in words:
        assert word in outcome.err


def misused(outcome: Any, *words: str) -> None:
    """The same for a command line that cannot be understood: the usage is shown too."""
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("Usage: ")
    for word in words:
        assert word in outcome.err


@pytest.mark.parametrize("which", ["network", "property"])
@pytest.mark.parametrize("kind", ["missing", "directory", "empty", "random"])
def test_files_that_cannot_be_used(verify: Any, tiny: Any, tmp_path: Path, which: str, kind: str) -> None:
    path = tmp_path / "file"
    if kind == "directory":
        path.mkdir()
    elif kind != "missing":
        path.write_bytes(b"" if kind == "empty" else bytes(range(7, 250)))
    files = (str(path), tiny.sat) if which == "network" else (tiny.net, str(path))
    refused(verify(*files, "--result", tmp_path / "r", "--json", tmp_path / "j"), str(path))
    assert (tmp_path / "r").read_text() == "error\n"
    data = json.loads((tmp_path / "j").read_text())
    assert (data["verdict"], str(path) in data["reason"]) == ("error", True)


def test_an_unsupported_operator_names_its_node(verify: Any, tiny: Any, tmp_path: Path) -> None:
    """What cannot be bounded is attacked all the same; with the attack switched off nothing is left to do."""
    odd, quick = tiny.folder / "odd.onnx", ("--set", "falsify.seconds=0.02", "--json", tmp_path / "j")
    found = verify(odd, tiny.unsat, *quick)
    assert (found.code, found.out) == (3, "unknown\n")
    data = json.loads((tmp_path / "j").read_text())
    assert (data["verdict"], data["reason"]) == ("unknown", "unsupported")
    assert "node 'act' of type Hardmax" in data["message"]
    assert verify(odd, tiny.sat, *quick).code == 1
    refused(verify(odd, tiny.unsat, "--set", "falsify.enabled=false"), "act", "Hardmax")


def test_a_property_of_another_network(verify: Any, tiny: Any, tmp_path: Path) -> None:
    text = Path(tiny.sat).read_text() + "(declare-const X_2 Real)\n(assert (<= X_2 1.0))\n(assert (>= X_2 0.0))\n"
    (tmp_path / "p").write_text(text)
    refused(verify(tiny.net, tmp_path / "p"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "falsify.stepz=3"], ["falsify.stepz", "steps"]),
        (["--set", "falsify.steps=many"], ["falsify.steps", "int"]),
        (["--set", "nonsense"], ["nonsense"]),
        (["--config", "outo"], ["outo", "auto"]),
        (["--config", "/nowhere/c.yaml"], ["/nowhere/c.yaml"]),
        (["--timeout", "-1"], ["--timeout"]),
        (["--timeout", "nan"], ["--timeout"]),
        (["--device", "tpu"], ["tpu"]),
        (["--device", "cuda:99"], ["cuda:99"]),
    ],
)
def test_options_with_bad_values(verify: Any, tiny: Any, tmp_path: Path, options: list[str], words: list[str]) -> None:
    refused(verify(tiny.net, tiny.sat, "--result", tmp_path / "r", *options), *words)
    assert (tmp_path / "r").read_text() == "error\n"


@pytest.mark.parametrize(
    ("options", "word"),
    [
        (["--timeout", "soon"], "soon"),
        (["--threads", "0"], "--threads"),
        (["--seed", "-1"], "--seed"),
        (["--nonsense"], "--nonsense"),
        (["third.file"], "f=NET g=NET PROP"),
        (["--network", "f=a.onnx", "--network", "g=b.onnx"], "one property is expected, not 2 files"),
        (["--network", "a.onnx"], "NAME=NET"),
    ],
)
def test_command_lines_that_cannot_be_understood(
    verify: Any, tiny: Any, tmp_path: Path, options: list[str], word: str
) -> None:
    misused(verify(tiny.net, tiny.sat, f"--result={tmp_path / 'r'}", *options, "--json", tmp_path / "j"), word)
    assert (tmp_path / "r").read_text() == "error\n"
    assert json.loads((tmp_path / "j").read_text())["verdict"] == "error"


def test_several_networks_by_their_names(verify: Any, tiny: Any, tmp_path: Path) -> None:
    """Both forms are understood; a property of one network has no use for a second file."""
    for words in (
        [f"f={tiny.net}", f"g={tiny.net}", tiny.sat],
        [tiny.sat, "--network", f"f={tiny.net}", "--network", f"g={tiny.net}"],
        [f"[('f', '{tiny.net}'), ('g', '{tiny.net}')]", tiny.sat],
    ):
        refused(verify(*words), "2 networks are given, but the property speaks of one")
    assert verify(f"f={tiny.net}", tiny.sat, "-q").code == 1
    refused(verify("[('f', 3)]", tiny.sat), "[('f', 'a.onnx'), ('g', 'b.onnx')]")


def test_one_file_is_not_enough(verify: Any, tiny: Any) -> None:
    misused(verify(tiny.net), "a network and a property")
    misused(verify(tiny.sat, tiny.net, "--network", f"f={tiny.net}"), "one property")


@pytest.mark.parametrize("option", ["--json", "--result", "--counterexample"])
def test_outputs_that_cannot_be_written_are_refused_at_once(
    verify: Any, tiny: Any, tmp_path: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verifier.pipeline, "decide", None)  # must not be reached
    refused(verify(tiny.net, tiny.sat, option, tmp_path), str(tmp_path), "directory")
    refused(verify(tiny.net, tiny.sat, option, tmp_path / "none" / "f"), "does not exist")


@pytest.mark.skipif(os.geteuid() == 0, reason="the superuser may write everywhere")
def test_outputs_without_permission(verify: Any, tiny: Any, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    refused(verify(tiny.net, tiny.sat, "--result", tmp_path / "r"), "permission")


def test_internal_errors(verify: Any, tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise ZeroDivisionError("a bug\nof two lines")

    monkeypatch.setattr(verifier.pipeline, "decide", broken)
    outcome = verify(tiny.net, tiny.sat, "--result", tmp_path / "r", "--json", "-")
    assert (outcome.code, outcome.out) == (4, "")
    assert outcome.err == "error: internal error: ZeroDivisionError: a bug of two lines\n"
    assert (tmp_path / "r").read_text() == "error\n"
    verbose = verify(tiny.net, tiny.sat, "-v")
    assert verbose.code == 4
    assert "Traceback" in verbose.err


@pytest.mark.parametrize("place", ["verifier.cli.verify.instance_paths", "verifier.config.load_config"])
def test_an_early_interrupt_is_answered_too(
    verify: Any, tiny: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupted)
    outcome = verify(tiny.net, tiny.sat, "--result", tmp_path / "r", "--json", tmp_path / "j")
    assert (outcome.code, outcome.out) == (3, "unknown\n")
    assert outcome.err.strip() in ("", "undecided: the run was interrupted")
    assert (tmp_path / "r").read_text() == "unknown\n"
    assert json.loads((tmp_path / "j").read_text())["reason"] == "interrupted"


def test_an_error_leaves_no_old_answer_behind(verify: Any, tiny: Any, tmp_path: Path) -> None:
    (tmp_path / "r").write_text("unsat\n")
    verify("missing.onnx", tiny.sat, "--result", tmp_path / "r")
    assert (tmp_path / "r").read_text() == "error\n"


def test_the_list_of_commands_is_whole_on_a_small_terminal(verify: Any) -> None:
    lines = verify("--help").out.partition("Commands:\n")[2].splitlines()
    assert len(lines) >= 12
    assert all(line.endswith((".", "?")) and not line.endswith("...") for line in lines)
    assert max(map(len, lines)) <= 80
