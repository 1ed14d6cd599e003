"""Linear bounds (CROWN, Wong-Kolter): one backward sweep through linear relaxations of the ReLUs.

requires:   bounds of all groups before the objective's layer
guarantees: a valid lower bound of each objective; in float64 with all rounding errors subtracted
source:     math of docs/numerics.md; slopes as in CROWN (adaptive) or Wong and Kolter (parallel)

For an ambiguous neuron with l < 0 < u any slope a in [0, 1] gives x >= a x_hat, and any p >= u / (u - l) gives
x <= p (x_hat - l).  So a rounded p is made valid by rounding it up, and no equality has to hold in floats: what is
left are the errors of sums, which `rounding` prices.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import torch

from verifier.bounding.base import Bound, Bounder, Objective, Region, Until, widest
from verifier.bounding.rounding import MARGIN, UNDERFLOW, layer_slack, round_up, source_magnitude
from verifier.network.network import Network
from verifier.operators import gamma
from verifier.shapes import Float, Tensor


class Slope(Enum):
    """How the lower face of an ambiguous neuron is chosen."""

    ADAPTIVE = "crown"
    PARALLEL = "wong_kolter"


@dataclass(frozen=True, eq=False)
class Relaxation:
    """x >= lower_slope x_hat and x <= upper_slope x_hat + intercept for the neurons of one group."""

    lower_slope: Float[Tensor, "D n"]
    upper_slope: Float[Tensor, "D n"]
    intercept: Float[Tensor, "D n"]

    @classmethod
    def of(cls, l_hat: Float[Tensor, "D n"], u_hat: Float[Tensor, "D n"], slope: Slope) -> Relaxation:
        passing = l_hat >= 0
        ambiguous = (l_hat < 0) & (u_hat > 0)
        chord = round_up(u_hat / (u_hat - l_hat))
        lower = chord.clamp(max=1.0) if slope is Slope.PARALLEL else (u_hat > -l_hat).to(l_hat.dtype)
        stable = passing.to(l_hat.dtype)
        return cls(
            torch.where(ambiguous, lower, stable),
            torch.where(ambiguous, chord, stable),
            torch.where(ambiguous, -chord * l_hat, torch.zeros_like(l_hat)),
        )


@dataclass(frozen=True)
class Linear(Bounder):
    """One sweep per objective with the slopes fixed beforehand; nothing is optimised."""

    slope: Slope = Slope.ADAPTIVE

    def bound(self, net: Network, region: Region, objective: Objective, until: Until) -> Bound:
        sweep = Sweep.prepare(net, region, objective.layer, self.slope)
        width = widest(net, objective.layer)
        chunk = until.chunk(6 * width * region.lower.element_size() * region.count)
        found = [sweep.run(_slice(objective, start, start + chunk)) for start in range(0, objective.count, chunk)]
        if len(found) == 1:
            return found[0]
        points = [f.x0 for f in found if f.x0 is not None]
        return Bound(torch.cat([f.lower for f in found], dim=1), torch.cat(points, dim=1))


def _slice(objective: Objective, start: int, stop: int) -> Objective:
    return Objective(
        objective.layer,
        objective.coefficients[:, start:stop],
        None if objective.inputs is None else objective.inputs[:, start:stop],
        None if objective.constant is None else objective.constant[:, start:stop],
    )


@dataclass(frozen=True, eq=False)
class Sweep:
    """What all backward sweeps over one region share: relaxations and the price of rounding.

    In the sweep `lam` holds the coefficients of x[j] and `mu` those of x_hat[k].  The floats in `mu` are taken as the
    exact multipliers; every other quantity is then a sum whose rounding error is bounded and subtracted at the end.
    """

    net: Network
    region: Region
    relaxations: tuple[Relaxation, ...]
    slacks: tuple[Float[Tensor, "D _"], ...] | None  # None in float32, where bounds are not rigorous anyway

    @classmethod
    def prepare(cls, net: Network, region: Region, layer: int, slope: Slope) -> Sweep:
        groups = range(layer - 1)
        relaxations = tuple(Relaxation.of(region.l_hat[k], region.u_hat[k], slope) for k in groups)
        if region.lower.dtype is not torch.float64:
            return cls(net, region, relaxations, None)
        length = widest(net, layer) + len(net.layers)
        slacks = tuple(layer_slack(net.layers[k], region, length) for k in range(layer))
        return cls(net, region, relaxations, slacks)

    def run(self, objective: Objective) -> Bound:
        """Eliminate the layers from the objective's down to the input."""
        shape = (self.region.count, objective.count)
        mu = objective.coefficients.expand(shape[0], -1, -1)
        lam: list[Tensor | None] = [objective.inputs, *[None] * (objective.layer - 1)]
        total = Total.of(objective, shape, source_magnitude(self.region, 0))
        for k in range(objective.layer, 0, -1):
            layer = self.net.layers[k - 1]
            if k < objective.layer:
                coefficients, lam[k] = lam[k], None
                if coefficients is None:
                    continue
                mu = self._relax(k, coefficients, total)
            total.value += mu @ layer.bias
            if self.slacks is not None:
                total.error += _dot(mu.abs(), self.slacks[k - 1])
            for source, term in layer.terms:
                part, known = term.transpose(mu), lam[source]
                lam[source] = part if known is None else known + part
        return self._at_input(lam[0], total)

    def _relax(self, k: int, coefficients: Tensor, total: Total) -> Tensor:
        """Replace x[k] by the face of its relaxation that the sign of its coefficient asks for."""
        relaxation = self.relaxations[k - 1]
        offset = _dot(coefficients.clamp(max=0), relaxation.intercept)
        total.value += offset
        total.summed -= offset
        faces = relaxation.lower_slope.unsqueeze(1), relaxation.upper_slope.unsqueeze(1)
        return coefficients * torch.where(coefficients >= 0, *faces)

    def _at_input(self, coefficients: Tensor | None, total: Total) -> Bound:
        """Minimise what is left over the input box, and subtract the error."""
        region = self.region
        if coefficients is None:
            coefficients = region.lower.new_zeros(1, 1, region.lower.shape[1])
        coefficients = coefficients.expand(*total.value.shape, -1)
        x0 = torch.where(coefficients >= 0, region.lower.unsqueeze(1), region.upper.unsqueeze(1))
        value = total.value + (coefficients * x0).sum(dim=-1)
        if self.slacks is not None:
            summed = total.summed + _dot(coefficients.abs(), source_magnitude(region, 0))
            terms = widest(self.net, len(self.net.layers)) + len(self.net.layers) + MARGIN
            value = value - round_up(total.error + gamma(terms) * summed, MARGIN) - UNDERFLOW
        return Bound(value, x0)


@dataclass(eq=False)
class Total:
    """The running constant of a sweep, the magnitude of the terms summed into it, and the errors found so far."""

    value: Float[Tensor, "D S"]
    summed: Float[Tensor, "D S"]
    error: Float[Tensor, "D S"]

    @classmethod
    def of(cls, objective: Objective, shape: tuple[int, int], input_size: Float[Tensor, "D n0"]) -> Total:
        value = objective.coefficients.new_zeros(shape)
        if objective.constant is not None:
            value += objective.constant
        summed, error = value.abs(), torch.zeros_like(value)
        if objective.inputs is not None:  # may cancel against the layers' part, so it is priced on its own
            error += gamma(MARGIN) * _dot(objective.inputs.abs().expand(shape[0], -1, -1), input_size)
        return cls(value, summed, error)


def _dot(rows: Float[Tensor, "D S n"], vector: Float[Tensor, "D n"]) -> Float[Tensor, "D S"]:
    return (rows @ vector.unsqueeze(-1)).squeeze(-1)
