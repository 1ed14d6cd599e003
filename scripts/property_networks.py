"""Trains the small networks of properties/ and writes them as ONNX, node by node.

Fixed seeds and one thread: the same machine and library versions give the same files. Elsewhere weights may differ in
the last digits, which the margins of the instances absorb in most cases; the confirmation step says so if not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper
from sklearn.datasets import load_digits
from torch import nn

N_TRAIN = 1437  # the rest (360 images) is for properties


@cache
def digits() -> tuple[np.ndarray, np.ndarray]:
    """Images [1797, 64] in [0, 1] (multiples of 1/16) and labels."""
    data = load_digits()
    return data.data / 16.0, data.target


# ---------------------------------------------------------------- ONNX


class Graph:
    """A chain of nodes under construction; tensors are referred to by name."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: object, dtype: type = np.float32) -> str:
        name = f"c{len(self.constants)}"
        array = value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
        self.constants.append(numpy_helper.from_array(np.array(array, dtype=dtype, order="C"), name))
        return name

    def add(self, op: str, *inputs: str, **attributes: Any) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [name], name=name, **attributes))
        return name

    def gemm(self, x: str, layer: nn.Linear) -> str:
        return self.add("Gemm", x, self.constant(layer.weight), self.constant(layer.bias), transB=1)

    def conv(self, x: str, layer: nn.Conv2d) -> str:
        bias = [] if layer.bias is None else [self.constant(layer.bias)]
        pads = [*layer.padding, *layer.padding]  # type: ignore[misc]
        return self.add("Conv", x, self.constant(layer.weight), *bias, strides=list(layer.stride), pads=pads)

    def norm(self, x: str, layer: nn.BatchNorm2d) -> str:
        names = [self.constant(v) for v in (layer.weight, layer.bias, layer.running_mean, layer.running_var)]
        return self.add("BatchNormalization", x, *names, epsilon=layer.eps)

    def save(self, path: Path, output: str, shape_in: list[int | str], n_out: int) -> None:
        """Renames the output to Y; the batch entry of the output's shape is that of the input."""
        self.nodes[-1].output[0] = "Y"
        assert self.nodes[-1].name == output
        graph = helper.make_graph(
            self.nodes,
            path.stem,
            [helper.make_tensor_value_info("X", TensorProto.FLOAT, shape_in)],
            [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [shape_in[0], n_out])],
            self.constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], producer_name="strata")
        model.ir_version = 8
        onnx.checker.check_model(model, full_check=True)
        path.write_bytes(model.SerializeToString(deterministic=True))


# ---------------------------------------------------------------- classifiers of digits


def train_classifier(model: nn.Module, shape: tuple[int, ...], eps: float, epochs: int = 60) -> nn.Module:
    """Adam on images shifted by one signed gradient step of size `eps`: a little robustness, at little cost."""
    images, labels = digits()
    x = torch.tensor(images[:N_TRAIN], dtype=torch.float32).reshape(-1, *shape)
    t = torch.tensor(labels[:N_TRAIN])
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs)
    for _ in range(epochs):
        for batch in torch.randperm(N_TRAIN).split(64):
            start = x[batch].clone().requires_grad_()
            (gradient,) = torch.autograd.grad(nn.functional.cross_entropy(model(start), t[batch]), start)
            shifted = (x[batch] + eps * gradient.sign()).clamp(0, 1)
            optimiser.zero_grad()
            nn.functional.cross_entropy(model(shifted), t[batch]).backward()
            optimiser.step()
        schedule.step()
    return model.eval()


def fully_connected(path: Path) -> None:
    """64-48-48-10 with a symbolic batch axis."""
    model = nn.Sequential(nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 48), nn.ReLU(), nn.Linear(48, 10))
    train_classifier(model, (64,), eps=0.05)
    graph, x = Graph(), "X"
    for layer in model:
        x = graph.gemm(x, layer) if isinstance(layer, nn.Linear) else graph.add("Relu", x)
    graph.save(path, x, ["batch", 64], 10)


