"""Constants from every place: the forms of Constant, shapes that the graph computes, ranges, stored integers."""

from __future__ import annotations

import numpy as np
from onnx import helper, numpy_helper
from operator_grid.case import DOUBLE, TYPES, Case, Sketch
from operator_grid.family import Family, Settings


def constant_forms(sketch: Sketch, given: Settings) -> Case | None:
    """Constant with each of its attributes, used in float arithmetic or as a shape."""
    form, shape = given["form"], (2, 3)
    name = sketch.name()
    if form == "value":
        value = numpy_helper.from_array(sketch.numbers((3,)))
        sketch.nodes.append(helper.make_node("Constant", [], [name], value=value))
        return sketch.case(shape, sketch.node(given["op"], ["x", name]))
    if sketch.opset < 12:
        return None
    attribute = {"value_float": 1.5, "value_floats": [0.5, -2.0, 3.0], "value_int": 6, "value_ints": [3, 2]}[form]
    sketch.nodes.append(helper.make_node("Constant", [], [name], **{form: attribute}))
    if form.startswith("value_float"):
        if sketch.dtype == DOUBLE:
            name = sketch.node("Cast", [name], to=DOUBLE)
        return sketch.case(shape, sketch.node(given["op"], ["x", name]))
    if form == "value_int":
        name = sketch.node("Reshape", [name, sketch.integers([1])])
    return sketch.case(shape, sketch.node("Reshape", ["x", name]), fine=True)


def of_shape(sketch: Sketch, given: Settings) -> Case:
    """ConstantOfShape with a constant shape, or with the shape of the input."""
    shape = sketch.sizes(given["rank"])
    size = sketch.node("Shape", ["x"]) if given["of"] == "x" else sketch.integers(sketch.sizes(given["rank"], 1, 1))
    value = None
    if given["value"] is not None:
        value = numpy_helper.from_array(np.array([given["value"]], TYPES[sketch.dtype]))
    filled = sketch.node("ConstantOfShape", [size], value=value)
    if value is None and sketch.dtype == DOUBLE:
        filled = sketch.node("Cast", [filled], to=DOUBLE)
    return sketch.case(shape, sketch.node(given["op"], ["x", filled]))


def shape_parts(sketch: Sketch, given: Settings) -> Case | None:
    """Part of the shape, made the target of a Reshape."""
    rank = given["rank"]
    shape = sketch.sizes(rank)
    start, end = (given["start"], given["end"]) if sketch.opset >= 15 else (None, None)
    part = sketch.node("Shape", ["x"], start=start, end=end)
    rest = sketch.node("Concat", [part, sketch.integers([-1])], axis=0)
    if given["after"] == "size":
        count = sketch.node("Size", ["x"])
        rest = sketch.node("Reshape", [count, sketch.integers([1])])
    held = int(np.prod(shape[slice(start or 0, end)]))
    if int(np.prod(shape)) % max(held, 1):
        return None
    return sketch.case(shape, sketch.node("Reshape", ["x", rest]), fine=True)


def computed_shape(sketch: Sketch, given: Settings) -> Case | None:
    """Shape -> Gather, Slice, arithmetic -> Concat -> an operator that takes a shape."""
    rank = given["rank"]
    shape = sketch.sizes(rank, 1, 3)
    size = sketch.node("Shape", ["x"])
    axis = int(sketch.random.integers(rank))
    one = sketch.node("Gather", [size, sketch.integers([axis])], axis=0)
    if given["how"] == "reshape":
        target = sketch.node("Concat", [one, sketch.integers([-1])], axis=0)
        return sketch.case(shape, sketch.node("Reshape", ["x", target]), fine=True)
    if given["how"] == "expand":
        target = sketch.node("Concat", [sketch.integers([2]), size], axis=0)
        return sketch.case(shape, sketch.node("Expand", ["x", target]), fine=True)
    if given["how"] == "tile":
        target = sketch.node("Sub", [size, sketch.node("Sub", [size, sketch.integers([1] * (rank - 1) + [2])])])
        return sketch.case(shape, sketch.node("Tile", ["x", target]), fine=True)
    if given["how"] == "slice" and sketch.opset >= 10:
        half = sketch.node("Div", [sketch.node("Add", [one, sketch.integers([1])]), sketch.integers([2])])
        output = sketch.node("Slice", ["x", sketch.integers([0]), half, sketch.integers([axis])])
        return sketch.case(shape, output, fine=True)
    if given["how"] == "gather" and sketch.opset >= 11:
        scalar = sketch.node("Reshape", [one, sketch.integers(np.zeros(0))])
        every = sketch.node("Range", [sketch.integers(0), scalar, sketch.integers(1)])
        return sketch.case(shape, sketch.node("Gather", ["x", every], axis=axis), fine=True)
    return None


def ranges(sketch: Sketch, given: Settings) -> Case | None:
    """Range in floats, added to the input."""
    start, limit, delta = given["start"], given["limit"], given["delta"]
    count = max(int(np.ceil((limit - start) / delta)), 0)
    if not count:
        return None
    ends = [sketch.constant(sketch.array(value)) for value in (start, limit, delta)]
    return sketch.case((2, count), sketch.node(given["op"], ["x", sketch.node("Range", ends)]))


