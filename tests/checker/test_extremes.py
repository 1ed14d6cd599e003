"""Networks at the ends of the floats and files that mean nothing: what is false is never accepted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from checker.building import close, default, members, network_of, write_proof
from onnx import TensorProto, helper, numpy_helper

from verifier.checker.check import ACCEPTED, Judgement, check
from verifier.checker.graph import read_network
from verifier.checker.inequality import Target, plane
from verifier.checker.maps import Scale
from verifier.checker.rationals import Array
from verifier.checker.scope import LARGEST, Scope, interval
from verifier.checker.stream import Unreadable
from verifier.checker.vnnlib import read_property
from verifier.checker.witness import Scattered, Section, Witness, Witnesses

ROOT = members([0]) + default() + close(0)


def decimal(value: float) -> str:
    """A double to its last digit, as VNN-LIB has it."""
    exact = Fraction(value)
    digits = exact.denominator.bit_length() - 1  # a power of two
    whole = exact.numerator * 5**digits
    return (
        f"{whole}e-{digits}"
        if digits < 1000
        else f"(* {exact.numerator}e0 {5**700}e-700 {5 ** (digits - 700)}e-{digits - 700})"
    )


@dataclass(frozen=True)
class Model:
    """Nodes from X to Y, with constants."""

    nodes: Sequence[onnx.NodeProto]
    constants: dict[str, Array]
    shape: Sequence[int] = (1, 1)
    kind: int = TensorProto.DOUBLE
    opset: int = 13

    def data(self) -> bytes:
        ends = [helper.make_tensor_value_info(n, self.kind, s) for n, s in (("X", self.shape), ("Y", None))]
        held = [numpy_helper.from_array(value, name) for name, value in self.constants.items()]
        graph = helper.make_graph(list(self.nodes), "extreme", ends[:1], ends[1:], held)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=8)
        return bytes(model.SerializeToString())

    def judge(self, folder: Path, low: float, high: float, unsafe: str) -> Judgement:
        """The root's proof, for a box and a condition."""
        net, prop, proof = (folder / name for name in ("n.onnx", "p.vnnlib", "proof"))
        net.write_bytes(self.data())
        box = f"(assert (>= X_0 {decimal(low)}))(assert (<= X_0 {decimal(high)}))"
        prop.write_text(f"(declare-const X_0 Real)(declare-const Y_0 Real){box}(assert {unsafe})")
        write_proof(proof, net, prop, ROOT)
        return check(str(net), str(prop), str(proof))


def chain(*operators: tuple[str, str], **attributes: Any) -> list[onnx.NodeProto]:
    """One operator after the other, each with a constant; attributes belong to the first."""
    names = ["X", *(f"t{i}" for i in range(len(operators) - 1)), "Y"]
    nodes = []
    for i, (kind, operands) in enumerate(operators):
        given = attributes if i == 0 else {}
        nodes.append(helper.make_node(kind, [names[i], *operands.split()], [names[i + 1]], **given))
    return nodes


BEND = (("MatMul", "W"), ("Relu", ""), ("MatMul", "V"))
THREE_HALVES = {"W": np.array([[2.0**-1074]]), "V": np.array([[1.5]])}


def test_products_that_underflow_prove_nothing(tmp_path: Path) -> None:
    """y = 1.5 2^-1074 x at x = 2^999, where float64 takes 2 2^-1074 for the product of the weights."""
    model = Model(chain(*BEND), THREE_HALVES)
    found = model.judge(tmp_path, 2.0**999, 2.0**999, f"(<= Y_0 {decimal(1.75 * 2.0**-75)})")
    assert found.verdict != ACCEPTED


