"""Files that are easy to misread: invented names, functions, constants that lose digits, weights in other files.

Each is either read as onnxruntime and real arithmetic do, or refused with a sentence.
"""

from __future__ import annotations

import itertools
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from network.protos import proto
from onnx import TensorProto, helper, numpy_helper

import verifier
from verifier.batch.jobs import network_digest
from verifier.errors import InputError, UnsupportedOperator
from verifier.network.judge import check_against, faithful_network
from verifier.network.models.onnx import load_onnx
from verifier.network.rewrite.constants import exact_product, exact_sum
from verifier.result.verdict import Verdict

make = helper.make_node
DOUBLE = {"dtype": TensorProto.DOUBLE}


def values(network: Any, *points: list[float]) -> np.ndarray:
    return network.forward(torch.tensor(points, dtype=torch.float64)).numpy()


# -- names ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["strata:1", "strata:3", "n0", "n1", "v1", "v3", "0", "1", "onnx_initializer_0", "input_1", "a/b.c::d", "ü"]
)
@pytest.mark.parametrize("where", ["middle", "constant", "input", "output"])
def test_no_name_of_a_file_meets_one_of_ours(name: str, where: str, tmp_path: Path, agree: Any):
    names = {"middle": "m", "constant": "c", "input": "x", "output": "y"} | {where: name}
    nodes = [
        make("Relu", [names["input"]], [names["middle"]]),
        make("HardSigmoid", [names["input"]], ["h"]),
        make("Sub", [names["middle"], "h"], ["a"]),
        make("Gemm", ["a", names["constant"], "bias"], ["g"], beta=0.5),
        make("Mean", ["g", "bias"], [names["output"]]),
    ]
    model = proto(nodes, [1, 3], {names["constant"]: np.eye(3, dtype=np.float32), "bias": np.ones(3, np.float32)})
    model.graph.input[0].name, model.graph.output[0].name = names["input"], names["output"]
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    agree(load_onnx(tmp_path / "net.onnx"))


def test_messages_use_the_names_of_the_file(build: Any):
    nodes = [make("Relu", ["x"], ["first"]), make("Hardmax", ["first"], ["second"]), make("Relu", ["second"], ["y"])]
    with pytest.raises(UnsupportedOperator, match="'second' of type Hardmax"):
        build(nodes, [1, 3]).network()


# -- functions -----------------------------------------------------------------------------------------------


def with_function(domain: str, name: str, called: str, opset: int = 17) -> onnx.ModelProto:
    body = [make("Neg", ["a"], ["n"]), make("Relu", ["n"], ["r"]), make("Add", ["r", "a"], ["b"])]
    function = helper.make_function(domain, name, ["a"], ["b"], body, [helper.make_opsetid("", opset)])
    model = proto([make(name, ["x"], ["y"], domain=called)], [1, 2])
    model.functions.append(function)
    if domain:
        model.opset_import.append(helper.make_opsetid(domain, 1))
    return model


@pytest.mark.parametrize("domain", ["", "ai.onnx", "ai.onnx.ml", "com.microsoft", "com.microsoft.nchwc"])
def test_functions_in_domains_with_operators_are_refused(domain: str, tmp_path: Path):
    path = tmp_path / "net.onnx"
    path.write_bytes(with_function(domain, "Relu", domain).SerializeToString())
    with pytest.raises(InputError, match=r"function 'Relu'|onnxruntime cannot load"):
        load_onnx(path).network()


@pytest.mark.parametrize("name", ["Relu", "Twice", "Gemm"])
def test_functions_of_other_domains_are_read(name: str, tmp_path: Path, agree: Any):
    path = tmp_path / "net.onnx"
    path.write_bytes(with_function("my.domain", name, "my.domain").SerializeToString())
    network = agree(load_onnx(path))
    assert values(network, [-3.0, 2.0]).tolist() == [[0.0, 2.0]]


