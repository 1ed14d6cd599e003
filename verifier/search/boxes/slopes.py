"""A few steps of ascent on the lower slopes of the ReLUs and on the weights of the rows, for many boxes at a time.

On small boxes few neurons are ambiguous, and the right slopes for them are worth more than further cuts.  The function
is that of a backward sweep; one forward pass of its minimiser through the chosen faces gives the derivative by every
slope, (coefficient of x)+ times x_hat, and by every weight, the row's value there.

requires:   bounds of all groups; any precision, because whatever is found is evaluated again
guarantees: slopes in [0, 1] and weights on the simplex: the best that were met
source:     alpha-CROWN; multipliers on output constraints as in INVPROP
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verifier.bounding.core.ascent import Adam
from verifier.bounding.rows import Conjunction, onto_simplex
from verifier.network.network import Network
from verifier.shapes import Bool, Float, Int, Tensor

STEPS = (0.25, 0.05)
"""Sizes of the first and of the last step."""

WEIGHT_STEP = 0.5
"""Steps of weights relative to those of slopes."""


@dataclass(frozen=True, eq=False)
class Kinked:
    """The relaxation of one group: which neurons are ambiguous, their upper faces, and the slope of stable ones."""

    kinked: Bool[Tensor, "P n"]
    upper: Float[Tensor, "P n"]
    intercept: Float[Tensor, "P n"]
    adaptive: Float[Tensor, "P n"]

    @classmethod
    def of(cls, low: Float[Tensor, "P n"], high: Float[Tensor, "P n"]) -> Kinked:
        kinked = ~((low >= 0) | (high <= 0))
        upper = torch.where(kinked, high / (high - low), (low >= 0).to(low.dtype))
        adaptive = torch.where(kinked, (high > -low).to(low.dtype), upper)
        return cls(kinked, upper, torch.where(kinked, -upper * low, 0.0), adaptive)

    def select(self, rows: Tensor) -> Kinked:
        return Kinked(self.kinked[rows], self.upper[rows], self.intercept[rows], self.adaptive[rows])


@dataclass(frozen=True, eq=False)
class Choice:
    """Lower slopes of all groups, and weights of the rows; each tensor has one row per pair of a box and a clause."""

    slopes: tuple[Float[Tensor, "P _"], ...]
    weights: Float[Tensor, "P m"]

    def select(self, rows: Tensor) -> Choice:
        return Choice(tuple(s[rows] for s in self.slopes), self.weights[rows])

    def better(self, than: Choice, where: Bool[Tensor, " P"]) -> Choice:
        """This choice where the mask says so, the other one elsewhere."""
        mask = where.unsqueeze(1)
        slopes = tuple(torch.where(mask, a, b) for a, b in zip(self.slopes, than.slopes, strict=True))
        return Choice(slopes, torch.where(mask, self.weights, than.weights))


@dataclass(frozen=True, eq=False)
class Sweeps:
    """The function that is maximised: one objective per pair of a box and a clause."""

    net: Network
    low: Float[Tensor, "P n0"]
    high: Float[Tensor, "P n0"]
    groups: tuple[Kinked, ...]
    rows: Conjunction

    def starts(self, weights: Float[Tensor, "P m"]) -> tuple[Choice, Choice]:
        """Slopes parallel to the upper faces, and CROWN's."""
        parallel = tuple(group.upper for group in self.groups)
        return Choice(parallel, weights), Choice(tuple(group.adaptive for group in self.groups), weights)

    def backward(self, choice: Choice) -> tuple[Float[Tensor, " P"], Float[Tensor, "P n0"], list[Tensor | None]]:
        """The bound, its minimiser, and the coefficients of all x[k]."""
        w, rows, groups = choice.weights.unsqueeze(1), self.rows, self.groups
        lam: list[Tensor | None] = [None] * (len(groups) + 1)
        lam[0] = None if rows.B is None else (w @ rows.B).squeeze(1)
        value, mu = -(choice.weights * rows.c).sum(dim=-1), (w @ rows.A).squeeze(1)
        for k in range(len(self.net.layers), 0, -1):
            layer = self.net.layers[k - 1]
            if k <= len(groups):
                coefficients, group = lam[k], groups[k - 1]
                if coefficients is None:
                    continue
                value = value + (coefficients.clamp(max=0) * group.intercept).sum(dim=-1)
                mu = coefficients * torch.where(coefficients >= 0, choice.slopes[k - 1], group.upper)
            value = value + mu @ layer.bias
            for source, term in layer.terms:
                part, known = term.transpose(mu), lam[source]
                lam[source] = part if known is None else known + part
        slope = lam[0] if lam[0] is not None else torch.zeros_like(self.low)
        x0 = torch.where(slope >= 0, self.low, self.high)
        return value + (slope * x0).sum(dim=-1), x0, lam[1:]

    def gradient(self, choice: Choice, x0: Tensor, lam: Sequence[Tensor | None]) -> tuple[list[Tensor], Tensor]:
        """The derivatives by slopes and by weights; those by weights relative to the combination's own value."""
        values: list[Tensor | None] = [x0]
        by_slope = []
        for k, group in enumerate(self.groups):
            x_hat, at = self.net.groups[k].forward(values).expand_as(group.upper), lam[k]
            if at is None:  # nobody that matters reads this group
                by_slope.append(torch.zeros_like(group.upper))
                values.append(torch.zeros_like(group.upper))
                continue
            by_slope.append(torch.where(group.kinked, at.clamp(min=0) * x_hat, 0.0))
            values.append(torch.where(at >= 0, choice.slopes[k] * x_hat, group.upper * x_hat + group.intercept))
        y = self.net.output.forward(values)
        g = self.rows.values(y.unsqueeze(1), x0.unsqueeze(1)).squeeze(1)
        return by_slope, (g - (choice.weights * g).sum(dim=-1, keepdim=True)) * self.rows.present

    def select(self, rows: Int[Tensor, " p"]) -> Sweeps:
        groups = tuple(group.select(rows) for group in self.groups)
        return Sweeps(self.net, self.low[rows], self.high[rows], groups, self.rows.select(rows))