def test_quotients_of_small_numbers_prove_nothing(tmp_path: Path) -> None:
    """y = 1.5 2^-1074 / 2^-536 x: the product with the gain underflows, and the deviation magnifies what was lost."""
    first = {"g": np.array([3 * 2.0**-1074]), "z": np.zeros(1), "v": np.array([2.0**-1072])}
    nodes = chain(("BatchNormalization", "g z z v"), *BEND[1:], epsilon=0.0)
    model = Model(nodes, {**first, "V": np.array([[0.5]])})
    found = model.judge(tmp_path, 2.0**500, 2.0**500, f"(<= Y_0 {decimal(1.75 * 2.0**-38)})")
    assert found.verdict != ACCEPTED


def test_a_quotient_is_not_off_by_what_a_product_loses() -> None:
    scale = Scale(np.array([3 * 2.0**-1074]), np.array([2.0**-536]))
    assert scale.forward(np.array([[0.5]]))[0, 0] == 1.5 * 2.0**-538


def scope_of(weight: float, high: float) -> tuple[Any, Scope]:
    net = network_of(1, [[(0, [[weight]]), [0.0]], [(1, [[1.0]]), [0.0]]])
    scope = Scope.start(net, np.array([high / 2]), np.array([high])).sized(net, 1)
    return net, scope.bounded(1, *interval(net, scope, 1)).sized(net, 2)


def least(net: Any, scope: Scope, witness: Witness) -> float:
    one, none, zero = np.ones((1, 1)), np.zeros((1, 1)), np.zeros(1)
    target = Target(2, one, one, none, none, zero, zero, 1)
    with np.errstate(all="ignore"):
        found, _ = plane(net, scope, target, Witnesses([1], [witness]).chooser(net, scope))
        return float(found.least(scope.low, scope.high)[0])


def test_nothing_is_proved_beyond_the_range_where_underflow_is_priced() -> None:
    """Inputs, values of layers, and multipliers, each alone."""
    huge = Witness({1: Section(deltas=Scattered(np.zeros(1, np.int64), np.full((1, 1), 2.0**320)))})
    assert least(*scope_of(1.0, 8.0), Witness({})) == pytest.approx(4.0)
    assert least(*scope_of(2.0**-150, 2.0 * LARGEST), Witness({})) == -np.inf
    assert least(*scope_of(2.0 * LARGEST, 1.0), Witness({})) == -np.inf
    net, scope = scope_of(2.0**-300, 1.0)
    assert least(net, scope, Witness({})) > -1.0
    assert least(net, scope, huge) == -np.inf


