"""Small instances on which floats and real arithmetic part: boxes without floats, runs that round across a border.

Everything is exact here and shares no code with the package: decimals are rationals, and so are the minima.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

Layer = tuple[np.ndarray, np.ndarray]
Interval = tuple[Fraction, Fraction]

_EXACT = Context(prec=1200)
_KINDS = {np.dtype(np.float32): TensorProto.FLOAT, np.dtype(np.float64): TensorProto.DOUBLE}


def decimal(value: Fraction) -> str:
    """A decimal of exactly this value.  Require: it has one."""
    found = _EXACT.divide(Decimal(value.numerator), Decimal(value.denominator))
    assert Fraction(found) == value
    return str(found)


@dataclass(frozen=True, eq=False)
class Case:
    """A chain of layers with a ReLU between any two, over a box of which at most one input is no point."""

    layers: tuple[Layer, ...]
    box: tuple[Interval, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.layers[0][0].dtype

    def outputs(self, x: Sequence[Fraction]) -> list[Fraction]:
        """In real arithmetic."""
        for k in range(len(self.layers)):
            x = self._layer(k, x if k == 0 else [max(v, Fraction(0)) for v in x])
        return list(x)

    def least(self) -> Fraction:
        """The minimum of the only output over the box: at an end of a piece on which the network is affine."""
        return min(self.outputs(self._point(t))[0] for t in self._pieces())

    def runs(self, x: Sequence[float]) -> float:
        """What onnxruntime answers at a point."""
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        session = ort.InferenceSession(self.model().SerializeToString(), options)
        (y,) = session.run(None, {"x": np.array([x], self.dtype)})
        return float(y[0, 0])

    def write(self, folder: Path, threshold: Fraction) -> tuple[Path, Path]:
        """A network and a property: y <= threshold is unsafe."""
        network, prop = folder / "net.onnx", folder / "prop.vnnlib"
        network.write_bytes(self.model().SerializeToString())
        lines = [f"(declare-const X_{i} Real)" for i in range(len(self.box))] + ["(declare-const Y_0 Real)"]
        for i, (low, high) in enumerate(self.box):
            lines += [f"(assert (>= X_{i} {decimal(low)}))", f"(assert (<= X_{i} {decimal(high)}))"]
        prop.write_text("\n".join([*lines, f"(assert (<= Y_0 {decimal(threshold)}))", ""]))
        return network, prop

    def model(self) -> onnx.ModelProto:
        nodes, held, name = [], [], "x"
        for k, (W, b) in enumerate(self.layers):
            held += [numpy_helper.from_array(W, f"W{k}"), numpy_helper.from_array(b, f"b{k}")]
            last = k == len(self.layers) - 1
            nodes.append(helper.make_node("Gemm", [name, f"W{k}", f"b{k}"], ["y" if last else f"h{k}"], transB=1))
            if not last:
                nodes.append(helper.make_node("Relu", [f"h{k}"], [f"r{k}"]))
                name = f"r{k}"
        kind, n_out = _KINDS[self.dtype], len(self.layers[-1][1])
        x = helper.make_tensor_value_info("x", kind, [1, len(self.box)])
        y = helper.make_tensor_value_info("y", kind, [1, n_out])
        graph = helper.make_graph(nodes, "rounding", [x], [y], held)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def _layer(self, k: int, x: Sequence[Fraction]) -> list[Fraction]:
        W, b = self.layers[k]
        return [
            sum((Fraction(w) * v for w, v in zip(row, x, strict=True)), Fraction(bias))
            for row, bias in zip(W.tolist(), b.tolist(), strict=True)
        ]

    def _point(self, t: Fraction) -> list[Fraction]:
        return [low + t * (high - low) for low, high in self.box]

    def _pieces(self) -> list[Fraction]:
        """Shares of the way through the box between which all neurons keep their signs."""
        ends = [Fraction(0), Fraction(1)]
        for k in range(len(self.layers) - 1):
            before = self._hidden(k, ends)
            crossings = []
            for i, (s, t) in enumerate(itertools.pairwise(ends)):
                pairs = zip(before[i], before[i + 1], strict=True)
                crossings += [s + (t - s) * a / (a - b) for a, b in pairs if a * b < 0]
            ends = sorted({*ends, *crossings})
        return ends

    def _hidden(self, k: int, shares: Sequence[Fraction]) -> list[list[Fraction]]:
        """The neurons of one layer before their ReLUs."""
        found = []
        for t in shares:
            x = self._point(t)
            for j in range(k + 1):
                x = self._layer(j, x if j == 0 else [max(v, Fraction(0)) for v in x])
            found.append(x)
        return found


def identity(dtype: type[np.floating], *box: tuple[str, str]) -> Case:
    """y = -x_0, so that a lower bound of the input is tested by an upper bound of the output."""
    W = np.zeros((1, len(box)), dtype)
    W[0, 0] = -1
    return Case(((W, np.zeros(1, dtype)),), tuple((Fraction(low), Fraction(high)) for low, high in box))


HOLLOW = tuple(map(Fraction, "0.1 -0.3 1e-60 -1e-60 16777217 1e-320 0.7000000001 123456.789".split()))
"""Numbers that are no float32; most are no float64 either."""


def between(dtype: type[np.floating], value: float) -> Interval:
    """An interval between two neighbouring floats."""
    low, high = Fraction(float(dtype(value))), Fraction(float(np.nextafter(dtype(value), dtype(np.inf))))
    return low + (high - low) / 4, low + (high - low) * 3 / 4


def intervals(rng: np.random.Generator, moving: bool) -> Interval:
    """A point, hollow or not; or an interval, between two floats or an ordinary one."""
    value = float(rng.normal())
    if not moving:
        point = HOLLOW[rng.integers(len(HOLLOW))] if rng.random() < 0.7 else Fraction(float(np.float32(value)))
        return point, point
    kind = rng.integers(5)
    if kind == 0:
        return between(np.float32, value)
    if kind == 1:
        return between(np.float64, value)
    if kind == 2:
        return Fraction("0.1"), Fraction("0.1000000001")
    if kind == 3:
        return Fraction("1e-60"), Fraction("2e-60")
    return Fraction("-0.7"), Fraction("0.9")


def random_case(seed: int) -> Case:
    """A network of up to three layers; some are affine, some nearly cancel what they compute."""
    rng = np.random.default_rng(seed)
    dtype = np.dtype(np.float64 if rng.random() < 0.4 else np.float32)
    n, depth = int(rng.integers(1, 4)), int(rng.integers(0, 3))
    widths = [n, *(int(rng.integers(2, 5)) for _ in range(depth)), 1]
    layers = []
    for k in range(depth + 1):
        W = rng.normal(size=(widths[k + 1], widths[k])) / np.sqrt(widths[k])
        b = 0.3 * rng.normal(size=widths[k + 1])
        layers.append((W.astype(dtype), b.astype(dtype)))
    if rng.random() < 0.5:  # a large number comes in and goes out again, and takes the last digits along
        size = dtype.type(2.0 ** rng.integers(4, 8))
        layers[0] = (layers[0][0], layers[0][1] + size)
        W, b = layers[-1]
        layers[-1] = (W, (b - W.sum() * size).astype(dtype) if depth else b)
    move = int(rng.integers(n + 1))
    return Case(tuple(layers), tuple(intervals(rng, i == move) for i in range(n)))


def thresholds(case: Case, rng: np.random.Generator) -> list[Fraction]:
    """Numbers around the exact minimum: at rounding distance, and at what the float run gives at the box's middle."""
    least = case.least()
    near = Fraction(float(least))
    scale = Fraction(max(abs(float(least)), 1e-3))
    middle = [float((low + high) / 2) for low, high in case.box]
    run = Fraction(case.runs(middle))
    gap = scale * Fraction(10) ** -int(rng.integers(3, 13))
    found = [near - gap, near + gap, run, (near + run) / 2]
    return [Fraction(decimal(value)) for value in found]
