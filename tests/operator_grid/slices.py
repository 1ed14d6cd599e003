"""Slice, Pad, Split and Concat: everything that cuts, extends and joins along axes."""

from __future__ import annotations

import numpy as np
from operator_grid.case import Case, Sketch
from operator_grid.family import Family, Settings

LEAST, MOST = -(2**63), 2**63 - 1
SMALL, LARGE = -(2**31), 2**31 - 1
ENDS = (0, 1, 2, 3, 4, 5, 9, -1, -2, -3, -4, -5, -6, -9, "most", "least")


def index(value: int | str, short: bool) -> int:
    if value == "most":
        return LARGE if short else MOST
    if value == "least":
        return SMALL if short else LEAST
    return int(value)


def sliced(sketch: Sketch, source: str, bounds: dict[str, list[int] | None], short: bool) -> str:
    """Slice by attributes (before opset 10) or by inputs; empty lists are left out."""
    if sketch.opset < 10:
        given = {key: bounds[key] for key in ("starts", "ends", "axes") if bounds[key]}
        return sketch.node("Slice", [source], **given)
    kind = np.int32 if short else np.int64
    inputs = [
        "" if values is None else sketch.integers(values, kind)
        for values in (bounds[key] for key in ("starts", "ends", "axes", "steps"))
    ]
    return sketch.node("Slice", [source, *inputs])


def one_axis(sketch: Sketch, given: Settings) -> Case | None:
    """Every start, end and step along one axis of four or five entries."""
    rank, step = given["rank"], given["step"]
    axis = int(sketch.random.integers(rank))
    if sketch.opset < 10 and step not in {None, 1}:
        return None
    shape = list(sketch.sizes(rank, 1, 2))
    shape[axis] = sketch.pick((4, 5))
    named = {"left out": None, "positive": [axis], "negative": [axis - rank]}[given["axes"]]
    if named is None and axis:
        # Without axes, those from the first on are meant; so all others are taken whole.
        starts, ends = [0] * axis, [9] * axis
        steps = [1] * (axis + 1)
    else:
        starts, ends, steps = [], [], [1]
    short = given["short"]
    starts, ends = [*starts, index(given["start"], short)], [*ends, index(given["end"], short)]
    steps[-1] = step or 1
    bounds = {"starts": starts, "ends": ends, "axes": named, "steps": None if step is None else steps}
    return sketch.case(shape, sliced(sketch, "x", bounds, short), fine=True)


def many_axes(sketch: Sketch, given: Settings) -> Case | None:
    """Several axes in any order, negative or not, with independent bounds; now and then one twice."""
    rank = given["rank"]
    shape = sketch.sizes(rank, 1, 4)
    count = int(sketch.random.integers(1, rank + 1))
    axes = [int(axis) for axis in sketch.random.permutation(rank)[:count]]
    if given["repeated"] and count > 1:
        axes[-1] = axes[0]
    axes = [axis - rank if sketch.random.random() < 0.4 else axis for axis in axes]
    short = given["short"]
    starts, ends = ([index(sketch.pick(ENDS), short) for _ in axes] for _ in range(2))
    steps = [sketch.pick((1, 1, 2, 3, -1, -2, -3)) for _ in axes] if given["steps"] and sketch.opset >= 10 else None
    bounds = {"starts": starts, "ends": ends, "axes": axes, "steps": steps}
    return sketch.case(shape, sliced(sketch, "x", bounds, short), fine=True)


def twice(sketch: Sketch, given: Settings) -> Case | None:
    """A slice of a slice, and the two parts put together."""
    rank = given["rank"]
    axis = int(sketch.random.integers(rank))
    shape = list(sketch.sizes(rank, 1, 2))
    shape[axis] = 5
    source = "x"
    for end in (given["first"], given["second"]):
        step = None if sketch.opset < 10 else [sketch.pick((1, -1, 2))]
        bounds = {"starts": [index(sketch.pick(ENDS), False)], "ends": [end], "axes": [axis], "steps": step}
        source = sliced(sketch, source, bounds, False)
    joined = sketch.node("Concat", [source, "x"], axis=axis)
    return sketch.case(shape, joined, fine=True)


