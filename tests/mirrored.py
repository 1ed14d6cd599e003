"""Random small networks in which neurons repeat or mirror others, as files and for the oracle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper
from oracle import Dag, dag

Array = np.ndarray[Any, np.dtype[Any]]
Rng = np.random.Generator


@dataclass(frozen=True, eq=False)
class Part:
    """An affine layer: matrices of some sources (0 is the input), and a bias; float32 numbers."""

    terms: dict[int, Array]
    bias: Array


def part(terms: dict[int, Any], bias: Any) -> Part:
    rounded = {source: np.asarray(matrix, np.float32) for source, matrix in terms.items()}
    return Part(rounded, np.asarray(bias, np.float32))


def model(n_in: int, parts: Sequence[Part]) -> ModelProto:
    """A ReLU after every layer but the last; every layer has the bias in its first product."""
    nodes: list[Any] = []
    held: list[Any] = []
    for k, layer in enumerate(parts, start=1):
        held.append(numpy_helper.from_array(layer.bias, f"b{k}"))
        total = f"b{k}"
        for source, matrix in layer.terms.items():
            held.append(numpy_helper.from_array(matrix.T.copy(), f"W{k}_{source}"))
            nodes.append(helper.make_node("MatMul", [f"x{source}", f"W{k}_{source}"], [f"p{k}_{source}"]))
            nodes.append(helper.make_node("Add", [f"p{k}_{source}", total], [f"t{k}_{source}"]))
            total = f"t{k}_{source}"
        if k < len(parts):
            nodes.append(helper.make_node("Relu", [total], [f"x{k}"]))
    sizes = {"x0": n_in, total: len(parts[-1].bias)}
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size]) for name, size in sizes.items())
    graph = helper.make_graph(nodes, "mirrored", [x], [y], held)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def oracle_of(n_in: int, parts: Sequence[Part]) -> Dag:
    nodes = [(tuple(p.terms), tuple(m.astype(float) for m in p.terms.values()), p.bias.astype(float)) for p in parts]
    return dag(n_in, nodes)


# -- styles ------------------------------------------------------------------------------------------------------------


def short(rng: Rng) -> list[Part]:
    """Few different weights, constant neurons, and connections that skip a group."""

    def some(*shape: int) -> Array:
        return rng.integers(-1, 2, shape) / 2

    rows, bias = some(4, 2), some(4)
    first = part({0: np.concatenate([rows, -rows[:1]])}, np.concatenate([bias, -bias[:1]]))
    second = part({1: some(5, 5)}, some(5))
    return [first, second, part({2: some(2, 5), 1: some(2, 5)}, some(2))]


def lattice(rng: Rng) -> list[Part]:
    """The minimum of four linear functions that are handed through mirrored pairs, four neurons for each minimum."""
    weight, bias = (rng.integers(-20, 21, shape) / 16 for shape in ((4, 2), (4,)))
    pairs = np.kron(np.eye(4), [[1], [-1]])
    minimum = np.array([[1, 1], [-1, -1], [1, -1], [-1, 1]])
    join = np.array([[0.5, -0.5, -0.5, -0.5]])
    value = np.kron(np.eye(4), [[1, -1]])  # of the pairs
    lower = np.kron(np.eye(2), minimum)
    return [
        part({0: pairs @ weight}, pairs @ bias),
        part({1: lower @ value}, np.zeros(8)),
        part({2: minimum @ np.kron(np.eye(2), join)}, np.zeros(4)),
        part({3: np.concatenate([join, 2 * join])}, [0.0, 1.0]),
    ]


def pairs(rng: Rng) -> list[Part]:
    """A network with long weights whose neurons pass a group of pairs, t = max(t - s, 0) - max(s - t, 0) + s."""
    weight, shift = rng.normal(size=(3, 2)), rng.integers(-4, 5, 3) / 8
    both, join = np.concatenate([weight, -weight]), np.concatenate([np.eye(3), -np.eye(3)], axis=1)
    return [
        part({0: both}, np.concatenate([-shift, shift])),
        part({1: join}, shift),
        part({2: rng.normal(size=(3, 3))}, rng.normal(size=3)),
        part({3: rng.normal(size=(2, 3))}, rng.normal(size=2)),
    ]


def readers(rng: Rng) -> list[Part]:
    """Repeated, mirrored and constant neurons that long weights read, so that products cannot be multiplied out."""
    weight, bias = rng.normal(size=(3, 2)), rng.normal(size=3)
    rows = np.concatenate([weight, -weight, weight[:1], np.zeros((1, 2))])
    first = part({0: rows}, np.concatenate([bias, -bias, bias[:1], [1.5]]))
    second = part({1: rng.normal(size=(4, 8)), 0: rng.normal(size=(4, 2))}, rng.normal(size=4))
    return [first, second, part({2: rng.normal(size=(2, 4)), 1: rng.normal(size=(2, 8))}, rng.normal(size=2))]


STYLES: dict[str, Callable[[Rng], list[Part]]] = {
    "short": short,
    "lattice": lattice,
    "pairs": pairs,
    "readers": readers,
}
N_IN = 2
