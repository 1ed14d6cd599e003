"""The lowered network against the original one: a disagreement ends the run.

Every output is compared by its own scale, in many boxes of the property and beyond them.  What counts as a
disagreement is measured, not guessed: the network is run in the file's precision too, and what that differs from
float64 is the rounding noise of each output.

Half precision leaves so few digits that noise would hide mistakes.  A file that computes in it is run once more with
float32 in its place, where the lowered network must agree as that of any float32 file; and with the file itself, up to
the noise that errors of a unit of float16 make in every layer.
"""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from verifier.errors import InputError, NetworkMismatch, NotFinite
from verifier.functions import Function
from verifier.network.magnitudes import radii
from verifier.network.network import Network
from verifier.operators.base import gamma
from verifier.shapes import Float64, Tensor

Array = np.ndarray[Any, np.dtype[Any]]
Boxes = tuple[Array, Array]

RELATIVE = 2.0**10
"""Units of the file's precision by which an output may differ from its own size."""

NOISE = 100.0
"""Multiples of an output's rounding noise, as seen on a few points, that are still noise."""

HALF_RELATIVE, HALF_NOISE = 4.0, 8.0
"""The same for files that compute in half precision."""

SHAKEN = 3
"""Runs with errors of random signs by which the noise of smooth functions and steps is seen."""

MOST_BOXES = 24
WORK = 2.0e9  # multiplications that the comparison may take, as long as there are a dozen points
HUGE = 4.0e9  # of one point, from which on three points have to do
TOGETHER = 1 << 25  # numbers of the widest layer that are computed together

READ = 10
"""Multiplications in which the original reads one of its numbers from memory, zeros that we leave out among them."""


@runtime_checkable
class Judged(Protocol):
    """What is asked of a model here; one that knows how many `numbers` it holds is run less often if these are many.

    One that computes in another precision than that of its inputs says so by `rounding`, and one that computes in half
    precision is the same network in float32 by `widened`.
    """

    dtype: np.dtype[Any]

    def run(self, x: Array) -> Array: ...

    def network(self, far_bounds: bool = False) -> Network: ...


def faithful_network(model: Judged, boxes: Boxes) -> Network:
    """The lowered network, which has the bounds of all Clips that activations can reach from these boxes."""
    network = model.network()
    if network.within == np.inf or network.n_in != boxes[0].shape[1]:
        return network
    radius = torch.from_numpy(np.maximum(np.abs(boxes[0]), np.abs(boxes[1])).max(axis=0, initial=0.0))
    inside = all(bool((size <= network.within).all()) for size in (radius, *radii(network, radius)))
    return network if inside else model.network(far_bounds=True)


