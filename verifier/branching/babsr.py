"""BaBSR: the change of Wong and Kolter's bound when a ReLU is fixed, estimated for all of them by one backward sweep.

With slope p for both faces, an ambiguous neuron with coefficient lam and bias b contributes lam p x_hat and, if lam is
negative, the intercept of the upper face.  Passing turns the slope into 1, blocking into 0, and both drop the
intercept; of x_hat only the bias is looked at.  The score is the smaller of the two gains: what splitting adds to the
bound of the worse child.  Where all scores of a domain are small, the intercepts alone decide.

source: Bunel et al., Branch and bound for piecewise linear neural network verification, JMLR 2020
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.bounding.solvers.crown import Linear, Slope
from verifier.branching import BRANCHERS
from verifier.branching.base import Brancher, View
from verifier.shapes import Float, Tensor


@BRANCHERS.register("babsr")
@dataclass(frozen=True)
class BaBSR(Brancher[View]):
    """`threshold`: scores below it say little, and intercepts break the tie."""

    threshold: float = 1e-3

    def scores(self, view: View) -> Float[Tensor, "D A"]:
        changes, intercepts = estimates(view)
        known = torch.where(changes > self.threshold, changes, torch.zeros_like(changes))
        # Intercepts of any size stay below every score that counts.
        ties = 0.5 * self.threshold * intercepts / (1 + intercepts)
        ambiguous = torch.cat([changes[:, :0].bool(), *(k.ambiguous.squeeze(1) for k in view.sweep.kinks)], dim=1)
        return torch.where(ambiguous, known + ties, -1.0)


def estimates(view: View) -> tuple[Float[Tensor, "D A"], Float[Tensor, "D A"]]:
    """The scores and the costs of the intercepts, both non-negative."""
    nothing = view.trace.x0[:, 0, :0]
    found = group_estimates(view)
    gains = torch.cat([nothing, *(gain for gain, _ in found)], dim=1)
    return gains.clamp(min=0), torch.cat([nothing, *(cost for _, cost in found)], dim=1)


def group_estimates(view: View) -> list[tuple[Float[Tensor, "D a"], Float[Tensor, "D a"]]]:
    """Group by group: the smaller of the two gains, which may be negative, and the costs of the intercepts."""
    sweep = view.sweep
    trace = sweep.backward(view.objective, Linear(Slope.PARALLEL).choices(sweep))
    found = []
    for k, (kinks, lam) in enumerate(zip(sweep.kinks, trace.coefficients, strict=True)):
        if lam is None:
            nothing = torch.zeros_like(kinks.l_hat[:, 0])
            found.append((nothing, nothing))
            continue
        slope, coefficient = kinks.upper.squeeze(1), lam[:, 0]
        cost = (-coefficient).clamp(min=0) * kinks.intercept.squeeze(1)
        from_bias = coefficient * sweep.net.layers[k].bias[kinks.index]
        passing, blocking = (1 - slope) * from_bias + cost, -slope * from_bias + cost
        found.append((torch.minimum(passing, blocking), cost))
    return found
