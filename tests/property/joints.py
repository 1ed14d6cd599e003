"""Small networks in files, properties of several of them in VNN-LIB 2.0, and their exact minima."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from scipy.optimize import linprog

Weights = list[tuple[np.ndarray, np.ndarray]]


def random_weights(sizes: Sequence[int], generator: np.random.Generator) -> Weights:
    """Matrices [out, in] and biases with few digits, so that sums of them are exact."""
    return [
        (generator.integers(-8, 9, (m, n)) / 8.0, generator.integers(-4, 5, m) / 8.0)
        for n, m in itertools.pairwise(sizes)
    ]


def saved(path: Path, weights: Weights, dtype: int = TensorProto.FLOAT) -> Path:
    """Gemm and Relu in turns, from "x" [1, n] to "y"."""
    kind = helper.tensor_dtype_to_np_dtype(dtype)
    nodes, held, last = [], [], "x"
    for k, (matrix, bias) in enumerate(weights):
        held += [
            numpy_helper.from_array(matrix.astype(kind), f"w{k}"),
            numpy_helper.from_array(bias.astype(kind), f"b{k}"),
        ]
        name = "y" if k == len(weights) - 1 else f"h{k}"
        nodes.append(helper.make_node("Gemm", [last, f"w{k}", f"b{k}"], [name], transB=1))
        last = name
        if k < len(weights) - 1:
            nodes.append(helper.make_node("Relu", [last], [f"r{k}"], f"relu_{k}"))
            last = f"r{k}"
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", dtype, [1, weights[0][0].shape[1]])],
        [helper.make_tensor_value_info("y", dtype, [1, weights[-1][0].shape[0]])],
        held,
    )
    path.write_bytes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8).SerializeToString()
    )
    return path


def forward(weights: Weights, x: Sequence[Fraction]) -> list[Fraction]:
    """The network without any rounding."""
    values = list(x)
    for k, (matrix, bias) in enumerate(weights):
        rows = zip(matrix.tolist(), bias.tolist(), strict=True)
        values = [sum((Fraction(w) * v for w, v in zip(row, values, strict=True)), Fraction(b)) for row, b in rows]
        if k < len(weights) - 1:
            values = [max(v, Fraction(0)) for v in values]
    return values


def declared(networks: Sequence[tuple[str, str, int, int]]) -> str:
    """The head of a file: name, relation, inputs and outputs of every network; tensors X_name and Y_name."""
    lines = ["(vnnlib-version <2.0>)"]
    for name, relation, n_x, n_y in networks:
        inner = f"(declare-input X_{name} float32 [1,{n_x}]) (declare-output Y_{name} float32 [{n_y}])"
        lines.append(f"(declare-network {name} {relation} {inner})")
    return "\n".join(lines) + "\n"


def least(
    parts: Sequence[tuple[Weights, Sequence[int]]],
    objective: Sequence[float],
    box: Sequence[tuple[float, float]],
    rows: Sequence[tuple[Sequence[float], float]] = (),
) -> float:
    """The minimum of a linear function of all outputs, each network on its own inputs of the shared box.

    One linear program for every pattern of all ReLUs; `rows` are further conditions a x <= c on the inputs.
    """
    found = np.inf
    n = len(box)
    hidden = [matrix.shape[0] for weights, _ in parts for matrix, _ in weights[:-1]]
    for signs in itertools.product((0, 1), repeat=sum(hidden)):
        left = list(signs)
        A, c, cost, offset, place = [list(a) for a, _ in rows], [b for _, b in rows], np.zeros(n), 0.0, 0
        for weights, index in parts:
            linear, constant = np.eye(n)[list(index)], np.zeros(len(index))
            for k, (matrix, bias) in enumerate(weights):
                linear, constant = matrix @ linear, matrix @ constant + bias
                if k == len(weights) - 1:
                    break
                active, left = np.array(left[: len(bias)]), left[len(bias) :]
                flip = np.where(active == 1, -1.0, 1.0)
                A += list(flip[:, None] * linear)
                c += list(-flip * constant)
                linear, constant = active[:, None] * linear, active * constant
            weight = np.asarray(objective[place : place + len(constant)])
            cost, offset, place = cost + weight @ linear, offset + float(weight @ constant), place + len(constant)
        solved = linprog(cost, A_ub=np.array(A) if A else None, b_ub=c or None, bounds=list(box), method="highs")
        if solved.status == 0:
            found = min(found, float(solved.fun) + offset)
    return found
