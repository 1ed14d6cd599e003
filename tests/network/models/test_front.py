"""A layer before a network: the file computes what its parts do, whatever the file looks like."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from verifier.errors import InputError
from verifier.network.models.front import FrontLayer, put_before
from verifier.network.models.module import ModuleModel
from verifier.network.models.onnx import OnnxModel, load_onnx

RNG = np.random.default_rng(5)


def layer(shape: tuple[int, ...], clip: tuple[float, float] | None, scaled: bool) -> FrontLayer:
    size = int(np.prod(shape))
    x = RNG.uniform(0, 1, size)
    mean, std = (np.full(size, 0.25), np.full(size, 0.5)) if scaled else (np.zeros(size), np.ones(size))
    return FrontLayer(x, np.stack([np.ones(size), x]), clip, mean, std, shape)


def written(tmp_path: Path, opset: int, kind: int = TensorProto.FLOAT, prefix: str = "") -> OnnxModel:
    """y = W x of inputs [1, 2, 3]; `prefix` begins all names."""
    dtype = helper.tensor_dtype_to_np_dtype(kind)
    weight = numpy_helper.from_array(RNG.normal(size=(6, 2)).astype(dtype), f"{prefix}w")
    nodes = [
        helper.make_node("Flatten", [f"{prefix}x"], [f"{prefix}offset"], f"{prefix}add"),
        helper.make_node("MatMul", [f"{prefix}offset", f"{prefix}w"], [f"{prefix}y"]),
    ]
    ends = [helper.make_tensor_value_info(f"{prefix}{n}", kind, s) for n, s in (("x", [1, 2, 3]), ("y", [1, 2]))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [weight])
    path = tmp_path / f"net{opset}{prefix}{kind}.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return load_onnx(path)


def expected(front: FrontLayer, p: np.ndarray[tuple[int], np.dtype[np.float64]]) -> np.ndarray:
    image = front.offset + p @ front.directions
    return image if front.clip is None else np.clip(image, *front.clip)


@pytest.mark.parametrize("clip", [None, (0.0, 1.0)])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(
    ("opset", "kind", "prefix"),
    [(7, 1, ""), (10, 1, "front_"), (11, 1, ""), (17, 1, "front_"), (13, TensorProto.DOUBLE, "")],
)
def test_the_file_is_the_network_of_the_image(
    tmp_path: Path, opset: int, kind: int, prefix: str, clip: tuple[float, float] | None, scaled: bool
) -> None:
    """Names that begin as ours do are no obstacle, and bytes read back are the same network."""
    model, front = written(tmp_path, opset, kind, prefix), layer((2, 3), clip, scaled)
    found = put_before(front, model)
    again = tmp_path / "again.onnx"
    again.write_bytes(found.data)
    assert load_onnx(again).sha256 == found.sha256
    for p in RNG.uniform(-0.7, 0.7, (5, 2)):
        image = expected(front, p)
        y = model.run((image - front.mean) / front.std)
        assert found.run(p) == pytest.approx(y, abs=1e-5)
        assert load_onnx(again).run(p) == pytest.approx(y, abs=1e-5)
        assert found.front.image(p) == pytest.approx(image.reshape(2, 3), abs=1e-6)
        assert found.front.answer(p) == pytest.approx(y, abs=1e-5)


@pytest.mark.parametrize("clip", [None, (0.0, 1.0)])
def test_a_module_behind_a_layer(clip: tuple[float, float] | None) -> None:
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 3)).double()
    model, front = ModuleModel(module, (1, 2, 3)), layer((2, 3), clip, scaled=True)
    found = put_before(front, model)
    for p in RNG.uniform(-0.7, 0.7, (5, 2)):
        image = expected(front, p)
        y = model.run((image - front.mean) / front.std)
        assert found.run(p) == pytest.approx(y, abs=1e-12)
        assert found.front.image(p) == pytest.approx(image.reshape(2, 3), abs=1e-12)
        assert found.front.answer(p) == pytest.approx(y, abs=1e-12)


def test_networks_with_several_inputs_are_refused(root: Path) -> None:
    parts = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, 2]) for name in ("a", "b", "y")]
    graph = helper.make_graph([helper.make_node("Add", ["a", "b"], ["y"])], "g", parts[:2], parts[2:])
    data = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    with pytest.raises(InputError, match="the network has 2 inputs; an image is put into one"):
        put_before(layer((4,), None, False), OnnxModel(root / "two.onnx", data, ""))
