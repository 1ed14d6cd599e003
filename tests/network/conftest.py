"""Small ONNX files, written and read again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from network.protos import proto

from verifier.network.judge import check_against
from verifier.network.models.onnx import OnnxModel, load_onnx
from verifier.network.network import Network

Build = Callable[..., OnnxModel]


@pytest.fixture
def build(tmp_path: Path) -> Build:
    """Write a model and load it again: `build(nodes, shape, constants, opset)`."""

    def make(*args: Any, **kwargs: Any) -> OnnxModel:
        path = tmp_path / "net.onnx"
        path.write_bytes(proto(*args, **kwargs).SerializeToString())
        return load_onnx(path)

    return make


@pytest.fixture
def agree() -> Callable[..., Network]:
    """Lower a model, compare it with the original on [-2, 2] and hand the network on."""

    def check(model: OnnxModel, tolerance: float = 2e-6) -> Network:
        network = model.network()
        ends = np.full(network.n_in, 2.0)
        assert check_against(model, network, (-ends, ends), seed=1, count=12) <= tolerance
        return network

    return check
