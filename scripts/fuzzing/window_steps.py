"""Steps on images [1, C, H, W] and sequences [1, C, L], and the ways there and back."""

from __future__ import annotations

from math import prod

import numpy as np

from fuzzing.builder import Builder
from fuzzing.steps import (
    MAX_SIZE,
    Step,
    copied,
    entrywise,
    joined,
    kink,
    padded,
    picked,
    reduced,
    residual,
    sliced,
    split,
)

IMAGES: dict[int, tuple[tuple[int, ...], ...]] = {
    2: ((2, 1), (1, 1, 2)),
    3: ((1, 3),),
    4: ((1, 2, 2), (1, 2, 2), (4, 1, 1), (2, 2)),
    6: ((1, 2, 3), (2, 3)),
    8: ((2, 2, 2), (4, 1, 2)),
    9: ((1, 3, 3),),
    12: ((3, 2, 2),),
    16: ((1, 4, 4),),
}


def to_image(b: Builder) -> bool:
    """A vector as an image or a sequence."""
    if len(b.shape) != 2 or b.shape[1] not in IMAGES:
        return False
    shape = (1, *b.rng.choice(IMAGES[b.shape[1]]))
    b.apply("Reshape", [b.value, b.integers([b.rng.choice((1, -1)), *shape[1:]])], shape)
    return True


def to_vector(b: Builder) -> bool:
    """Flatten, Reshape, or Transpose and Reshape."""
    if len(b.shape) == 2:
        return False
    size = prod(b.shape)
    if b.rng.random() < 0.3:
        order = [0, *b.rng.sample(range(1, len(b.shape)), len(b.shape) - 1)]
        b.apply("Transpose", [b.value], [b.shape[a] for a in order], perm=order)
    if b.rng.random() < 0.5:
        b.apply("Flatten", [b.value], (1, size), axis=1)
    else:
        b.apply("Reshape", [b.value, b.integers(b.rng.choice(([1, -1], [0, size])))], (1, size))
    return True


def axes_moved(b: Builder) -> bool:
    """Unsqueeze and Squeeze, as a pair."""
    wide = (*b.shape[:1], 1, *b.shape[1:])
    for op_type, shape in (("Unsqueeze", wide), ("Squeeze", b.shape)):
        if b.opset >= 13:
            b.apply(op_type, [b.value, b.integers([1])], shape)
        else:
            b.apply(op_type, [b.value], shape, axes=[1])
    return True


def _window(b: Builder) -> tuple[list[int], list[int], list[int], list[int]] | None:
    """Kernel, strides, pads and the output's size; None if there is none."""
    spatial = b.shape[2:]
    kernel = [b.rng.randint(1, min(n, 2)) for n in spatial]
    strides = [b.rng.randint(1, 2) for _ in spatial]
    pads = [b.rng.choice((0, 0, k - 1)) for k in kernel * 2]
    rank = len(spatial)
    out = [(n + pads[i] + pads[i + rank] - kernel[i]) // strides[i] + 1 for i, n in enumerate(spatial)]
    return None if min(out) < 1 or prod(out) > MAX_SIZE else (kernel, strides, pads, out)


def convolution(b: Builder) -> bool:
    """Conv, grouped where the channels allow it, or ConvTranspose."""
    window = _window(b)
    if len(b.shape) < 3 or window is None or b.dtype != np.float32:
        return False
    kernel, strides, pads, out = window
    channels = b.rng.randint(1, 2)
    if b.rng.random() < 0.25:
        return _transposed(b, kernel, strides, channels)
    group = 2 if b.shape[1] == 2 and channels == 2 and b.rng.random() < 0.5 else 1
    if channels * prod(out) > MAX_SIZE:
        return False
    inputs = [b.value, b.floats((channels, b.shape[1] // group, *kernel))]
    inputs += [b.bias((channels,))] * (b.rng.random() < 0.7)
    b.apply("Conv", inputs, (1, channels, *out), kernel_shape=kernel, strides=strides, pads=pads, group=group)
    return True


def _transposed(b: Builder, kernel: list[int], strides: list[int], channels: int) -> bool:
    out = [s * (n - 1) + k for s, n, k in zip(strides, b.shape[2:], kernel, strict=True)]
    if channels * prod(out) > MAX_SIZE:
        return False
    inputs = [b.value, b.floats((b.shape[1], channels, *kernel)), b.bias((channels,))]
    b.apply("ConvTranspose", inputs, (1, channels, *out), kernel_shape=kernel, strides=strides)
    return True


def pool(b: Builder) -> bool:
    """Average and maximum, of windows or of everything."""
    window = _window(b)
    if len(b.shape) < 3 or window is None or b.dtype != np.float32:
        return False
    kernel, strides, pads, out = window
    op_type = b.rng.choice(("AveragePool", "MaxPool", "GlobalAveragePool", "GlobalMaxPool"))
    if op_type.startswith("Global"):
        out, cost = [1] * len(out), b.shape[1] * (prod(b.shape[2:]) - 1)
    else:
        cost = b.shape[1] * prod(out) * (prod(kernel) - 1)
    if "Max" in op_type:
        if cost > b.kinks:
            return False
        b.kinks -= cost
    options: dict[str, object] = {}
    if not op_type.startswith("Global"):
        options = {"kernel_shape": kernel, "strides": strides, "pads": pads}
    if op_type == "AveragePool" and b.rng.random() < 0.5:
        options["count_include_pad"] = 1
    b.apply(op_type, [b.value], (*b.shape[:2], *out), **options)
    return True


def normalised(b: Builder) -> bool:
    """BatchNormalization whose deviations are rational numbers."""
    if b.dtype != np.float32 and b.opset < 14:
        return False
    n = b.shape[1]
    epsilon, variances = b.rng.choice(((0.0, (1.0, 4.0, 0.25)), (0.25, (0.0, 2.0, 3.75))))
    variance = np.array([b.rng.choice(variances) for _ in range(n)], dtype=b.dtype)
    inputs = [b.value, b.floats((n,)), b.floats((n,)), b.floats((n,)), b.constant(variance)]
    b.apply("BatchNormalization", inputs, b.shape, epsilon=epsilon)
    return True


def depth(b: Builder) -> bool:
    """SpaceToDepth and DepthToSpace."""
    if len(b.shape) != 4 or b.dtype != np.float32:
        return False
    _, c, h, w = b.shape
    if h % 2 == 0 and w % 2 == 0:
        b.apply("SpaceToDepth", [b.value], (1, 4 * c, h // 2, w // 2), blocksize=2)
    elif c % 4 == 0 and b.opset >= 11:
        b.apply("DepthToSpace", [b.value], (1, c // 4, 2 * h, 2 * w), blocksize=2, mode=b.rng.choice(("DCR", "CRD")))
    else:
        return False
    return True


WIDE: tuple[Step, ...] = (convolution, convolution, pool, pool, normalised, depth, entrywise, kink, kink, residual,
                          joined, split, sliced, picked, padded, reduced, copied, to_vector, to_vector)  # fmt: skip
ANY: tuple[Step, ...] = (to_image, to_image, to_image, to_image, axes_moved, normalised)
