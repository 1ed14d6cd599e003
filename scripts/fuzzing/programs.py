"""Small networks of functions and products: as an ONNX file, in floats for many points, in many digits for one.

What an operator means is written down once, for arrays of any kind of number; the digits come from mpmath.  Nothing is
shared with package `verifier`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import mpmath
import numpy as np
import onnx
import scipy.special
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]
DIGITS = 60


def _partial(function: Callable[[Any], Any], inside: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """No number where it is not defined; mpmath would go on with complex ones."""
    return lambda t: function(t) if not mpmath.isnan(t) and inside(t) else mpmath.nan


def _stepped(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda t: t if not mpmath.isfinite(t) else function(t)


def _rounded(t: Any) -> Any:
    """Halves to the even number."""
    below = mpmath.floor(t)
    rest = t - below
    if rest == mpmath.mpf(1) / 2:
        return below if int(below) % 2 == 0 else below + 1
    return below if rest < mpmath.mpf(1) / 2 else below + 1


def _gate(t: Any) -> Any:
    return min(max(t / 6 + mpmath.mpf(1) / 2, mpmath.mpf(0)), mpmath.mpf(1))


UNARY: dict[str, tuple[Callable[[Array], Array], Callable[[Any], Any]]] = {
    "Relu": (lambda t: np.maximum(t, 0), lambda t: max(t, mpmath.mpf(0))),
    "Abs": (np.abs, abs),
    "Sigmoid": (scipy.special.expit, lambda t: 1 / (1 + mpmath.exp(-t))),
    "Tanh": (np.tanh, mpmath.tanh),
    "Exp": (np.exp, mpmath.exp),
    "Log": (np.log, _partial(mpmath.log, lambda t: t > 0)),
    "Reciprocal": (lambda t: 1 / t, _partial(lambda t: 1 / t, lambda t: t != 0)),
    "Sqrt": (np.sqrt, _partial(mpmath.sqrt, lambda t: t >= 0)),
    "Sin": (np.sin, mpmath.sin),
    "Cos": (np.cos, mpmath.cos),
    "Erf": (scipy.special.erf, mpmath.erf),
    "Gelu": (lambda t: t * scipy.special.ndtr(t), lambda t: t * mpmath.erfc(-t / mpmath.sqrt(2)) / 2),
    "SiLU": (lambda t: t * scipy.special.expit(t), lambda t: t / (1 + mpmath.exp(-t))),
    "Softplus": (lambda t: np.logaddexp(t, 0), lambda t: mpmath.log(1 + mpmath.exp(t))),
    "HardSwish": (lambda t: t * np.clip(t / 6 + 0.5, 0, 1), lambda t: t * _gate(t)),
    "Sign": (np.sign, _stepped(mpmath.sign)),
    "Floor": (np.floor, _stepped(mpmath.floor)),
    "Ceil": (np.ceil, _stepped(mpmath.ceil)),
    "Round": (np.round, _stepped(_rounded)),
    "Elu": (lambda t: np.where(t > 0, t, np.expm1(np.minimum(t, 0))), lambda t: t if t > 0 else mpmath.expm1(t)),
    "Atan": (np.arctan, mpmath.atan),
    "Softsign": (lambda t: t / (1 + np.abs(t)), lambda t: t / (1 + abs(t))),
}
"""By the name of the operator, for floats and for numbers of many digits."""

SATURATING = {"Sigmoid", "Tanh", "Erf", "Gelu", "SiLU", "Softplus", "Elu", "Softmax", "LogSoftmax"}
"""Functions that add what is exponentially small to something else."""

SINCE = {"Gelu": 20, "HardSwish": 14, "LayerNormalization": 17}


def elementwise(name: str, t: Array) -> Array:
    floats, digits = UNARY[name]
    return np.frompyfunc(_moderate(digits), 1, 1)(t) if t.dtype == object else floats(t)


def _moderate(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Numbers that are larger than any float count as none: functions of them have too many digits."""

    def found(t: Any) -> Any:
        return function(t) if mpmath.isfinite(t) and mpmath.mag(t) < 1024 else mpmath.nan

    return found


def powered(t: Array, exponent: float) -> Array:
    if t.dtype != object:
        return np.power(t, exponent)

    def power(base: Any) -> Any:
        if mpmath.isnan(base) or (base == 0 and exponent < 0) or (base < 0 and exponent != int(exponent)):
            return mpmath.nan
        return base ** (int(exponent) if exponent == int(exponent) else mpmath.mpf(exponent))

    return np.frompyfunc(power, 1, 1)(t)


def lifted(array: Array, like: Array) -> Array:
    """Constants in the kind of numbers that `like` holds."""
    return np.frompyfunc(mpmath.mpf, 1, 1)(array.astype(np.float64)) if like.dtype == object else array.astype(float)


def over(above: Array, below: Array) -> Array:
    return above * elementwise("Reciprocal", below) if above.dtype == object else above / below


@dataclass(frozen=True, slots=True)
class Step:
    """A node: an operator, the steps that it reads (0 is the input), constants, and how many entries it has."""

    op: str
    reads: tuple[int, ...]
    size: int
    arrays: tuple[Array, ...] = ()
    numbers: tuple[float, ...] = ()

    def value(self, reads: Sequence[Array]) -> Array:
        """What it gives for rows of entries."""
        t = reads[0]
        if self.op in UNARY:
            return elementwise(self.op, t)
        return MEANINGS[self.op](self, reads)


def _affine(step: Step, reads: Sequence[Array]) -> Array:
    weight, bias = (lifted(a, reads[0]) for a in step.arrays)
    return reads[0] @ weight.T + bias


