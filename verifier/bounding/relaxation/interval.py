"""Interval bounds: every layer over the box of its sources.

requires:   bounds of all earlier groups
guarantees: the exact range of each x_hat over the box of its sources, widened by the rounding error; an end that is
            no number is infinite
source:     [SCB] appendix on intermediate bounds (interval bound propagation)
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.bounding import BOUNDERS
from verifier.bounding.core.base import Bound, Bounder, Objective, Region, Until
from verifier.bounding.core.closing import settled
from verifier.bounding.core.rounding import MARGIN, layer_slack
from verifier.network.network import Affine, Network
from verifier.operators import gamma
from verifier.shapes import Float, Tensor


def interval_image(layer: Affine, region: Region) -> tuple[Float[Tensor, "D n"], Float[Tensor, "D n"]]:
    """Lower and upper bounds of x_hat of a layer over the box of its sources."""
    centre = layer.bias.expand(region.count, -1)
    radius = layer_slack(layer, region, length=MARGIN)
    for source, term in layer.terms:
        low, high = region.source(source)
        centre = centre + term.forward((low + high) / 2)
        radius = radius + term.magnitude((high - low) / 2)
    low, high = centre - radius, centre + radius
    return torch.where(torch.isfinite(low), low, -torch.inf), torch.where(torch.isfinite(high), high, torch.inf)


@BOUNDERS.register("interval")
@dataclass(frozen=True)
class Interval(Bounder):
    """Bounds each objective term by term over the interval image of its layer."""

    @property
    def any_function(self) -> bool:
        return True

    def bound(self, net: Network, region: Region, objective: Objective, until: Until) -> Bound:
        layer = net.layers[objective.layer - 1]
        low, high = interval_image(layer, region)
        lower, size = _over_box(objective.coefficients, low, high)
        if objective.inputs is not None:
            at_input, input_size = _over_box(objective.inputs, region.lower, region.upper)
            lower, size = lower + at_input, size + input_size
        if objective.constant is not None:
            lower, size = lower + objective.constant, size + objective.constant.abs()
        error = gamma(low.shape[-1] + region.lower.shape[-1] + MARGIN) * size + region.doubt(objective.layer)
        if objective.error is not None:
            error = error + objective.error
        widened = (objective.coefficients.abs() @ layer_slack(layer, region, length=MARGIN).unsqueeze(-1)).squeeze(-1)
        return Bound(settled(lower, error), None, error=error + widened)


def _over_box(coefficients: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
    """min of coefficients . x over the box, and the sum of its terms' magnitudes."""
    positive, negative = coefficients.clamp(min=0), coefficients.clamp(max=0)
    lower = (positive @ low.unsqueeze(-1) + negative @ high.unsqueeze(-1)).squeeze(-1)
    size = (positive @ low.abs().unsqueeze(-1) - negative @ high.abs().unsqueeze(-1)).squeeze(-1)
    return lower, size
