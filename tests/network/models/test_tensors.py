"""Several inputs and outputs, and axes that a file leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import verifier
from verifier.errors import InputError
from verifier.network.judge import check_against
from verifier.network.models.onnx import load_onnx
from verifier.network.models.shapes import input_shapes
from verifier.result.verdict import Verdict

Shape = Sequence[int | str | None]
make = helper.make_node


def saved(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: dict[str, Shape],
    outputs: Sequence[str],
    constants: dict[str, np.ndarray] | None = None,
    dtype: int = TensorProto.FLOAT,
) -> Path:
    held = [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()]
    graph = helper.make_graph(
        list(nodes),
        "net",
        [helper.make_tensor_value_info(name, dtype, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, dtype, None) for name in outputs],
        held,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def two_by_two(path: Path) -> Path:
    """u = relu(W a), then v = u + b in the first two entries; outputs v and b."""
    nodes = [
        make("Gemm", ["a", "w"], ["h"]),
        make("Relu", ["h"], ["u"]),
        make("Add", ["u", "b"], ["v"]),
        make("Neg", ["b"], ["n"]),
    ]
    weight = np.array([[1.0, -2.0], [0.5, 1.0], [-1.0, 0.25]], np.float32)
    return saved(path, nodes, {"a": [1, 3], "b": ["batch", 2]}, ("v", "n"), {"w": weight})


def test_several_inputs_and_outputs(tmp_path: Path) -> None:
    model = load_onnx(two_by_two(tmp_path / "net.onnx"))
    assert (model.input_names, model.output_names) == (("a", "b"), ("v", "n"))
    assert (model.input_shapes, model.input_shape) == (((1, 3), (1, 2)), (5,))
    assert model.output_shapes == ((1, 2), (1, 2))
    x = np.array([1.0, 2.0, 3.0, -4.0, 5.0], np.float32)
    weight = numpy_helper.to_array(model.proto.graph.initializer[0])
    expected = np.concatenate([np.maximum(x[:3] @ weight, 0) + x[3:], -x[3:]])
    np.testing.assert_array_equal(model.run(x), expected)
    points = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    np.testing.assert_array_equal(model.run(points), [model.run(point) for point in points])
    network = model.network()
    assert (network.n_in, network.n_out, network.relus) == (5, 4, 2)
    check_against(model, network, (-np.ones(5), np.ones(5)), count=12)


def test_one_tensor_may_be_read_and_given_twice(tmp_path: Path) -> None:
    nodes = [make("Relu", ["a"], ["r"]), make("Concat", ["r", "b"], ["y"], axis=0)]
    model = load_onnx(saved(tmp_path / "net.onnx", nodes, {"a": [2], "b": [1]}, ("y", "y", "b")))
    network = model.network()
    assert network.n_out == model.n_out == 7
    check_against(model, network, (-np.ones(3), np.ones(3)))


def test_verdicts_and_witnesses_of_several_tensors(tmp_path: Path) -> None:
    """The first entry of v is at most relu(1 + 0.5 + 1) + 1 = 3.5 on the unit box."""
    net = two_by_two(tmp_path / "net.onnx")
    head = "(vnnlib-version <2.0>)(declare-network f (declare-input A real [3]) (declare-input B real [1,2])"
    head += "(declare-output V real [2]) (declare-output N real [1,2]))"
    head += "(assert (and (<= -1 A[0] 1) (<= -1 A[1] 1) (<= -1 A[2] 1) (<= -1 B[0,0] 1) (<= -1 B[0,1] 1)))"
    path = tmp_path / "p.vnnlib"
    for threshold, expected in ((3.6, Verdict.UNSAT), (3.4, Verdict.SAT)):
        path.write_text(head + f"(assert (>= V[0] {threshold}))(assert (<= N[0,0] 0.0))")
        result = verifier.verify(net, path, threads=1, timeout=30)
        assert result.verdict is expected
    assert result.witness is not None
    lines = result.witness.splitlines()
    assert [line for line in lines if "[" in line] == ["A real [3]", "B real [1,2]", "V real [2]", "N real [1,2]"]
    assert float(lines[8]) >= 3.4
    one = "\n".join(
        [*(f"(declare-const X_{i} Real)" for i in range(5)), *(f"(declare-const Y_{i} Real)" for i in range(4))]
    )
    path.write_text(
        one + "".join(f"(assert (<= -1 X_{i} 1))" for i in range(5)) + "(assert (>= Y_0 3.4))(assert (<= Y_2 0))"
    )
    assert verifier.verify(net, path, threads=1, timeout=30).verdict is Verdict.SAT


def test_tensors_must_be_those_of_the_file(tmp_path: Path) -> None:
    net = two_by_two(tmp_path / "net.onnx")
    path = tmp_path / "p.vnnlib"
    path.write_text(
        "(vnnlib-version <2.0>)(declare-network f (declare-input X real [5]) (declare-output Y real [4]))"
        "(assert (<= -1 X[0] X[1] X[2] X[3] X[4] 1))(assert (<= Y[0] 0))"
    )
    with pytest.raises(InputError, match="2 input tensors of 3, 2 entries, but the property declares 5 inputs"):
        verifier.verify(net, path)


def test_proofs_of_several_tensors_are_refused_before_the_search(tmp_path: Path) -> None:
    from verifier.config import load_config
    from verifier.loading import GivenFiles
    from verifier.pipeline import Request, decide

    net = two_by_two(tmp_path / "net.onnx")
    prop = tmp_path / "p.vnnlib"
    names = [f"(declare-const {v}_{i} Real)" for v, n in (("X", 5), ("Y", 4)) for i in range(n)]
    prop.write_text("".join(names) + "".join(f"(assert (<= -1 X_{i} 1))" for i in range(5)) + "(assert (>= Y_0 9))")
    request = Request(GivenFiles(str(net), str(prop)), load_config("auto"), proof=str(tmp_path / "p.proof"))
    with pytest.raises(InputError, match="the checker cannot read the files: the network does not have one input"):
        decide(request, request.status())


# -- open axes ---------------------------------------------------------------------------------------------


def sources(*shapes: Shape) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(f"in{k}", TensorProto.FLOAT, shape) for k, shape in enumerate(shapes)]


@pytest.mark.parametrize(
    ("shapes", "declared", "expected"),
    [
        ([["n", 4]], None, [(1, 4)]),
        ([["n", 4]], 4, [(1, 4)]),
        ([["n", 4]], 12, [(3, 4)]),
        ([["n", 4]], 6, [(1, 4)]),  # which the counts of the property then contradict
        ([["n", 3, "h"]], 12, [(1, 3, 4)]),
        ([[1, 3, "h", "h"]], 75, [(1, 3, 5, 5)]),
        ([["n", 3, "h", "w"]], ((1, 3, 4, 6),), [(1, 3, 4, 6)]),
        ([["n", 3, "h"]], ((12,),), [(1, 3, 4)]),
        ([["n", 2], ["n", 3]], 5, [(1, 2), (1, 3)]),
        ([["n", "k"], ["n", "k", 2]], 12, [(1, 4), (1, 4, 2)]),
        ([["n", "k"], ["n", "m"]], ((1, 4), (3,)), [(1, 4), (1, 3)]),
        ([[2, "n"], ["n", 3]], 10, [(2, 2), (2, 3)]),
    ],
)
def test_open_axes_follow_from_the_property(shapes, declared, expected) -> None:
    assert list(input_shapes(sources(*shapes), declared).shapes) == expected


@pytest.mark.parametrize(
    ("shapes", "declared", "message"),
    [
        ([[1, "h"]], None, "open: h; a property gives their sizes"),
        ([[1, 3, "h", "w"]], 12, "open: h, w; the property declares 12 inputs, which does not say how long"),
        ([[1, 3, None, None]], 12, "axis 2 of 'in0', axis 3 of 'in0'; the property declares 12"),
        ([[1, 3, "h"]], 13, "open: h; no size of it gives the 13 inputs"),
        ([[1, "h", "h"]], 15, "open: h; no size of it gives the 15 inputs"),
        ([[1, 2**12], [1, 2**22]], None, "which is too many"),
    ],
)
def test_what_leaves_a_choice_is_refused(shapes, declared, message) -> None:
    with pytest.raises(InputError, match=message):
        input_shapes(sources(*shapes), declared)


def test_an_open_axis_in_a_run(tmp_path: Path) -> None:
    """Any length: relu, then the sum over it."""
    nodes = [make("Relu", ["x"], ["r"]), make("ReduceSum", ["r"], ["y"], keepdims=0)]
    net = saved(tmp_path / "net.onnx", nodes, {"x": [1, "length"]}, ("y",))
    for n in (2, 5):
        prop = tmp_path / "p.vnnlib"
        head = "".join(f"(declare-const X_{i} Real)(assert (<= -1 X_{i} 1))" for i in range(n))
        prop.write_text(head + f"(declare-const Y_0 Real)(assert (>= Y_0 {n - 0.5}))")
        assert verifier.verify(net, prop, threads=1, timeout=30).verdict is Verdict.SAT
        prop.write_text(head + f"(declare-const Y_0 Real)(assert (>= Y_0 {n + 0.5}))")
        assert verifier.verify(net, prop, threads=1, timeout=30).verdict is Verdict.UNSAT
