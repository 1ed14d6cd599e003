"""Scores read off the optimised dual: what the faces of the relaxation cost.

A backward sweep pays `-lam_minus * intercept` for every ambiguous ReLU whose coefficient is negative: the upper face
lies above the ReLU by up to the intercept.  Fixing the neuron's sign removes that term in both children, so it
estimates the gain.  Neurons that cost nothing are ordered by the gap of their relaxation, far below the others.

Any other neuron costs |lam| times the gap between its face and its function at the minimiser of the relaxation: the
sum of these is all that the bound is below the network's own value there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch

from verifier.branching import BRANCHERS
from verifier.branching.base import Brancher, View
from verifier.shapes import Float, Tensor


@BRANCHERS.register("intercept")
@dataclass(frozen=True)
class Intercept(Brancher[View]):
    """Needs nothing beyond the sweep that gave the bound."""

    tie: float = 1e-4

    any_function = True

    def scores(self, view: View) -> Float[Tensor, "D A"]:
        found, trace = [view.trace.x0[:, 0, :0]], view.trace
        for k, neurons in enumerate(view.sweep.neurons):
            cost, gap = neurons.losses(trace.coefficients[k], trace.lines[k], partial(view.at, k))
            score = cost + self.tie * gap / (1 + gap)
            found.append(torch.where(neurons.open, score, -1.0))
        return torch.cat(found, dim=1)
