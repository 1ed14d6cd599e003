"""Files: where they are found, what is wrong with them, and how onnxruntime runs them."""

from __future__ import annotations

import gzip
import hashlib
import os
import subprocess
import sys
import warnings

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, external_data_helper, helper, numpy_helper
from torch import nn

from verifier.errors import InputError, SoundnessError, UnsupportedOperator, VerifierError
from verifier.network.judge import check_against
from verifier.network.models.onnx import load_onnx

make = helper.make_node
R = np.random.default_rng(0)
WEIGHT = R.normal(size=(4, 3)).astype(np.float32)


def saved(path, nodes, shape, constants=None, opset=17, outputs=("y",), inputs=("x",), **extra):
    held = [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, extra.get("dtype", TensorProto.FLOAT), shape) for name in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        held,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


def mlp(path, shape=("batch", 4), **kwargs):
    nodes = [make("Gemm", ["x", "w"], ["h"], name="first"), make("Relu", ["h"], ["y"], name="act")]
    return saved(path, nodes, list(shape), {"w": WEIGHT}, **kwargs)


def agrees(path, tolerance=2e-6):
    model = load_onnx(path)
    ends = np.ones(model.n_in)
    network = model.network()
    assert check_against(model, network, (-ends, ends)) <= tolerance
    return network


# -- where files are found ----------------------------------------------------------------------------------


def test_plain_and_compressed(tmp_path):
    plain = mlp(tmp_path / "a.onnx")
    packed = tmp_path / "b.onnx.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    x = R.normal(size=(5, 4)).astype(np.float32)
    models = [load_onnx(plain), load_onnx(packed), load_onnx(tmp_path / "b.onnx")]
    assert [m.sha256 for m in models[1:]] == [hashlib.sha256(packed.read_bytes()).hexdigest()] * 2
    for model in models:
        assert np.array_equal(model.run(x), models[0].run(x))
    assert load_onnx(tmp_path / "b.onnx").path == packed


@pytest.mark.parametrize("compressed", [False, True])
def test_external_data(tmp_path, compressed):
    path = mlp(tmp_path / "net.onnx")
    model = onnx.load(path)
    external_data_helper.convert_model_to_external_data(model, location="net.onnx.data", size_threshold=0)
    onnx.save(model, path)
    if compressed:
        (tmp_path / "net.onnx.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert agrees(path).relus == 3
    (tmp_path / "net.onnx.data").write_bytes(b"")
    with pytest.raises(InputError, match="external data"):
        load_onnx(path)
    (tmp_path / "net.onnx.data").unlink()
    with pytest.raises(InputError, match="external data"):
        load_onnx(path)


# -- shapes -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (["batch", 4], (1, 4)),
        ([None, 4], (1, 4)),
        ([1, 4], (1, 4)),
        ([1, 1, 1, 4], (1, 1, 1, 4)),
        ([4], (4,)),
        ([1], (1,)),
        (["n"], (1,)),
        ([2, 2, 3], (2, 2, 3)),
    ],
)
def test_input_shapes(tmp_path, shape, expected):
    model = load_onnx(saved(tmp_path / "a.onnx", [make("Relu", ["x"], ["y"])], shape))
    assert model.input_shape == expected == model.output_shape
    x = R.normal(size=model.n_in).astype(np.float32)
    assert np.array_equal(model.run(x), np.maximum(x, 0))
    assert agrees(tmp_path / "a.onnx").relus == model.n_in


def test_channels_last(tmp_path):
    nodes = [
        make("Transpose", ["x"], ["t"], perm=[0, 3, 1, 2]),
        make("Conv", ["t", "w"], ["c"]),
        make("Transpose", ["c"], ["b"], perm=[0, 2, 3, 1]),
        make("Reshape", ["b", "s"], ["y"]),
    ]
    constants = {"w": R.normal(size=(2, 3, 2, 2)).astype(np.float32), "s": np.array([-1, 18])}
    agrees(saved(tmp_path / "a.onnx", nodes, [None, 4, 4, 3], constants))


def test_output_is_the_input(tmp_path):
    path = saved(tmp_path / "a.onnx", [make("Identity", ["x"], ["y"])], [1, 3])
    assert agrees(path).relus == 0


# -- onnxruntime --------------------------------------------------------------------------------------------


