"""One-operator networks against onnxruntime: every supported operator, every attribute, old and new opsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

make = helper.make_node
R = np.random.default_rng(0)


def f32(*shape: int) -> np.ndarray:
    return R.normal(size=shape).astype(np.float32)


def i64(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def node(op: str, *inputs: str, **attributes: Any) -> Any:
    return make(op, ["x", *inputs], ["y"], **attributes)


# name: (nodes, input shape, constants, opset)
CASES: dict[str, tuple[list[Any], list[Any], dict[str, Any], int]] = {
    "gemm": ([node("Gemm", "w", "b")], [1, 4], {"w": f32(4, 3), "b": f32(3)}, 17),
    "gemm-7": ([node("Gemm", "w", "b", transB=1)], [1, 4], {"w": f32(3, 4), "b": f32(3)}, 7),
    "gemm-alpha": (
        [node("Gemm", "w", "b", alpha=0.3, beta=1.7)],
        [1, 4],
        {"w": f32(4, 3), "b": f32(1, 3)},
        13,
    ),
    "gemm-beta-0": ([node("Gemm", "w", "b", alpha=0.3, beta=0.0)], [1, 4], {"w": f32(4, 3), "b": f32(3)}, 13),
    "gemm-no-bias": ([node("Gemm", "w")], [1, 4], {"w": f32(4, 3)}, 13),
    "gemm-empty-bias": ([node("Gemm", "w", "")], [1, 4], {"w": f32(4, 3)}, 13),
    "gemm-scalar-bias": ([node("Gemm", "w", "b")], [1, 4], {"w": f32(4, 3), "b": f32(1)}, 13),
    "gemm-transA": ([node("Gemm", "w", transA=1)], [4, 2], {"w": f32(4, 3)}, 13),
    "gemm-left": ([make("Gemm", ["w", "x", "c"], ["y"])], [4, 2], {"w": f32(3, 4), "c": f32(3, 1)}, 13),
    "matmul": ([node("MatMul", "w")], [1, 4], {"w": f32(4, 3)}, 8),
    "matmul-vector-in": ([node("MatMul", "w")], [4], {"w": f32(4, 3)}, 13),
    "matmul-vector-weight": ([node("MatMul", "w")], [1, 2, 4], {"w": f32(4)}, 13),
    "matmul-3d": ([node("MatMul", "w")], [1, 5, 4], {"w": f32(4, 3)}, 13),
    "matmul-left": ([make("MatMul", ["w", "x"], ["y"])], [1, 4, 2], {"w": f32(3, 4)}, 13),
    "matmul-left-vector": ([make("MatMul", ["w", "x"], ["y"])], [4], {"w": f32(3, 4)}, 13),
    "matmul-left-weight-vector": ([make("MatMul", ["w", "x"], ["y"])], [4, 2], {"w": f32(4)}, 13),
    "matmul-batched": ([node("MatMul", "w")], [1, 3, 2, 4], {"w": f32(3, 4, 5)}, 13),
    "matmul-batched-left": ([make("MatMul", ["w", "x"], ["y"])], [1, 3, 4, 2], {"w": f32(3, 5, 4)}, 13),
    "add": ([node("Add", "c")], [1, 3, 2], {"c": f32(3, 1)}, 7),
    "add-left": ([make("Add", ["c", "x"], ["y"])], [3], {"c": f32(2, 3)}, 14),
    "add-self": ([node("Add", "x")], [1, 3], {}, 14),
    "sub": ([node("Sub", "c")], [1, 3], {"c": f32(3)}, 14),
    "sub-left": ([make("Sub", ["c", "x"], ["y"])], [1, 3], {"c": f32(1)}, 14),
    "mul": ([node("Mul", "c")], [1, 3, 2], {"c": f32(3, 1)}, 14),
    "mul-scalar": ([node("Mul", "c")], [1, 3], {"c": np.float32(0.7)}, 14),
    "div": ([node("Div", "c")], [1, 3], {"c": f32(3) + 3}, 14),
    "neg": ([node("Neg")], [1, 3], {}, 13),
    "sum": ([make("Sum", ["x", "c", "x"], ["y"])], [1, 3], {"c": f32(3)}, 13),
    "sum-one": ([make("Sum", ["x"], ["y"])], [1, 3], {}, 13),
    "mean": ([make("Mean", ["x", "c", "x"], ["y"])], [1, 3], {"c": f32(3)}, 13),
    "relu": ([node("Relu")], [1, 3], {}, 6 + 1),
    "relu-14": ([node("Relu")], [1, 3], {}, 14),
    "leaky": ([node("LeakyRelu", alpha=0.2)], [1, 5], {}, 7),
    "leaky-default": ([node("LeakyRelu")], [1, 5], {}, 16),
    "leaky-steep": ([node("LeakyRelu", alpha=1.5)], [1, 5], {}, 16),
    "leaky-negative": ([node("LeakyRelu", alpha=-0.5)], [1, 5], {}, 16),
    "prelu-channel": ([node("PRelu", "s")], [1, 3, 2], {"s": f32(3, 1)}, 16),
    "prelu-last-axis": ([node("PRelu", "s")], [1, 3, 3], {"s": f32(3)}, 16),
    "prelu-scalar": ([node("PRelu", "s")], [1, 3], {"s": f32(1)}, 9),
    "prelu-full": ([node("PRelu", "s")], [1, 3, 2], {"s": f32(3, 2)}, 16),
    "abs": ([node("Abs")], [1, 5], {}, 13),
    "clip-6": ([node("Clip", min=-0.5, max=1.0)], [1, 5], {}, 7),
    "clip": ([node("Clip", "l", "u")], [1, 5], {"l": np.float32(-0.5), "u": np.float32(1)}, 13),
    "clip-max": ([node("Clip", "", "u")], [1, 5], {"u": np.float32(1)}, 13),
    "clip-min": ([node("Clip", "l")], [1, 5], {"l": np.float32(-1)}, 13),
    "clip-none": ([node("Clip")], [1, 5], {}, 13),
    "clip-relu6": ([node("Clip", "l", "u")], [1, 5], {"l": np.float32(0), "u": np.float32(6)}, 13),
    "clip-crossed": ([node("Clip", "l", "u")], [1, 5], {"l": np.float32(1), "u": np.float32(-1)}, 13),
    "clip-far": ([node("Clip", "l", "u")], [1, 5], {"l": np.float32(0), "u": np.float32(1e20)}, 13),
    "clip-far-below": ([node("Clip", "l", "u")], [1, 5], {"l": np.float32(-1e20), "u": np.float32(1)}, 13),
    "clip-huge": (
        [node("Clip", "l", "u")],
        [1, 5],
        {"l": np.float32(-3.4028235e38), "u": np.float32(3.4028235e38)},
        13,
    ),
    "hard-sigmoid": ([node("HardSigmoid")], [1, 5], {}, 6 + 1),
    "hard-sigmoid-22": ([node("HardSigmoid", alpha=0.4)], [1, 5], {}, 22),
    "max": ([make("Max", ["x", "c"], ["y"])], [1, 4], {"c": f32(4)}, 13),
    "max-three": ([make("Max", ["c", "x", "d"], ["y"])], [1, 4], {"c": f32(4), "d": f32(1)}, 8),
    "max-one": ([make("Max", ["x"], ["y"])], [1, 4], {}, 13),
    "max-two-activations": (
        [make("Neg", ["x"], ["n"]), make("Max", ["x", "n", "c"], ["y"])],
        [1, 4],
        {"c": f32(2, 1)},
        13,
    ),
    "min": ([make("Min", ["x", "c"], ["y"])], [1, 4], {"c": f32(4)}, 13),
    "min-two-activations": (
        [make("Mul", ["x", "c"], ["n"]), make("Min", ["x", "n"], ["y"])],
        [1, 4],
        {"c": f32(4)},
        13,
    ),
    "flatten-1": ([node("Flatten")], [1, 2, 3], {}, 8),
    "flatten-0": ([node("Flatten", axis=0)], [2, 3], {}, 13),
    "flatten-neg": ([node("Flatten", axis=-1)], [1, 2, 3], {}, 13),
    "flatten-21": ([node("Flatten", axis=2)], [1, 2, 3], {}, 21),
    "reshape": ([node("Reshape", "s")], [1, 2, 3], {"s": i64(1, -1)}, 5 + 2),
    "reshape-0": ([node("Reshape", "s")], [1, 2, 3], {"s": i64(0, 3, -1)}, 14),
    "reshape-allowzero": ([node("Reshape", "s", allowzero=1)], [1, 2, 3], {"s": i64(1, 6)}, 19),
    "transpose": ([node("Transpose", perm=[0, 2, 3, 1])], [1, 2, 3, 4], {}, 13),
    "transpose-default": ([node("Transpose")], [2, 3, 4], {}, 21),
    "squeeze-attr": ([node("Squeeze", axes=[1])], [1, 1, 3], {}, 11),
    "squeeze": ([node("Squeeze", "a")], [1, 1, 3, 1], {"a": i64(-1, 1)}, 13),
    "squeeze-all": ([node("Squeeze")], [1, 1, 3, 1], {}, 13),
    "squeeze-23": ([node("Squeeze", "a")], [1, 1, 3], {"a": i64(0)}, 23),
    "unsqueeze-attr": ([node("Unsqueeze", axes=[0, 2])], [2, 3], {}, 11),
    "unsqueeze-negative": ([node("Unsqueeze", "a")], [2, 3], {"a": i64(-2, -1)}, 13),
    "unsqueeze-21": ([node("Unsqueeze", "a")], [2, 3], {"a": i64(1)}, 21),
    "slice-attr": ([node("Slice", starts=[1], ends=[3], axes=[1])], [1, 5], {}, 9),
    "slice": (
        [node("Slice", "s", "e", "a")],
        [1, 5, 4],
        {"s": i64(1, -3), "e": i64(99, -1), "a": i64(1, 2)},
        13,
    ),
    "slice-no-axes": ([node("Slice", "s", "e")], [3, 4], {"s": i64(1, 0), "e": i64(3, 2)}, 13),
    "slice-steps": (
        [node("Slice", "s", "e", "a", "t")],
        [1, 7],
        {"s": i64(0), "e": i64(7), "a": i64(-1), "t": i64(3)},
        13,
    ),
    "slice-reverse": (
        [node("Slice", "s", "e", "a", "t")],
        [1, 5],
        {"s": i64(-1), "e": i64(-(2**63)), "a": i64(1), "t": i64(-2)},
        13,
    ),
    "split-attr": (
        [make("Split", ["x"], ["a", "b"], axis=1, split=[2, 3]), make("Concat", ["b", "a"], ["y"], axis=1)],
        [1, 5],
        {},
        11,
    ),
    "split-output": ([make("Split", ["x", "s"], ["a", "y"], axis=1)], [1, 5], {"s": i64(2, 3)}, 13),
    "split-first-output": ([make("Split", ["x", "s"], ["y", "a"], axis=-1)], [1, 5], {"s": i64(2, 3)}, 13),
    "split-even": ([make("Split", ["x"], ["a", "y"], axis=1)], [1, 6], {}, 13),
    "split-18": ([make("Split", ["x"], ["a", "b", "y"], axis=1, num_outputs=3)], [1, 7], {}, 18),
    "concat": ([make("Concat", ["x", "c", "x"], ["y"], axis=1)], [1, 3], {"c": f32(1, 2)}, 13),
    "concat-negative": ([make("Concat", ["c", "x"], ["y"], axis=-2)], [1, 2, 3], {"c": f32(1, 1, 3)}, 13),
    "gather": ([node("Gather", "i", axis=1)], [1, 5, 2], {"i": i64(3, 0, -1, 3)}, 13),
    "gather-scalar": ([node("Gather", "i", axis=-1)], [1, 5], {"i": np.int64(2)}, 11),
    "gather-2d": ([node("Gather", "i", axis=1)], [1, 5], {"i": np.array([[0, 1], [4, 2]])}, 13),
    "gather-elements": ([node("GatherElements", "i", axis=1)], [1, 5], {"i": np.array([[4, 4, 0]])}, 13),
    "expand": ([node("Expand", "s")], [1, 3, 1], {"s": i64(2, 1, 4)}, 13),
    "tile": ([node("Tile", "r")], [1, 3], {"r": i64(2, 2)}, 13),
    "pad-attr": ([node("Pad", pads=[0, 1, 0, 2], value=1.5)], [1, 3], {}, 9),
    "pad": ([node("Pad", "p")], [1, 3], {"p": i64(0, 1, 0, 2)}, 13),
    "pad-value": ([node("Pad", "p", "v")], [1, 3], {"p": i64(0, 1, 0, 2), "v": np.float32(-2)}, 13),
    "pad-negative": ([node("Pad", "p")], [1, 5], {"p": i64(0, -1, 0, 2)}, 13),
    "pad-18-axes": ([node("Pad", "p", "", "a")], [1, 2, 3], {"p": i64(1, 2), "a": i64(-1)}, 18),
    "pad-reflect": ([node("Pad", "p", mode="reflect")], [1, 1, 4, 4], {"p": i64(0, 0, 1, 2, 0, 0, 2, 1)}, 13),
    "pad-edge": ([node("Pad", "p", mode="edge")], [1, 4], {"p": i64(0, 2, 0, 3)}, 13),
    "pad-wrap": ([node("Pad", "p", mode="wrap")], [1, 4], {"p": i64(0, 2, 0, 3)}, 19),
    "where": (
        [make("Where", ["m", "x", "c"], ["y"])],
        [1, 3],
        {"m": np.array([True, False, True]), "c": f32(3)},
        16,
    ),
    "identity": ([node("Identity")], [1, 3], {}, 19),
    "dropout-7": ([node("Dropout", ratio=0.5)], [1, 3], {}, 7),
    "dropout-13": ([node("Dropout")], [1, 3], {}, 13),
    "dropout-22": ([node("Dropout")], [1, 3], {}, 22),
    "cast-double-and-back": (
        [make("Cast", ["x"], ["d"], to=TensorProto.DOUBLE), make("Cast", ["d"], ["y"], to=TensorProto.FLOAT)],
        [1, 3],
        {},
        19,
    ),
    "depth-to-space": ([node("DepthToSpace", blocksize=2)], [1, 8, 2, 3], {}, 13),
    "depth-to-space-crd": ([node("DepthToSpace", blocksize=2, mode="CRD")], [1, 8, 2, 3], {}, 13),
    "space-to-depth": ([node("SpaceToDepth", blocksize=2)], [1, 2, 4, 6], {}, 13),
    "reduce-sum-attr": ([node("ReduceSum", axes=[1], keepdims=0)], [1, 3, 2], {}, 11),
    "reduce-sum": ([node("ReduceSum", "a")], [1, 3, 2], {"a": i64(-1, 1)}, 13),
    "reduce-sum-all": ([node("ReduceSum", keepdims=0)], [1, 3, 2], {}, 13),
    "reduce-sum-noop": ([node("ReduceSum", noop_with_empty_axes=1)], [1, 3, 2], {}, 13),
    "reduce-mean-attr": ([node("ReduceMean", axes=[-1, 1])], [1, 3, 2], {}, 13),
    "reduce-mean-18": ([node("ReduceMean", "a", keepdims=0)], [1, 3, 2], {"a": i64(1)}, 18),
    "reduce-max": ([node("ReduceMax", axes=[2], keepdims=0)], [1, 3, 5], {}, 13),
    "reduce-max-18": ([node("ReduceMax", "a")], [1, 3, 5], {"a": i64(1, 2)}, 18),
    "reduce-min": ([node("ReduceMin", axes=[1])], [1, 3, 2], {}, 13),
    "batch-norm": (
        [node("BatchNormalization", "s", "b", "m", "v")],
        [1, 3, 2, 2],
        {"s": f32(3), "b": f32(3), "m": f32(3), "v": np.abs(f32(3)) + 0.1},
        15,
    ),
    "batch-norm-7": (
        [node("BatchNormalization", "s", "b", "m", "v", epsilon=1e-2)],
        [1, 3],
        {"s": f32(3), "b": f32(3), "m": f32(3), "v": np.abs(f32(3)) + 0.1},
        8,
    ),
    "batch-norm-1d": (
        [node("BatchNormalization", "s", "b", "m", "v")],
        [1, 3, 4],
        {"s": f32(3), "b": f32(3), "m": f32(3), "v": np.abs(f32(3)) + 0.1},
        9,
    ),
    "global-average": ([node("GlobalAveragePool")], [1, 3, 4, 5], {}, 22),
    "global-max": ([node("GlobalMaxPool")], [1, 2, 3, 3], {}, 13),
}


@pytest.mark.parametrize("name", CASES)
def test_operator(name, build, agree):
    nodes, shape, constants, opset = CASES[name]
    agree(build(nodes, shape, constants, opset))


CONVS = [
    # input shape, weight shape, attributes
    ([1, 3, 8], (4, 3, 3), {}),
    ([1, 3, 8, 7], (4, 3, 3, 3), {"pads": [1, 1, 1, 1]}),
    ([1, 3, 8, 7], (4, 3, 3, 2), {"strides": [2, 3]}),
    ([1, 4, 8, 7], (6, 2, 3, 3), {"group": 2, "pads": [1, 0, 2, 1]}),
    ([1, 4, 9, 9], (4, 1, 3, 3), {"group": 4, "dilations": [2, 3]}),
    ([1, 2, 9, 8], (3, 2, 3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    ([1, 2, 9, 8], (3, 2, 4, 4), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    ([1, 2, 9, 8], (3, 2, 4, 4), {"auto_pad": "VALID"}),
    ([1, 2, 4, 5, 3], (3, 2, 2, 2, 2), {"pads": [0, 1, 0, 1, 0, 1]}),
    ([2, 2, 5, 5], (3, 2, 3, 3), {}),  # a batch of two is part of the input
    ([1, 2, 6, 6], (3, 2, 3, 3), {"kernel_shape": [3, 3], "strides": [3, 3]}),
]


@pytest.mark.parametrize("opset", [7, 11, 22])
@pytest.mark.parametrize("bias", ["", "b"])
@pytest.mark.parametrize("case", range(len(CONVS)))
def test_conv(case, bias, opset, build, agree):
    shape, weight, attributes = CONVS[case]
    network = agree(
        build([node("Conv", "w", bias, **attributes)], shape, {"w": f32(*weight), "b": f32(weight[0])}, opset)
    )
    (_, term), *rest = network.output.terms
    assert not rest
    assert term.parameters <= 2 * np.prod(weight), "a convolution must stay a convolution"


TRANSPOSED = [
    ([1, 3, 4], (3, 2, 3), {"strides": [2]}),
    ([1, 3, 4, 4], (3, 2, 3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]}),
    ([1, 4, 4, 4], (4, 2, 3, 3), {"group": 2, "strides": [2, 1], "pads": [1, 0, 0, 1]}),
    ([1, 2, 4, 4], (2, 2, 3, 3), {"dilations": [2, 2], "pads": [2, 2, 2, 2]}),
    ([1, 2, 4, 4], (2, 2, 3, 3), {"strides": [2, 2], "output_shape": [8, 8]}),
    ([1, 2, 4, 4], (2, 2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ([1, 2, 4, 4], (2, 2, 3, 3), {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ([1, 2, 4, 4], (2, 2, 5, 5), {"strides": [3, 3], "output_shape": [11, 12], "auto_pad": "SAME_UPPER"}),
]


@pytest.mark.parametrize("opset", [7, 11, 22])
@pytest.mark.parametrize("case", range(len(TRANSPOSED)))
def test_conv_transpose(case, opset, build, agree):
    shape, weight, attributes = TRANSPOSED[case]
    channels = weight[1] * attributes.get("group", 1)
    agree(
        build(
            [node("ConvTranspose", "w", "b", **attributes)],
            shape,
            {"w": f32(*weight), "b": f32(channels)},
            opset,
        )
    )


POOLS = [
    ([1, 2, 7], {"kernel_shape": [3]}),
    ([1, 2, 6, 6], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    ([1, 2, 7, 8], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
    ([1, 2, 7, 8], {"kernel_shape": [3, 2], "strides": [2, 3], "pads": [0, 1, 2, 0]}),
    ([1, 2, 7, 8], {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1}),
    ([1, 2, 7, 8], {"kernel_shape": [3, 3], "strides": [3, 3], "pads": [1, 1, 1, 1], "ceil_mode": 1}),
    ([1, 2, 7, 8], {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [0, 0, 1, 1], "ceil_mode": 1}),
    ([1, 2, 7, 8], {"kernel_shape": [3, 3], "strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    ([1, 2, 7, 8], {"kernel_shape": [2, 2], "strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    ([1, 2, 4, 4, 4], {"kernel_shape": [2, 2, 2]}),
    ([2, 2, 5, 5], {"kernel_shape": [2, 2]}),
]


@pytest.mark.parametrize("opset", [10, 12, 22])
@pytest.mark.parametrize("dilated", [False, True])
@pytest.mark.parametrize("case", range(len(POOLS)))
def test_max_pool(case, dilated, opset, build, agree):
    shape, attributes = POOLS[case]
    if dilated:
        if len(shape) != 4 or "auto_pad" in attributes:
            pytest.skip("dilation is tried on images with explicit padding")
        attributes = {**attributes, "dilations": [2, 1]}
    network = agree(build([node("MaxPool", **attributes)], shape, {}, opset))
    window = np.prod(attributes["kernel_shape"])
    assert network.relus <= network.n_out * (window - 1)


@pytest.mark.parametrize("opset", [10, 11, 19, 22])
@pytest.mark.parametrize("include", [0, 1])
@pytest.mark.parametrize("case", range(len(POOLS)))
def test_average_pool(case, include, opset, build, agree):
    shape, attributes = POOLS[case]
    network = agree(build([node("AveragePool", count_include_pad=include, **attributes)], shape, {}, opset))
    assert not network.groups


def test_padding_costs_no_neurons(build, agree):
    """2x2 windows on a padded 3x3 image: only pairs of real entries are compared."""
    pool = node("MaxPool", kernel_shape=[2, 2], strides=[2, 2], pads=[1, 1, 0, 0])
    network = agree(build([pool], [1, 1, 3, 3], {}, 12))
    assert network.relus == 2 + 1 + 1 + 1  # one corner alone, two edges of two, one full window of four


# -- weights in unusual places --------------------------------------------------------------------------------


def test_weights_behind_constant_and_identity_nodes(build, agree):
    weight = numpy_helper.from_array(f32(4, 3, 3, 3))
    nodes = [
        make("Constant", [], ["c"], value=weight),
        make("Identity", ["c"], ["w0"]),
        make("Mul", ["w0", "two"], ["w"]),
        make("Constant", [], ["b"], value_floats=[0.5, 1.0, -1.0, 2.0]),
        make("Conv", ["x", "w", "b"], ["y"]),
    ]
    agree(build(nodes, [1, 3, 5, 5], {"two": np.float32(2)}, 13))


def test_shapes_that_the_graph_computes(build, agree):
    """Shape -> Gather -> Concat -> Reshape, as exporters write a flatten with an open batch axis."""
    nodes = [
        make("Shape", ["x"], ["s"]),
        make("Gather", ["s", "zero"], ["n"], axis=0),
        make("Unsqueeze", ["n", "axis"], ["n1"]),
        make("Concat", ["n1", "rest"], ["t"], axis=0),
        make("Reshape", ["x", "t"], ["f"]),
        make("Gemm", ["f", "w"], ["y"]),
    ]
    constants = {"zero": np.int64(0), "axis": i64(0), "rest": i64(-1), "w": f32(6, 2)}
    agree(build(nodes, ["batch", 2, 3], constants, 13))


def test_shared_initializers(build, agree):
    nodes = [
        make("Gemm", ["x", "w", "b"], ["h"]),
        make("Relu", ["h"], ["r"]),
        make("Gemm", ["r", "w", "b"], ["y"]),
    ]
    agree(build(nodes, [1, 3], {"w": f32(3, 3), "b": f32(3)}, 13))


def test_dead_branches_are_ignored(build, agree):
    nodes = [make("Sigmoid", ["x"], ["unused"]), make("Relu", ["x"], ["y"])]
    assert agree(build(nodes, [1, 3])).relus == 3


def test_constant_output(build, agree):
    network = agree(build([make("Mul", ["c", "d"], ["y"])], [1, 3], {"c": f32(2), "d": f32(2)}))
    assert network.n_out == 2
    assert network.relus == 0


def test_double_precision_model(build, agree):
    weight = R.normal(size=(3, 2))
    agree(build([node("Gemm", "w")], [1, 3], {"w": weight}, 13, dtype=TensorProto.DOUBLE), 1e-12)
