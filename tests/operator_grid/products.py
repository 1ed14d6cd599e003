"""Products with constants: Gemm, MatMul, BatchNormalization."""

from __future__ import annotations

from operator_grid.case import Case, Sketch
from operator_grid.family import Family, Settings

FACTORS = (None, 1.0, 0.5, -2.0, 0.0, 0.3)


def gemm(sketch: Sketch, given: Settings) -> Case | None:
    """The constant is the second factor, or the first."""
    m, k, n = sketch.sizes(3, 1, 4)
    turned = {"transA": given["transA"], "transB": given["transB"]}
    first = (k, m) if turned["transA"] else (m, k)
    second = (n, k) if turned["transB"] else (k, n)
    addend = {"none": None, "empty": "", "full": (m, n), "row": (1, n), "column": (m, 1), "list": (n,), "one": (1,)}
    addend |= {"scalar": (), "single": (1, 1)}
    size = addend[given["addend"]]
    if size is None and sketch.opset < 11:
        return None
    if given["constant"] == "second":
        shape, inputs = first, ["x", sketch.constant(sketch.numbers(second))]
    else:
        shape, inputs = second, [sketch.constant(sketch.numbers(first)), "x"]
    if isinstance(size, tuple):
        inputs.append(sketch.constant(sketch.numbers(size)))
    elif size == "":
        inputs.append("")
    rounded = 0.3 in {given["alpha"], given["beta"]}
    output = sketch.node("Gemm", inputs, alpha=given["alpha"], beta=given["beta"], **turned)
    return sketch.case(shape, output, rounded=rounded)


def gemm_of_activations(sketch: Sketch, given: Settings) -> Case:
    """The addend, too, depends on the input; both factors do not."""
    m, n = sketch.sizes(2, 1, 3)
    weight = sketch.constant(sketch.numbers((n, n)))
    addend = sketch.node("Relu", ["x"])
    inputs = ["x", weight, addend] if given["factor"] else [sketch.constant(sketch.numbers((m, n))), weight, addend]
    return sketch.case((m, n), sketch.node("Gemm", inputs, alpha=given["alpha"], beta=given["beta"]))


def matmul(sketch: Sketch, given: Settings) -> Case | None:
    """All ranks on both sides, leading axes broadcast in both directions."""
    left, right = given["left"], given["right"]
    k = int(sketch.random.integers(1, 4))
    outer = sketch.sizes(3, 1, 3)
    shapes = []
    for rank, first in ((left, True), (right, False)):
        if rank == 1:
            shapes.append((k,))
            continue
        other = int(sketch.random.integers(1, 4))
        lead = [sketch.pick((1, n, n)) for n in outer[len(outer) - (rank - 2) :]] if rank > 2 else []
        shapes.append((*lead, other, k) if first else (*lead, k, other))
    if given["constant"] == "second":
        shape, inputs = shapes[0], ["x", sketch.constant(sketch.numbers(shapes[1]))]
    else:
        shape, inputs = shapes[1], [sketch.constant(sketch.numbers(shapes[0])), "x"]
    output = sketch.node("MatMul", inputs)
    if given["after"]:  # a shape that is wrong without changing the order of entries shows here
        output = sketch.node("Transpose", [output])
    return sketch.case(shape, output)


def batch_norm(sketch: Sketch, given: Settings) -> Case | None:
    channels = int(sketch.random.integers(1, 4))
    rank = given["rank"]
    rest = sketch.sizes(max(rank - 2, 0))
    shape = (int(sketch.random.integers(1, 3)), channels, *rest)
    epsilon = given["epsilon"]
    variance = sketch.array(4.0 ** sketch.random.integers(-1, 3, channels))
    rounded = True
    if epsilon == 2.0**-4:
        # The sum with the variance is a power of four: every step is exact.
        variance, rounded = sketch.array(variance - epsilon), False
    parts = [
        sketch.powers((channels,)),
        sketch.numbers((channels,), False),
        sketch.numbers((channels,), False),
        variance,
    ]
    attributes = {"epsilon": epsilon, "momentum": given["momentum"]}
    if sketch.opset < 9:
        attributes["spatial"] = given["flag"]
    elif sketch.opset >= 14:
        attributes["training_mode"] = given["flag"]
    output = sketch.node("BatchNormalization", ["x", *(sketch.constant(part) for part in parts)], **attributes)
    return sketch.case(shape, output, rounded=rounded)


def alike(sketch: Sketch, given: Settings) -> Case:
    """The same weights read by several nodes."""
    n = given["n"]
    weight = sketch.constant(sketch.numbers((n, n), False))
    hidden = sketch.node(given["hidden"], [sketch.node("MatMul", ["x", weight])])
    output = sketch.node("Add", [sketch.node("MatMul", [hidden, weight]), sketch.node("MatMul", [weight, "x"])])
    return sketch.case((n, n), output)


FAMILIES = (
    Family(
        "gemm",
        gemm,
        {
            "constant": ("second", "first"),
            "transA": (None, 0, 1),
            "transB": (None, 0, 1),
            "alpha": FACTORS,
            "beta": FACTORS,
            "addend": ("none", "empty", "full", "row", "column", "list", "one", "scalar", "single"),
        },
        350,
    ),
    Family(
        "gemm_activations",
        gemm_of_activations,
        {"alpha": FACTORS[:-1], "beta": FACTORS[:-1], "factor": (True, False)},
        80,
    ),
    Family(
        "matmul",
        matmul,
        {"left": range(1, 6), "right": range(1, 6), "constant": ("second", "first"), "after": (False, True)},
        250,
    ),
    Family(
        "batch_norm",
        batch_norm,
        {"rank": range(2, 6), "epsilon": (None, 2.0**-4, 0.0, 1e-3), "momentum": (None, 0.5), "flag": (None, 0, 1)},
        120,
    ),
    Family("alike", alike, {"n": (1, 2, 3), "hidden": ("Relu", "Abs", "Identity")}, 60),
)