class _Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 8, 3, 2, 1), nn.Conv2d(8, 16, 3, 2, 1)
        self.hidden, self.last = nn.Linear(64, 24), nn.Linear(24, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.second(self.first((x - 0.3) / 0.4).relu()).relu()
        return self.last(self.hidden(x.flatten(1)).relu())


def convolutional(path: Path) -> None:
    """Normalisation, two convolutions and two dense layers (MatMul and Add for the last); batch 1 fixed."""
    model = _Convolutional()
    train_classifier(model, (1, 8, 8), eps=0.05)
    graph = Graph()
    x = graph.add("Div", graph.add("Sub", "X", graph.constant(0.3)), graph.constant(0.4))
    x = graph.add("Relu", graph.conv(x, model.first))
    x = graph.add("Relu", graph.conv(x, model.second))
    x = graph.add("Relu", graph.gemm(graph.add("Flatten", x), model.hidden))
    x = graph.add("MatMul", x, graph.constant(model.last.weight.T))
    x = graph.add("Add", x, graph.constant(model.last.bias))
    graph.save(path, x, [1, 1, 8, 8], 10)


class _Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem, self.stem_norm = nn.Conv2d(1, 4, 3, 2, 1, bias=False), nn.BatchNorm2d(4)
        self.first, self.first_norm = nn.Conv2d(4, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4)
        self.second, self.second_norm = nn.Conv2d(4, 4, 3, 1, 1, bias=False), nn.BatchNorm2d(4)
        self.last = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem_norm(self.stem(x)).relu()
        branch = self.second_norm(self.second(self.first_norm(self.first(x)).relu()))
        return self.last((x + branch).relu().flatten(1))


def residual(path: Path) -> None:
    """A stem and one residual block with BatchNormalization kept as nodes; symbolic batch axis."""
    model = _Residual()
    train_classifier(model, (1, 8, 8), eps=0.05)
    graph = Graph()
    stem = graph.add("Relu", graph.norm(graph.conv("X", model.stem), model.stem_norm))
    x = graph.add("Relu", graph.norm(graph.conv(stem, model.first), model.first_norm))
    x = graph.norm(graph.conv(x, model.second), model.second_norm)
    x = graph.add("Relu", graph.add("Add", stem, x))
    x = graph.gemm(graph.add("Flatten", x), model.last)
    graph.save(path, x, ["N", 1, 8, 8], 10)


def pooling(path: Path) -> None:
    """Convolution, LeakyReLU, MaxPool, dense layers; the flattening is a Reshape to [1, -1]."""
    first, hidden, last = nn.Conv2d(1, 3, 3), nn.Linear(27, 20), nn.Linear(20, 10)
    before = nn.Sequential(first, nn.LeakyReLU(0.1), nn.MaxPool2d(2), nn.Flatten())
    model = nn.Sequential(before, hidden, nn.ReLU(), last)
    train_classifier(model, (1, 8, 8), eps=0.05)
    graph = Graph()
    x = graph.add("LeakyRelu", graph.conv("X", first), alpha=0.1)
    x = graph.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = graph.add("Reshape", x, graph.constant([1, -1], np.int64))
    x = graph.add("Relu", graph.gemm(x, hidden))
    graph.save(path, graph.gemm(x, last), [1, 1, 8, 8], 10)


# ---------------------------------------------------------------- control


def lqr_gain(A: np.ndarray, B: np.ndarray, state_cost: np.ndarray, input_cost: np.ndarray) -> np.ndarray:
    """Discrete-time LQR by fixed-point iteration of the Riccati equation; u = -K x."""
    cost = state_cost.copy()
    for _ in range(5000):
        K = np.linalg.solve(input_cost + B.T @ cost @ B, B.T @ cost @ A)
        cost = state_cost + A.T @ cost @ (A - B @ K)
    return K


def cart_pole() -> tuple[np.ndarray, np.ndarray]:
    """Linearised cart and pole, 50 ms steps, states (position, speed, angle, turn rate) scaled to [-1, 1]."""
    gravity, pole, cart, length, step = 9.81, 0.1, 1.0, 0.5, 0.05
    rate = np.array(
        [
            [0, 1, 0, 0],
            [0, 0, -pole * gravity / cart, 0],
            [0, 0, 0, 1],
            [0, 0, (cart + pole) * gravity / (cart * length), 0],
        ]
    )
    force = 10.0 * np.array([[0], [1 / cart], [0], [-1 / (cart * length)]])  # u = 1 means 10 N
    scale = np.diag([1.0, 1.0, 0.3, 1.0])
    return np.linalg.solve(scale, (np.eye(4) + step * rate) @ scale), np.linalg.solve(scale, step * force)


def cart_gain() -> np.ndarray:
    A, B = cart_pole()
    return lqr_gain(A, B, np.diag([1.0, 0.1, 1.0, 0.1]), np.array([[5.0]]))


def train_imitator(model: nn.Module, teacher: Callable[[torch.Tensor], torch.Tensor], n_in: int, steps: int) -> None:
    """Least squares on uniform states of [-1, 1]^n."""
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, steps)
    for _ in range(steps):
        x = 2 * torch.rand(256, n_in) - 1
        optimiser.zero_grad()
        nn.functional.mse_loss(model(x), teacher(x)).backward()
        optimiser.step()
        schedule.step()