def test_functions_that_call_functions_and_take_attributes(tmp_path: Path, agree: Any):
    inner = helper.make_function(
        "d", "Inner", ["a"], ["b"], [make("Relu", ["a"], ["b"])], [helper.make_opsetid("", 17)]
    )
    leaky = make("LeakyRelu", ["t"], ["c"])
    leaky.attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    nodes = [make("Inner", ["a"], ["s"], domain="d"), make("Sub", ["a", "s"], ["t"]), leaky]
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("d", 1)]
    outer = helper.make_function("d", "Outer", ["a"], ["c"], nodes, imports, attributes=["slope"])
    model = proto(
        [make("Outer", ["x"], ["s"], domain="d", slope=0.5), make("Outer", ["s"], ["y"], domain="d", slope=2.0)], [1, 3]
    )
    model.functions.extend([inner, outer])
    model.opset_import.append(helper.make_opsetid("d", 1))
    (tmp_path / "net.onnx").write_bytes(model.SerializeToString())
    network = agree(load_onnx(tmp_path / "net.onnx"))
    assert values(network, [-4.0, 0.0, 4.0]).tolist() == [[-4.0, 0.0, 0.0]]


# -- slices --------------------------------------------------------------------------------------------------


def test_slices_of_a_short_axis_are_those_of_onnxruntime(build: Any):
    """All starts, ends and steps around the ends of an axis, in one network: one Slice after the other."""
    bounds = [-(2**63), -7, -4, -3, -2, -1, 0, 1, 2, 3, 4, 7, 2**63 - 1]
    for step in (-3, -2, -1, 1, 2, 3):
        nodes, constants, parts = [], {"axis": np.array([1]), "step": np.array([step])}, []
        for i, (start, end) in enumerate(itertools.product(bounds, bounds)):
            if (step < 0 and end == 2**63 - 1) or not len(range(4)[slice(None)]):
                continue
            constants |= {f"s{i}": np.array([start]), f"e{i}": np.array([end])}
            nodes.append(make("Slice", ["x", f"s{i}", f"e{i}", "axis", "step"], [f"p{i}"]))
            parts.append(f"p{i}")
        model = build([*nodes, make("Concat", parts, ["y"], axis=1)], [1, 4], constants)
        point = np.array([1.0, 2.0, 3.0, 4.0])
        assert values(model.network(), point.tolist())[0].tolist() == model.run(point).tolist()


def test_slices_that_mean_two_things_are_refused(build: Any):
    constants = {"s": np.array([3]), "e": np.array([2**63 - 1]), "a": np.array([1]), "t": np.array([-1])}
    with pytest.raises(UnsupportedOperator, match="onnxruntime differ"):
        build([make("Slice", ["x", "s", "e", "a", "t"], ["y"])], [1, 4], constants).network()


# -- constants -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bound", [0.1, 1000000.0625, 1e39, 1e300, 1e-300, 16777217.0])
def test_bounds_of_clip_keep_the_digits_of_float64(bound: float, build: Any):
    nodes = [make("Clip", ["x", "low", "high"], ["y"])]
    model = build(nodes, [1, 1], {"low": np.float64(-bound), "high": np.float64(bound)}, **DOUBLE)
    box = np.array([[-4 * bound]]), np.array([[4 * bound]])
    network = faithful_network(model, box)
    found = values(network, [2 * bound], [-2 * bound], [bound / 2])[:, 0]
    assert np.allclose(found, [bound, -bound, bound / 2], rtol=1e-15, atol=0)
    check_against(model, network, box)


def test_bounds_at_the_end_of_float32_are_kept_where_they_can_be_reached(build: Any):
    largest = np.finfo(np.float32).max
    nodes = [make("Mul", ["x", "w"], ["m"]), make("Clip", ["m", "low", "high"], ["y"])]
    model = build(nodes, [1, 1], {"w": np.float32(2), "low": -largest, "high": largest})
    assert faithful_network(model, (np.array([[-1e30]]), np.array([[1e30]]))).relus == 0
    near = faithful_network(model, (np.array([[0.0]]), np.array([[3e38]])))
    assert near.relus == 2
    assert values(near, [3e38])[0, 0] == largest


