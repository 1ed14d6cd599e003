"""Functions of one number, products and quotients of activations, and what is composed of them."""

from __future__ import annotations

import numpy as np
import onnx
from operator_grid.case import Case, Sketch
from operator_grid.family import MOSTLY_FLOAT, Family, Settings

from verifier.functions.names import FUNCTIONS

POSITIVE = {"Log", "Sqrt", "Reciprocal"}
ATTRIBUTES = {
    "Elu": {"alpha": (None, 0.5, 2.0)},
    "Celu": {"alpha": (None, 0.5, 2.0)},
    "Selu": {"alpha": (None, 0.5), "gamma": (None, 2.0)},
    "Gelu": {"approximate": (None, "none")},  # onnxruntime rounds the constants of "tanh" to float32
}


def exists(op: str, opset: int) -> bool:
    """Whether an operator set has the operator, in a version that is not withdrawn."""
    try:
        return not onnx.defs.get_schema(op, opset).deprecated
    except onnx.defs.SchemaError:
        return False


def away_from_zero(sketch: Sketch, source: str = "x") -> str:
    """Something positive that depends on the input."""
    return sketch.node("Add", [sketch.node("Abs", [source]), sketch.constant(sketch.array(0.5))])


def function(sketch: Sketch, given: Settings) -> Case | None:
    op = given["op"]
    if not exists(op, sketch.opset):
        return None
    chosen = {key: sketch.pick(values) for key, values in ATTRIBUTES.get(op, {}).items()}
    source = away_from_zero(sketch) if op in POSITIVE else "x"
    if given["before"] == "relu":
        source = sketch.node("Relu", [source])
    output = sketch.node(op, [source], **chosen)
    shape = sketch.sizes(given["rank"])
    return sketch.case(shape, output, rounded=True, unit=given["unit"])


def quotient(sketch: Sketch, given: Settings) -> Case:
    shape, by = sketch.sizes(given["rank"]), away_from_zero(sketch)
    above = {"x": "x", "relu": sketch.node("Relu", ["x"]), "constant": sketch.constant(sketch.numbers(shape))}
    return sketch.case(shape, sketch.node("Div", [above[given["above"]], by]), rounded=True)


def matrices(sketch: Sketch, given: Settings) -> Case | None:
    """Products of the input with a part of itself, in all ranks, as numpy means them."""
    left, right = given["left"], given["right"]
    k, m, n = sketch.sizes(3, 1, 3)
    outer = sketch.sizes(2, 1, 2)
    lead = [[sketch.pick((1, size)) for size in outer[4 - rank :]] if rank > 2 else [] for rank in (left, right)]
    first = (k,) if left == 1 else (*lead[0], m, k)
    second = (k,) if right == 1 else (*lead[1], k, n)
    sizes = [int(np.prod(shape)) for shape in (first, second)]
    total = max(sizes)
    parts = []
    for size, shape in zip(sizes, (first, second), strict=True):
        picked = sketch.node("Gather", ["x", sketch.integers(sketch.random.permutation(total)[:size])], axis=0)
        parts.append(sketch.node("Reshape", [picked, sketch.integers(shape)]))
    parts[0] = sketch.node("Relu", [parts[0]]) if given["relu"] else parts[0]
    if given["gemm"] and left == right == 2:
        output = sketch.node("Gemm", [*parts, sketch.constant(sketch.numbers((n,)))], alpha=0.5)
    else:
        output = sketch.node("MatMul", parts)
    return sketch.case((total,), output)


def power(sketch: Sketch, given: Settings) -> Case:
    shape = sketch.sizes(given["rank"])
    exponents = np.asarray(given["exponent"])
    whole = bool((exponents == np.round(exponents)).all()) and bool((exponents >= 0).all())
    base = "x" if whole and given["signed"] else away_from_zero(sketch)
    kind = np.dtype(given["kind"]) if bool((exponents == np.round(exponents)).all()) else sketch.array(0).dtype
    held = np.resize(exponents, shape[-1:]) if exponents.ndim else exponents
    held = held.astype(kind if sketch.opset >= 12 else sketch.array(0).dtype)
    output = sketch.node("Pow", [base, sketch.constant(held)])
    return sketch.case(shape, output, rounded=True, reference=True, unit=0.25)


