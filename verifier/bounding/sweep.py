"""Backward and forward sweeps through linear relaxations of the ReLUs: what all propagated bounds share.

A backward sweep turns an objective at some layer into a linear function of the input that is nowhere larger over the
region; its minimum over the input set is the bound.  For an ambiguous neuron with l < 0 < u any slope a in [0, 1]
gives x >= a x_hat, and any p >= u / (u - l) gives x <= p (x_hat - l).  So a rounded p is made valid by rounding it
up, and no equality has to hold in floats: what is left are the errors of sums, which `rounding` prices.

A sign that a branch has imposed enters as a multiplier s >= 0: passing, x >= x_hat - s x_hat; blocking, 0 >= s x_hat.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.bounding.base import Objective, Region, minimise_over_input, widest
from verifier.bounding.rounding import MARGIN, UNDERFLOW, layer_slack, round_up, source_magnitude
from verifier.network.network import Network
from verifier.operators import gamma
from verifier.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class Kinks:
    """The neurons of one group that are not stable in the same way in all regions, and their faces.

    All other neurons pass in every region (`passing` 1) or block in every region (`passing` 0).
    """

    index: Int[Tensor, " a"]
    passing: Float[Tensor, " n"]
    l_hat: Float[Tensor, "D 1 a"]
    u_hat: Float[Tensor, "D 1 a"]
    ambiguous: Bool[Tensor, "D 1 a"]
    upper: Float[Tensor, "D 1 a"]  # slope of the upper face
    intercept: Float[Tensor, "D 1 a"]  # of the upper face, >= 0
    sign: Float[Tensor, "D 1 a"] | None  # +1 passing and -1 blocking by a split; None if the region knows no splits

    @classmethod
    def of(cls, region: Region, k: int) -> Kinks:
        l_hat, u_hat = region.l_hat[k - 1], region.u_hat[k - 1]
        passing, blocking = l_hat >= 0, (u_hat <= 0) & (l_hat < 0)
        split = None if region.splits is None else region.splits[k - 1]
        if region.kinks is not None:
            index = region.kinks[k - 1]
        else:
            loose = ~(passing.all(dim=0) | blocking.all(dim=0))
            if split is not None:
                loose |= (split != 0).any(dim=0)
            index = torch.nonzero(loose).flatten()
        low, high = l_hat[:, index].unsqueeze(1), u_hat[:, index].unsqueeze(1)
        ambiguous = ~((low >= 0) | (high <= 0))  # so that NaN counts as ambiguous, and spoils the bound
        stable = (low >= 0).to(low.dtype)
        chord = torch.where(ambiguous, round_up(high / (high - low)), stable)
        intercept = torch.where(ambiguous, -chord * low, torch.zeros_like(low))
        sign = None if split is None else split[:, index].to(low.dtype).unsqueeze(1)
        everywhere = passing.all(dim=0).to(low.dtype).index_fill_(0, index, 0.0)
        return cls(index, everywhere, low, high, ambiguous, chord, intercept, sign)

    def select(self, rows: Int[Tensor, " d"]) -> Kinks:
        """The faces of some of the regions."""
        return Kinks(
            self.index,
            self.passing,
            self.l_hat[rows],
            self.u_hat[rows],
            self.ambiguous[rows],
            self.upper[rows],
            self.intercept[rows],
            None if self.sign is None else self.sign[rows],
        )

    def faces(self, ambiguous: Float[Tensor, "#D #S a"]) -> Float[Tensor, "#D #S a"]:
        """Lower slopes: the given ones where a choice exists, 1 or 0 where the neuron is stable."""
        return torch.where(self.ambiguous, ambiguous, self.upper)

    def adaptive(self) -> Float[Tensor, "D 1 a"]:
        """CROWN's lower slopes: the face that cuts off less area."""
        return self.faces((self.u_hat > -self.l_hat).to(self.l_hat.dtype))

    def parallel(self) -> Float[Tensor, "D 1 a"]:
        """Wong and Kolter's lower slopes: parallel to the upper face."""
        return self.faces(self.upper.clamp(max=1.0))


@dataclass(frozen=True, eq=False)
class Choice:
    """What an optimiser may choose at the kinks of one group: lower slopes, and multipliers of splits."""

    slope: Float[Tensor, "#D #S a"]
    split: Float[Tensor, "#D #S a"] | None = None


