"""One case of the grid: a small model from input "x" to one output, and the points at which it is compared.

All numbers are short dyadic fractions, so that every sum and product is exact in the model's own precision; only
cases that say so (`rounded`) divide or use other numbers.  Float64 cases hold constants that float32 cannot.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]
FLOAT, DOUBLE = TensorProto.FLOAT, TensorProto.DOUBLE
TYPES = {FLOAT: np.float32, DOUBLE: np.float64}

OLDEST = 7
FINE = 2.0**-30  # a float64 holds multiples of it below 2^22, a float32 does not

# How tensors are called: invented names, node names and numbers of the normal form must not meet those of the file.
NAMES = ("t{}", "t{}", "strata:{}", "n{}", "{}", "a/b.{}::c", "onnx_initializer_{}", "input_{}")


def quiet_session(model: onnx.ModelProto) -> ort.InferenceSession:
    """A session that runs the nodes as they are: no fusion may change a value."""
    settings = ort.SessionOptions()
    settings.log_severity_level = 4
    settings.intra_op_num_threads = settings.inter_op_num_threads = 1
    settings.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    return ort.InferenceSession(
        model.SerializeToString(), settings, providers=["CPUExecutionProvider"], enable_fallback=0
    )


@functools.cache
def newest_opset() -> int:
    """The newest operator set that both onnx and onnxruntime take."""
    for opset in range(onnx.defs.onnx_opset_version(), OLDEST, -1):
        graph = helper.make_graph(
            [helper.make_node("Identity", ["x"], ["y"])],
            "probe",
            [helper.make_tensor_value_info("x", FLOAT, [1])],
            [helper.make_tensor_value_info("y", FLOAT, [1])],
        )
        try:
            quiet_session(_model(graph, opset))
        except Exception:  # onnxruntime's exceptions have no common base of their own
            continue
        return opset
    raise AssertionError("onnxruntime takes none of the operator sets")


def _model(graph: onnx.GraphProto, opset: int) -> onnx.ModelProto:
    ir_version = 4 if opset < 12 else 8 if opset < 19 else 10
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version)


@dataclass(frozen=True, eq=False)
class Case:
    """Nodes in order, constants by name, and the output.  The seed chooses the points and how tensors are called.

    All entries of the input are multiples of a quarter of `unit`, for exact averages; `fine` says that no product is
    taken, so that a float64 input may have as many digits as the constants; `reference` asks for onnx's own evaluation
    in float64 where onnxruntime has none.
    """

    label: str
    shape: tuple[int, ...]
    nodes: Sequence[onnx.NodeProto]
    constants: Mapping[str, Array]
    output: str
    opset: int
    dtype: int = FLOAT
    rounded: bool = False
    unit: float = 1.0
    fine: bool = False
    reference: bool = False
    seed: int = 0
    open_batch: bool = False

    def model(self, dtype: int | None = None) -> onnx.ModelProto:
        """The file; with `dtype`, the same network in another precision."""
        kind = self.dtype if dtype is None else dtype
        wide = kind != self.dtype
        held, made = [], []
        for i, (name, values) in enumerate(self.constants.items()):
            tensor = numpy_helper.from_array(
                values.astype(np.float64) if wide and values.dtype == np.float32 else values
            )
            tensor.name = name
            if (self.seed + i) % 3 == 0:
                made.append(helper.make_node("Constant", [], [name], value=tensor))
            else:
                held.append(tensor)
        shape: list[int | str] = list(self.shape)
        if self.open_batch:
            shape[0] = "batch"
        sources = [helper.make_tensor_value_info("x", kind, shape)]
        if self.seed % 7 == 0:  # old files declare their weights as inputs, too
            sources += [helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in held]
        graph = helper.make_graph(
            [*made, *self.nodes],
            "case",
            sources,
            [helper.make_tensor_value_info(self.output, kind, None)],
            held,
        )
        if wide:
            _widen_casts(graph)
        model = _model(graph, self.opset)
        _rename(model.graph, NAMES[self.seed % len(NAMES)])
        return model

    @functools.cached_property
    def points(self) -> Array:
        """Inputs [B, n]: all entries different; mixed; many that are equal or zero."""
        random = np.random.default_rng(self.seed)
        n = int(np.prod(self.shape))
        different = random.permutation(n) - n // 2 + 0.25
        mixed = random.integers(-32, 33, n) / 4
        if self.fine and self.dtype == DOUBLE:
            mixed = mixed + random.integers(-9, 10, n) * FINE
        equal = random.integers(-1, 2, n)
        found = np.stack([different, mixed, equal]) * self.unit
        return found.astype(TYPES[self.dtype])


def _widen_casts(graph: onnx.GraphProto) -> None:
    for node in graph.node:
        for attribute in node.attribute:
            if node.op_type == "Cast" and attribute.name == "to" and attribute.i == FLOAT:
                attribute.i = DOUBLE


def _rename(graph: onnx.GraphProto, pattern: str) -> None:
    names: dict[str, str] = {"": "", "x": pattern.format(0)}

    def new(name: str) -> str:
        return names.setdefault(name, pattern.format(len(names) - 1))

    for node in graph.node:
        node.input[:] = [new(name) for name in node.input]
        node.output[:] = [new(name) for name in node.output]
    for value in (*graph.input, *graph.initializer, *graph.output):
        value.name = new(value.name)


@dataclass
class Sketch:
    """A case in the making.  `random` is its own; constants get the precision of the case."""

    label: str
    opset: int
    dtype: int
    seed: int
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    _count: int = 0

    def __post_init__(self) -> None:
        self.random = np.random.default_rng(self.seed + 1)

    def name(self) -> str:
        self._count += 1
        return f"v{self._count}"

    def pick(self, choices: Sequence[Any]) -> Any:
        return choices[int(self.random.integers(len(choices)))]

    def sizes(self, rank: int, low: int = 1, high: int = 3) -> tuple[int, ...]:
        return tuple(int(n) for n in self.random.integers(low, high + 1, rank))

    def array(self, values: Any) -> Array:
        return np.asarray(values, dtype=TYPES[self.dtype])

    def numbers(self, shape: Sequence[int], fine: bool = True) -> Array:
        """Halves between -4 and 4; in float64 with digits that float32 does not have."""
        found = self.random.integers(-8, 9, tuple(shape)) / 2
        if self.dtype == DOUBLE and fine:
            found = found + self.random.integers(-3, 4, tuple(shape)) * FINE
        return self.array(found)

    def powers(self, shape: Sequence[int]) -> Array:
        """Powers of two, of either sign: division by them is exact."""
        sign = self.random.choice([-1.0, 1.0], tuple(shape))
        return self.array(sign * 2.0 ** self.random.integers(-2, 3, tuple(shape)))

    def constant(self, values: Any) -> str:
        name = self.name()
        self.constants[name] = np.asarray(values)
        return name

    def integers(self, values: Any, kind: Any = np.int64) -> str:
        return self.constant(np.asarray(values, dtype=kind))

    def node(self, op_type: str, inputs: Sequence[str], outputs: int = 1, **attributes: Any) -> str:
        """Add a node and return its last output.  Attributes that are None are left out, as are empty last inputs."""
        operands = list(inputs)
        while operands and not operands[-1]:
            operands.pop()
        names = [self.name() for _ in range(outputs)]
        given = {key: value for key, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(op_type, operands, names, **given))
        return names[-1]

    def case(self, shape: Sequence[int], output: str, **settings: Any) -> Case:
        shape = tuple(shape)
        return Case(
            label=self.label,
            shape=shape,
            nodes=tuple(self.nodes),
            constants=dict(self.constants),
            output=output,
            opset=self.opset,
            dtype=self.dtype,
            seed=self.seed,
            open_batch=bool(shape) and shape[0] == 1 and self.seed % 5 == 0,
            **settings,
        )
