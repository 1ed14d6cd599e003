"""The scripts of the competition, with its arguments.

What a verifier does is played by small programs where that suffices, since they show the arguments and cannot be slow.
"""

from __future__ import annotations

import gzip
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pytest
from speed import soon

from verifier.property.vnnlib import load_property

pytestmark = pytest.mark.skipif(shutil.which("timeout") is None, reason="the scripts need GNU coreutils")

FAKE = """#!/bin/bash
# Stands in for Python: notes the arguments, then does what the test wants.
[ "$1" = -c ] && exec {python} "$@"
printf '%s\\n' "$@" > '{folder}/arguments'
while [ $# -gt 0 ]; do [ "$1" = --result ] && result=$2; shift; done
{action}
"""


@dataclass(frozen=True)
class Outcome:
    code: int
    err: str
    result: str | None


@dataclass(frozen=True)
class Competition:
    """Runs a script in a folder of its own."""

    scripts: Path
    folder: Path

    def call(self, name: str, *arguments: str, python: str = sys.executable, modules: Path | None = None) -> Outcome:
        environment = os.environ | {"STRATA_PYTHON": python, "OMP_NUM_THREADS": "1"}
        if modules is not None:
            environment["PYTHONPATH"] = str(modules)
        done = subprocess.run(
            [str(self.scripts / name), *arguments],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        result = self.folder / "result.txt"
        text = result.read_text() if result.exists() else None
        return Outcome(done.returncode, done.stderr, text)

    def run(self, net: str, prop: str, limit: str = "60", python: str = sys.executable) -> Outcome:
        return self.call("run_instance.sh", "v1", "family", net, prop, "result.txt", limit, python=python)

    def fake(self, action: str) -> str:
        path = self.folder / "python"
        path.write_text(FAKE.format(python=sys.executable, folder=self.folder, action=action))
        path.chmod(0o755)
        return str(path)

    def arguments(self) -> list[str]:
        return (self.folder / "arguments").read_text().splitlines()


@pytest.fixture
def competition(root: Path, tmp_path: Path) -> Competition:
    """Some bundled instances, in a folder with a blank in its name."""
    folder = tmp_path / "a folder"
    folder.mkdir()
    for name in ("onnx/cart_controller.onnx", "vnnlib/cart_deviation_far.vnnlib", "vnnlib/cart_v2_strict.vnnlib"):
        shutil.copy(root / "properties" / name, folder)
    return Competition(root / "scripts" / "vnncomp", folder)


def outputs(folder: Path, x: list[float]) -> np.ndarray:
    session = ort.InferenceSession(str(folder / "cart_controller.onnx"), providers=["CPUExecutionProvider"])
    source = session.get_inputs()[0]
    return session.run(None, {source.name: np.array(x, np.float32).reshape(1, -1)})[0].reshape(-1)


# ---------------------------------------------------------------- whole runs


def test_a_witness_in_the_form_of_1_0(competition: Competition) -> None:
    found = competition.run("cart_controller.onnx", "cart_deviation_far.vnnlib")
    assert found.code == 0
    first, _, witness = (found.result or "").partition("\n")
    assert first == "sat"
    assert witness.startswith("((X_0 ")
    assert witness.endswith("))\n")
    values = dict(re.findall(r"\(([XY]_\d+) ([^()\s]+)\)", witness))
    assert list(values) == ["X_0", "X_1", "X_2", "X_3", "Y_0"]
    x = [float(values[f"X_{i}"]) for i in range(4)]
    assert outputs(competition.folder, x)[0] == float(values["Y_0"])
    prop = load_property(competition.folder / "cart_deviation_far.vnnlib")
    assert prop.witnessed(np.array(x, np.float32), np.array([float(values["Y_0"])], np.float32)) is not None


def test_compressed_files_and_the_form_of_2_0(competition: Competition) -> None:
    folder = competition.folder
    for name in ("cart_controller.onnx", "cart_v2_strict.vnnlib"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
    (folder / "cart_v2_strict.vnnlib").unlink()
    prop = "cart_v2_strict.vnnlib"
    assert competition.call("prepare_instance.sh", "v1", "family", "cart_controller.onnx", prop).code == 0
    found = competition.run("cart_controller.onnx.gz", prop)
    assert found.code == 0
    first, *lines = (found.result or "").splitlines()
    assert first == "sat"
    headers = [k for k, text in enumerate(lines) if "[" in text]
    assert [lines[k].split()[1] for k in headers] == ["float32", "float32"]
    x, y = ([float(text) for text in lines[headers[0] + 1 : headers[1]]], [float(t) for t in lines[headers[1] + 1 :]])
    assert outputs(folder, x).tolist() == y
    found_clause = load_property(folder / prop).witnessed(np.array(x, np.float32), np.array(y, np.float32))
    assert found_clause is not None


def test_an_unsupported_network_is_an_error_that_was_reported(competition: Competition) -> None:
    from onnx import TensorProto, helper, save

    nodes = [helper.make_node("Hardmax", ["X"], ["Y"], "wave")]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 4]) for name in "XY"]
    graph = helper.make_graph(nodes, "g", info[:1], info[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    save(model, str(competition.folder / "odd.onnx"))
    found = competition.run("odd.onnx", "cart_deviation_far.vnnlib")
    assert (found.code, found.result) == (0, "error\n")
    assert "wave" in found.err


def test_a_time_limit_of_moments(competition: Competition) -> None:
    found, took = soon(lambda: competition.run("cart_controller.onnx", "cart_deviation_far.vnnlib", "0.4"), 5)
    assert (found.code, found.result) == (0, "timeout\n")
    assert took <= 5


# ---------------------------------------------------------------- around the verifier


@pytest.mark.parametrize(("limit", "passed"), [("116", "114"), ("20.5", "18.5"), ("4", "3")])
def test_the_limit_less_a_margin_is_passed_on(competition: Competition, limit: str, passed: str) -> None:
    python = competition.fake('echo unsat > "$result"')
    found = competition.run("n.onnx", "q.vnnlib", limit, python)
    assert (found.code, found.result) == (0, "unsat\n")
    words = competition.arguments()
    assert words[:5] == ["-m", "verifier", "q.vnnlib", "--network", "f=n.onnx"]
    assert words[words.index("--timeout") + 1] == passed


def test_a_verifier_that_hangs_is_ended_in_time(competition: Competition) -> None:
    python = competition.fake("trap '' TERM; sleep 60")
    found, took = soon(lambda: competition.run("n.onnx", "q.vnnlib", "2", python), 10)
    assert (found.code, found.result) == (0, "timeout\n")
    assert took <= 10


def test_a_verifier_that_dies_is_an_error(competition: Competition) -> None:
    found = competition.run("n.onnx", "q.vnnlib", "20", competition.fake("kill -SEGV $$"))
    assert (found.code, found.result) == (0, "error\n")


def test_exit_codes_of_answers_are_not_passed_on(competition: Competition) -> None:
    found = competition.run("n.onnx", "q.vnnlib", "20", competition.fake('echo sat > "$result"; exit 1'))
    assert (found.code, found.result) == (0, "sat\n")


def test_an_old_answer_is_not_taken_for_this_one(competition: Competition) -> None:
    (competition.folder / "result.txt").write_text("unsat\n")
    found = competition.run("n.onnx", "q.vnnlib", "20", competition.fake("exit 4"))
    assert (found.code, found.result) == (0, "error\n")


def test_lists_of_networks(competition: Competition) -> None:
    python = competition.fake('echo unsat > "$result"')
    competition.run("[('f', 'a b.onnx'), ('g', '../c.onnx')]", "q.vnnlib", "20", python)
    assert competition.arguments()[3:7] == ["--network", "f=a b.onnx", "--network", "g=../c.onnx"]
    found = competition.run("[('f', 'a.onnx'", "q.vnnlib", "20", python)
    assert (found.code, found.result) == (0, "error\n")


def test_several_networks(competition: Competition) -> None:
    """Two copies on the same inputs: their outputs cannot differ by a hundredth."""
    tensors = "(declare-input X_{0} real [4]) (declare-output Y_{0} real [1])"
    lines = ["(vnnlib-version <2.0>)", f"(declare-network f {tensors.format('f')})"]
    lines.append(f"(declare-network g (equal-to f) {tensors.format('g')})")
    lines += [f"(assert (and (<= -1 X_f[{i}] 1) (== X_f[{i}] X_g[{i}])))" for i in range(4)]
    (competition.folder / "q.vnnlib").write_text("\n".join([*lines, "(assert (>= Y_f[0] (+ Y_g[0] 0.01)))"]))
    found = competition.run("[('f', 'cart_controller.onnx'), ('g', 'cart_controller.onnx')]", "q.vnnlib")
    assert (found.code, found.result) == (0, "unsat\n")
    found = competition.run("[('f', 'cart_controller.onnx'), ('h', 'cart_controller.onnx')]", "q.vnnlib")
    assert (found.code, found.result) == (0, "error\n")
    assert "a network 'h' is given" in found.err


@pytest.mark.parametrize(
    ("script", "arguments"),
    [
        ("install_tool.sh", []),
        ("install_tool.sh", ["v2"]),
        ("prepare_instance.sh", ["v1", "family", "n.onnx"]),
        ("prepare_instance.sh", ["v1", "family", "none.onnx", "cart_deviation_far.vnnlib"]),
        ("prepare_instance.sh", ["v1", "family", "cart_controller.onnx", "none.vnnlib"]),
        ("prepare_instance.sh", ["v1", "family", "[('f', 'none.onnx')]", "cart_deviation_far.vnnlib"]),
        ("run_instance.sh", ["v1", "family", "n.onnx", "q.vnnlib", "result.txt"]),
        ("run_instance.sh", ["v2", "family", "n.onnx", "q.vnnlib", "result.txt", "20"]),
        ("run_instance.sh", ["v1", "family", "n.onnx", "q.vnnlib", "result.txt", "soon"]),
        ("run_instance.sh", ["v1", "family", "n.onnx", "q.vnnlib", "none/result.txt", "20"]),
    ],
)
def test_bad_arguments_fail_with_one_sentence(competition: Competition, script: str, arguments: list[str]) -> None:
    found = competition.call(script, *arguments, python=competition.fake("exit 0"))
    assert found.code == 1
    assert found.err.splitlines()[-1].startswith(f"{script}: ")
    assert found.result is None


@pytest.mark.slow
def test_installing_accepts_an_interpreter_that_has_everything(competition: Competition) -> None:
    assert competition.call("install_tool.sh", "v1").code == 0


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("install_tool.sh", "onnx2torch"),
        ("prepare_instance.sh", "highspy"),
        pytest.param("install_tool.sh", "highspy", marks=pytest.mark.slow),
        pytest.param("prepare_instance.sh", "onnx2torch", marks=pytest.mark.slow),
    ],
)
def test_libraries_that_cannot_be_loaded(competition: Competition, tmp_path: Path, script: str, name: str) -> None:
    """The last one of the list, and the one that the verifier loads when it reads its first file."""
    (tmp_path / f"{name}.py").write_text("raise ImportError('damaged')\n")
    instance = ["family", "cart_controller.onnx", "cart_deviation_far.vnnlib"] if script.startswith("prepare") else []
    found = competition.call(script, "v1", *instance, modules=tmp_path)
    assert found.code == 1
    assert found.err.startswith(f"{script}: ")
    assert found.err.count("\n") == 1
    assert name in found.err


def test_all_requirements_are_checked(root: Path) -> None:
    checked = (root / "scripts" / "vnncomp" / "common.sh").read_text().partition("check_imports()")[2]
    listed = (root / "pyproject.toml").read_text().partition("\ndependencies = [")[2].partition("\n]")[0]
    names = re.findall(r'^    "([\w-]+)>=', listed, re.MULTILINE)
    assert "torch" in names
    words = {"pyyaml": " yaml", "onnx2torch": "load_onnx2torch()"}  # the latter without torchvision
    for name in names:
        assert words.get(name, f" {name}") in checked


def test_installing_refuses_an_interpreter_without_the_verifier(competition: Competition) -> None:
    found = competition.call("install_tool.sh", "v1", python=competition.fake("exit 1"))
    assert found.code == 1
    assert "cannot run the verifier" in found.err
