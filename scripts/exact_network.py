"""Small ReLU networks as dense matrices, with interval and CROWN bounds. The ground that `exact.py` stands on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

Box = tuple[np.ndarray, np.ndarray]  # lower, upper
Bounds = list[tuple[np.ndarray, np.ndarray]]  # (l_hat, u_hat) of every ReLU group


@dataclass(frozen=True, slots=True, eq=False)
class Affine:
    """sum_j W_j x[j] + b. Source 0 is the network input, source k the output of ReLU group k."""

    sources: tuple[int, ...]
    weights: tuple[np.ndarray, ...]
    bias: np.ndarray

    def __call__(self, values: Sequence[np.ndarray]) -> np.ndarray:
        parts = (values[j] @ weight.T for j, weight in zip(self.sources, self.weights, strict=True))
        return sum(parts, start=self.bias)


@dataclass(frozen=True, slots=True, eq=False)
class Dag:
    """ReLU groups in topological order and the output; `forward` takes points [..., n_in]."""

    n_in: int
    groups: tuple[Affine, ...]
    output: Affine

    def values(self, x: np.ndarray) -> list[np.ndarray]:
        """The input and every group's post-activations."""
        values = [np.asarray(x, dtype=float)]
        for group in self.groups:
            values.append(np.maximum(group(values), 0.0))
        return values

    def forward(self, x: np.ndarray) -> np.ndarray:
        return self.output(self.values(x))

    def pull_back(self, values: Sequence[np.ndarray], cotangent: np.ndarray) -> np.ndarray:
        """Gradient of <cotangent, y> in the input, for a batch: values of `values(x)`, cotangent [N, n_y]."""
        gradients = [np.zeros_like(value) for value in values]
        for k in range(len(self.groups) + 1, 0, -1):
            last = k > len(self.groups)
            node = self.output if last else self.groups[k - 1]
            signal = cotangent if last else gradients[k] * (values[k] > 0)
            for j, weight in zip(node.sources, node.weights, strict=True):
                gradients[j] += signal @ weight
        return gradients[0]


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """g(x) = A y + B x - c; the unsafe set is g <= 0."""

    A: np.ndarray
    c: np.ndarray
    B: np.ndarray | None = None

    def value(self, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        g = y @ self.A.T - self.c
        return g if self.B is None else g + x @ self.B.T


@dataclass(frozen=True, slots=True, eq=False)
class Minimum:
    """`value`: max_i g_i at the point `x` (inf if none is known); `lower`: proved lower bound of the minimum."""

    value: float
    lower: float
    x: np.ndarray | None


# ---------------------------------------------------------------- bounds without a solver


def interval_bounds(dag: Dag, box: Box) -> Bounds:
    """Interval arithmetic, group by group."""
    low, high, bounds = [box[0]], [box[1]], []
    for group in dag.groups:
        l_hat, u_hat = group.bias.copy(), group.bias.copy()
        for j, weight in zip(group.sources, group.weights, strict=True):
            positive, negative = np.maximum(weight, 0), np.minimum(weight, 0)
            l_hat += positive @ low[j] + negative @ high[j]
            u_hat += positive @ high[j] + negative @ low[j]
        bounds.append((l_hat, u_hat))
        low.append(np.maximum(l_hat, 0))
        high.append(np.maximum(u_hat, 0))
    return bounds


def _backward(
    dag: Dag, node: Affine, objective: np.ndarray, bounds: Bounds, box: Box, B: np.ndarray | None = None
) -> np.ndarray:
    """CROWN: lower bound of objective @ node + B x, one value per row of `objective`."""
    constant = objective @ node.bias
    coefficients = {j: objective @ weight for j, weight in zip(node.sources, node.weights, strict=True)}
    for k in range(len(dag.groups), 0, -1):
        if k not in coefficients:
            continue
        (l_hat, u_hat), group, signal = bounds[k - 1], dag.groups[k - 1], coefficients.pop(k)
        width = np.where(u_hat > l_hat, u_hat - l_hat, 1.0)
        ambiguous = (l_hat < 0) & (u_hat > 0)
        above = np.where(ambiguous, u_hat / width, l_hat >= 0)
        below = np.where(ambiguous, u_hat > -l_hat, l_hat >= 0)
        positive, negative = np.maximum(signal, 0), np.minimum(signal, 0)
        constant = constant + negative @ np.where(ambiguous, -above * l_hat, 0.0)
        signal = positive * below + negative * above
        constant = constant + signal @ group.bias
        for j, weight in zip(group.sources, group.weights, strict=True):
            coefficients[j] = coefficients.get(j, 0.0) + signal @ weight
    slope = coefficients.get(0, np.zeros((len(objective), dag.n_in)))
    slope = slope if B is None else slope + B
    return constant + np.maximum(slope, 0) @ box[0] + np.minimum(slope, 0) @ box[1]


def crown_bounds(dag: Dag, box: Box) -> Bounds:
    """Best of interval arithmetic and CROWN for every group."""
    bounds = interval_bounds(dag, box)
    for k, group in enumerate(dag.groups):
        identity = np.eye(len(group.bias))
        l_hat = np.maximum(bounds[k][0], _backward(dag, group, identity, bounds, box))
        u_hat = np.minimum(bounds[k][1], -_backward(dag, group, -identity, bounds, box))
        bounds[k] = (l_hat, u_hat)
    return bounds


def crown_rows(dag: Dag, box: Box, rows: Rows, bounds: Bounds) -> np.ndarray:
    """CROWN's lower bound of every row on its own."""
    return _backward(dag, dag.output, rows.A, bounds, box, rows.B) - rows.c


def interval_rows(dag: Dag, box: Box, rows: Rows) -> np.ndarray:
    """Interval lower bound of every row; the row is merged with the output layer first."""
    bounds = interval_bounds(dag, box)
    low = [box[0]] + [np.maximum(l_hat, 0) for l_hat, _ in bounds]
    high = [box[1]] + [np.maximum(u_hat, 0) for _, u_hat in bounds]
    total = rows.A @ dag.output.bias - rows.c
    slopes = {j: rows.A @ weight for j, weight in zip(dag.output.sources, dag.output.weights, strict=True)}
    if rows.B is not None:
        slopes[0] = slopes.get(0, 0.0) + rows.B
    for j, slope in slopes.items():
        total = total + np.maximum(slope, 0) @ low[j] + np.minimum(slope, 0) @ high[j]
    return total
