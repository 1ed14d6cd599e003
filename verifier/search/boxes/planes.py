"""Linear functions of the input below the rows of each box: what closes boxes, and what clips them.

One backward sweep in float64 through the relaxed ReLUs, with lower slopes that somebody chose.  It differs from a sweep
that only bounds in what it keeps: the linear function itself, and the coefficients of all neurons, which tell where
its gap comes from.

requires:   valid bounds of all groups
guarantees: slope . x + offset <= objective(x) for every x of the box, all rounding errors included; offset and least
            value are finite or -inf
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verifier.bounding.core.base import Objective, Region, widest
from verifier.bounding.core.closing import settled
from verifier.bounding.core.rounding import MARGIN, layer_slack, source_magnitude
from verifier.bounding.core.sweep import dot
from verifier.bounding.relaxation.relu import chord
from verifier.network.network import Network
from verifier.operators import gamma
from verifier.shapes import Float, Tensor


@dataclass(frozen=True, eq=False)
class Faces:
    """The relaxation of one group: lower x_hat <= x <= upper x_hat + intercept where x_hat keeps its bounds."""

    lower: Float[Tensor, "P #S n"]
    upper: Float[Tensor, "P 1 n"]
    intercept: Float[Tensor, "P n"]

    @classmethod
    def of(cls, low: Float[Tensor, "P n"], high: Float[Tensor, "P n"], slope: Float[Tensor, "P #S n"]) -> Faces:
        """Require: slopes in [0, 1]; those of stable neurons do not matter."""
        kinked = ~((low >= 0) | (high <= 0))  # NaN counts as ambiguous, and spoils the bound
        stable = (low >= 0).to(low.dtype)
        steep, intercept = chord(low, high)
        upper = torch.where(kinked, steep, stable)
        lower = torch.where(kinked.unsqueeze(1), slope, stable.unsqueeze(1))
        return cls(lower, upper.unsqueeze(1), torch.where(kinked, intercept, 0.0))


@dataclass(frozen=True, eq=False)
class Planes:
    """A linear function below each objective, its least value over the box, and the coefficients on its way."""

    slope: Float[Tensor, "P S n0"]
    offset: Float[Tensor, "P S"]
    lower: Float[Tensor, "P S"]
    coefficients: tuple[Float[Tensor, "P S _"] | None, ...]  # of x[k], None where nobody reads the group


def planes_below(
    net: Network,
    region: Region,
    objective: Objective,
    slopes: Sequence[Float[Tensor, "P #S _"]],
    error: Float[Tensor, "P S"],
) -> Planes:
    """Sweep back from the output with the given lower slopes.  `error`: what rounding already cost the objective."""
    faces = [Faces.of(*bounds) for bounds in zip(region.l_hat, region.u_hat, slopes, strict=True)]
    length = widest(net, len(net.layers)) + len(net.layers)
    lam: list[Tensor | None] = [objective.inputs, *[None] * len(faces)]
    mu = objective.coefficients
    value = objective.constant if objective.constant is not None else mu.new_zeros(mu.shape[:2])
    summed = value.abs()
    if objective.inputs is not None:  # may cancel against the layers' part, so it is priced on its own
        error = error + gamma(MARGIN) * dot(objective.inputs.abs(), source_magnitude(region, 0))
    for k in range(len(net.layers), 0, -1):
        layer, coefficients = net.layers[k - 1], lam[k] if k <= len(faces) else None
        if k <= len(faces):
            if coefficients is None:
                continue
            face = faces[k - 1]
            offset = dot(coefficients.clamp(max=0), face.intercept)
            value, summed = value + offset, summed - offset
            mu = coefficients * torch.where(coefficients >= 0, face.lower, face.upper)
        value = value + mu @ layer.bias
        error = error + dot(mu.abs(), layer_slack(layer, region, length))
        for source, term in layer.terms:
            part, known = term.transpose(mu), lam[source]
            lam[source] = part if known is None else known + part
    slope = lam[0] if lam[0] is not None else region.lower.new_zeros(*value.shape, net.n_in)
    return _finished(region, slope, (value, summed, error), length, lam[1:])


def _finished(
    region: Region, slope: Tensor, totals: tuple[Tensor, Tensor, Tensor], length: int, seen: Sequence[Tensor | None]
) -> Planes:
    """Subtract the error, and minimise over the box."""
    value, summed, error = totals
    summed = summed + dot(slope.abs(), source_magnitude(region, 0))
    error = error + gamma(length + MARGIN) * summed
    least = torch.minimum(slope * region.lower.unsqueeze(1), slope * region.upper.unsqueeze(1)).sum(dim=-1)
    return Planes(slope, settled(value, error), settled(value + least, error), tuple(seen))
