"""Random networks of the shapes of large benchmarks: loaded in seconds, within a budget of memory, and answered.

Their weights are random, so no bounds of theirs mean anything; what counts is that there is an answer at all.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

BUDGET = 4096  # MB


class Builder:
    """An ONNX graph of convolutions and ReLUs that grows node by node."""

    def __init__(self, channels: int, size: int) -> None:
        self.input_shape = [1, channels, size, size]
        self.channels, self.size, self.last = channels, size, "x"
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._generator = np.random.default_rng(0)

    def _weight(self, *shape: int) -> str:
        fan = float(np.prod(shape[1:]))
        values = (self._generator.standard_normal(shape) * (2.0 / fan) ** 0.5).astype(np.float32)
        self.weights.append(numpy_helper.from_array(values, f"w{len(self.weights)}"))
        return self.weights[-1].name

    def add(self, kind: str, *inputs: str, **settings: object) -> Builder:
        out = f"{kind}{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [out], name=out, **settings))
        self.last = out
        return self

    def conv(self, channels: int, stride: int = 1, kernel: int = 3) -> Builder:
        weight, pad = self._weight(channels, self.channels, kernel, kernel), kernel // 2
        self.add("Conv", self.last, weight, strides=[stride] * 2, pads=[pad] * 4, kernel_shape=[kernel] * 2)
        self.channels, self.size = channels, -(-self.size // stride)
        return self

    def relu(self) -> Builder:
        return self.add("Relu", self.last)

    def pool(self) -> Builder:
        self.size //= 2
        return self.add("MaxPool", self.last, kernel_shape=[2, 2], strides=[2, 2])

    def block(self, channels: int, stride: int) -> Builder:
        """Two convolutions beside a shortcut."""
        start, before = self.last, (self.channels, self.size)
        self.conv(channels, stride).relu().conv(channels)
        long, after = self.last, (self.channels, self.size)
        if before != after:
            self.last, (self.channels, self.size) = start, before
            self.conv(channels, stride, 1)
            start = self.last
        return self.add("Add", long, start).relu()

    def save(self, folder: Path, classes: int = 10) -> tuple[Path, Path]:
        """The network with a dense layer at its end, and a property: the first class is the largest near a point."""
        self.add("Flatten", self.last)
        weight = self._weight(classes, self.channels * self.size**2)
        self.add("Gemm", self.last, weight, transB=1)
        ends = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", self.input_shape), (self.last, [1, classes]))
        ]
        graph = helper.make_graph(self.nodes, "large", ends[:1], ends[1:], self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.save(model, folder / "net.onnx")
        inputs = int(np.prod(self.input_shape))
        lines = [f"(declare-const X_{i} Real)" for i in range(inputs)]
        lines += [f"(declare-const Y_{j} Real)" for j in range(classes)]
        lines += [f"(assert (>= X_{i} 0.5))\n(assert (<= X_{i} 0.501))" for i in range(inputs)]
        lines.append("(assert (or " + " ".join(f"(and (>= Y_{j} Y_0))" for j in range(1, classes)) + "))")
        (folder / "prop.vnnlib").write_text("\n".join(lines))
        return folder / "net.onnx", folder / "prop.vnnlib"


def cifar100(folder: Path) -> tuple[Path, Path]:
    """78 thousand ReLUs."""
    net = Builder(3, 32).conv(16).relu().block(16, 1).block(32, 2).block(64, 2).block(64, 2)
    return net.save(folder)


def tiny_imagenet(folder: Path) -> tuple[Path, Path]:
    """260 thousand ReLUs."""
    return Builder(3, 64).conv(16).relu().block(16, 1).block(32, 2).save(folder)


def vgg16(folder: Path) -> tuple[Path, Path]:
    """13 million ReLUs and MaxPool, behind images of 224 x 224."""
    net = Builder(3, 224)
    for channels, count in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(count):
            net.conv(channels).relu()
        net.pool()
    return net.save(folder)


@pytest.mark.slow
@pytest.mark.parametrize("shape", [cifar100, tiny_imagenet, vgg16])
def test_there_is_an_answer_in_time_and_within_the_budget(shape, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    network, prop = shape(tmp_path)
    command = [sys.executable, "-m", "verifier", str(network), str(prop), "--threads", "1", "--timeout", "60"]
    command += ["--set", f"bounding.memory_mb={BUDGET}", "--json", str(tmp_path / "out.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    result = json.loads((tmp_path / "out.json").read_text())
    assert result["verdict"] in ("sat", "unsat", "unknown", "timeout"), done.stderr
    assert result["reason"] != "memory"
    assert result["time"]["total"] < 70
    assert result["time"]["load"] < 15
    assert result["statistics"]["peak_rss_mb"] < BUDGET
    if shape is vgg16 and result["verdict"] == "unknown":
        assert "million neurons" in result["message"]