@pytest.mark.parametrize("alpha", [1.0, 0.7])
@pytest.mark.parametrize("seed", range(5))
def test_gemm_scales_its_addend_exactly(alpha: float, seed: int, build: Any):
    generator = np.random.default_rng(seed)
    addend, weight = generator.normal(size=3).astype(np.float32), np.eye(3, dtype=np.float32)
    model = build([make("Gemm", ["x", "w", "c"], ["y"], alpha=alpha, beta=0.7)], [1, 3], {"w": weight, "c": addend})
    bias = model.network().output.bias
    assert [Fraction(b) for b in bias.tolist()] == [
        Fraction(float(c)) * Fraction(float(np.float32(0.7))) for c in addend
    ]
    assert not model.network().output.bias_error.any()


def test_a_scaled_addend_that_float64_must_round_is_refused(build: Any):
    constants = {"w": np.eye(1), "c": np.array([1.0 / 3.0])}
    with pytest.raises(UnsupportedOperator, match="more digits than float64"):
        build([make("Gemm", ["x", "w", "c"], ["y"], beta=0.7)], [1, 1], constants, **DOUBLE).network()


def test_products_of_constants_are_not_rounded_to_float32(build: Any):
    first, second = np.float32(0.1), np.float32(0.7)
    nodes = [
        make("Mul", ["a", "b"], ["c"]),
        make("Reshape", ["c", "s"], ["d"]),
        make("Neg", ["d"], ["e"]),
        make("Add", ["x", "e"], ["y"]),
    ]
    model = build(nodes, [1, 1], {"a": first, "b": second, "s": np.array([1, 1])})
    assert Fraction(model.network().output.bias.item()) == -Fraction(float(first)) * Fraction(float(second))


def test_weights_of_eight_bits_are_exact(build: Any):
    generator = np.random.default_rng(0)
    weight, scale = generator.integers(-128, 128, size=(4, 3)).astype(np.int8), np.float32(0.0123)
    nodes = [make("DequantizeLinear", ["q", "s", "z"], ["w"]), make("MatMul", ["x", "w"], ["y"])]
    model = build(nodes, [1, 4], {"q": weight, "s": scale, "z": np.int8(3)})
    network = model.network()
    check_against(model, network, (-np.ones(4), np.ones(4)))
    expected = (weight.astype(np.float64) - 3) * np.float64(scale)
    assert (values(network, *np.eye(4).tolist()) == expected).all()


QUANTISED = {
    "per axis": (TensorProto.INT8, (-128, 128), None, 16),
    "int8 in blocks": (TensorProto.INT8, (-128, 128), 32, 16),
    "uint8 in blocks": (TensorProto.UINT8, (0, 256), 16, 16),
    "int4 in blocks": (TensorProto.INT4, (-8, 8), 32, 16),
    "uint4 in a last block that is short": (TensorProto.UINT4, (0, 16), 48, 16),
}


