"""Entrywise operators: arithmetic with broadcasting, pieces, selections, changes of type."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from onnx import TensorProto
from operator_grid.case import DOUBLE, FLOAT, TYPES, Case, Sketch
from operator_grid.family import MOSTLY_FLOAT, Family, Settings

BEYOND_FLOAT = 1e39


def partner(sketch: Sketch, shape: Sequence[int], rank: int) -> tuple[int, ...]:
    """A shape of `rank` axes that broadcasts with `shape`, in both directions."""
    found = []
    for axis in range(rank):
        own = shape[axis - rank] if rank - axis <= len(shape) else 1
        free = sketch.pick((2, 3)) if own == 1 else own
        found.append(sketch.pick((1, own, own, free)))
    return tuple(found)


def activation(sketch: Sketch, source: str, kind: str) -> str:
    """Another tensor that depends on the input, of the same shape."""
    if kind == "relu":
        return sketch.node("Relu", [source])
    if kind == "negative":
        return sketch.node("Neg", [source])
    return source


def binary(sketch: Sketch, given: Settings) -> Case | None:
    op, operand = given["op"], given["operand"]
    if op == "Div" and (operand != "constant" or not given["first"]):
        return None  # by zero, at some points; the family "quotient" divides by other values
    shape = sketch.sizes(given["rank"])
    if operand == "constant":
        numbers = sketch.powers if op == "Div" else sketch.numbers
        other = sketch.constant(numbers(partner(sketch, shape, given["other"])))
    else:
        other = activation(sketch, "x", operand)
    inputs = ["x", other] if given["first"] else [other, "x"]
    return sketch.case(shape, sketch.node(op, inputs), fine=op in {"Add", "Sub"})


def division(sketch: Sketch, given: Settings) -> Case:
    """By numbers that are no powers of two."""
    shape = sketch.sizes(given["rank"])
    by = sketch.array(sketch.random.integers(1, 12, partner(sketch, shape, given["other"])) * given["sign"])
    return sketch.case(shape, sketch.node("Div", ["x", sketch.constant(by)]), rounded=True)


def unary(sketch: Sketch, given: Settings) -> Case:
    shape = sketch.sizes(given["rank"])
    source = activation(sketch, "x", given["before"])
    return sketch.case(shape, sketch.node(given["op"], [source]), fine=True)


def several(sketch: Sketch, given: Settings) -> Case:
    """Sum, Mean, Max and Min of one to four operands, constants among them."""
    shape = sketch.sizes(given["rank"])
    if sketch.opset < 8:  # nothing is broadcast there
        return several_alike(sketch, given, shape)
    inputs = []
    for i, kind in enumerate(given["operands"]):
        if kind == "constant":
            rank = max(given["rank"] + given["more"] - i % 2, 0)
            inputs.append(sketch.constant(sketch.numbers(partner(sketch, shape, rank))))
        else:
            inputs.append(activation(sketch, "x", kind))
    try:
        np.broadcast_shapes(*(sketch.constants[name].shape if name in sketch.constants else shape for name in inputs))
    except ValueError:
        return several_alike(sketch, given, shape)
    return sketch.case(shape, sketch.node(given["op"], inputs), fine=True, rounded=given["op"] == "Mean")


def several_alike(sketch: Sketch, given: Settings, shape: tuple[int, ...]) -> Case:
    """The same without broadcasting between constants of different shapes."""
    inputs = [
        sketch.constant(sketch.numbers(shape)) if kind == "constant" else activation(sketch, "x", kind)
        for kind in given["operands"]
    ]
    return sketch.case(shape, sketch.node(given["op"], inputs), fine=True, rounded=given["op"] == "Mean")


def clip(sketch: Sketch, given: Settings) -> Case | None:
    shape = sketch.sizes(given["rank"])
    bounds = [None if value is None else float(value) for value in (given["low"], given["high"])]
    if any(abs(value or 0.0) == BEYOND_FLOAT for value in bounds) and (sketch.dtype == FLOAT or sketch.opset < 11):
        return None
    if sketch.dtype == DOUBLE and sketch.opset >= 11:
        bounds = [None if value is None else value + 5 * 2.0**-30 for value in bounds]
    source = activation(sketch, "x", given["before"])
    if sketch.opset < 11:
        return sketch.case(shape, sketch.node("Clip", [source], min=bounds[0], max=bounds[1]), fine=True)
    form = given["form"]
    inputs = [
        "" if value is None else sketch.constant(sketch.array(value).reshape([1] if form == "list" else []))
        for value in bounds
    ]
    if form == "computed" and inputs[-1]:
        # A bound that depends on the input: a sum of the input, made a scalar.
        total = sketch.node("ReduceMax", ["x"], keepdims=0)
        inputs[1] = total
    return sketch.case(shape, sketch.node("Clip", [source, *inputs]), fine=True)


def leaky(sketch: Sketch, given: Settings) -> Case:
    alpha = given["alpha"]
    exact = alpha in {0.0, 0.25, 1.0, 1.5, -0.5, 2048.0}
    source = activation(sketch, "x", given["before"])
    output = sketch.node("LeakyRelu", [source], alpha=alpha)
    return sketch.case(sketch.sizes(given["rank"]), output, rounded=not exact, reference=True)


def prelu(sketch: Sketch, given: Settings) -> Case | None:
    shape = sketch.sizes(given["rank"])
    kind = given["slope"]
    if kind == "channel" and len(shape) > 1:
        slopes: tuple[int, ...] = (shape[1], *[1] * (len(shape) - 2))
    elif kind == "one":
        slopes = (1,) * given["slope rank"]
    elif kind == "scalar":
        slopes = ()
    else:
        rank = min(given["slope rank"], len(shape))
        slopes = tuple(sketch.pick((1, n)) for n in shape[len(shape) - rank :])
    slope = sketch.constant(sketch.numbers(slopes))
    return sketch.case(shape, sketch.node("PRelu", ["x", slope]))


def hard_sigmoid(sketch: Sketch, given: Settings) -> Case:
    alpha, beta = given["alpha"], given["beta"]
    exact = alpha in {0.125, -0.5} and beta in {0.25, 1.0, 0.0}
    shape = sketch.sizes(given["rank"])
    return sketch.case(
        shape, sketch.node("HardSigmoid", ["x"], alpha=alpha, beta=beta), rounded=not exact, reference=True
    )


def where(sketch: Sketch, given: Settings) -> Case:
    shape = sketch.sizes(given["rank"])
    mask = sketch.random.random(partner(sketch, shape, given["mask rank"])) < 0.5
    choices = []
    for kind in given["choices"]:
        if kind == "constant":
            choices.append(sketch.constant(sketch.numbers(partner(sketch, shape, given["other"]))))
        else:
            choices.append(activation(sketch, "x", kind))
    return sketch.case(shape, sketch.node("Where", [sketch.constant(mask), *choices]), fine=True)


def dropout(sketch: Sketch, given: Settings) -> Case | None:
    shape = sketch.sizes(given["rank"])
    outputs = given["outputs"]
    if sketch.opset < 12:
        sketch.node("Dropout", ["x"], outputs, ratio=given["ratio"])
        return sketch.case(shape, sketch.nodes[-1].output[0], fine=True)
    ratio = "" if given["ratio"] is None else sketch.constant(np.float32(given["ratio"]))
    training = "" if given["training"] is None else sketch.constant(np.array(given["training"]))
    sketch.node("Dropout", ["x", ratio, training], outputs, seed=given["seed"])
    return sketch.case(shape, sketch.nodes[-1].output[0], fine=True)


def identities(sketch: Sketch, given: Settings) -> Case:
    source = "x"
    for op in given["chain"]:
        source = sketch.node(op, [source])
    return sketch.case(sketch.sizes(given["rank"]), source, fine=True)


def cast(sketch: Sketch, given: Settings) -> Case | None:
    """To another type and back again; from float to float at points that both of them hold."""
    shape, target = sketch.sizes(given["rank"]), given["to"]
    like = sketch.opset >= 15 and given["like"]
    back = sketch.dtype
    if like:
        kinds = {FLOAT: np.float32, DOUBLE: np.float64, TensorProto.FLOAT16: np.float16, TensorProto.INT64: np.int64}
        if target not in kinds:
            return None
        middle = sketch.node("CastLike", ["x", sketch.constant(np.zeros(1, kinds[target]))])
        output = sketch.node("CastLike", [middle, sketch.constant(np.zeros(1, TYPES[back])) if given["first"] else "x"])
    else:
        middle = sketch.node("Cast", ["x"], to=target)
        output = sketch.node("Cast", [middle], to=back)
    return sketch.case(shape, output, fine=target not in {FLOAT, TensorProto.FLOAT16})  # others need all digits


RANKS = range(6)
OPERANDS = (
    ("x",),
    ("constant", "x"),
    ("x", "constant"),
    ("x", "x"),
    ("x", "relu"),
    ("negative", "x", "constant"),
    ("constant", "constant", "x"),
    ("x", "constant", "relu", "constant"),
    ("constant", "relu", "negative", "x"),
)
CHOICES = (
    ("x", "constant"),
    ("constant", "x"),
    ("x", "relu"),
    ("negative", "x"),
    ("x", "x"),
    ("constant", "constant"),
)

FAMILIES = (
    Family(
        "binary",
        binary,
        {
            "op": ("Add", "Sub", "Mul", "Div"),
            "rank": RANKS,
            "other": RANKS,
            "first": (True, False),
            "operand": ("constant", "constant", "constant", "x", "relu", "negative"),
        },
        350,
    ),
    Family("division", division, {"rank": RANKS, "other": RANKS, "sign": (1, -1)}, 100),
    Family(
        "unary",
        unary,
        {"op": ("Neg", "Abs", "Relu", "Identity"), "rank": RANKS, "before": ("x", "relu", "negative")},
        100,
    ),
    Family(
        "several",
        several,
        {"op": ("Sum", "Mean", "Max", "Min"), "rank": RANKS, "operands": OPERANDS, "more": (-1, 0, 1, 2)},
        300,
    ),
    Family(
        "clip",
        clip,
        {
            "rank": RANKS,
            "low": (None, -1.5, 0.0, 2.0, -1e20, -(2.0**24), -BEYOND_FLOAT),
            "high": (None, 1.0, 6.0, -0.5, 1e20, 2.0**24, BEYOND_FLOAT),
            "form": ("scalar", "scalar", "list", "computed"),
            "before": ("x", "relu", "negative"),
        },
        250,
    ),
    Family(
        "leaky",
        leaky,
        {"alpha": (None, 0.25, 0.2, 0.0, 1.0, 1.5, -0.5, 2048.0), "rank": RANKS, "before": ("x", "relu", "negative")},
        100,
        types=MOSTLY_FLOAT,
    ),
    Family(
        "prelu",
        prelu,
        {"rank": range(1, 6), "slope": ("channel", "one", "scalar", "tail", "tail"), "slope rank": range(1, 6)},
        150,
        types=MOSTLY_FLOAT,
    ),
    Family(
        "hard_sigmoid",
        hard_sigmoid,
        {"alpha": (None, 0.125, -0.5, 0.3), "beta": (None, 0.25, 1.0, 0.0), "rank": RANKS},
        80,
    ),
    Family("where", where, {"rank": RANKS, "mask rank": RANKS, "other": RANKS, "choices": CHOICES}, 150, since=9),
    Family(
        "dropout",
        dropout,
        {
            "rank": RANKS,
            "ratio": (None, 0.0, 0.5),
            "training": (None, False, True),
            "seed": (None, 3),
            "outputs": (1, 2),
        },
        80,
    ),
    Family(
        "identities",
        identities,
        {"rank": RANKS, "chain": (("Identity",) * 3, ("Identity", "Relu", "Identity"), ("Dropout", "Identity", "Neg"))},
        40,
    ),
    Family(
        "cast",
        cast,
        {
            "rank": RANKS,
            "to": (FLOAT, DOUBLE, TensorProto.FLOAT16, TensorProto.INT64, TensorProto.BOOL),
            "like": (False, True),
            "first": (True, False),
        },
        120,
    ),
)