def cart_controller(path: Path) -> None:
    """4-24-24-1 with a final Clip to [-1, 1], imitating a saturated LQR."""
    gain = torch.tensor(cart_gain(), dtype=torch.float32)
    model = nn.Sequential(nn.Linear(4, 24), nn.ReLU(), nn.Linear(24, 24), nn.ReLU(), nn.Linear(24, 1), nn.Hardtanh())
    train_imitator(model, lambda x: (-x @ gain.T).clamp(-1, 1), 4, 6000)
    graph, x = Graph(), "X"
    for layer in list(model)[:-1]:
        x = graph.gemm(x, layer) if isinstance(layer, nn.Linear) else graph.add("Relu", x)
    x = graph.add("Clip", x, graph.constant(-1.0), graph.constant(1.0))
    graph.save(path, x, [1, 4], 1)


def pendulum() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Linearised inverted pendulum (angle, turn rate), 100 ms steps: A, B and the gain of its LQR."""
    A, B = np.array([[1.0, 0.1], [0.5, 1.0]]), np.array([[0.0], [0.5]])
    return A, B, lqr_gain(A, B, np.eye(2), np.array([[1.0]]))


def pendulum_lyapunov(path: Path) -> None:
    """Closed loop of a learned, saturated controller: y = (V(x), V(next x) - V(x)), V(x) = |P x| in the 1-norm.

    The rows of P are left eigenvectors of the closed loop with the LQR, so V decreases where the network is close to
    it and the torque limit does not act.
    """
    A, B, gain = pendulum()
    values, vectors = np.linalg.eig((A - B @ gain).T)
    assert np.isreal(values).all()
    directions = np.real(vectors.T)
    K = torch.tensor(gain, dtype=torch.float32)
    hidden, last = nn.Linear(2, 16), nn.Linear(16, 1)
    model = nn.Sequential(hidden, nn.ReLU(), last)
    train_imitator(model, lambda x: -x @ K.T, 2, 4000)
    graph = Graph()
    u = graph.gemm(graph.add("Relu", graph.gemm("X", hidden)), last)
    u = graph.add("Clip", u, graph.constant(-1.5), graph.constant(1.5))
    following = graph.add(
        "Add", graph.add("MatMul", "X", graph.constant(A.T)), graph.add("MatMul", u, graph.constant(B.T))
    )
    now = graph.add("Abs", graph.add("MatMul", "X", graph.constant(directions.T)))
    then = graph.add("Abs", graph.add("MatMul", following, graph.constant(directions.T)))
    now = graph.add("MatMul", now, graph.constant([[1.0, -1.0], [1.0, -1.0]]))
    then = graph.add("MatMul", then, graph.constant([[0.0, 1.0], [0.0, 1.0]]))
    graph.save(path, graph.add("Add", now, then), [1, 2], 2)


def toy(path: Path) -> None:
    """y = |x0| + |x1| - |x0 + x1| by hand: zero where the signs agree, 2 min(|x0|, |x1|) elsewhere."""
    graph = Graph()
    signs = np.array([[1, 0], [-1, 0], [0, 1], [0, -1], [1, 1], [-1, -1]])
    x = graph.add("Relu", graph.add("Gemm", "X", graph.constant(signs), graph.constant(np.zeros(6)), transB=1))
    x = graph.add("Gemm", x, graph.constant([[1, 1, 1, 1, -1, -1]]), graph.constant([0]), transB=1)
    graph.save(path, x, [1, 2], 1)


NETWORKS: dict[str, Callable[[Path], None]] = {
    "digits_fc": fully_connected,
    "digits_conv": convolutional,
    "digits_res": residual,
    "digits_pool": pooling,
    "cart_controller": cart_controller,
    "pendulum_lyapunov": pendulum_lyapunov,
    "toy": toy,
}


def train_all(folder: Path) -> None:
    """Writes every network below `folder`."""
    torch.set_num_threads(1)
    folder.mkdir(parents=True, exist_ok=True)
    for seed, (name, build) in enumerate(NETWORKS.items()):
        torch.manual_seed(seed)
        build(folder / f"{name}.onnx")
