"""Operators that slide a window: convolutions and pools, over one to three axes."""

from __future__ import annotations

from typing import Any

from operator_grid.case import Case, Sketch
from operator_grid.family import MOSTLY_FLOAT, Family, Settings

AVERAGED = 216.0  # every number of entries of a small window divides it


def padding(sketch: Sketch, how: str, kernel: tuple[int, ...], most: int = 9) -> dict[str, Any]:
    """`auto_pad` or `pads`, none of them at least as large as the kernel."""
    if how in {"SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET"}:
        return {"auto_pad": how}
    if how == "left out":
        return {}
    before = [int(sketch.random.integers(0, min(k, most + 1))) for k in kernel]
    after = before if how == "symmetric" else [int(sketch.random.integers(0, min(k, most + 1))) for k in kernel]
    return {"pads": [*before, *after]}


def common(sketch: Sketch, given: Settings, kernel: tuple[int, ...]) -> dict[str, Any]:
    """Strides and dilations, and the kernel's shape, each of them given or left out."""
    axes = len(kernel)
    found: dict[str, Any] = {}
    if given["strides"] is not None:
        found["strides"] = list(sketch.sizes(axes, 1, given["strides"]))
    if given.get("dilations") is not None:
        found["dilations"] = list(sketch.sizes(axes, 1, given["dilations"]))
    return found


def conv(sketch: Sketch, given: Settings) -> Case:
    axes, group = given["axes"], given["group"] or 1
    kernel = sketch.sizes(axes, 1, 3)
    batch, inner, outer = sketch.sizes(3, 1, 2)
    spatial = sketch.sizes(axes, *((4, 7) if axes < 3 else (3, 5)))
    settings = {**common(sketch, given, kernel), **padding(sketch, given["padding"], kernel), "group": given["group"]}
    if given["kernel_shape"]:
        settings["kernel_shape"] = list(kernel)
    inputs = ["x", sketch.constant(sketch.numbers((outer * group, inner, *kernel)))]
    if given["bias"]:
        inputs.append(sketch.constant(sketch.numbers((outer * group,))))
    return sketch.case((batch, inner * group, *spatial), sketch.node("Conv", inputs, **settings))


def conv_transpose(sketch: Sketch, given: Settings) -> Case:
    axes, group = given["axes"], given["group"] or 1
    kernel = sketch.sizes(axes, 1, 3)
    batch, inner, outer = sketch.sizes(3, 1, 2)
    spatial = sketch.sizes(axes, 2, 4 if axes < 3 else 3)
    settings = {
        **common(sketch, given, kernel),
        **padding(sketch, given["padding"], kernel, 1),
        "group": given["group"],
    }
    strides, dilations = settings.get("strides", [1] * axes), settings.get("dilations", [1] * axes)
    extra = [int(sketch.random.integers(0, max(s, d))) for s, d in zip(strides, dilations, strict=True)]
    if given["output_padding"]:
        settings["output_padding"] = extra
    if given["output_shape"]:
        settings["output_shape"] = [
            max((n - 1) * s + d * (k - 1) + 1 + int(sketch.random.integers(-2, 2)), 1)
            for n, s, d, k in zip(spatial, strides, dilations, kernel, strict=True)
        ]
    if given["kernel_shape"]:
        settings["kernel_shape"] = list(kernel)
    inputs = ["x", sketch.constant(sketch.numbers((inner * group, outer, *kernel)))]
    if given["bias"]:
        inputs.append(sketch.constant(sketch.numbers((outer * group,))))
    return sketch.case((batch, inner * group, *spatial), sketch.node("ConvTranspose", inputs, **settings))


def pool(sketch: Sketch, given: Settings) -> Case:
    op, axes = given["op"], given["axes"]
    kernel = sketch.sizes(axes, 1, 3)
    batch, channels = sketch.sizes(2, 1, 2)
    spatial = sketch.sizes(axes, *((4, 7) if axes < 3 else (3, 5)))
    settings = {
        "kernel_shape": list(kernel),
        **common(sketch, given, kernel),
        **padding(sketch, given["padding"], kernel),
    }
    if sketch.opset < 10 or (op == "AveragePool" and sketch.opset < 19):
        settings.pop("dilations", None)
    if sketch.opset >= 10:
        settings["ceil_mode"] = given["ceil_mode"]
    if op == "AveragePool":
        settings["count_include_pad"] = given["flag"]
    elif sketch.opset >= 8:
        settings["storage_order"] = given["flag"]
    average = op == "AveragePool"
    outputs = 2 if op == "MaxPool" and sketch.opset >= 8 and given["positions"] else 1
    sketch.node(op, ["x"], outputs, **settings)
    output = sketch.nodes[-1].output[0]
    return sketch.case(
        (batch, channels, *spatial), output, rounded=average, unit=AVERAGED if average else 1.0, fine=not average
    )


PADDINGS = ("left out", "symmetric", "asymmetric", "asymmetric", "SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")

FAMILIES = (
    Family(
        "conv",
        conv,
        {
            "axes": (1, 2, 2, 3),
            "padding": PADDINGS,
            "strides": (None, 1, 3),
            "dilations": (None, 1, 2),
            "group": (None, 1, 2, 3),
            "bias": (False, True),
            "kernel_shape": (False, True),
        },
        350,
        types=MOSTLY_FLOAT,
    ),
    Family(
        "conv_transpose",
        conv_transpose,
        {
            "axes": (1, 2, 2, 3),
            "padding": PADDINGS,
            "strides": (None, 1, 3),
            "dilations": (None, 1, 2),
            "group": (None, 1, 2),
            "bias": (False, True),
            "kernel_shape": (False, True),
            "output_padding": (False, False, True),
            "output_shape": (False, False, True),
        },
        350,
        types=MOSTLY_FLOAT,
    ),
    Family(
        "pool",
        pool,
        {
            "op": ("MaxPool", "AveragePool"),
            "axes": (1, 2, 2, 3),
            "padding": PADDINGS,
            "strides": (None, 1, 3),
            "dilations": (None, None, 2),
            "ceil_mode": (None, 0, 1),
            "flag": (None, 0, 1),
            "positions": (False, False, True),
        },
        400,
        types=MOSTLY_FLOAT,
    ),
)