@dataclass(frozen=True, eq=False)
class Trace:
    """A finished backward sweep: the bound, its minimiser, and the coefficient of x[k] at the kinks of each group."""

    lower: Float[Tensor, "D S"]
    x0: Float[Tensor, "D S n0"]
    coefficients: tuple[Float[Tensor, "D S _"] | None, ...]


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
        if objective.inputs is not None:  # may cancel against the layers' part, so it is priced on its own
            size = objective.inputs.abs().expand(region.count, -1, -1)
            error += gamma(MARGIN) * dot(size, source_magnitude(region, 0))
        return cls(value, summed, error)


@dataclass(frozen=True, eq=False)
class Sweep:
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

    def select(self, rows: Int[Tensor, " d"]) -> Sweep:
        """The sweeps over some of the regions."""
        return Sweep(
            self.net,
            self.region.select(rows),
            self.layer,
            tuple(kinks.select(rows) for kinks in self.kinks),
            None if self.slacks is None else tuple(slack[rows] for slack in self.slacks),
        )

    def backward(self, objective: Objective, choices: tuple[Choice, ...]) -> Trace:
        """Eliminate the layers from the objective's down to the input."""
        mu = objective.coefficients.expand(self.region.count, -1, -1)
        lam: list[Tensor | None] = [objective.inputs, *[None] * (self.layer - 1)]
        seen: list[Tensor | None] = [None] * (self.layer - 1)
        total = Total.of(objective, self.region)
        for k in range(self.layer, 0, -1):
            layer = self.net.layers[k - 1]
            if k < self.layer:
                coefficients, lam[k] = lam[k], None
                if coefficients is None:
                    continue
                mu, seen[k - 1] = self._relax(k, coefficients, choices[k - 1], total)
            total.value += mu @ layer.bias
            if self.slacks is not None:
                total.error += dot(mu.abs(), self.slacks[k - 1])
            for source, term in layer.terms:
                part, known = term.transpose(mu), lam[source]
                lam[source] = part if known is None else known + part
        return self.at_input(lam[0], total, tuple(seen))

    def _relax(self, k: int, lam: Tensor, choice: Choice, total: Total) -> tuple[Tensor, Tensor]:
        """Replace x[k] by the face of its relaxation that the sign of its coefficient asks for."""
        kinks = self.kinks[k - 1]
        at_kinks = lam.index_select(-1, kinks.index)
        offset = dot(at_kinks.clamp(max=0), kinks.intercept.squeeze(1))
        total.value += offset
        total.summed -= offset
        mu_kinks = at_kinks * torch.where(at_kinks >= 0, choice.slope, kinks.upper)
        if kinks.sign is not None and choice.split is not None:
            mu_kinks = mu_kinks - kinks.sign * choice.split
        return (lam * kinks.passing).index_copy_(-1, kinks.index, mu_kinks), at_kinks

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
            value = value - round_up(total.error + gamma(terms) * summed, MARGIN) - UNDERFLOW
        return Trace(value, x0, seen)

    def forward(self, trace: Trace, choices: tuple[Choice, ...]) -> tuple[Float[Tensor, "D S _"], ...]:
        """x_hat at the kinks of each group when x0 runs through the faces that the backward sweep chose."""
        return self.follow(trace, choices)[1]

    def follow(
        self, trace: Trace, choices: tuple[Choice, ...]
    ) -> tuple[list[Tensor | None], tuple[Float[Tensor, "D S _"], ...]]:
        """The values x[j] of all sources on that way, and x_hat at the kinks."""
        values: list[Tensor | None] = [trace.x0]
        found = []
        for k in range(1, self.layer):
            kinks, choice, lam = self.kinks[k - 1], choices[k - 1], trace.coefficients[k - 1]
            x_hat = self.net.layers[k - 1].forward(values)
            at_kinks = x_hat.index_select(-1, kinks.index)
            found.append(at_kinks)
            if lam is None:  # nobody that matters reads this group
                values.append(None)
                continue
            low = at_kinks * choice.slope
            x = torch.where(lam >= 0, low, at_kinks * kinks.upper + kinks.intercept)
            values.append((x_hat * kinks.passing).index_copy_(-1, kinks.index, x))
        return values, tuple(found)


def dot(rows: Float[Tensor, "D S n"], vector: Float[Tensor, "D n"]) -> Float[Tensor, "D S"]:
    """The inner product of every row with its region's vector."""
    return (rows @ vector.unsqueeze(-1)).squeeze(-1)
