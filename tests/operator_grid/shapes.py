"""Operators that rename, permute, repeat or pick entries: no arithmetic at all."""

from __future__ import annotations

import numpy as np
from operator_grid.case import Case, Sketch
from operator_grid.entrywise import partner
from operator_grid.family import Family, Settings


def reshape(sketch: Sketch, given: Settings) -> Case:
    shape = sketch.sizes(given["rank"], 1, 4)
    target = _shape_of_size(sketch, int(np.prod(shape)), given["new rank"])
    allowzero = given["allowzero"] if sketch.opset >= 14 else None
    if "0" in given["special"] and not allowzero:
        same = [i for i, n in enumerate(target) if i < len(shape) and shape[i] == n]
        for i in same[:2]:
            target[i] = 0
    if "-1" in given["special"] and target:
        target[int(sketch.random.integers(len(target)))] = -1
    output = sketch.node("Reshape", ["x", sketch.integers(target)], allowzero=allowzero)
    return sketch.case(shape, output, fine=True)


def _shape_of_size(sketch: Sketch, size: int, rank: int) -> list[int]:
    """A shape of `rank` axes with `size` entries; of rank 1 if there is none."""
    if rank == 0 and size > 1:
        return [size]
    found = [1] * rank
    for prime in (2, 3):
        while size % prime == 0:
            size //= prime
            found[int(sketch.random.integers(rank))] *= prime
    return found


def flatten(sketch: Sketch, given: Settings) -> Case | None:
    rank, axis = given["rank"], given["axis"]
    if (axis is not None and not -rank <= axis <= rank) or (rank == 0 and axis is None):
        return None
    return sketch.case(sketch.sizes(rank), sketch.node("Flatten", ["x"], axis=axis), fine=True)


def squeeze(sketch: Sketch, given: Settings) -> Case | None:
    rank = given["rank"]
    shape = list(sketch.sizes(rank, 1, 3))
    chosen = sorted(int(a) for a in sketch.random.permutation(rank)[: given["count"]])
    for axis in chosen:
        shape[axis] = 1
    axes = [axis - rank if given["negative"] else axis for axis in chosen]
    if given["reversed"]:
        axes = axes[::-1]
    if not axes:
        named = sketch.integers([]) if given["reversed"] and sketch.opset >= 13 else ""
        return sketch.case(shape, sketch.node("Squeeze", ["x", named]), fine=True)
    if sketch.opset < 13:
        return sketch.case(shape, sketch.node("Squeeze", ["x"], axes=axes), fine=True)
    return sketch.case(shape, sketch.node("Squeeze", ["x", sketch.integers(axes)]), fine=True)


def unsqueeze(sketch: Sketch, given: Settings) -> Case | None:
    rank = given["rank"]
    full = rank + given["count"]
    axes = [int(a) for a in sketch.random.permutation(full)[: given["count"]]]
    if not given["shuffled"]:
        axes.sort()
    if given["negative"]:
        axes = [axis - full for axis in axes]
    shape = sketch.sizes(rank)
    if sketch.opset < 13:
        return sketch.case(shape, sketch.node("Unsqueeze", ["x"], axes=axes), fine=True)
    return sketch.case(shape, sketch.node("Unsqueeze", ["x", sketch.integers(axes)]), fine=True)


def transpose(sketch: Sketch, given: Settings) -> Case:
    rank = given["rank"]
    perm = None if given["default"] or not rank else [int(a) for a in sketch.random.permutation(rank)]
    return sketch.case(sketch.sizes(rank), sketch.node("Transpose", ["x"], perm=perm), fine=True)


def expand(sketch: Sketch, given: Settings) -> Case:
    """In both directions: an axis of the target may be 1 where the input's is larger."""
    shape = sketch.sizes(given["rank"])
    target = partner(sketch, shape, given["new rank"])
    return sketch.case(shape, sketch.node("Expand", ["x", sketch.integers(target)]), fine=True)


def tile(sketch: Sketch, given: Settings) -> Case:
    rank = given["rank"]
    repeats = sketch.sizes(rank, given["least"], 3)
    return sketch.case(sketch.sizes(rank), sketch.node("Tile", ["x", sketch.integers(repeats)]), fine=True)


def gather(sketch: Sketch, given: Settings) -> Case | None:
    rank = given["rank"]
    shape = sketch.sizes(rank, 1, 4)
    axis = int(sketch.random.integers(rank))
    least = 0 if sketch.opset < 11 or not given["negative"] else -shape[axis]
    index = sketch.random.integers(least, shape[axis], sketch.sizes(given["index rank"], 1, 3))
    named = {"default": None, "positive": axis, "negative": axis - rank}[given["axis"]]
    if named is None:
        index = sketch.random.integers(0, shape[0], sketch.sizes(given["index rank"], 1, 3))
    kind = np.int32 if given["short"] else np.int64
    output = sketch.node("Gather", ["x", sketch.integers(index, kind)], axis=named)
    return sketch.case(shape, output, fine=True)


def gather_elements(sketch: Sketch, given: Settings) -> Case:
    rank = given["rank"]
    shape = sketch.sizes(rank, 1, 4)
    axis = int(sketch.random.integers(rank)) if given["axis"] != "default" else 0
    size = [int(sketch.random.integers(1, n + 1)) if given["smaller"] else n for n in shape]
    size[axis] = int(sketch.random.integers(1, 5))
    index = sketch.random.integers(-shape[axis] if given["negative"] else 0, shape[axis], size)
    named = {"default": None, "positive": axis, "negative": axis - rank}[given["axis"]]
    kind = np.int32 if given["short"] else np.int64
    output = sketch.node("GatherElements", ["x", sketch.integers(index, kind)], axis=named)
    return sketch.case(shape, output, fine=True)


