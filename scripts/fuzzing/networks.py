"""Random networks of all supported operators, with few kinks."""

from __future__ import annotations

import random

import numpy as np
import onnx

from fuzzing.builder import NAMES, OPSETS, Builder, Weights
from fuzzing.steps import FLAT, dense, kink
from fuzzing.window_steps import ANY, WIDE, to_vector

INPUTS = ((1, 1), (1, 2), (1, 2), (1, 3), (1, 3), (1, 4), (1, 5), (1, 6), (1, 1, 2, 2), (1, 1, 3), (1, 1, 2, 3))


def random_network(rng: random.Random, style: str) -> onnx.ModelProto:
    """A network of 1 to 6 inputs, 1 to 3 outputs and at most a dozen kinks.

    `style` is that of its weights (`builder.STYLES`); double and huge weights need a file of float64.
    """
    wide = style in {"double", "huge"} or rng.random() < 0.1
    dtype = np.float64 if wide else np.float32
    b = Builder(rng, Weights(rng, style), dtype, rng.choice(OPSETS))
    if rng.random() < 0.3:
        b.pattern = rng.choice(NAMES)
    source, shape = rng.choice(("x",) * 9 + ("X_0", b.pattern.format(0), "strata:1")), rng.choice(INPUTS)
    b.value, b.shape, b.kinks, b.taken = source, shape, rng.choice((4, 8, 10, 12, 12, 14)), frozenset({source})
    if rng.random() < 0.25:
        _plain(b)
    for _ in range(rng.randint(3, 5) if not b.nodes else rng.randint(0, 1)):
        for _ in range(rng.randint(1, 3) if len(b.shape) > 2 else 1):
            steps = (*(FLAT if len(b.shape) == 2 else WIDE), *ANY)
            rng.choice(steps)(b)
        if rng.random() < 0.6:
            dense(b)
            kink(b) or kink(b)
    if len(b.shape) > 2:
        to_vector(b)
    if b.shape[1] > 3 or rng.random() < 0.7 or not b.nodes:
        dense(b)
    return b.model(source, ("N" if rng.random() < 0.1 else 1, *shape[1:]))


def _plain(b: Builder) -> None:
    """Affine layers and ReLUs in turn, as most networks have them."""
    if len(b.shape) > 2:
        to_vector(b)
    for _ in range(b.rng.randint(1, 3)):
        width = b.rng.randint(2, 6)
        if width > b.kinks:
            break
        inputs = [b.value, b.floats((width, b.shape[1])), b.bias((width,))]
        b.apply("Gemm", inputs, (1, width), transB=1)
        b.apply("Relu", [b.value], b.shape)
        b.kinks -= width