ONE = np.ones((1, 1))
REFUSED: dict[str, Model] = {
    "an unknown attribute": Model(chain(("Relu", ""), alpha=0.5), {}),
    "an attribute of an older operator set": Model(chain(("Clip", ""), min=0.0), {}),
    "an attribute of another type": Model(chain(("LeakyRelu", ""), alpha=2), {}),
    "too many inputs": Model(chain(("Relu", "W")), {"W": ONE}),
    "a weight that is infinite": Model(chain(*BEND), {"W": ONE * np.inf, "V": ONE}),
    "a weight that is no number": Model(chain(*BEND), {"W": ONE * np.nan, "V": 0 * ONE}),
    "integers among floats": Model(chain(("Sub", "W")), {"W": np.ones((1, 1), np.uint8)}),
    "an axis that is not there": Model(chain(("Flatten", ""), axis=3), {}),
    "an axis behind the last": Model(chain(("ReduceSum", "W")), {"W": np.array([2])}),
    "an axis twice": Model(chain(("Unsqueeze", "W")), {"W": np.array([0, 0])}),
    "a shape below zero": Model(chain(("Reshape", "W")), {"W": np.array([-3, -2])}, (1, 6)),
    "a pool without an image": Model(chain(("GlobalAveragePool", "")), {}, (2, 3)),
    "another kernel than named": Model(chain(("Conv", "W"), kernel_shape=[2]), {"W": np.ones((1, 1, 1))}, (1, 1, 4)),
    "a bias of other channels": Model(chain(("Conv", "W b")), {"W": np.ones((1, 1, 1)), "b": np.ones(3)}, (1, 1, 4)),
    "means of other channels": Model(
        chain(("BatchNormalization", "W W b W")), {"W": np.ones(2), "b": np.ones(1)}, (1, 2)
    ),
    "an unknown padding": Model(
        chain(("MaxPool", ""), kernel_shape=[2], auto_pad="SAME"), {}, (1, 1, 4), TensorProto.FLOAT
    ),
    "dilated windows that pad themselves": Model(
        chain(("MaxPool", ""), kernel_shape=[2], dilations=[2], auto_pad="SAME_UPPER"), {}, (1, 1, 4), TensorProto.FLOAT
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_networks_that_mean_nothing_are_refused(name: str) -> None:
    with pytest.raises(Unreadable):
        read_network(REFUSED[name].data())


def test_the_same_networks_are_read_without_the_fault() -> None:
    for model in (
        Model(chain(("Relu", "")), {}),
        Model(chain(("Clip", ""), min=0.0), {}, opset=10),
        Model(chain(("LeakyRelu", ""), alpha=2.0), {}),
        Model(chain(("Sub", "W")), {"W": ONE}),
        Model(chain(("ReduceSum", "W")), {"W": np.array([-1])}),
        Model(chain(("Unsqueeze", "W")), {"W": np.array([0, 1])}),
        Model(chain(("GlobalAveragePool", "")), {}, (1, 2, 3)),
        Model(chain(("Conv", "W b"), kernel_shape=[1]), {"W": np.ones((1, 1, 1)), "b": np.ones(1)}, (1, 1, 4)),
    ):
        assert read_network(model.data())


def test_integers_are_divided_as_integers() -> None:
    """-3 / 2 is -1 in ONNX, not -1.5; what is not read is refused."""
    nodes = [helper.make_node("Div", ["a", "b"], ["q"]), helper.make_node("Cast", ["q"], ["w"], to=TensorProto.DOUBLE)]
    nodes += [helper.make_node("Mul", ["X", "w"], ["Y"])]
    positive = Model(nodes, {"a": np.array([7]), "b": np.array([2])}, (1,))
    net, _ = read_network(positive.data())
    assert net.layers[-1].forward({0: np.ones((1, 1))}) == 3.0
    with pytest.raises(Unreadable):
        read_network(replace(positive, constants={"a": np.array([-3]), "b": np.array([2])}).data())


def test_an_input_of_unknown_rank_or_two_operator_sets_are_refused() -> None:
    model = onnx.load_model_from_string(Model(chain(("Relu", "")), {}).data())
    model.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(Unreadable):
        read_network(model.SerializeToString())
    model = onnx.load_model_from_string(Model(chain(("Relu", "")), {}).data())
    model.opset_import.append(helper.make_opsetid("ai.onnx", 9))
    with pytest.raises(Unreadable):
        read_network(model.SerializeToString())


DECLARED = "(declare-const X_0 Real)(declare-const Y_0 Real)(assert (>= X_0 0))(assert (<= X_0 1))"


@pytest.mark.parametrize(
    "text",
    [
        "(assert (<= Y_0 [3] 1))",
        "(assert (<= (+ Y_0 1) [0] 1))",
        "(assert (or ; a remark\r (<= Y_0 1)\n (<= Y_0 2)))",
        "(assert (>= X_0 1e61))",
        "(assert (<= Y_0 1 2))",
        "(assert (not (<= Y_0 1)))",
        "(assert (<= Y_0;remark\n 1))",
        "(assert (<= Y_1 1))",
    ],
)
def test_properties_that_mean_nothing_are_refused(text: str) -> None:
    assert len(read_property(DECLARED + "(assert (or ; a remark\r\n (<= Y_0 1)\n (<= Y_0 2)))")) == 2
    with pytest.raises(Unreadable):
        read_property(DECLARED + text)