def climb(sweeps: Sweeps, weights: Float[Tensor, "P m"], steps: int) -> Choice:
    """Maximise from the better of two starts; pairs whose bound is positive stop."""
    first, second = sweeps.starts(weights)
    value, other = sweeps.backward(first)[0], sweeps.backward(second)[0]
    best = second.better(first, other > value)
    value = torch.maximum(value, other)
    rest = torch.nonzero(~(value > 0)).flatten()
    if not steps or not len(rest):
        return best
    found = _ascended(sweeps.select(rest), best.select(rest), steps)
    slopes = tuple(s.index_copy(0, rest, f) for s, f in zip(best.slopes, found.slopes, strict=True))
    return Choice(slopes, best.weights.index_copy(0, rest, found.weights))


def _ascended(sweeps: Sweeps, start: Choice, steps: int) -> Choice:
    """Adam on all variables."""
    best, point = start, start
    reached = torch.full_like(start.weights[:, 0], -torch.inf)
    moments = [Adam.start(s) for s in (*start.slopes, start.weights)]
    for t in range(steps + 1):
        value, x0, lam = sweeps.backward(point)
        best = point.better(best, value > reached)
        reached = torch.maximum(reached, value)
        if t == steps:
            break
        by_slope, by_weight = sweeps.gradient(point, x0, lam)
        size = STEPS[0] * (STEPS[1] / STEPS[0]) ** (t / max(1, steps - 1))
        slopes = [s.clone() for s in point.slopes]
        for s, derivative, adam in zip(slopes, by_slope, moments, strict=False):
            adam.step(s, derivative, size, t)
            s.clamp_(0.0, 1.0)
        weights = point.weights
        if weights.shape[1] > 1:
            weights = weights.clone()
            moments[-1].step(weights, by_weight, size * WEIGHT_STEP, t)
            weights = onto_simplex(weights.unsqueeze(1), sweeps.rows.present.unsqueeze(1)).squeeze(1)
        point = Choice(tuple(slopes), weights)
    return best
