"""Sums, means, largest and smallest entries along axes."""

from __future__ import annotations

from operator_grid.case import Case, Sketch
from operator_grid.family import Family, Settings


def reduced(sketch: Sketch, given: Settings) -> Case | None:
    """Axes as an attribute or, from opset 13 (ReduceSum) or 18 (the others) on, as an input."""
    op, rank = given["op"], given["rank"]
    shape = sketch.sizes(rank, 1, 4)
    axes = _axes(sketch, given, rank)
    settings = {"keepdims": given["keepdims"]}
    inputs = ["x"]
    if sketch.opset >= (13 if op == "ReduceSum" else 18):
        settings["noop_with_empty_axes"] = given["noop"]
        if axes is not None:
            inputs.append(sketch.integers(axes))
    elif axes is not None:
        if not axes:
            return None
        settings["axes"] = axes
    source = sketch.node(op, inputs, **settings)
    return sketch.case(shape, source, fine=True, rounded=op == "ReduceMean")


def _axes(sketch: Sketch, given: Settings, rank: int) -> list[int] | None:
    if given["axes"] == "left out":
        return None
    if given["axes"] == "empty" or not rank:
        return []
    count = rank if given["axes"] == "all" else int(sketch.random.integers(1, rank + 1))
    chosen = [int(axis) for axis in sketch.random.permutation(rank)[:count]]
    return [axis - rank if given["negative"] and sketch.random.random() < 0.7 else axis for axis in chosen]


def after_relu(sketch: Sketch, given: Settings) -> Case | None:
    """Reductions of what is known not to be negative, and of the negation of it."""
    shape = sketch.sizes(given["rank"], 1, 3)
    source = sketch.node("Relu", ["x"])
    if given["negated"]:
        source = sketch.node("Neg", [source])
    output = sketch.node(given["op"], [source], keepdims=given["keepdims"])
    output = sketch.node("Relu", [output]) if given["relu"] else output
    return sketch.case(shape, output, fine=True, rounded=given["op"] == "ReduceMean")


def global_pool(sketch: Sketch, given: Settings) -> Case:
    shape = (*sketch.sizes(2, 1, 3), *sketch.sizes(given["axes"], 1, 4))
    return sketch.case(shape, sketch.node(given["op"], ["x"]), fine=True, rounded=given["op"] == "GlobalAveragePool")


OPS = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin")

FAMILIES = (
    Family(
        "reduce",
        reduced,
        {
            "op": OPS,
            "rank": range(6),
            "axes": ("left out", "empty", "some", "some", "some", "all"),
            "negative": (False, True),
            "keepdims": (None, 0, 1),
            "noop": (None, 0, 1),
        },
        350,
    ),
    Family(
        "reduce_relu",
        after_relu,
        {"op": OPS, "rank": range(1, 5), "negated": (False, True), "keepdims": (None, 0), "relu": (False, True)},
        100,
    ),
    Family("global_pool", global_pool, {"op": ("GlobalAveragePool", "GlobalMaxPool"), "axes": (1, 2, 3)}, 100),
)
