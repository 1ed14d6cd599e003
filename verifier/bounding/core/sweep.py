"""Backward and forward sweeps through linear relaxations of the ReLUs: what all propagated bounds share.

A backward sweep turns an objective at some layer into a linear function of the input that is nowhere larger over the
region; its minimum over the input set is the bound.  For an ambiguous neuron with l < 0 < u any slope a in [0, 1]
gives x >= a x_hat, and any p >= u / (u - l) gives x <= p (x_hat - l).  So a rounded p is made valid by rounding it
up, and no equality has to hold in floats: what is left are the errors of sums, which `rounding` prices.

A sign that a branch has imposed enters as a multiplier s >= 0: passing, x >= x_hat - s x_hat; blocking, 0 >= s x_hat.
Cuts bend the upper faces: these then also read the group's inputs (see `faces`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.bounding.core.base import Objective, Region, minimise_over_input, widest
from verifier.bounding.core.closing import settled
from verifier.bounding.core.rounding import MARGIN, layer_slack, source_magnitude
from verifier.bounding.core.state import State
from verifier.bounding.cuts.faces import Face
from verifier.bounding.relaxation.relu import Kinks
from verifier.network.network import Network
from verifier.operators import gamma
from verifier.shapes import Float, Tensor

__all__ = ["Choice", "Kinks", "Route", "Sweep", "Total", "Trace", "dot"]


@dataclass(frozen=True, eq=False)
class Choice:
    """What an optimiser may choose at the kinks of one group: lower slopes, multipliers of splits, upper faces."""

    slope: Float[Tensor, "#D #S a"]
    split: Float[Tensor, "#D #S a"] | None = None
    face: Face | None = None  # None: the chord of the triangle


@dataclass(frozen=True, eq=False)
class Trace(State):
    """A finished backward sweep: the bound, its minimiser, and the coefficient of x[k] at the kinks of each group."""

    lower: Float[Tensor, "D S"]
    x0: Float[Tensor, "D S n0"]
    coefficients: tuple[Float[Tensor, "D S _"] | None, ...]


@dataclass(frozen=True, eq=False)
class Route:
    """Where x0 goes when it runs through the faces that a backward sweep chose.

    `values` are the x[j] of all sources, None for groups that nobody reads; `x_hat` those at the kinks of each group;
    `gains` what a unit of each cut's share adds to the upper faces.
    """

    values: list[Float[Tensor, "D S _"] | None]
    x_hat: tuple[Float[Tensor, "D S _"], ...]
    gains: tuple[tuple[Float[Tensor, "D S _"], ...] | None, ...]


@dataclass(eq=False)
class Total:
    """The running constant of a sweep, the magnitude of the terms summed into it, and the errors found so far."""

    value: Float[Tensor, "D S"]
    summed: Float[Tensor, "D S"]
    error: Float[Tensor, "D S"]

    @classmethod
    def of(cls, objective: Objective, region: Region) -> Total:
        value = objective.coefficients.new_zeros(region.count, objective.count)
        if objective.constant is not None:
            value += objective.constant
        summed, error = value.abs(), torch.zeros_like(value)
        if objective.error is not None:
            error += objective.error
        if objective.inputs is not None:  # may cancel against the layers' part, so it is priced on its own
            size = objective.inputs.abs().expand(region.count, -1, -1)
            error += gamma(MARGIN) * dot(size, source_magnitude(region, 0))
        return cls(value, summed, error)


@dataclass(frozen=True, eq=False)
class Sweep(State):
    """All that sweeps over one batch of regions share, for objectives at `layer`.

    In a sweep `lam` holds the coefficients of x[j] and `mu` those of x_hat[k].  The floats in `mu` are taken as the
    exact multipliers; every other quantity is then a sum whose rounding error is bounded and subtracted at the end.
    """

    net: Network
    region: Region
    layer: int
    kinks: tuple[Kinks, ...]
    slacks: tuple[Float[Tensor, "D _"], ...] | None  # None in float32, where bounds are not rigorous anyway

    @classmethod
    def prepare(
        cls, net: Network, region: Region, layer: int, slacks: tuple[Float[Tensor, "D _"], ...] | None = None
    ) -> Sweep:
        """`slacks` may come from regions that contain these: they do not grow when boxes shrink."""
        kinks = tuple(Kinks.of(region, k) for k in range(1, layer))
        if slacks is None and region.lower.dtype is torch.float64:
            length = widest(net, layer) + len(net.layers)
            slacks = tuple(layer_slack(net.layers[k], region, length) for k in range(layer))
        return cls(net, region, layer, kinks, slacks)

    def backward(self, objective: Objective, choices: tuple[Choice, ...]) -> Trace:
        """Eliminate the layers from the objective's down to the input."""
        mu = objective.coefficients.expand(self.region.count, -1, -1)
        lam: list[Tensor | None] = [objective.inputs, *[None] * (self.layer - 1)]
        seen: list[Tensor | None] = [None] * (self.layer - 1)
        total = Total.of(objective, self.region)
        for k in range(self.layer, 0, -1):
            if k < self.layer:
                coefficients, lam[k] = lam[k], None
                if coefficients is None:
                    continue
                mu, seen[k - 1] = self._relax(k, coefficients, choices[k - 1], lam, total)
            self.through(k, mu, lam, total)
        return self.at_input(lam[0], total, tuple(seen))

    def through(self, k: int, mu: Float[Tensor, "D S n"], lam: list[Tensor | None], total: Total) -> None:
        """Take multipliers of x_hat[k] back through the affine map of layer k: they add to those of its sources."""
        layer = self.net.layers[k - 1]
        total.value += mu @ layer.bias
        if self.slacks is not None:
            total.error += dot(mu.abs(), self.slacks[k - 1])
        for source, term in layer.terms:
            _add(lam, source, term.transpose(mu))

    def _relax(
        self, k: int, own: Tensor, choice: Choice, lam: list[Tensor | None], total: Total
    ) -> tuple[Tensor, Tensor]:
        """Replace x[k] by the face of its relaxation that the sign of its coefficient (`own`) asks for."""
        kinks, face = self.kinks[k - 1], choice.face
        at_kinks = own.index_select(-1, kinks.index)
        negative = at_kinks.clamp(max=0)
        upper = kinks.upper if face is None else face.slope
        mu_kinks = at_kinks * torch.where(at_kinks >= 0, choice.slope, upper)
        if kinks.sign is not None and choice.split is not None:
            mu_kinks = mu_kinks - kinks.sign * choice.split
        if face is None:
            offset = dot(negative, kinks.intercept.squeeze(1))
            total.value += offset
            total.summed -= offset
        else:
            mu_kinks = self._bend(face, negative, mu_kinks, lam, total)
        return (own * kinks.passing).index_copy_(-1, kinks.index, mu_kinks), at_kinks

    def _bend(
        self, face: Face, negative: Tensor, mu: Tensor, lam: list[Tensor | None], total: Total
    ) -> Float[Tensor, "D S a"]:
        """Charge upper faces with cuts; the coefficients of W x_in + b, where cuts that hold a part of W add to `mu`.

        Rounding, per unit of a cut's multiplier: of the multiplier, of its passes (twice the depth of the layer's own
        if the mask splits W by signs), of what it adds to mu, and of b times that.
        """
        offset = negative * face.intercept
        total.value += offset.sum(dim=-1)
        charged = []
        for weight, at in zip(face.weights, face.of.cuts, strict=True):
            charged.append(negative * weight)
            for source, part in at.cut.transpose(charged[-1]):
                _add(lam, source, part)
        if face.of.price is not None:
            total.summed += offset.abs().sum(dim=-1)
            for beta in charged:
                total.error += (5.0 * beta.abs() * face.of.price).sum(dim=-1)
        held = [at.cut.whole * beta for beta, at in zip(charged, face.of.cuts, strict=True) if at.cut.whole]
        if not held:
            return mu
        extra = torch.stack(held).sum(dim=0) if len(held) > 1 else held[0]
        total.value -= extra @ face.of.bias
        return mu + extra

    def at_input(self, lam: Tensor | None, total: Total, seen: tuple[Tensor | None, ...]) -> Trace:
        """Minimise what is left over the input set, and subtract the error."""
        region = self.region
        if lam is None:
            lam = region.lower.new_zeros(1, 1, region.lower.shape[1])
        lam = lam.expand(*total.value.shape, -1)
        least, x0 = minimise_over_input(region, lam)
        value = total.value + least
        if self.slacks is not None:
            summed = total.summed + dot(lam.abs(), source_magnitude(region, 0))
            terms = widest(self.net, self.layer) + len(self.net.layers) + MARGIN
            value = settled(value, total.error + gamma(terms) * summed)
        return Trace(value, x0, seen)

    def forward(self, trace: Trace, choices: tuple[Choice, ...]) -> Route:
        """Where x0 goes when it runs through the faces that the backward sweep chose."""
        values: list[Tensor | None] = [trace.x0]
        found: list[Tensor] = []
        gains: list[tuple[Tensor, ...] | None] = []
        for k in range(1, self.layer):
            kinks, choice, lam = self.kinks[k - 1], choices[k - 1], trace.coefficients[k - 1]
            if lam is None:  # nobody that matters reads this group, which may itself read another such group
                found.append(trace.x0.new_zeros(*trace.x0.shape[:-1], len(kinks.index)))
                values.append(None)
                gains.append(None)
                continue
            x_hat = self.net.layers[k - 1].forward(values)
            at_kinks = x_hat.index_select(-1, kinks.index)
            found.append(at_kinks)
            upper, face = torch.addcmul(kinks.intercept, at_kinks, kinks.upper), choice.face
            if face is None:
                gains.append(None)
            else:
                gain = face.gains(values, at_kinks)
                gains.append(gain)
                upper = face.above(upper, gain)
            x = torch.where(lam >= 0, at_kinks * choice.slope, upper)
            values.append((x_hat * kinks.passing).index_copy_(-1, kinks.index, x))
        return Route(values, tuple(found), tuple(gains))


def _add(lam: list[Tensor | None], source: int, part: Tensor) -> None:
    """Add to the coefficients of a source."""
    known = lam[source]
    lam[source] = part if known is None else known + part


def dot(rows: Float[Tensor, "D S n"], vector: Float[Tensor, "D n"]) -> Float[Tensor, "D S"]:
    """The inner product of every row with its region's vector."""
    return (rows @ vector.unsqueeze(-1)).squeeze(-1)
