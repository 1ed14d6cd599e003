"""`verify show` and `verify robust`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from verifier.property.vnnlib import load_property


def test_show_names_layers_operators_and_clauses(verify: Any, tiny: Any) -> None:
    outcome = verify("show", tiny.net, tiny.sat)
    assert (outcome.code, outcome.err) == (0, "")
    lines = {line.split()[0]: line for line in outcome.out.splitlines() if line}
    assert "[1,2] float32, 2 values" in lines["input"]
    assert "[1,1], 1 values" in lines["output"] or "output" in lines
    assert "Gemm 2, Relu 1" in lines["operators"]
    assert lines["parameters"].split()[1] == "13"
    assert "1 ReLU groups with 3 neurons" in lines["layers"]
    assert "dense 2->3 of input" in lines["group"]
    assert "1; 1 with 1 rows" in lines["clauses"]
    assert "at all ReLU groups" in lines["cuts"]
    assert "from -1 to 1, 0 of them fixed" in lines["inputs"]


def test_show_without_a_property(verify: Any, tiny: Any) -> None:
    outcome = verify("show", tiny.net)
    assert outcome.code == 0
    assert "clauses" not in outcome.out


@pytest.mark.parametrize(("kind", "lacking"), [(TensorProto.FLOAT16, "float16"), (TensorProto.FLOAT, None)])
def test_show_speaks_of_the_precision_of_the_network(
    verify: Any, tmp_path: Path, kind: int, lacking: str | None
) -> None:
    """Between 0.1 and 0.10001 there are float32 values, and none of float16."""
    ends = [helper.make_tensor_value_info(name, kind, [1, 1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), tmp_path / "n.onnx")
    (tmp_path / "p.vnnlib").write_text(
        "(declare-const X_0 Real)\n(declare-const Y_0 Real)\n"
        "(assert (>= X_0 0.1))\n(assert (<= X_0 0.10001))\n(assert (<= Y_0 0.0))\n"
    )
    outcome = verify("show", tmp_path / "n.onnx", tmp_path / "p.vnnlib")
    assert outcome.code == 0
    assert ("value inside" in outcome.out) == (lacking is not None)
    if lacking is not None:
        assert f"  {lacking}   1 boxes have an input without a {lacking} value inside" in outcome.out


def test_show_compares_the_counts_of_network_and_property(verify: Any, tiny: Any, tmp_path: Path) -> None:
    text = (
        Path(tiny.sat)
        .read_text()
        .replace("(declare-const X_0 Real)", "(declare-const X_0 Real)\n(declare-const X_2 Real)")
    )
    (tmp_path / "three.vnnlib").write_text(text + "(assert (<= X_2 1.0))\n(assert (>= X_2 0.0))\n")
    outcome = verify("show", tiny.net, tmp_path / "three.vnnlib")
    assert outcome.code == 2
    assert "error: the network has 2 inputs, but the property declares 3" in outcome.err
    assert "variables   3 inputs" in outcome.out


def test_show_tells_what_is_unsupported_and_why(verify: Any, tiny: Any) -> None:
    outcome = verify("show", tiny.folder / "odd.onnx")
    assert (outcome.code, outcome.err) == (2, "")  # what cannot be verified
    assert "unsupported node 'act' of type Hardmax" in outcome.out
    assert "Gemm 2, Hardmax 1" in outcome.out
    assert "supported   " in outcome.out


def convolutions(path: Path, pixels: int) -> Path:
    """Two convolutions without a ReLU between them, and then a group that merely shifts the first one's values."""
    kernels = [numpy_helper.from_array(np.ones((4, c, 3, 3), np.float32), f"W{c}") for c in (1, 4)]
    shift = numpy_helper.from_array(np.array([0.5], np.float32), "shift")
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["X", "W1"], ["a"], "first", pads=[1, 1, 1, 1]),
            helper.make_node("Conv", ["a", "W4"], ["b"], "second", pads=[1, 1, 1, 1]),
            helper.make_node("Relu", ["b"], ["r"], "relu"),
            helper.make_node("Sub", ["r", "shift"], ["s"], "sub"),
            helper.make_node("Relu", ["s"], ["t"], "again"),
            helper.make_node("Flatten", ["t"], ["Y"], "flat"),
        ],
        "convolutions",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [1, 1, pixels, pixels])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [1, 4 * pixels**2])],
        [*kernels, shift],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), str(path))
    return path


