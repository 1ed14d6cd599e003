"""ONNX file -> dense `Dag`, for the few operators of our own instances. Independent of package `verifier`.

Every tensor is kept as an affine expression of the network input and the ReLU groups seen so far. A linear operator is
applied to all coefficient tensors at once, stacked along a batch axis.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import torch
from exact_network import Affine, Dag
from onnx import numpy_helper

LinearFunction = Callable[[torch.Tensor], torch.Tensor]  # acts on [N, *shape] with a batch axis in front


@dataclass(frozen=True, slots=True, eq=False)
class Expression:
    """constant [*shape] + sum_j coefficients[j] ([n_j, *shape]) . x[j]; shapes carry no batch axis."""

    constant: np.ndarray
    coefficients: dict[int, np.ndarray]

    def linear(self, function: LinearFunction) -> Expression:
        def apply(batch: np.ndarray) -> np.ndarray:
            return function(torch.from_numpy(np.ascontiguousarray(batch))).numpy()

        return Expression(apply(self.constant[None])[0], {j: apply(c) for j, c in self.coefficients.items()})

    def shifted(self, offset: np.ndarray | float) -> Expression:
        return Expression(self.constant + offset, self.coefficients)

    def plus(self, other: Expression, sign: float = 1.0) -> Expression:
        merged = dict(self.coefficients)
        for j, c in other.coefficients.items():
            merged[j] = merged[j] + sign * c if j in merged else sign * c
        return Expression(self.constant + sign * other.constant, merged)

    def affine(self) -> Affine:
        order = sorted(self.coefficients)
        weights = tuple(self.coefficients[j].reshape(len(self.coefficients[j]), -1).T for j in order)
        return Affine(tuple(order), weights, self.constant.ravel())


class _Lowering:
    """Walks over the nodes in order; `tensors` holds expressions, `constants` plain arrays."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.constants = {i.name: numpy_helper.to_array(i).astype(float) for i in graph.initializer}
        shape = [d.dim_value for d in graph.input[0].type.tensor_type.shape.dim][1:]
        size = int(np.prod(shape))
        self.tensors = {graph.input[0].name: Expression(np.zeros(shape), {0: np.eye(size).reshape(size, *shape)})}
        self.size = size
        self.groups: list[Affine] = []

    def relu(self, e: Expression) -> Expression:
        self.groups.append(e.affine())
        size = e.constant.size
        return Expression(np.zeros(e.constant.shape), {len(self.groups): np.eye(size).reshape(size, *e.constant.shape)})

    def run(self, node: onnx.NodeProto) -> None:
        options = {a.name: onnx.helper.get_attribute_value(a) for a in node.attribute}
        constants = [self.constants.get(name) for name in node.input]
        operands = [self.tensors[name] for name in node.input if name in self.tensors]
        rule = getattr(self, "op_" + node.op_type.lower(), None)
        if rule is None:
            raise NotImplementedError(f"operator {node.op_type}")
        self.tensors[node.output[0]] = rule(operands, constants, options)

    def op_gemm(self, operands, constants, options) -> Expression:
        weight = torch.from_numpy(constants[1] if options.get("transB") else constants[1].T.copy())
        return operands[0].linear(lambda t: t @ weight.T).shifted(constants[2])

    def op_matmul(self, operands, constants, options) -> Expression:
        weight = torch.from_numpy(constants[1])
        return operands[0].linear(lambda t: t @ weight)

    def op_add(self, operands, constants, options) -> Expression:
        return operands[0].plus(operands[1]) if len(operands) == 2 else operands[0].shifted(constants[1])

    def op_sub(self, operands, constants, options) -> Expression:
        return operands[0].plus(operands[1], -1.0) if len(operands) == 2 else operands[0].shifted(-constants[1])

    def op_div(self, operands, constants, options) -> Expression:
        return operands[0].linear(lambda t: t / torch.from_numpy(constants[1]))

    def op_conv(self, operands, constants, options) -> Expression:
        weight = torch.from_numpy(constants[1])
        stride, padding = options.get("strides", [1, 1]), options.get("pads", [0, 0])[:2]
        out = operands[0].linear(lambda t: torch.nn.functional.conv2d(t, weight, stride=stride, padding=padding))
        return out.shifted(constants[2][:, None, None]) if len(constants) > 2 else out

    def op_batchnormalization(self, operands, constants, options) -> Expression:
        scale, shift, mean, variance = (c[:, None, None] for c in constants[1:5])
        factor = scale / np.sqrt(variance + options["epsilon"])
        return operands[0].linear(lambda t: t * torch.from_numpy(factor)).shifted(shift - factor * mean)

    def op_flatten(self, operands, constants, options) -> Expression:
        return operands[0].linear(lambda t: t.flatten(1))

    op_reshape = op_flatten  # our files only reshape to [1, -1]

    def op_relu(self, operands, constants, options) -> Expression:
        return self.relu(operands[0])

    def op_leakyrelu(self, operands, constants, options) -> Expression:
        slope = options["alpha"]  # slope x + (1 - slope) relu(x)
        return operands[0].linear(lambda t: slope * t).plus(self.relu(operands[0]), 1.0 - slope)

    def op_abs(self, operands, constants, options) -> Expression:
        return self.relu(operands[0]).linear(lambda t: 2.0 * t).plus(operands[0], -1.0)

    def op_clip(self, operands, constants, options) -> Expression:
        low, high = float(constants[1]), float(constants[2])
        over_low, over_high = self.relu(operands[0].shifted(-low)), self.relu(operands[0].shifted(-high))
        return over_low.plus(over_high, -1.0).shifted(low)

    def op_maxpool(self, operands, constants, options) -> Expression:
        kernel, stride = options["kernel_shape"], options["strides"]
        height, width = (
            1 + (n - k) // s for n, k, s in zip(operands[0].constant.shape[-2:], kernel, stride, strict=True)
        )

        def corner(i: int, j: int) -> Expression:
            return operands[0].linear(
                lambda t: t[..., i : i + stride[0] * height : stride[0], j : j + stride[1] * width : stride[1]]
            )

        best, *others = (corner(i, j) for i in range(kernel[0]) for j in range(kernel[1]))
        for other in others:  # max(a, b) = b + relu(a - b)
            best = other.plus(self.relu(best.plus(other, -1.0)))
        return best


def load_dag(path: Path) -> Dag:
    """The network of an ONNX file in float64; NotImplementedError names an operator it does not know."""
    graph = onnx.load(path).graph
    lowering = _Lowering(graph)
    for node in graph.node:
        lowering.run(node)
    return Dag(lowering.size, tuple(lowering.groups), lowering.tensors[graph.output[0].name].affine())
