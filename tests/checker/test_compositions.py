"""Softmax and normalisation in the checker: the values of ONNX, the neurons of the search, and mistakes that show."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checker.kits import KIT, Kit, Mistake, mistaken
from checker.test_graph import require_same
from onnx import ModelProto, TensorProto, helper, numpy_helper

from verifier.checker.stream import Unreadable


def single(kind: str, shape: tuple[int, ...], opset: int, *constants: np.ndarray, **given: Any) -> ModelProto:
    """A file with one node between an affine map and another."""
    rng = np.random.default_rng(3)
    n = int(np.prod(shape))
    held = {"w": rng.normal(size=(3, n)), "b": rng.normal(size=n), "v": rng.normal(size=(n, 2))}
    held |= {f"c{i}": value for i, value in enumerate(constants)}
    tensors = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in held.items()]
    tensors += [numpy_helper.from_array(np.array(s, np.int64), name) for name, s in (("s", shape), ("t", (1, n)))]
    nodes = [
        helper.make_node("Gemm", ["X", "w", "b"], ["a"]),
        helper.make_node("Reshape", ["a", "s"], ["h"]),
        helper.make_node(kind, ["h", *(f"c{i}" for i in range(len(constants)))], ["k"], **given),
        helper.make_node("Reshape", ["k", "t"], ["f"]),
        helper.make_node("Gemm", ["f", "v"], ["Y"]),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, m]) for name, m in (("X", 3), ("Y", 2))]
    graph = helper.make_graph(nodes, "single", ends[:1], ends[1:], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def softmax(t: np.ndarray, axis: int) -> np.ndarray:
    size = np.exp(t - t.max(axis=axis, keepdims=True))
    return np.asarray(size / size.sum(axis=axis, keepdims=True))


def before_13(t: np.ndarray, axis: int) -> np.ndarray:
    return softmax(t.reshape(int(np.prod(t.shape[:axis])), -1), 1).reshape(t.shape)


def normalised(t: np.ndarray, axes: tuple[int, ...], epsilon: float, scale: Any, shift: Any) -> np.ndarray:
    centred = t - t.mean(axis=axes, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(axis=axes, keepdims=True) + epsilon) * scale + shift)


SCALE, SHIFT = np.array([1.5, -2.0, 0.25]), np.array([0.5, 0.0, -1.0])
CASES: dict[str, tuple[ModelProto, tuple[int, ...], Any]] = {
    "last axis": (single("Softmax", (2, 3), 13), (2, 3), lambda t: softmax(t, -1)),
    "first axis": (single("Softmax", (3, 2), 13, axis=0), (3, 2), lambda t: softmax(t, 0)),
    "middle axis": (single("Softmax", (2, 3, 2), 17, axis=-2), (2, 3, 2), lambda t: softmax(t, 1)),
    "two entries": (single("Softmax", (2, 2), 13, axis=0), (2, 2), lambda t: softmax(t, 0)),
    "all from one axis on": (single("Softmax", (2, 2, 2), 11), (2, 2, 2), lambda t: before_13(t, 1)),
    "all axes": (single("Softmax", (2, 2), 11, axis=0), (2, 2), lambda t: before_13(t, 0)),
    "logarithms": (single("LogSoftmax", (1, 4), 13), (1, 4), lambda t: np.log(softmax(t, -1))),
    "logarithms of two": (single("LogSoftmax", (3, 2), 13), (3, 2), lambda t: np.log(softmax(t, -1))),
    "layers": (
        single("LayerNormalization", (2, 3), 17, SCALE, SHIFT, epsilon=0.25),
        (2, 3),
        lambda t: normalised(t, (1,), 0.25, SCALE, SHIFT),
    ),
    "layers without a shift": (
        single("LayerNormalization", (2, 3), 17, SCALE),
        (2, 3),
        lambda t: normalised(t, (1,), 1e-5, SCALE, 0.0),
    ),
    "several axes": (
        single("LayerNormalization", (1, 2, 3), 17, np.tile(SCALE, (2, 1)), np.tile(SHIFT, (2, 1)), axis=1),
        (1, 2, 3),
        lambda t: normalised(t, (1, 2), 1e-5, SCALE, SHIFT),
    ),
}


def error(kit: Kit, name: str) -> float:
    """How far the values of a network are from what they should be."""
    made, shape, meaning = CASES[name]
    net, _ = kit.graph.read_network(made.SerializeToString())
    held = {t.name: numpy_helper.to_array(t).astype(np.float64) for t in made.graph.initializer}
    x, reads = np.random.default_rng(0).normal(size=(4, 3)), {}  # type: Any, dict[int, Any]
    reads[0] = x
    for k, layer in enumerate(net.layers, start=1):
        t = layer.moved(layer.forward(reads))
        reads[k] = layer.function.value(t)
    wanted = [meaning((row @ held["w"] + held["b"]).reshape(shape)).reshape(-1) @ held["v"] for row in x]
    return float(np.abs(t - np.array(wanted)).max())


@pytest.mark.parametrize("name", CASES)
def test_values_are_those_of_onnx(name: str) -> None:
    assert error(KIT, name) < 1e-6


@pytest.mark.parametrize("name", CASES)
def test_the_search_has_the_same_neurons(tmp_path: Path, name: str) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(CASES[name][0].SerializeToString())
    require_same(path)


MISTAKES = {
    "an entry counts twice": ("np.ones((1, size.shape[-1]))", "2 * np.ones((1, size.shape[-1]))"),
    "nothing for the entry itself": ("total.plus(constant(np.ones(())))", "total"),
    "differences the other way": (
        "value.taken(there).minus(value.taken(np.broadcast_to(index[..., None], there.shape)))",
        "value.taken(np.broadcast_to(index[..., None], there.shape)).minus(value.taken(there))",
    ),
    "the other of two": (".times(-1.0).reshaped(value.shape)", ".reshaped(value.shape)"),
    "logarithms above zero": ("_odds(graph, value, axis)).times(-1.0)", "_odds(graph, value, axis))"),
    "lines along another axis": (
        "compose(graph, value, place_of(axis, len(shape)))",
        "compose(graph, value, len(shape) - 1)",
    ),
    "one axis only before 13": ("if graph.opset >= 13:\n", "if graph.opset >= 0:\n"),
    "not centred": ("value.minus(average(value, axes))", "value"),
    "no epsilon": ("np.full((), given.get(", "0.0 * np.full((), given.get("),
    "a root that is no inverse": ("Power(-0.5)", "Power(0.5)"),
    "no shift": ("found.plus(expression(inputs[2]))", "found"),
    "no scale": ("found.scaled(fixed(inputs[1]), np.ones(()))", "found"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_noticed(tmp_path: Path, name: str) -> None:
    with mistaken(tmp_path, Mistake("compositions.py", *MISTAKES[name])) as kit:
        assert max(error(kit, case) for case in CASES) > 1e-3


def test_of_one_entry_they_are_constant() -> None:
    for kind in ("Softmax", "LogSoftmax"):
        with pytest.raises(Unreadable, match="no product of a value"):
            KIT.graph.read_network(single(kind, (3, 1), 13).SerializeToString())


def test_scales_that_depend_on_the_input_are_refused() -> None:
    made = single("LayerNormalization", (2, 3), 17, SCALE)
    made.graph.node[2].input[1] = "h"
    with pytest.raises(Unreadable, match="must be a constant"):
        KIT.graph.read_network(made.SerializeToString())