def pad(sketch: Sketch, given: Settings) -> Case | None:
    rank, mode = given["rank"], given["mode"]
    if mode == "wrap" and sketch.opset < 19:
        return None
    shape = sketch.sizes(rank, 2, 4)
    axes = None
    if given["axes"] != "left out" and sketch.opset >= 18:
        axes = [int(a) for a in sketch.random.permutation(rank)[: int(sketch.random.integers(1, rank + 1))]]
        if given["axes"] == "negative":
            axes = [axis - rank for axis in axes]
    sized = [shape[axis] for axis in (range(rank) if axes is None else axes)]
    before, after = ([_amount(sketch, n, given["sign"]) for n in sized] for _ in range(2))
    amounts = [*before, *after]
    value = given["value"]
    if sketch.opset < 11:
        return sketch.case(shape, sketch.node("Pad", ["x"], pads=amounts, mode=mode, value=value), fine=True)
    filled = "" if value is None else sketch.constant(sketch.array(value).reshape([1] if given["list"] else []))
    named = "" if axes is None else sketch.integers(axes, np.int32 if sketch.random.random() < 0.1 else np.int64)
    return sketch.case(shape, sketch.node("Pad", ["x", sketch.integers(amounts), filled, named], mode=mode), fine=True)


def _amount(sketch: Sketch, n: int, sign: str) -> int:
    least = {"positive": 0, "negative": -(n // 2), "mixed": -(n // 2)}[sign]
    most = {"positive": n - 1, "negative": 0, "mixed": n - 1}[sign]
    return int(sketch.random.integers(least, most + 1))


def split(sketch: Sketch, given: Settings) -> Case | None:
    """One part of a split, or all of them in another order."""
    rank, count, form = given["rank"], given["count"], given["form"]
    axis = int(sketch.random.integers(rank))
    shape = list(sketch.sizes(rank, 1, 3))
    sizes = [int(n) for n in sketch.random.integers(0 if form == "sizes" else 1, 4, count)]
    sizes[0] = max(sizes[0], 1)
    if form == "even":
        sizes = [sizes[0]] * count
    shape[axis] = sum(sizes)
    named = axis - rank if given["negative"] else axis
    if form == "number" and sketch.opset >= 18:
        shape[axis] = int(sketch.random.integers(count, 8))
        output = sketch.node("Split", ["x"], count, axis=named, num_outputs=count)
    elif form == "even" and sketch.opset < 18:
        output = sketch.node("Split", ["x"], count, axis=named)
    elif sketch.opset < 13:
        output = sketch.node("Split", ["x"], count, axis=named, split=sizes)
    else:
        output = sketch.node("Split", ["x", sketch.integers(sizes)], count, axis=named)
    parts = list(sketch.nodes[-1].output)
    if given["taken"] == "all":
        output = sketch.node("Concat", parts[::-1], axis=axis)
    elif given["taken"] == "first":
        output = parts[0]
    return sketch.case(shape, output, fine=True)


def concat(sketch: Sketch, given: Settings) -> Case:
    rank = given["rank"]
    axis = int(sketch.random.integers(rank))
    shape = list(sketch.sizes(rank, 1, 3))
    inputs = []
    for kind in given["operands"]:
        if kind == "constant":
            size = [*shape[:axis], int(sketch.random.integers(1, 3)), *shape[axis + 1 :]]
            inputs.append(sketch.constant(sketch.numbers(size)))
        elif kind == "empty":
            inputs.append(sketch.constant(sketch.numbers([*shape[:axis], 0, *shape[axis + 1 :]])))
        else:
            inputs.append("x" if kind == "x" else sketch.node("Relu", ["x"]))
    return sketch.case(shape, sketch.node("Concat", inputs, axis=axis - rank if given["negative"] else axis), fine=True)


FAMILIES = (
    Family(
        "slice",
        one_axis,
        {
            "start": ENDS,
            "end": ENDS,
            "step": (None, 1, 2, 3, -1, -2, -3),
            "axes": ("left out", "positive", "negative"),
            "rank": (1, 2, 3),
            "short": (False, False, True),
        },
        600,
    ),
    Family(
        "slice_many",
        many_axes,
        {"rank": range(1, 6), "steps": (False, True, True), "repeated": (False,) * 4 + (True,), "short": (False, True)},
        250,
    ),
    Family(
        "slice_twice", twice, {"rank": (1, 2, 3), "first": (2, 4, 9, -1, LEAST), "second": (1, 3, -9, -1, MOST)}, 80
    ),
    Family(
        "pad",
        pad,
        {
            "rank": range(1, 6),
            "mode": (None, "constant", "reflect", "edge", "wrap"),
            "axes": ("left out", "positive", "negative"),
            "sign": ("positive", "positive", "mixed", "negative"),
            "value": (None, 1.5, -2.0),
            "list": (False, True),
        },
        300,
    ),
    Family(
        "split",
        split,
        {
            "rank": range(1, 6),
            "count": (1, 2, 3, 4),
            "form": ("even", "sizes", "number"),
            "negative": (False, True),
            "taken": ("first", "last", "all"),
        },
        200,
    ),
    Family(
        "concat",
        concat,
        {
            "rank": range(1, 6),
            "operands": (("x",), ("x", "x"), ("constant", "x"), ("x", "relu", "constant"), ("x", "empty", "constant")),
            "negative": (False, True),
        },
        120,
    ),
)
