"""Small networks with smooth functions and products, as files hold them, and properties that are nearly false."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from verifier.checker.graph import read_network
from verifier.checker.network import Network

KINDS = ("Relu", "Sigmoid", "Tanh", "Sin", "Cos", "Exp", "Product", "Square", "Cube", "Quotient", "Scores")
COMPOSED = ("Softmax", "Softmax of two", "LogSoftmax", "LayerNormalization", "Softplus", "Log")
MODERATE = tuple(kind for kind in KINDS if kind not in ("Exp", "Quotient"))


@dataclass
class Draft:
    """A file under construction."""

    rng: np.random.Generator
    nodes: list[Any] = field(default_factory=list)
    held: list[Any] = field(default_factory=list)

    def constant(self, value: Any) -> str:
        name = f"c{len(self.held)}"
        self.held.append(numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def shape(self, *numbers: int) -> str:
        name = f"c{len(self.held)}"
        self.held.append(numpy_helper.from_array(np.asarray(numbers, np.int64), name))
        return name

    def node(self, kind: str, *inputs: str, **given: Any) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name, **given))
        return name

    def affine(self, source: str, size: int, width: int) -> str:
        weights, bias = self.rng.normal(size=(width, size)) * 0.8, self.rng.normal(size=width) * 0.5
        return self.node("Gemm", source, self.constant(weights), self.constant(bias), transB=1)

    def bent(self, kind: str, source: str, size: int, width: int) -> str:
        """A layer of some kind."""
        value = self.affine(source, size, width)
        match kind:
            case "Product":
                return self.node("Mul", value, self.affine(source, size, width))
            case "Square":
                return self.node("Mul", value, value)
            case "Cube":
                return self.node("Pow", value, self.constant(3.0))
            case "Quotient":
                return self.node("Div", value, self.node("Add", self.node("Exp", value), self.constant(1.0)))
            case "Softmax of two":
                pairs = self.node("Reshape", self.affine(source, size, 2 * width), self.shape(2, width))
                return self.node("Gather", self.node("Softmax", pairs, axis=0), self.shape(0), axis=0)
            case "LayerNormalization":
                scale, shift = (self.constant(self.rng.normal(size=width)) for _ in range(2))
                return self.node("LayerNormalization", value, scale, shift, epsilon=0.1)
            case "Log":
                return self.node("Log", self.node("Add", self.node("Exp", value), self.constant(0.5)))
            case "Scores":
                other = self.affine(source, size, width)
                return self.node("MatMul", self.node("MatMul", value, self.node("Transpose", other)), value)
        return self.node(kind, value)


def model(rng: np.random.Generator, n_in: int, kinds: tuple[str, ...], opset: int = 17) -> ModelProto:
    draft, value, size = Draft(rng), "X", n_in
    for kind in kinds:
        width = int(rng.integers(2, 5))
        value, size = draft.bent(kind, value, size, width), width
    draft.nodes.append(helper.make_node("Gemm", [value, draft.constant(rng.normal(size=(size, 1)))], ["Y"], "last"))
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n]) for name, n in (("X", n_in), ("Y", 1))]
    graph = helper.make_graph(draft.nodes, "small", ends[:1], ends[1:], draft.held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


def random_model(seed: int) -> ModelProto:
    """One to three layers of any kinds; exponentials only of the input, or their values differ by too much."""
    rng = np.random.default_rng(seed)
    kinds = (*rng.choice(KINDS, 1), *rng.choice(MODERATE, int(rng.integers(0, 3))))
    return model(rng, int(rng.integers(1, 4)), tuple(str(kind) for kind in kinds))


def values(net: Network, x: np.ndarray) -> list[np.ndarray]:
    """What every layer is applied to, at points [m, n0]; the output comes last."""
    reads, found = {0: x}, []
    for k, layer in enumerate(net.layers, start=1):
        found.append(layer.moved(layer.forward(reads)))
        reads[k] = layer.function.value(found[-1])
    return found


@dataclass(frozen=True)
class Files:
    """A network and a property on a box of [-1, 1]: the output is at most a number, which is out of reach or not."""

    network: Path
    prop: Path

    @classmethod
    def of(cls, folder: Path, made: ModelProto, margin: float) -> Files:
        """`margin`, in relation to the range of values, is how far the number is below all that were seen."""
        found = cls(folder / "net.onnx", folder / "prop.vnnlib")
        found.network.write_bytes(made.SerializeToString())
        found.write(margin)
        return found

    def write(self, margin: float) -> None:
        net, _ = read_network(self.network.read_bytes())
        seen = values(net, np.random.default_rng(0).uniform(-1, 1, (10_000, net.n_in)))[-1]
        number = seen.min() - margin * (seen.max() - seen.min() + 0.1)
        text = "".join(f"(declare-const X_{i} Real)" for i in range(net.n_in)) + "(declare-const Y_0 Real)"
        text += "".join(f"(assert (>= X_{i} -1))(assert (<= X_{i} 1))" for i in range(net.n_in))
        self.prop.write_text(f"{text}(assert (<= Y_0 {number:.9f}))")
