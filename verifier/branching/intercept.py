"""Scores read off the optimised dual: what the upper faces of the relaxation cost.

A backward sweep pays `-lam_minus * intercept` for every ambiguous neuron whose coefficient is negative: the upper
face lies above the ReLU by up to the intercept.  Fixing the neuron's sign removes that term in both children, so it
estimates the gain.  Neurons that cost nothing are ordered by the gap of their relaxation, far below the others.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.branching import BRANCHERS
from verifier.branching.base import Brancher, View
from verifier.shapes import Float, Tensor


@BRANCHERS.register("intercept")
@dataclass(frozen=True)
class Intercept(Brancher[View]):
    """Needs nothing beyond the sweep that gave the bound."""

    tie: float = 1e-4

    def scores(self, view: View) -> Float[Tensor, "D A"]:
        found = [view.trace.x0[:, 0, :0]]
        for kinks, lam in zip(view.sweep.kinks, view.trace.coefficients, strict=True):
            gap = kinks.intercept.squeeze(1)
            cost = torch.zeros_like(gap) if lam is None else (-lam[:, 0]).clamp(min=0) * gap
            score = cost + self.tie * gap / (1 + gap)
            found.append(torch.where(kinks.ambiguous.squeeze(1), score, -1.0))
        return torch.cat(found, dim=1)