def _matrix(step: Step, reads: Sequence[Array]) -> Array:
    m, k, n = (int(v) for v in step.numbers)
    first, second = reads[0].reshape(-1, m, k), reads[1].reshape(-1, k, n)
    return (first[:, :, :, None] * second[:, None, :, :]).sum(axis=2).reshape(len(first), m * n)


def _softmax(step: Step, reads: Sequence[Array]) -> Array:
    t = reads[0]
    size = elementwise("Exp", t - t.max(axis=1, keepdims=True))
    found = over(size, size.sum(axis=1, keepdims=True) + 0 * size)
    return elementwise("Log", found) if step.op == "LogSoftmax" else found


def _normalised(step: Step, reads: Sequence[Array]) -> Array:
    t, (scale, shift) = reads[0], (lifted(a, reads[0]) for a in step.arrays)
    centred = t - t.sum(axis=1, keepdims=True) / step.size
    variance = (centred * centred).sum(axis=1, keepdims=True) / step.size
    deviation = elementwise("Sqrt", variance + float(np.float32(step.numbers[0])))
    return over(centred, deviation + 0 * centred) * scale + shift


MEANINGS: dict[str, Callable[[Step, Sequence[Array]], Array]] = {
    "Gemm": _affine,
    "Pow": lambda step, reads: powered(reads[0], step.numbers[0]),
    "Add": lambda step, reads: reads[0] + reads[1],
    "Sub": lambda step, reads: reads[0] - reads[1],
    "Mul": lambda step, reads: reads[0] * reads[1],
    "Div": lambda step, reads: over(reads[0], reads[1]),
    "MatMul": _matrix,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "LayerNormalization": _normalised,
    "MaxPool": lambda step, reads: np.maximum(reads[0][:, :-1], reads[0][:, 1:]),
}


@dataclass(slots=True)
class Program:
    """Steps, the last of which is the output."""

    inputs: int
    steps: list[Step] = field(default_factory=list)

    def size(self, number: int) -> int:
        return self.inputs if number == 0 else self.steps[number - 1].size

    @property
    def outputs(self) -> int:
        return self.size(len(self.steps))

    def add(self, op: str, *reads: int, size: int | None = None, arrays: Sequence[Array] = (), **more: Any) -> int:
        """Appends a step and returns its number."""
        own = self.size(reads[0]) if size is None else size
        self.steps.append(Step(op, reads, own, tuple(arrays), tuple(more.get("numbers", ()))))
        return len(self.steps)

    def run(self, x: Array) -> Array:
        """The outputs for rows of inputs, in the kind of numbers that they hold; no number where one is not defined."""
        values = [x]
        with np.errstate(all="ignore"):
            for step in self.steps:
                values.append(step.value([values[i] for i in step.reads]))
        return values[-1]

    def exactly(self, x: Sequence[float], digits: int = DIGITS) -> list[Any]:
        """The outputs at one point in many digits."""
        with mpmath.workdps(digits):
            row = np.array([[mpmath.mpf(float(v)) for v in x]], dtype=object)
            return list(self.run(row)[0])

    @property
    def saturates(self) -> bool:
        """Whether values may differ from 0 or 1 by less than any number of digits shows."""
        return any(step.op in SATURATING for step in self.steps)

    @property
    def opset(self) -> int:
        return max([17, *(SINCE.get(step.op, 0) for step in self.steps)])

    def model(self) -> onnx.ModelProto:
        """The file, in float32."""
        graph = _Graph()
        for number, step in enumerate(self.steps, start=1):
            graph.add(step, [f"v{i}" for i in step.reads], f"v{number}")
        made = helper.make_graph(
            graph.nodes,
            "functions",
            [helper.make_tensor_value_info("v0", TensorProto.FLOAT, [1, self.inputs])],
            [helper.make_tensor_value_info(f"v{len(self.steps)}", TensorProto.FLOAT, [1, self.outputs])],
            graph.constants,
        )
        model = helper.make_model(made, opset_imports=[helper.make_opsetid("", self.opset)])
        model.ir_version = 9
        return model


@dataclass(slots=True)
class _Graph:
    """Nodes of a file."""

    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: list[onnx.TensorProto] = field(default_factory=list)

    def constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def node(self, op: str, inputs: Sequence[str], output: str, **options: Any) -> str:
        self.nodes.append(helper.make_node(op, list(inputs), [output], name=f"n{len(self.nodes)}", **options))
        return output

    def reshaped(self, name: str, shape: Sequence[int], output: str) -> str:
        return self.node("Reshape", [name, self.constant(np.array(shape, np.int64))], output)

    def add(self, step: Step, inputs: list[str], output: str) -> None:
        """One step as one node or several."""
        if step.op == "SiLU":
            self.node("Mul", [inputs[0], self.node("Sigmoid", inputs, f"{output}a")], output)
        elif step.op == "MatMul":
            m, k, n = (int(v) for v in step.numbers)
            first, second = (
                self.reshaped(inputs[0], (m, k), f"{output}a"),
                self.reshaped(inputs[1], (k, n), f"{output}b"),
            )
            self.reshaped(self.node("MatMul", [first, second], f"{output}c"), (1, m * n), output)
        elif step.op == "MaxPool":
            wide = self.reshaped(inputs[0], (1, 1, step.size + 1), f"{output}a")
            pooled = self.node("MaxPool", [wide], f"{output}b", kernel_shape=[2], strides=[1])
            self.reshaped(pooled, (1, step.size), output)
        elif step.op == "Pow":
            self.node("Pow", [*inputs, self.constant(np.array(step.numbers[0], np.float32))], output)
        else:
            options: dict[str, Any] = {"transB": 1} if step.op == "Gemm" else {}
            if step.op == "LayerNormalization":
                options["epsilon"] = step.numbers[0]
            self.node(step.op, [*inputs, *(self.constant(a) for a in step.arrays)], output, **options)