def folded(sketch: Sketch, given: Settings) -> Case:
    """A weight that passes through operators before it is used; all of it exact."""
    weight = sketch.constant(sketch.numbers((3, 2), False))
    for op in given["chain"]:
        if op == "Transpose":
            weight = sketch.node("Transpose", [sketch.node("Transpose", [weight])])
        elif op in {"Mul", "Add"}:
            weight = sketch.node(op, [weight, sketch.constant(sketch.powers(()))])
        elif op == "Concat":
            halves = [sketch.node("Gather", [weight, sketch.integers([i])], axis=1) for i in (1, 0)]
            weight = sketch.node("Concat", halves, axis=1)
        else:
            weight = sketch.node(op, [weight])
    return sketch.case((given["rows"], 3), sketch.node(given["op"], ["x", weight]))


def dequantized(sketch: Sketch, given: Settings) -> Case | None:
    """Weights stored as integers, with scales that are powers of two."""
    kind, axis = given["kind"], given["axis"]
    if (axis is not None and sketch.opset < 13) or (kind == np.int16 and sketch.opset < 21) or sketch.dtype == DOUBLE:
        return None
    shape = (3, 2)
    info = np.iinfo(kind)
    stored = sketch.constant(sketch.random.integers(max(info.min, -99), 100, shape).astype(kind))
    size = () if axis is None else (shape[axis],)
    scale = sketch.constant(np.abs(sketch.powers(size)).astype(np.float32))
    inputs = [stored, scale]
    if given["zero"]:
        point = sketch.random.integers(0, 20, size) if kind != np.int32 else np.zeros(size)
        inputs.append(sketch.constant(point.astype(kind)))
    weight = sketch.node("DequantizeLinear", inputs, axis=axis)
    return sketch.case((2, 3), sketch.node(given["op"], ["x", weight]))


def half_weights(sketch: Sketch, given: Settings) -> Case:
    """Weights in another floating-point type, cast before they are used."""
    kind = {"half": np.float16, "float": np.float32, "double": np.float64, "integers": np.int64}[given["kind"]]
    values = sketch.random.integers(-8, 9, (3, 2)) / (1 if given["kind"] == "integers" else 2)
    weight = sketch.node("Cast", [sketch.constant(values.astype(kind))], to=sketch.dtype)
    return sketch.case((2, 3), sketch.node(given["op"], ["x", weight]))


def constant_output(sketch: Sketch, given: Settings) -> Case:
    """The output, or a part of it, does not depend on the input."""
    held = sketch.constant(sketch.numbers((2,)))
    for op in given["chain"]:
        held = sketch.node(op, [held])
    if given["joined"]:
        held = sketch.node("Concat", ["x", held], axis=0)
    return sketch.case((3,), held, fine=True)


WEIGHTED = ("MatMul", "Gemm")

FAMILIES = (
    Family(
        "constant",
        constant_forms,
        {"form": ("value", "value_float", "value_floats", "value_int", "value_ints"), "op": ("Add", "Mul", "Sub")},
        80,
    ),
    Family(
        "constant_of_shape",
        of_shape,
        {"rank": range(6), "of": ("x", "constant"), "value": (None, 0.0, 2.5, -1.0), "op": ("Add", "Mul")},
        100,
        since=9,
    ),
    Family(
        "shape",
        shape_parts,
        {
            "rank": range(6),
            "start": (None, 0, 1, 2, -1, -2, -9, 9),
            "end": (None, 0, 1, 2, -1, -2, -9, 9),
            "after": ("concat", "concat", "size"),
        },
        120,
    ),
    Family(
        "computed_shape",
        computed_shape,
        {"rank": range(1, 6), "how": ("reshape", "expand", "tile", "slice", "gather")},
        150,
        since=8,
    ),
    Family(
        "range",
        ranges,
        {
            "start": (0.0, 1.5, -2.0),
            "limit": (0.0, 3.0, 4.5, -3.0),
            "delta": (1.0, 0.5, -1.5, 2.0),
            "op": ("Add", "Mul"),
        },
        80,
        since=11,
    ),
    Family(
        "folded",
        folded,
        {
            "rows": (1, 2),
            "chain": (("Identity",) * 3, ("Mul",), ("Transpose", "Add"), ("Concat", "Neg"), ("Abs", "Mul", "Relu")),
            "op": WEIGHTED[:1],
        },
        80,
    ),
    Family(
        "dequantized",
        dequantized,
        {
            "kind": (np.int8, np.uint8, np.int32, np.int16),
            "axis": (None, 0, 1, -1, -2),
            "zero": (False, True),
            "op": WEIGHTED[:1],
        },
        150,
        since=10,
    ),
    Family("cast_weights", half_weights, {"kind": ("half", "float", "double", "integers"), "op": WEIGHTED[:1]}, 60),
    Family(
        "constant_output",
        constant_output,
        {"chain": ((), ("Identity",), ("Relu", "Neg")), "joined": (False, True)},
        60,
    ),
)
