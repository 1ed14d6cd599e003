"""The lowered network against the original one: a disagreement ends the run."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from verifier.errors import InputError, NetworkMismatch
from verifier.network.network import Network

Array = np.ndarray[Any, np.dtype[Any]]

TOLERANCE = 1e-4
"""Largest accepted max|a - b| / (1 + max|b|).  Relative: outputs of 1e4 carry float32 errors of 1e-3."""


@runtime_checkable
class Model(Protocol):
    """What `OnnxModel` and `ModuleModel` have in common (both also know their `output_shape`)."""

    sha256: str

    @property
    def input_shape(self) -> tuple[int, ...]: ...

    def run(self, x: Array) -> Array: ...

    def network(self) -> Network: ...


def sample_box(lower: Array, upper: Array, seed: int, count: int) -> Array:
    """Points of a box: both ends, then in turn a random corner and a random inner point; float32."""
    generator = np.random.default_rng(seed)
    low, high = np.asarray(lower, dtype=np.float64), np.asarray(upper, dtype=np.float64)
    points = [low, high]
    while len(points) < count:
        mix = generator.random(low.shape)
        points.append(low + (high - low) * (mix if len(points) % 2 else np.round(mix)))
    return np.stack(points[: max(count, 1)]).astype(np.float32)


def check_against(model: Model, network: Network, lower: Array, upper: Array, seed: int = 0, count: int = 8) -> float:
    """Compare `network` with `model.run` at `count` points of the box; returns the largest relative
    difference.

    Raises NetworkMismatch if they differ by more than TOLERANCE, and InputError if the model's own outputs
    are not finite there or the sizes do not match.
    """
    if np.shape(lower) != (network.n_in,) or np.shape(upper) != (network.n_in,):
        raise InputError(f"the network takes {network.n_in} inputs, but the box has {np.size(lower)}")
    points = sample_box(lower, upper, seed, count)
    expected = np.asarray(model.run(points), dtype=np.float64)
    if not np.isfinite(expected).all():
        raise InputError("the network's outputs are not finite inside of the input box")
    if expected.shape[-1] != network.n_out:
        raise NetworkMismatch(f"the lowered network has {network.n_out} outputs, the original {expected.shape[-1]}")
    dtype = network.output.bias.dtype
    found = network.forward(torch.from_numpy(points).to(dtype)).to(torch.float64).cpu().numpy()
    worst = np.abs(found - expected).max(axis=1, initial=0.0) / (1.0 + np.abs(expected).max(axis=1, initial=0.0))
    if not worst.max(initial=0.0) <= TOLERANCE:
        i = int(np.argmax(np.where(np.isnan(worst), np.inf, worst)))
        raise NetworkMismatch(
            f"the lowered network disagrees with the original by {worst[i]:.3g} "
            f"(relative, {TOLERANCE:g} allowed): "
            f"{_few(found[i])} against {_few(expected[i])}"
        )
    return float(worst.max(initial=0.0))


def _few(values: Array) -> str:
    shown = ", ".join(f"{v:.6g}" for v in values[:4])
    return f"[{shown}{', ...' if len(values) > 4 else ''}]"