@pytest.mark.parametrize("name", QUANTISED)
def test_integer_weights_are_those_that_the_file_says(name: str, build: Any):
    """Also where onnxruntime, as it runs files by default, multiplies activations of eight bits instead."""
    kind, ends, block, n = QUANTISED[name]
    generator = np.random.default_rng(1)
    stored, zero = (
        generator.integers(*ends, size=(64, n)),
        generator.integers(0, 8, size=(-(-64 // block), n) if block else n),
    )
    scale = generator.uniform(0.01, 0.1, size=zero.shape).astype(np.float32)
    settings = {"axis": 0, "block_size": block} if block else {"axis": 1}
    nodes = [make("DequantizeLinear", ["q", "s", "z"], ["w"], **settings), make("MatMul", ["x", "w"], ["y"])]
    held = [helper.make_tensor(k, kind, v.shape, v.reshape(-1).tolist()) for k, v in (("q", stored), ("z", zero))]
    model = build(nodes, [1, 64], {"s": scale}, opset=21, tensors=held)
    network = model.network()
    assert check_against(model, network, (-np.ones(64), np.ones(64))) < 1e-5
    scale, zero = (np.repeat(v, block, axis=0)[:64] if block else v for v in (scale, zero))
    expected = (stored - zero) * scale.astype(np.float64)
    assert (values(network, *np.eye(64).tolist()) == expected).all()
    point = generator.normal(size=64).astype(np.float32)
    fused = ort.InferenceSession(model.path.read_bytes(), providers=["CPUExecutionProvider"])
    differences = [
        np.abs(y - point @ expected).max() for y in (model.run(point), fused.run(None, {"x": point[None]})[0])
    ]
    assert differences[0] < 1e-4
    if "short" not in name:  # which is fused nowhere
        assert differences[1] > 100 * differences[0]


@pytest.mark.parametrize("seed", range(20))
def test_exact_arithmetic_is_exact_or_not_made(seed: int):
    generator = np.random.default_rng(seed)
    digits = int(generator.integers(10, 54))
    a, b = (
        np.round(generator.normal(size=50) * 2.0**digits) * 2.0 ** generator.integers(-60, 60, size=50)
        for _ in range(2)
    )
    for made, rule in ((exact_product, Fraction.__mul__), (exact_sum, Fraction.__add__)):
        for x, y in zip(a, b, strict=True):
            truth = rule(Fraction(x), Fraction(y))
            found = made(np.asarray(x), np.asarray(y))
            held = Fraction(float(truth)) == truth
            assert (found is not None) == held
            assert found is None or Fraction(float(found)) == truth
    assert exact_product(np.array([1e-200]), np.array([1e-200])) is None
    assert exact_product(np.array([1e200]), np.array([1e200])) is None


# -- casts ---------------------------------------------------------------------------------------------------


def test_casts_to_integers_are_refused(build: Any):
    nodes = [make("Cast", ["x"], ["i"], to=TensorProto.INT64), make("Cast", ["i"], ["y"], to=TensorProto.FLOAT)]
    with pytest.raises(UnsupportedOperator, match="rounds from FLOAT to INT64"):
        build(nodes, [1, 1]).network()


def test_casts_like_another_value_are_the_identity(build: Any):
    """Also to fewer digits: what they round is rounding as that of any operator."""
    like = [
        make("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        make("CastLike", ["x", "h"], ["z"]),
        make("Cast", ["z"], ["y"], to=1),
    ]
    assert values(build(like, [1, 1]).network(), [1.0 + 2.0**-20])[0, 0] == 1.0 + 2.0**-20


def test_casts_that_widen_are_the_identity(tmp_path: Path):
    nodes = [
        make("Cast", ["x"], ["d"], to=TensorProto.DOUBLE),
        make("CastLike", ["d", "d"], ["e"]),
        make("Mul", ["e", "w"], ["y"]),
    ]
    built = proto(nodes, [1, 1], {"w": np.float64(0.1)}, opset=19)
    built.graph.output[0].type.tensor_type.elem_type = TensorProto.DOUBLE
    (tmp_path / "net.onnx").write_bytes(built.SerializeToString())
    model = load_onnx(tmp_path / "net.onnx")
    assert values(model.network(), [1.0])[0, 0] == 0.1


# -- the judge -----------------------------------------------------------------------------------------------


def one_output_shifted(build: Any, shift: float, at: int = 1) -> tuple[Any, Any]:
    """A model with outputs of very different size, and a network that is wrong in one of them."""
    from dataclasses import replace

    weight = np.array([[1e7, 1.0, 1e-6]], np.float32)
    model = build([make("Mul", ["x", "w"], ["m"]), make("Relu", ["m"], ["y"])], [1, 3], {"w": weight})
    network = model.network()
    bias = network.output.bias.clone()
    bias[at] += shift
    return model, replace(network, output=replace(network.output, bias=bias))


@pytest.mark.parametrize(("at", "shift"), [(0, 1e5), (1, 1e-2), (2, 1e-8)])
def test_every_output_is_judged_by_its_own_scale(at: int, shift: float, build: Any):
    model, wrong = one_output_shifted(build, shift, at)
    with pytest.raises(InputError, match=f"disagrees with the original at output {at}"):
        check_against(model, wrong, (np.zeros(3), np.ones(3)))
    model, right = one_output_shifted(build, 0.0)
    check_against(model, right, (np.zeros(3), np.ones(3)))


def wrong_beyond(build: Any, limit: float) -> tuple[Any, Any]:
    """A model, and a network that is right up to `limit` only."""
    right = build([make("Relu", ["x"], ["y"])], [1, 1])
    nodes = [make("Relu", ["x"], ["r"]), make("Min", ["r", "c"], ["y"])]
    return right, build(nodes, [1, 1], {"c": np.float32(limit)}).network()


@pytest.mark.parametrize("place", [0, 1, 7])
def test_every_box_is_judged(place: int, build: Any):
    lower, upper = np.zeros((8, 1)), np.full((8, 1), 0.5)
    lower += np.arange(8)[:, None] * 1e-3
    upper[place] = 4.0
    model, wrong = wrong_beyond(build, 3.0)
    with pytest.raises(InputError, match="of the input box"):
        check_against(model, wrong, (lower, upper))


def test_the_widest_of_very_many_boxes_is_judged(build: Any):
    lower = np.random.default_rng(0).uniform(0, 0.1, size=(5000, 1))
    upper = lower + 0.1
    upper[3456] = 1e4
    model, wrong = wrong_beyond(build, 5e3)
    with pytest.raises(InputError, match="of the input box"):
        check_against(model, wrong, (lower, upper))


def test_points_beyond_the_box_are_judged(build: Any):
    model, wrong = wrong_beyond(build, 1.5)
    with pytest.raises(InputError, match="beyond the input box"):
        check_against(model, wrong, (np.zeros(1), np.ones(1)))


def test_float64_networks_are_judged_in_float64(build: Any):
    from dataclasses import replace

    model = build([make("Mul", ["x", "w"], ["y"])], [1, 1], {"w": np.float64(0.1)}, **DOUBLE)
    network = model.network()
    check_against(model, network, (np.zeros(1), np.ones(1)))
    wrong = replace(network, output=replace(network.output, bias=network.output.bias + 1e-9))
    with pytest.raises(InputError, match="disagrees"):
        check_against(model, wrong, (np.zeros(1), np.ones(1)))


def test_small_activations_before_a_clip_are_no_disagreement(build: Any):
    """Clip is written as u - relu(u - x), which rounds activations of 1e-17 away; the bounds count that."""
    nodes = [make("Mul", ["x", "a"], ["m"]), make("Clip", ["m", "l", "u"], ["c"]), make("Mul", ["c", "b"], ["y"])]
    constants = {"a": np.float32(1e-17), "b": np.float32(1e17), "l": np.float32(0), "u": np.float32(1)}
    model = build(nodes, [1, 1], constants)
    check_against(model, model.network(), (np.zeros(1), np.ones(1)))


# -- weights in other files ----------------------------------------------------------------------------------


def save_outside(folder: Path, weight: float, as_attribute: bool = False) -> Path:
    tensor = numpy_helper.from_array(np.full((1, 64), weight, np.float32), "w")
    nodes, held = [make("Mul", ["x", "w"], ["y"])], {"w": np.full((1, 64), weight, np.float32)}
    if as_attribute:
        nodes, held = [make("Constant", [], ["w"], value=tensor), *nodes], {}
    model = proto(nodes, [1, 64], held)
    path = folder / "net.onnx"
    onnx.save_model(
        model, str(path), save_as_external_data=True, location="weights.bin", size_threshold=0, convert_attribute=True
    )
    return path


@pytest.mark.parametrize("as_attribute", [False, True])
def test_identity_is_all_bytes(as_attribute: bool, tmp_path: Path):
    path = save_outside(tmp_path, 1.0, as_attribute)
    before, graph, model = network_digest(str(path)), path.read_bytes(), load_onnx(path)
    (tmp_path / "weights.bin").write_bytes(
        (tmp_path / "weights.bin").read_bytes().replace(b"\x00\x00\x80\x3f", b"\x00\x00\x00\x40")
    )
    assert path.read_bytes() == graph
    assert network_digest(str(path)) != before == model.sha256
    assert load_onnx(path).sha256 == network_digest(str(path))
    assert values(load_onnx(path).network(), [1.0] * 64)[0, 0] == 2.0
    assert model.run(np.ones(64, np.float32))[0] == 1.0  # what was read is what is run
    (tmp_path / "weights.bin").unlink()
    assert network_digest(str(path)) not in {None, before}
    with pytest.raises(InputError, match="external data"):
        load_onnx(path)


def test_identity_of_a_whole_file_is_its_sha256(tmp_path: Path):
    import hashlib

    path = tmp_path / "net.onnx"
    path.write_bytes(
        proto([make("Relu", ["x"], ["location"]), make("Relu", ["location"], ["y"])], [1, 1]).SerializeToString()
    )
    assert network_digest(str(path)) == hashlib.sha256(path.read_bytes()).hexdigest()
    assert network_digest(str(tmp_path / "none.onnx")) is None


# -- whole runs ----------------------------------------------------------------------------------------------


def verdict(
    model: onnx.ModelProto, folder: Path, lower: float, upper: float, unsafe: str, timeout: float = 20.0
) -> Verdict:
    (folder / "net.onnx").write_bytes(model.SerializeToString())
    text = f"(declare-const X_0 Real)(declare-const Y_0 Real)(assert (>= X_0 {lower}))(assert (<= X_0 {upper}))"
    (folder / "prop.vnnlib").write_text(text + f"(assert {unsafe})")
    return verifier.verify(folder / "net.onnx", folder / "prop.vnnlib", timeout=timeout, threads=1).verdict


def test_a_clip_whose_digits_matter_is_decided(tmp_path: Path):
    model = proto([make("Clip", ["x", "l", "u"], ["y"])], [1, 1], {"l": np.float64(0), "u": np.float64(0.1)}, **DOUBLE)
    assert verdict(model, tmp_path, 0.5, 1.0, "(<= Y_0 0.1000000001)") is Verdict.SAT
    assert verdict(model, tmp_path, 0.5, 1.0, "(<= Y_0 0.0999999999)") is Verdict.UNSAT
    assert verdict(model, tmp_path, 0.5, 1.0, "(>= Y_0 0.1000000001)") is Verdict.UNSAT


def test_a_gemm_whose_addend_matters_is_not_proved(tmp_path: Path):
    model = proto(
        [make("Gemm", ["x", "w", "c"], ["y"], beta=0.7)],
        [1, 1],
        {"w": np.eye(1, dtype=np.float32), "c": np.float32([0.1])},
    )
    least = Fraction(float(np.float32(0.1))) * Fraction(float(np.float32(0.7)))
    above, below = float(least) + 1e-12, float(least) - 1e-12
    assert verdict(model, tmp_path, 0.0, 1.0, f"(<= Y_0 {above!r})", timeout=4.0) is not Verdict.UNSAT
    assert verdict(model, tmp_path, 0.0, 1.0, f"(<= Y_0 {below!r})") is Verdict.UNSAT