def test_batches_equal_single_runs(tmp_path):
    model = load_onnx(mlp(tmp_path / "a.onnx"))
    x = R.normal(size=(7, 4)).astype(np.float32)
    np.testing.assert_allclose(model.run(x), np.stack([model.run(p) for p in x]), rtol=1e-6, atol=1e-6)
    assert model.run(x[:0]).shape == (0, 3)
    assert model._takes_batches is True


def test_a_reshape_that_mixes_samples_is_noticed(tmp_path):
    """[batch, 4] -> [2, -1] accepts every batch, but mixes samples without an error."""
    nodes = [
        make("Reshape", ["x", "s"], ["r"]),
        make("ReduceSum", ["r", "a"], ["y"], keepdims=0),
    ]
    model = load_onnx(saved(tmp_path / "a.onnx", nodes, ["batch", 4], {"s": np.array([2, -1]), "a": np.array([1])}))
    x = R.normal(size=(2, 4)).astype(np.float32)
    np.testing.assert_allclose(model.run(x), x.reshape(2, 2, 2).sum(axis=2), rtol=1e-6)
    assert model._takes_batches is False


def test_built_in_batch_of_one(tmp_path):
    nodes = [make("Reshape", ["x", "s"], ["r"]), make("Gemm", ["r", "w"], ["y"])]
    path = saved(tmp_path / "a.onnx", nodes, ["batch", 2, 2], {"s": np.array([1, 4]), "w": WEIGHT})
    model = load_onnx(path)
    x = R.normal(size=(3, 4)).astype(np.float32)
    np.testing.assert_allclose(model.run(x), x @ WEIGHT, rtol=1e-5, atol=1e-6)
    agrees(path)


def test_wrong_sizes(tmp_path):
    model = load_onnx(mlp(tmp_path / "a.onnx"))
    with pytest.raises(InputError, match="takes 4 inputs"):
        model.run(np.zeros(5))


# -- bad files ----------------------------------------------------------------------------------------------


