"""Inputs of which only the integer part counts: found by the graph alone, and tried one by one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from network.protos import proto
from onnx import TensorProto, helper

import verifier
from verifier.falsify.blind import integer_points
from verifier.network.models.onnx import OnnxModel, load_onnx
from verifier.result.verdict import Reason, Verdict

make = helper.make_node
INT = TensorProto.INT64


def counted(path: Path, further: bool = False) -> OnnxModel:
    """How many integer parts of (x0, x1) are those of (3, -2), plus x2 + x3; plus x1 once more, if `further`."""
    nodes = [
        make("Reshape", ["x", "all"], ["flat"]),
        make("Slice", ["flat", "zero", "two"], ["head"]),
        make("Cast", ["head"], ["whole"], to=INT),
        make("Equal", ["whole", "wanted"], ["same"]),
        make("Cast", ["same"], ["ones"], to=TensorProto.FLOAT),
        make("ReduceSum", ["ones"], ["hits"], keepdims=0),
        make("Gather", ["flat", "last"], ["rest"]),
        make("ReduceSum", ["rest"], ["total"], keepdims=0),
        make("Add", ["hits", "total"], ["y"]),
    ]
    constants = {
        "all": np.array([-1]),
        "zero": np.array([0]),
        "two": np.array([2]),
        "wanted": np.array([3, -2]),
        "last": np.array([2, 3, 1] if further else [2, 3]),
    }
    path.write_bytes(proto(nodes, [1, 2, 2], constants).SerializeToString())
    return load_onnx(path)


def test_what_only_casts_read_is_found(tmp_path: Path) -> None:
    assert counted(tmp_path / "a.onnx").integer_inputs.tolist() == [0, 1]
    assert counted(tmp_path / "b.onnx", further=True).integer_inputs.tolist() == [0]


def test_a_cast_of_a_sum_is_none(tmp_path: Path) -> None:
    nodes = [make("Add", ["x", "x"], ["s"]), make("Cast", ["s"], ["i"], to=INT), make("Cast", ["i"], ["y"], to=1)]
    (tmp_path / "a.onnx").write_bytes(proto(nodes, [2]).SerializeToString())
    assert load_onnx(tmp_path / "a.onnx").integer_inputs.tolist() == []


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.0, 2.0, [0.0, 1.0, 2.0]),
        (-1.5, 1.5, [-1.0, 0.0, 1.0]),
        (0.25, 1.75, [0.25, 1.0]),
        (-2.75, -0.5, [-2.0, -1.0, -0.5]),
        (0.5, 0.75, [0.5]),
        (-0.5, 0.5, [0.0]),
    ],
)
def test_every_integer_part_has_its_point(low: float, high: float, expected: list[float]) -> None:
    points = integer_points(np.array([low], np.float32), np.array([high], np.float32))
    assert points is not None
    assert points[:, 0].tolist() == expected
    grid = np.linspace(low, high, 1001)
    assert set(np.trunc(grid)) == set(np.trunc(points[:, 0]))


def test_too_many_points_are_left_alone() -> None:
    assert integer_points(np.zeros(3, np.float32), np.full(3, 99.0, np.float32)) is None
    found = integer_points(np.zeros(2, np.float32), np.array([9.0, 4.0], np.float32))
    assert found is not None
    assert len({tuple(point) for point in found.tolist()}) == 50


def test_a_single_point_among_many_is_found(tmp_path: Path) -> None:
    """One of 41 x 41 points hits both numbers; none of the samples is likely to."""
    counted(tmp_path / "net.onnx")
    prop = tmp_path / "p.vnnlib"
    box = "(assert (<= -20 X_0 20))(assert (<= -20 X_1 20))(assert (= X_2 0))(assert (= X_3 0))"
    names = "".join(f"(declare-const X_{i} Real)" for i in range(4)) + "(declare-const Y_0 Real)"
    prop.write_text(names + box + "(assert (>= Y_0 2))")
    result = verifier.verify(tmp_path / "net.onnx", prop, threads=1, timeout=60)
    assert result.verdict is Verdict.SAT
    assert result.counterexample is not None
    assert np.trunc(result.counterexample.x[:2]).tolist() == [3.0, -2.0]
    prop.write_text(names + box + "(assert (>= Y_0 3))")
    result = verifier.verify(tmp_path / "net.onnx", prop, threads=1, timeout=60)
    assert (result.verdict, result.reason) == (Verdict.UNKNOWN, Reason.UNSUPPORTED)
    assert "Cast" in (result.message or "")
