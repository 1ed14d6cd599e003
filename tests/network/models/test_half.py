"""Files that compute in half precision: read as real numbers, judged twice, and witnessed by float16 vectors."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from network.protos import proto
from onnx import TensorProto, helper

import verifier
from verifier.checker.check import check
from verifier.config import load_config
from verifier.errors import InputError, NetworkMismatch
from verifier.loading import GivenFiles
from verifier.machine import Machine
from verifier.network.judge import check_against
from verifier.network.models.onnx import load_onnx
from verifier.pipeline import Request
from verifier.pipeline import decide as decided
from verifier.property.property import Boxes
from verifier.result.verdict import Verdict

make = helper.make_node
R = np.random.default_rng(4)
HALF = TensorProto.FLOAT16


def halves(*shape, scale=1.0):
    return (scale * R.normal(size=shape)).astype(np.float16)


FIRST, BIAS, LAST = halves(12, 5, scale=0.5), halves(12), halves(3, 12, scale=0.4)
MLP = [
    make("Gemm", ["x", "a", "b"], ["h"], transB=1),
    make("Relu", ["h"], ["r"]),
    make("Gemm", ["r", "c"], ["y"], transB=1),
]
CONSTANTS = {"a": FIRST, "b": BIAS, "c": LAST}
CONV = [
    make("Conv", ["x", "k", "b"], ["c"], pads=[1, 1, 1, 1]),
    make("BatchNormalization", ["c", "s", "t", "m", "v"], ["n"]),
    make("Relu", ["n"], ["r"]),
    make("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
    make("Flatten", ["p"], ["f"]),
    make("MatMul", ["f", "w"], ["q"]),
    make("Softmax", ["q"], ["y"], axis=1),
]
CONV_CONSTANTS = {
    "k": halves(3, 1, 3, 3), "b": halves(3), "s": halves(3), "t": halves(3), "m": halves(3),
    "v": np.abs(halves(3)) + np.float16(0.5), "w": halves(12, 4, scale=0.3),
}  # fmt: skip


@pytest.fixture
def mlp(build):
    return build(MLP, [1, 5], CONSTANTS, dtype=HALF)


def test_the_network_is_that_of_the_weights_in_real_arithmetic(mlp):
    x = R.uniform(-1, 1, size=(6, 5))
    first, bias, last = (values.astype(np.float64) for values in (FIRST, BIAS, LAST))
    expected = np.maximum(x @ first.T + bias, 0) @ last.T
    found = mlp.network().forward(torch.from_numpy(x)).numpy()
    assert np.allclose(found, expected, rtol=1e-12, atol=1e-12)
    assert (mlp.dtype, mlp.rounding) == (np.float16, np.float16)
    assert mlp.run(x).dtype == np.float16
    assert mlp.widened.rounding == np.float32


def test_other_operators(build):
    model = build(CONV, [1, 1, 4, 4], CONV_CONSTANTS, dtype=HALF)
    assert check_against(model, model.network(), (np.full(16, -2.0), np.full(16, 2.0))) < 1e-2


@pytest.mark.parametrize("share", [2e-3, 2e-4, 2e-5])
def test_mistakes_below_the_rounding_of_the_file_are_found(mlp, share):
    network, box = mlp.network(), (-np.ones(5), np.ones(5))
    assert check_against(mlp, network, box) < 5e-3
    wrong = replace(network, output=replace(network.output, bias=network.output.bias + share))
    with pytest.raises(NetworkMismatch, match="disagrees"):
        check_against(mlp, wrong, box)


def test_a_wrong_copy_in_float32_is_found(mlp):
    """The file itself is compared, too: a copy and a network that are wrong alike do not pass."""
    network, box = mlp.network(), (-np.ones(5), np.ones(5))
    wrong = replace(network, output=replace(network.output, bias=network.output.bias + 0.5))

    class Misread:
        dtype, rounding, n_in = mlp.dtype, mlp.rounding, mlp.n_in
        widened = None

        def run(self, x):
            return mlp.run(x)

    check_against(Misread(), network, box)
    with pytest.raises(NetworkMismatch, match="disagrees"):
        check_against(Misread(), wrong, box)


@pytest.mark.parametrize(
    ("outer", "inner", "rounding"),
    [(TensorProto.FLOAT, HALF, np.float16), (TensorProto.DOUBLE, TensorProto.FLOAT, np.float32)],
)
def test_a_cast_is_the_identity(build, outer, inner, rounding):
    nodes = [make("Cast", ["x"], ["h"], to=inner), make("Relu", ["h"], ["r"]), make("Cast", ["r"], ["y"], to=outer)]
    model = build(nodes, [1, 4], dtype=outer)
    x = R.normal(size=(3, 4))
    assert (model.network().forward(torch.from_numpy(x)).numpy() == np.maximum(x, 0)).all()
    assert model.rounding == rounding
    assert model.dtype == helper.tensor_dtype_to_np_dtype(outer)
    assert check_against(model, model.network(), (-np.ones(4), np.ones(4))) < 1e-3


def test_weights_that_are_only_stored_as_halves_round_nothing(build):
    nodes = [make("Cast", ["a"], ["w"], to=TensorProto.FLOAT), make("MatMul", ["x", "w"], ["y"])]
    model = build(nodes, [1, 12], {"a": FIRST})
    assert model.rounding == np.float32
    assert model.widened is None


def test_products_of_constants_are_exact(build):
    """They are folded in float16 by onnxruntime, and known exactly all the same."""
    nodes = [make("Mul", ["a", "s"], ["w"]), make("MatMul", ["x", "w"], ["y"])]
    model = build(nodes, [1, 12], {"a": FIRST, "s": BIAS[:5]}, dtype=HALF)
    expected = FIRST.astype(np.float64) * BIAS[:5].astype(np.float64)
    assert (model.network().forward(torch.eye(12, dtype=torch.float64)).numpy() == expected).all()
    assert check_against(model, model.network(), (-np.ones(12), np.ones(12))) < 5e-3


def test_bfloat16_is_refused(build):
    cast = [make("Cast", ["x"], ["h"], to=TensorProto.BFLOAT16), make("Cast", ["h"], ["y"], to=TensorProto.FLOAT)]
    with pytest.raises(InputError, match="computes in bfloat16"):
        build(cast, [1, 4]).network()
    with pytest.raises(InputError, match=r"bfloat16.*convert it to float32"):
        build([make("Relu", ["x"], ["y"])], [1, 4], dtype=TensorProto.BFLOAT16)


# -- witnesses ----------------------------------------------------------------------------------------------------


def decide(model, low, high, bound):
    """Whether output 0 may be at least `bound` on a box."""
    box = np.full(model.n_in, low), np.full(model.n_in, high)
    lower, upper = (side.reshape(model.input_shape) for side in box)
    unsafe = [(-np.eye(1, model.n_out), [-bound])]
    return verifier.verify(model.path, lower=lower, upper=upper, unsafe=unsafe, threads=1, timeout=60)


def highest(model, low, high):
    """Of output 0, among corners and many points of a box."""
    x = np.concatenate([R.uniform(low, high, (4000, 5)), np.where(R.random((200, 5)) < 0.5, low, high)])
    return float(model.network().forward(torch.from_numpy(x))[:, 0].max())


def test_a_witness_is_made_of_float16_numbers_of_the_box(mlp):
    seen = highest(mlp, -0.3, 0.7)
    result = decide(mlp, -0.3, 0.7, seen - 0.05)
    assert result.verdict is Verdict.SAT
    witness = result.counterexample
    assert witness.x.dtype == np.float16
    assert all(Fraction(-3, 10) <= Fraction(v) <= Fraction(7, 10) for v in witness.x.tolist())
    assert (mlp.run(witness.x) == witness.y).all()
    assert float(witness.y[0]) >= seen - 0.05
    assert witness.exact


def test_what_holds_with_a_margin_is_proved(mlp):
    assert decide(mlp, -0.3, 0.7, highest(mlp, -0.3, 0.7) + 0.5).verdict is Verdict.UNSAT


def test_a_box_without_halves(mlp):
    """0.1 is no float16: the number next to it stands in, and the witness says so."""
    result = decide(mlp, 0.1, 0.1, highest(mlp, 0.1, 0.1) - 0.1)
    assert result.verdict is Verdict.SAT
    assert not result.counterexample.exact
    assert (result.counterexample.x == np.float16(0.1)).all()


def test_a_box_beyond_the_range_of_halves_has_no_witness():
    """65504 is the largest float16; nothing stands in for 100000."""
    boxes = Boxes.enclosed(*((np.array([[1e5, -1e5, 1.0]]),) * 2,) * 2)
    low, high = boxes.ends(np.dtype(np.float16))
    assert low.tolist() == high.tolist() == [[np.inf, -np.inf, 1.0]]
    assert not boxes.holds_floats(np.dtype(np.float16)).any()


@given(st.floats(-70000, 70000), st.floats(0, 1e-2), st.floats(-65504, 65504, width=16))
def test_ends_in_float16_hold_what_the_box_holds(low, width, value):
    boxes = Boxes.enclosed(*((np.array([[end]]),) * 2 for end in (low, low + width * abs(low))))
    lower, upper = boxes.ends(np.dtype(np.float16))
    if boxes.holds_floats(np.dtype(np.float16))[0]:
        inside = low <= value <= low + width * abs(low)
        assert inside == bool(lower[0, 0] <= np.float16(value) <= upper[0, 0])
    else:
        assert lower == upper


def test_a_proof_of_a_half_network_is_accepted(tmp_path, mlp):
    bound = highest(mlp, -0.3, 0.7) + 0.3
    lines = [f"(declare-const X_{i} Real)" for i in range(5)] + [f"(declare-const Y_{i} Real)" for i in range(3)]
    lines += [f"(assert (>= X_{i} -0.3))\n(assert (<= X_{i} 0.7))" for i in range(5)]
    prop = tmp_path / "p.vnnlib"
    prop.write_text("\n".join([*lines, f"(assert (>= Y_0 {bound:.6f}))\n"]))
    proof = tmp_path / "p.proof"
    files = GivenFiles(str(mlp.path), str(prop))
    request = Request(files, load_config("auto", ()), Machine("cpu", 1, 60.0), proof=str(proof))
    assert decided(request, request.status()).verdict is Verdict.UNSAT
    judgement = check(str(mlp.path), str(prop), str(proof))
    assert judgement.verdict == "accepted", str(judgement)


def test_inputs_of_different_types_are_refused_with_both_names(tmp_path):
    model = proto(
        [make("Cast", ["x"], ["h"], to=TensorProto.FLOAT), make("Add", ["h", "z"], ["y"])], [1, 2], dtype=HALF
    )
    model.graph.input.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, [1, 2]))
    path = tmp_path / "two.onnx"
    path.write_bytes(model.SerializeToString())
    with pytest.raises(InputError, match="float16 and float32"):
        load_onnx(path)