def test_missing_directory_and_unreadable(tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        load_onnx(tmp_path / "none.onnx")
    with pytest.raises(InputError, match="is a directory"):
        load_onnx(tmp_path)
    path = mlp(tmp_path / "a.onnx")
    path.chmod(0)
    if os.access(path, os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(InputError, match="may not be read"):
        load_onnx(path)


def test_truncated_random_and_empty(tmp_path):
    data = mlp(tmp_path / "a.onnx").read_bytes()
    packed = gzip.compress(data)
    bad = {
        "truncated.onnx": data[: len(data) // 2],
        "empty.onnx": b"",
        "random.onnx": R.bytes(500),
        "text.onnx": b"hello world, this is not a network\n",
        "truncated.onnx.gz": packed[: len(packed) // 2],
        "damaged.onnx.gz": packed[:20] + b"\xff\xff\xff" + packed[23:],
    }
    for name, content in bad.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError, match=name) as caught:
            load_onnx(tmp_path / name).network()
        assert "\n" not in str(caught.value)


def graph_cases():
    relu = [make("Relu", ["x"], ["y"])]
    nan = WEIGHT.copy()
    nan[1, 2] = np.nan
    gemm = [make("Gemm", ["x", "w"], ["y"])]
    return {
        "no output": ({"nodes": relu, "shape": [1, 2], "outputs": ()}, "the network has no output"),
        "open axis": ({"nodes": relu, "shape": [1, "width"]}, "open: width"),
        "unknown shape": ({"nodes": relu, "shape": None}, "shape of input 'x' is not given"),
        "empty axis": ({"nodes": relu, "shape": [1, 0]}, "unusable shape"),
        "huge": ({"nodes": relu, "shape": [1, 2**40]}, "unusable shape"),
        "integers": ({"nodes": relu, "shape": [1, 2], "dtype": TensorProto.INT64}, "type INT64"),
        "half": ({"nodes": relu, "shape": [1, 2], "dtype": TensorProto.BFLOAT16}, "bfloat16.*convert it to float32"),
        "nan weight": ({"nodes": gemm, "shape": [1, 4], "constants": {"w": nan}}, "initializer 'w' holds"),
        "inf weight": (
            {"nodes": gemm, "shape": [1, 4], "constants": {"w": np.full_like(WEIGHT, -np.inf)}},
            "initializer 'w' holds",
        ),
        "nan constant": (
            {
                "nodes": [
                    make("Constant", [], ["c"], value_floats=[1.0, float("nan")]),
                    make("Add", ["x", "c"], ["y"]),
                ],
                "shape": [1, 2],
            },
            "initializer 'c' holds",
        ),
        "dangling": (
            {"nodes": [make("Relu", ["nowhere"], ["y"])], "shape": [1, 2]},
            "onnxruntime cannot load",
        ),
        "sizes": ({"nodes": gemm, "shape": [1, 5], "constants": {"w": WEIGHT}}, "onnxruntime cannot load"),
        "future": ({"nodes": relu, "shape": [1, 2], "opset": 99}, "onnxruntime cannot load"),
        "absurd attribute": (
            {"nodes": [make("DepthToSpace", ["x"], ["y"], blocksize=2**62)], "shape": [1, 4, 2, 2]},
            "attribute blocksize",
        ),
        "unknown operator": (
            {"nodes": [make("Nonsense", ["x"], ["y"])], "shape": [1, 2]},
            "onnxruntime cannot load",
        ),
    }


@pytest.mark.parametrize("name", graph_cases())
def test_bad_graphs(tmp_path, name, capfd):
    settings, message = graph_cases()[name]
    with pytest.raises(InputError, match=message) as caught:
        load_onnx(saved(tmp_path / "bad.onnx", **settings)).network()
    assert "bad.onnx" in str(caught.value)
    assert "\n" not in str(caught.value)
    out, _ = capfd.readouterr()
    assert out == "", "stdout carries the answer and nothing else"


def test_no_graph(tmp_path):
    path = tmp_path / "a.onnx"
    path.write_bytes(onnx.ModelProto(ir_version=8, producer_name="nobody").SerializeToString())
    with pytest.raises(InputError, match="no graph"):
        load_onnx(path)


UNSUPPORTED = {
    "Pow": ([make("Pow", ["c", "x"], ["y"], name="p")], "p"),
    "Hardmax": ([make("Hardmax", ["x"], ["y"], name="s")], "s"),
    "Cast": (
        [
            make("Cast", ["x"], ["i"], to=TensorProto.INT32, name="cut"),
            make("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
        ],
        "cut",
    ),
    "Gather": (
        [
            make("ArgMax", ["x"], ["k"], axis=1, name="arg"),
            make("Gather", ["c", "k"], ["y"], name="pick"),
        ],
        "arg",
    ),
}


@pytest.mark.parametrize("op_type", UNSUPPORTED)
def test_unsupported_operators_are_named(tmp_path, op_type):
    nodes, name = UNSUPPORTED[op_type]
    path = saved(tmp_path / "a.onnx", nodes, [1, 4], {"c": np.arange(1, 5, dtype=np.float32)})
    with pytest.raises(UnsupportedOperator) as caught:
        load_onnx(path).network()
    error = caught.value
    assert error.node == name
    assert error.op_type == op_type or op_type == "Gather"
    assert "MaxPool" in error.supported
    assert str(path) in str(error)
    assert "\n" not in str(error)


def test_operators_of_other_domains(tmp_path):
    nodes = [make("FusedGemm", ["x", "w"], ["y"], domain="com.microsoft", activation="Relu", name="fused")]
    path = saved(tmp_path / "a.onnx", nodes, [1, 4], {"w": WEIGHT})
    model = onnx.load(path)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    path.write_bytes(model.SerializeToString())
    with pytest.raises(UnsupportedOperator, match=r"'fused' of type FusedGemm .* 'com\.microsoft'"):
        load_onnx(path).network()


# -- damaged files: an answer or one sentence ---------------------------------------------------------------


def outcome(path):
    """The sentence with which a file is refused, or nothing.

    SoundnessError is a refusal too: a weight of 1e37 leaves no digits of anything that is added to it.
    """
    try:
        model = load_onnx(path)
        check_against(model, model.network(), (np.zeros(model.n_in), np.ones(model.n_in)))
    except (InputError, SoundnessError) as error:
        return str(error)
    return ""


def test_mutated_files(tmp_path):
    nodes = [
        make("Conv", ["x", "k", "b"], ["c"], pads=[1, 1, 1, 1], name="conv"),
        make("MaxPool", ["c"], ["p"], kernel_shape=[2, 2], strides=[2, 2], name="pool"),
        make("Flatten", ["p"], ["f"], name="flat"),
        make("Gemm", ["f", "w"], ["g"], name="dense"),
        make("Clip", ["g", "l", "u"], ["y"], name="clip"),
    ]
    constants = {
        "k": R.normal(size=(2, 1, 3, 3)).astype(np.float32),
        "b": R.normal(size=2).astype(np.float32),
        "w": R.normal(size=(8, 3)).astype(np.float32),
        "l": np.float32(-1),
        "u": np.float32(1),
    }
    path = saved(tmp_path / "a.onnx", nodes, [1, 1, 4, 4], constants)
    original = path.read_bytes()
    outcomes = {"fine": 0, "refused": 0}
    for seed in range(300):
        generator = np.random.default_rng(seed)
        data = bytearray(original)
        for _ in range(generator.integers(1, 4)):
            data[generator.integers(len(data))] = generator.integers(256)
        path.write_bytes(bytes(data if seed % 5 else data[: generator.integers(len(data))]))
        sentence = outcome(path)
        outcomes["refused" if sentence else "fine"] += 1
        assert "\n" not in sentence
    assert outcomes["fine"] > 50
    assert outcomes["refused"] > 50


# -- exporters ----------------------------------------------------------------------------------------------


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.second, self.head = nn.Conv2d(4, 4, 3, padding=1), nn.Linear(16, 3)

    def forward(self, x):
        y = torch.relu(self.norm(self.first(x)))
        y = torch.max_pool2d(torch.relu(self.second(y) + y), 2)
        left, right = torch.split(y, 2, dim=1)
        y = torch.cat([right, left], dim=1)
        return self.head(torch.flatten(y, 1)).clamp(-1, 2) + y.mean(dim=(1, 2, 3)).unsqueeze(1)


def test_the_form_of_new_exporters(tmp_path):
    """What torch's default exporter writes: opset 20, weights outside, Flatten as Reshape with allowzero."""
    nodes = [
        make("Reshape", ["x", "s"], ["r"], allowzero=1),
        make("Gemm", ["r", "w", "b"], ["h"], transB=1),
        make("Relu", ["h"], ["a"]),
        make("Split", ["a"], ["p", "q"], axis=1, num_outputs=2),
        make("Concat", ["q", "p"], ["c"], axis=1),
        make("ReduceMean", ["c", "axes"], ["y"], keepdims=1),
    ]
    constants = {
        "s": np.array([1, 6]),
        "w": R.normal(size=(4, 6)).astype(np.float32),
        "b": R.normal(size=4).astype(np.float32),
        "axes": np.array([1]),
    }
    path = saved(tmp_path / "a.onnx", nodes, [1, 2, 3], constants, opset=20)
    model = onnx.load(path)
    external_data_helper.convert_model_to_external_data(model, location="a.onnx.data", size_threshold=64)
    onnx.save(model, path)
    agrees(path)


@pytest.mark.parametrize("opset", [9, 11, 13, 17, 20])
def test_export_round_trip(tmp_path, opset):
    torch.manual_seed(opset)
    module, path = Net().eval(), tmp_path / "net.onnx"
    module.norm.running_mean.normal_()
    module.norm.running_var.uniform_(0.5, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.zeros(1, 1, 4, 4),), path, dynamo=False, opset_version=opset)
    network = agrees(path)
    x = torch.randn(5, 1, 4, 4)
    found = network.forward(x.reshape(5, -1).double())
    torch.testing.assert_close(found, module.double()(x.double()), rtol=1e-5, atol=1e-5)


def test_default_export(tmp_path):
    pytest.importorskip("onnxscript", reason="torch's default exporter needs onnxscript")
    module, path = Net().eval(), tmp_path / "net.onnx"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (torch.zeros(1, 1, 4, 4),), path)
    assert onnx.load(path, load_external_data=False).opset_import[0].version >= 18
    agrees(path)


# -- onnx2torch and torchvision -----------------------------------------------------------------------------


def test_torchvision_is_neither_imported_nor_hidden(tmp_path):
    """A torchvision that cannot be imported stays out of the way, and none is left behind."""
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("raise RuntimeError('must not be imported')")
    mlp(tmp_path / "a.onnx")
    code = (
        "import sys; from verifier.network.models.onnx import load_onnx\n"
        f"print(load_onnx({str(tmp_path / 'a.onnx')!r}).network().relus, 'torchvision' in sys.modules)"
    )
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert done.stdout.split() == ["3", "False"], done.stderr


def test_missing_onnx2torch(tmp_path, monkeypatch):
    model = load_onnx(mlp(tmp_path / "a.onnx"))
    for name in [n for n in sys.modules if n == "onnx2torch" or n.startswith("onnx2torch.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "meta_path", [])
    with pytest.raises(VerifierError, match="pip install onnx2torch"):
        model.network()