@pytest.mark.parametrize(("pixels", "within_reach"), [(8, True), (40, False)])
def test_show_tells_which_groups_take_no_cuts(verify: Any, tmp_path: Path, pixels: int, within_reach: bool) -> None:
    """The product of both convolutions is written out if it has few entries: 256 x 64, but not 6400 x 1600."""
    outcome = verify("show", convolutions(tmp_path / "net.onnx", pixels))
    assert (outcome.code, outcome.err) == (0, "")
    lines = outcome.out[outcome.out.index("\ncuts ") :].split("\n")[1:]
    why = "none with shared masks at group 1: the signs of its weights are out of reach"
    assert (why in outcome.out) is not within_reach
    assert ("6400 x 1600 entries" in outcome.out) is not within_reach
    assert any("none at group 2: each neuron reads a single value" in line for line in lines)


def test_show_of_a_bad_file(verify: Any, tmp_path: Path) -> None:
    (tmp_path / "x.onnx").write_bytes(b"nonsense")
    outcome = verify("show", tmp_path / "x.onnx")
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("error: ")


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three classes, y_k = x_k over 3 channels of one pixel: class k wins where x_k is largest."""
    weight = numpy_helper.from_array(np.eye(3, dtype=np.float32), "W")
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["X"], ["f"], "flat"), helper.make_node("MatMul", ["f", "W"], ["Y"], "mul")],
        "classes",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [1, 3, 1, 1])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [1, 3])],
        [weight],
    )
    path = str(tmp_path_factory.mktemp("classes") / "classes.onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def centre(tmp_path: Path, values: list[float]) -> str:
    path = tmp_path / "x.npy"
    np.save(path, np.array(values, np.float32).reshape(3, 1, 1))
    return str(path)


def test_robust_writes_a_property(verify: Any, classifier: str, tmp_path: Path) -> None:
    out = tmp_path / "p.vnnlib"
    outcome = verify(
        "robust", classifier, "--input", centre(tmp_path, [0.75, 0.25, 0]), "--label", 0, "--eps", "1/8", "-o", out
    )
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    prop = load_property(out)
    assert (prop.n_x, prop.n_y, len(prop.clauses)) == (3, 3, 2)
    assert prop.boxes.lower[0].tolist() == [0.625, 0.125, -0.125]
    assert prop.boxes.upper[0].tolist() == [0.875, 0.375, 0.125]


@pytest.mark.parametrize("spelling", [["0.25", "0.5", "0"], ["0.25,0.5,0"]])
def test_robust_normalises_and_clips(verify: Any, classifier: str, tmp_path: Path, spelling: list[str]) -> None:
    out = tmp_path / "p.vnnlib"
    argv = ["robust", "--mean", *spelling, "--std", "0.5", classifier, "--clip", "0", "0.8125", "--norm", "inf"]
    outcome = verify(*argv, "--input", centre(tmp_path, [0.75, 0.25, 0]), "--label", "0", "--eps", "0.125", "-o", out)
    assert outcome.code == 0, outcome.err
    prop = load_property(out)
    assert prop.boxes.lower[0].tolist() == [0.75, -0.75, 0.0]
    assert prop.boxes.upper[0].tolist() == [1.125, -0.25, 0.25]


@pytest.mark.parametrize(("eps", "answer", "code"), [("0.2", "unsat", 0), ("0.25", "sat", 1)])
def test_robust_decides(verify: Any, classifier: str, tmp_path: Path, eps: str, answer: str, code: int) -> None:
    argv = ["--input", centre(tmp_path, [0.75, 0.25, 0]), "--label", "0", "--eps", eps, "-o", tmp_path / "p.vnnlib"]
    outcome = verify("robust", classifier, *argv, "--verify", "--result", tmp_path / "r")
    assert outcome.code == code
    assert outcome.out.split("\n")[0] == answer
    assert (tmp_path / "r").read_text() == outcome.out


def test_robust_warns_of_a_label_that_does_not_win(verify: Any, classifier: str, tmp_path: Path) -> None:
    argv = ["--input", centre(tmp_path, [0.75, 0.25, 0]), "--eps", "0.1", "-o", tmp_path / "p.vnnlib"]
    outcome = verify("robust", classifier, *argv, "--label", "2")
    assert outcome.code == 0
    assert outcome.err.startswith("warning: ")
    assert "class at the input is 0, not 2" in outcome.err


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"--label": "3"}, "label 3"),
        ({"--eps": "-1"}, "eps"),
        ({"--eps": "much"}, "eps"),
        ({"--input": "missing.npy"}, "missing.npy"),
        ({"--input": __file__}, "NumPy"),
        ({"--std": "0"}, "std"),
        ({"--mean": "1,2"}, "channels"),
        ({"--mean": "blue"}, "mean"),
        ({"-o": "/nowhere/p.vnnlib"}, "/nowhere"),
    ],
)
def test_robust_refuses_bad_values(
    verify: Any, classifier: str, tmp_path: Path, changes: dict[str, str], word: str
) -> None:
    good = {"--input": centre(tmp_path, [1, 0, 0]), "--label": "0", "--eps": "0.1", "-o": str(tmp_path / "p.vnnlib")}
    argv = [word for pair in (good | changes).items() for word in pair]
    outcome = verify("robust", classifier, *argv)
    assert (outcome.code, outcome.out) == (2, "")
    assert word in outcome.err
    assert "Traceback" not in outcome.err
    assert not (tmp_path / "p.vnnlib").exists()


def test_robust_needs_an_input_of_the_right_size(verify: Any, classifier: str, tmp_path: Path) -> None:
    (tmp_path / "p").write_text("an older property")
    for shape in ((4,), (1, 1, 3, 1), (3, 1), (2, 2, 3)):
        np.save(tmp_path / "x.npy", np.zeros(shape))
        argv = ["--input", tmp_path / "x.npy", "--label", "0", "--eps", "0.1", "-o", tmp_path / "p"]
        outcome = verify("robust", classifier, *argv)
        assert (outcome.code, outcome.out) == (2, "")
        assert (
            f"x.npy: the network takes an input of shape (1, 3, 1, 1), or flat of shape (3,), not {shape}"
            in outcome.err
        )
        assert not (tmp_path / "p").exists()


@pytest.mark.parametrize("shape", [(3,), (3, 1, 1), (1, 3, 1, 1), (1, 3)])
def test_robust_takes_the_shape_of_the_network(
    verify: Any, classifier: str, tmp_path: Path, shape: tuple[int, ...]
) -> None:
    np.savez(tmp_path / "x.npz", image=np.array([0.75, 0.25, 0], np.float32).reshape(shape))
    argv = ["--input", tmp_path / "x.npz", "--label", 0, "--eps", "1/8", "--mean", "0", "0.25", "0"]
    outcome = verify("robust", classifier, *argv, "-o", tmp_path / "p")
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert load_property(tmp_path / "p").boxes.lower[0].tolist() == [0.625, -0.125, -0.125]


def test_robust_refuses_archives_that_are_no_single_array(verify: Any, classifier: str, tmp_path: Path) -> None:
    def refusal() -> str:
        outcome = verify("robust", classifier, "--input", path, "--label", 0, "--eps", "0.1", "-o", tmp_path / "p")
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith(f"error: {path}: ")
        return str(outcome.err)

    path = tmp_path / "x.npz"
    np.savez(path, a=np.zeros(3), b=np.zeros(3))
    assert "2 arrays (a, b)" in refusal()
    np.savez(path)
    assert "0 arrays" in refusal()
    np.savez(path, a=np.array([{}], object))
    assert "not a NumPy file of numbers" in refusal()
    np.savez_compressed(path, a=np.arange(3.0))
    path.write_bytes(path.read_bytes().replace(b"PK\x01\x02", b"PK\x01\x03"))
    assert "not a NumPy file of numbers" in refusal()


def test_robust_writes_to_stdout(verify: Any, classifier: str, tmp_path: Path) -> None:
    argv = ["robust", classifier, "--input", centre(tmp_path, [0.75, 0.25, 0]), "--label", 0, "--eps", "1/8", "-o"]
    told = verify(*argv, "-")
    assert (told.code, told.err) == (0, "")
    assert verify(*argv, tmp_path / "p").code == 0
    assert told.out == (tmp_path / "p").read_text()
    assert not Path("-").exists()
    for wrong, word in (
        (["-", "--verify"], "-o needs a file"),
        ([tmp_path / "q", "--result", tmp_path / "r"], "--verify"),
    ):
        outcome = verify(*argv, *wrong)
        assert (outcome.code, outcome.out) == (2, "")
        assert word in outcome.err
        assert not (tmp_path / "q").exists()


def test_robust_that_fails_leaves_no_old_answer(verify: Any, classifier: str, tmp_path: Path) -> None:
    for name in ("r", "j", "c", "p"):
        (tmp_path / name).write_text("unsat\n")
    outputs = ["--result", tmp_path / "r", "--json", tmp_path / "j", "--counterexample", tmp_path / "c"]
    argv = ["--input", "none.npy", "--label", "0", "--eps", "0.1", "-o", tmp_path / "p", "--verify", *outputs]
    outcome = verify("robust", classifier, *argv)
    assert (outcome.code, outcome.out) == (2, "")
    assert (tmp_path / "r").read_text() == "error\n"
    assert json.loads((tmp_path / "j").read_text())["verdict"] == "error"
    assert not (tmp_path / "c").exists()
    assert not (tmp_path / "p").exists()


def test_other_norms_are_refused(verify: Any, classifier: str, tmp_path: Path) -> None:
    argv = ["--input", centre(tmp_path, [1, 0, 0]), "--label", "0", "--eps", "0.1", "-o", tmp_path / "p"]
    outcome = verify("robust", classifier, *argv, "--norm", "2")
    assert (outcome.code, outcome.out) == (2, "")