def softmax(sketch: Sketch, given: Settings) -> Case | None:
    rank, axis = given["rank"], given["axis"]
    if axis is not None and not -rank <= axis < rank:
        return None
    if axis is not None and axis < 0 and sketch.opset < 11:
        return None
    if axis is None and sketch.opset < 13 and rank < 2:
        return None
    shape = sketch.sizes(rank)
    output = sketch.node(given["op"], ["x"], axis=axis)
    return sketch.case(shape, output, rounded=True, unit=given["unit"])


def layer_norm(sketch: Sketch, given: Settings) -> Case | None:
    rank, axis = given["rank"], given["axis"]
    if axis is not None and not -rank <= axis < rank:
        return None
    shape = sketch.sizes(rank, 1, 4)
    own = shape[-1 if axis is None else axis :]
    scale = sketch.constant(sketch.numbers(own, False))
    bias = [sketch.constant(sketch.numbers(own, False))] if given["bias"] else []
    output = sketch.node("LayerNormalization", ["x", scale, *bias], axis=axis, epsilon=given["epsilon"])
    # onnxruntime divides by the deviation in float32, whatever the type
    return sketch.case(shape, output, rounded=True, reference=True)


def resize(sketch: Sketch, given: Settings) -> Case | None:
    shape = (1, int(sketch.random.integers(1, 3)), *sketch.sizes(given["spatial"], 1, 4))
    scales = np.array([1.0, 1.0, *[sketch.pick((1.0, 2.0, 3.0, 1.5, 0.5)) for _ in shape[2:]]], np.float32)
    if sketch.opset < 9:
        if (scales < 1).any():
            return None
        output = sketch.node("Upsample", ["x"], scales=scales.tolist(), mode=given["mode"])
    elif sketch.opset == 9:
        if (scales < 1).any():
            return None
        output = sketch.node("Upsample", ["x", sketch.constant(scales)], mode=given["mode"])
    elif sketch.opset == 10:
        output = sketch.node("Resize", ["x", sketch.constant(scales)], mode=given["mode"])
    else:
        how = {"coordinate_transformation_mode": given["coordinates"], "nearest_mode": given["nearest"]}
        roi = sketch.constant(np.zeros(0, np.float32)) if sketch.opset < 13 else ""
        output = sketch.node("Resize", ["x", roi, sketch.constant(scales)], mode=given["mode"], **how)
    if given["mode"] != "linear":
        return sketch.case(shape, output, fine=True)
    return sketch.case(shape, output, rounded=True, unit=2.0**-6)  # onnxruntime rounds the coefficients to float32


FAMILIES = (
    Family(
        "function",
        function,
        {
            "op": tuple(name for name in FUNCTIONS.names() if name != "Pow"),
            "rank": range(1, 4),
            "before": ("x", "x", "relu"),
            "unit": (1.0, 0.125, 4.0),
        },
        350,
        types=MOSTLY_FLOAT,
    ),
    Family("quotient", quotient, {"rank": range(4), "above": ("x", "relu", "constant")}, 60),
    Family(
        "matrices",
        matrices,
        {"left": range(1, 5), "right": range(1, 5), "relu": (False, True), "gemm": (False, True)},
        150,
    ),
    Family(
        "power",
        power,
        {
            "rank": range(1, 4),
            "exponent": (0, 1, 2, 3, 4, -1, -2, 0.5, -0.5, 1.75, (2, 1, 0), (0.5, -1, 3)),
            "signed": (True, False),
            "kind": ("float32", "float64", "int64", "int32"),
        },
        150,
    ),
    Family(
        "softmax",
        softmax,
        {
            "op": ("Softmax", "LogSoftmax"),
            "rank": range(1, 5),
            "axis": (None, 0, 1, 2, 3, -1, -2),
            "unit": (0.25, 1.0, 8.0),
        },
        200,
    ),
    Family(
        "layer_norm",
        layer_norm,
        {
            "rank": range(1, 5),
            "axis": (None, -1, -2, 0, 1, 2),
            "bias": (True, False),
            "epsilon": (None, 1e-3, 0.5),
        },
        80,
        since=17,
        types=MOSTLY_FLOAT,
    ),
    Family(
        "resize",
        resize,
        {
            "spatial": (1, 2, 3),
            "mode": ("nearest", "nearest", None, "linear"),
            "coordinates": (None, "asymmetric", "half_pixel", "align_corners", "pytorch_half_pixel"),
            "nearest": (None, "floor", "ceil", "round_prefer_floor", "round_prefer_ceil"),
        },
        120,
        types=MOSTLY_FLOAT,
    ),
)