def check_against(model: Judged, network: Network, boxes: Boxes, seed: int = 0, count: int = 8) -> float:
    """Compare `network` with `model.run` at points of the boxes [N, n0] and beyond, `count` in a box if there is one.

    Returns the largest difference of an output inside of the boxes, relative to the output's own size there.  Raises
    NetworkMismatch if they differ by more than rounding explains, InputError if the sizes do not match, and NotFinite
    if some outputs of the model itself are not finite in a box and all others agree.
    """
    lower, upper = (np.atleast_2d(np.asarray(side, dtype=np.float64)) for side in boxes)
    if lower.shape[1:] != (network.n_in,) or upper.shape != lower.shape:
        raise InputError(f"the network takes {network.n_in} inputs, but the box has {lower.shape[-1]}")
    generator = np.random.default_rng(seed)
    work = max(network.work, READ * getattr(model, "numbers", 0), 1)
    most = max(12 if work < HUGE else 3, int(WORK / work))
    chosen = _some_boxes(lower, upper, generator, max(1, min(MOST_BOXES, most // 2)))
    each = max(2, min(count, most // len(chosen[0])) if len(chosen[0]) == 1 else min(4, most // len(chosen[0])))
    worst, failed = 0.0, None
    for low, high in zip(*chosen, strict=True):
        points = sample_box(low, high, generator, each)
        try:
            worst = max(worst, _compare(model, network, points, inside=True))
        except NotFinite as error:
            failed = error
    far = 12 if most > 100 else max(1, min(6, most // 2))
    _compare(model, network, _points_beyond(chosen, far, generator), inside=False)
    if failed is not None:
        raise failed
    return worst


def compare(model: Judged, network: Network, points: Array) -> None:
    """Compare both at some points.  Raises NetworkMismatch, and NotFinite if the model's outputs are not finite."""
    _compare(model, network, points, inside=True)


def sample_box(lower: Array, upper: Array, generator: np.random.Generator, count: int) -> Array:
    """Points of a box: both ends, then in turn a random corner and a random inner point."""
    points = [lower, upper]
    while len(points) < count:
        mix = generator.random(lower.shape)
        points.append(lower + (upper - lower) * (mix if len(points) % 2 else np.round(mix)))
    return np.stack(points[: max(count, 1)])


def _some_boxes(lower: Array, upper: Array, generator: np.random.Generator, count: int = MOST_BOXES) -> Boxes:
    """Distinct boxes: all of them, or the widest and some more."""
    if len(lower) == 1:  # what follows takes seconds for images of a hundred thousand numbers
        return lower, upper
    sides = np.unique(np.concatenate([lower, upper], axis=1), axis=0)
    low, high = sides[:, : lower.shape[1]], sides[:, lower.shape[1] :]
    if len(low) <= count:
        return low, high
    widest = np.argsort(-(high - low).sum(axis=1), kind="stable")
    rest = generator.permutation(widest[count // 3 :])
    picked = np.concatenate([widest[: count // 3], rest])[:count]
    return low[picked], high[picked]


def _points_beyond(boxes: Boxes, count: int, generator: np.random.Generator) -> Array:
    """Points around the boxes, at distances from a part to many times of their size and position."""
    pick = generator.integers(len(boxes[0]), size=count)
    low, high = boxes[0][pick], boxes[1][pick]
    spread = (high - low) + 0.1 * np.abs(high + low) + 1e-3
    scale = 10.0 ** generator.uniform(-1.0, 2.0, size=(count, 1))
    return np.asarray((low + high) / 2 + generator.uniform(-1.0, 1.0, size=low.shape) * spread * scale)


def _compare(model: Judged, network: Network, points: Array, inside: bool) -> float:
    """The largest relative difference at these points.

    Those beyond the boxes may overflow.  Of those inside NotFinite is raised, once all that are finite agree.
    """
    with np.errstate(over="ignore"):
        points = points.astype(model.dtype)
    widened: Judged | None = getattr(model, "widened", None)
    if widened is not None:
        _compare(widened, network, points, inside)
    expected = np.asarray(model.run(points), dtype=np.float64)
    if expected.shape[-1] != network.n_out:
        raise NetworkMismatch(f"the lowered network has {network.n_out} outputs, the original {expected.shape[-1]}")
    finite = np.isfinite(expected).all(axis=1) & np.isfinite(points).all(axis=1)
    if inside and not finite.all():
        if finite.any():
            _compare(model, network, points[finite], inside)
        raise NotFinite("the network's outputs are not finite inside of the input box")
    expected, x = expected[finite], torch.from_numpy(points[finite].astype(np.float64))
    if not len(expected):
        return 0.0
    if network.work >= HUGE and model.dtype == np.float32 and network.output.bias.dtype is torch.float64:
        quick = _outputs(network.to(dtype=torch.float32), x)
        if (np.abs(quick - expected) <= RELATIVE * np.finfo(np.float32).eps * np.abs(expected)).all():
            return float((np.abs(quick - expected) / np.maximum(np.abs(expected), 1e-300)).max(initial=0.0))
    found = _outputs(network, x)
    size = np.maximum(np.abs(expected), np.abs(found))
    kind = getattr(model, "rounding", model.dtype)
    unit, half = np.finfo(kind), kind == np.float16
    allowed = (HALF_RELATIVE if half else RELATIVE) * (float(unit.eps) * size + float(unit.tiny))
    difference = np.abs(found - expected)
    if not (difference <= allowed).all():  # what rounding explains is dearer to find out
        allowed = allowed + (_half_noise(network, x) if half else _rounding(network, x, kind))
    if not (difference <= allowed).all():
        i, j = np.unravel_index(np.argmax(np.nan_to_num(difference / allowed, nan=np.inf)), size.shape)
        raise NetworkMismatch(
            f"the lowered network disagrees with the original at output {j}: {found[i, j]:.9g} against "
            f"{expected[i, j]:.9g} at a point {'of' if inside else 'beyond'} the input box, {allowed[i, j]:.3g} allowed"
        )
    with np.errstate(invalid="ignore"):  # what overflows in float64 has nothing in common with a number
        shares = np.nan_to_num(difference / np.maximum(size.max(axis=0), np.finfo(np.float64).tiny), nan=1.0)
    return float(shares.max(initial=0.0))


def _outputs(network: Network, x: Float64[Tensor, "P n0"]) -> Array:
    """In the network's own precision, as many points at a time as the memory allows."""
    pieces = x.to(network.output.bias.dtype).split(max(1, TOGETHER // max(layer.size for layer in network.layers)))
    found: Array = torch.cat([network.forward(some) for some in pieces]).to(torch.float64).numpy()
    return found


def _applied(function: Function, t: Tensor, error: Tensor) -> tuple[Tensor, Tensor]:
    """What a function makes of values and of their errors."""
    value = function.value(t)
    if function.is_relu:
        return value, error
    low, high = function.image(t - error, t + error)
    return value, torch.maximum(high - value, value - low)


def _shaken(
    network: Network, x: Float64[Tensor, "P n0"], seed: int, kind: type[np.floating] = np.float32
) -> Float64[Tensor, "P n_y"]:
    """The outputs if every function but ReLUs errs by a unit of float32, in what it reads and in what it gives.

    Libraries approximate smooth functions with absolute errors of such a size, and steps jump at the least rounding.
    By a unit of float16 everything errs, ReLUs and the output too.
    """
    generator = torch.Generator().manual_seed(seed)
    unit, everything = float(np.finfo(kind).eps), kind == np.float16
    least = float(np.finfo(kind).smallest_subnormal) if everything else 0.0
    values = [x]
    for layer in network.layers:
        x_hat = layer.forward(values).expand(len(x), layer.size)
        if everything or not (layer is network.output or layer.function.is_relu):
            size = layer.bias.abs()
            for source, term in layer.terms:
                size = size + term.magnitude(values[source].abs())
            x_hat = x_hat + (unit * size + least) * _signs(x_hat, generator)
        value = x_hat if layer is network.output else layer.function.value(x_hat)
        if not (layer is network.output or layer.function.is_relu):
            value = value + unit * value.abs().clamp(min=1.0) * _signs(value, generator)
        values.append(value)
    return values[-1]


def _half_noise(network: Network, x: Float64[Tensor, "P n0"]) -> Array:
    """By how much errors of a unit of float16 in every layer may change each output: [n_y], the same at all points."""
    network = network.to(x.device, torch.float64)
    exact = network.forward(x)
    runs = torch.stack([_shaken(network, x, seed, np.float16) for seed in range(SHAKEN)])
    return (HALF_NOISE * (runs - exact).abs().nan_to_num(0.0, 0.0).amax(dim=(0, 1))).numpy()


def _signs(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randint(0, 2, like.shape, generator=generator).to(like.dtype) * 2 - 1


def _rounding(network: Network, x: Float64[Tensor, "P n0"], dtype: np.dtype[Any]) -> Array:
    """By how much rounding may change each output, in float64 and in the file's precision."""
    network = network.to(x.device, torch.float64)
    values, errors, size = [x], [torch.zeros_like(x)], x
    for layer in network.layers:
        size, error = layer.bias.abs(), layer.bias_error
        for source, term in layer.terms:
            size, error = size + term.magnitude(values[source].abs()), error + term.magnitude(errors[source])
        values.append(layer.forward(values).expand(len(x), layer.size))
        errors.append((error + gamma(layer.depth) * size).expand(len(x), layer.size))
        if layer is not network.output:
            values[-1], errors[-1] = _applied(layer.function, values[-1], errors[-1])
    allowed = (4.0 * errors[-1]).nan_to_num(0.0, 0.0)  # a quotient near a pole says nothing of the other outputs
    if dtype == np.float32:
        runs = [network.to(dtype=torch.float32).forward(x.to(torch.float32)).to(torch.float64)]
        if not network.piecewise_linear:
            runs += [_shaken(network, x, seed) for seed in range(SHAKEN)]
        noise = (torch.stack(runs) - values[-1]).abs().nan_to_num(0.0, 0.0).amax(dim=(0, 1))
        allowed = allowed + NOISE * noise + float(np.finfo(np.float32).eps) * size.expand(len(x), network.n_out)
    return allowed.nan_to_num(0.0, 0.0).numpy()