def blocks(sketch: Sketch, given: Settings) -> Case:
    """DepthToSpace and SpaceToDepth."""
    b, op = given["blocksize"], given["op"]
    batch, channels, height, width = sketch.sizes(4, 1, 2)
    if op == "SpaceToDepth":
        shape = (batch, channels, height * b, width * b)
        return sketch.case(shape, sketch.node(op, ["x"], blocksize=b), fine=True)
    mode = given["mode"] if sketch.opset >= 11 else None
    shape = (batch, channels * b * b, height, width)
    return sketch.case(shape, sketch.node(op, ["x"], blocksize=b, mode=mode), fine=True)


def _places(sketch: Sketch, shape: tuple[int, ...], depth: int, count: int) -> np.ndarray:
    """`count` different tuples of indices into the first `depth` axes, some counted from the end."""
    head = shape[:depth]
    flat = sketch.random.permutation(int(np.prod(head)))[:count]
    index = np.stack(np.unravel_index(flat, head), axis=-1).astype(np.int64)
    return np.where(sketch.random.random(index.shape) < 0.3, index - np.array(head), index)


def scatter_nd(sketch: Sketch, given: Settings) -> Case | None:
    """Constants or entries of x, put into x or into a constant."""
    rank = given["rank"]
    shape = sketch.sizes(rank, 2, 3)
    depth = int(sketch.random.integers(1, rank + 1))
    index = _places(sketch, shape, depth, int(sketch.random.integers(1, 4)))
    size = (len(index), *shape[depth:])
    if given["twice"] and len(index) > 1:
        index[1] = index[0]
    own = sketch.constant(sketch.numbers(shape, False))
    values = sketch.constant(sketch.numbers(size, False))
    if given["into"] == "constant":
        head = sketch.node("Gather", ["x", sketch.integers([i % shape[0] for i in range(len(index))])], axis=0)
        if depth > 1:
            return None
        output = sketch.node("ScatterND", [own, sketch.constant(index), head])
    else:
        output = sketch.node("ScatterND", ["x", sketch.constant(index), values])
    return sketch.case(shape, output, fine=True)


def scatter_elements(sketch: Sketch, given: Settings) -> Case | None:
    rank = given["rank"]
    shape = sketch.sizes(rank, 2, 3)
    axis = int(sketch.random.integers(rank))
    picked = tuple(n if i != axis else min(2, n) for i, n in enumerate(shape))
    index = np.argsort(sketch.random.random(shape), axis=axis).astype(np.int64)
    index = np.take(index, range(picked[axis]), axis=axis)
    values = sketch.constant(sketch.numbers(picked, False))
    output = sketch.node("ScatterElements", ["x", sketch.constant(index), values], axis=axis - rank * given["negative"])
    return sketch.case(shape, output, fine=True)


def gather_nd(sketch: Sketch, given: Settings) -> Case | None:
    rank = given["rank"]
    shape = sketch.sizes(rank, 2, 3)
    depth = int(sketch.random.integers(1, rank + 1))
    index = _places(sketch, shape, depth, int(sketch.random.integers(1, 4)))
    index = index[None] if given["nested"] else index
    return sketch.case(shape, sketch.node("GatherND", ["x", sketch.constant(index)]), fine=True)


FAMILIES = (
    Family(
        "scatter_nd",
        scatter_nd,
        {"rank": range(1, 5), "into": ("x", "x", "constant"), "twice": (False, False, False, True)},
        80,
        since=11,
    ),
    Family("scatter_elements", scatter_elements, {"rank": range(1, 4), "negative": (0, 1)}, 60, since=11),
    Family("gather_nd", gather_nd, {"rank": range(1, 5), "nested": (False, True)}, 60, since=11),
    Family(
        "reshape",
        reshape,
        {
            "rank": range(6),
            "new rank": range(6),
            "special": ((), ("0",), ("-1",), ("0", "-1")),
            "allowzero": (None, 0, 1),
        },
        200,
    ),
    Family("flatten", flatten, {"rank": range(6), "axis": (None, *range(-5, 6))}, 120, since=7),
    Family(
        "squeeze",
        squeeze,
        {"rank": range(1, 6), "count": (0, 1, 2, 3), "negative": (False, True), "reversed": (False, True)},
        120,
    ),
    Family(
        "unsqueeze",
        unsqueeze,
        {"rank": range(5), "count": (1, 2, 3), "negative": (False, True), "shuffled": (False, True)},
        120,
    ),
    Family("transpose", transpose, {"rank": range(6), "default": (True, False, False, False)}, 120),
    Family("expand", expand, {"rank": range(6), "new rank": range(6)}, 150, since=8),
    Family("tile", tile, {"rank": range(1, 6), "least": (1, 1, 0)}, 80),
    Family(
        "gather",
        gather,
        {
            "rank": range(1, 6),
            "index rank": range(4),
            "axis": ("default", "positive", "negative"),
            "negative": (False, True),
            "short": (False, True),
        },
        150,
    ),
    Family(
        "gather_elements",
        gather_elements,
        {
            "rank": range(1, 6),
            "axis": ("default", "positive", "negative"),
            "negative": (False, True),
            "smaller": (False, True),
            "short": (False, True),
        },
        120,
        since=11,
    ),
    Family(
        "blocks",
        blocks,
        {"op": ("DepthToSpace", "DepthToSpace", "SpaceToDepth"), "blocksize": (1, 2, 3), "mode": (None, "DCR", "CRD")},
        100,
    ),
)
