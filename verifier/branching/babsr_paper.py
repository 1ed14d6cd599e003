"""BaBSR as its authors released it, beside our own reading of it in `babsr`.

The score is the same estimate, the smaller of the two gains, but by its absolute value: a neuron whose fixing seems to
lower the bound counts as much as one that seems to raise it.  The choice has three stages:

    by score       the highest score of all groups, if it is above a threshold and not in the first group
    by intercept   else the neuron that pays most for its intercept, in the last group where someone pays enough
    by position    else the first ambiguous neuron of the last group that has one

The first group, as the one with the sparsest weights, is never split by score.

The released program also counts consecutive choices by intercept in the first group, over all domains that it meets,
and takes the third stage after two of them.  Here a choice depends on its own domain only, whatever came before.

source: Bunel et al., Branch and bound for piecewise linear neural network verification, JMLR 2020; the details are
        facts about the program that was released with [SCB]
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.branching import BRANCHERS
from verifier.branching.babsr import group_estimates
from verifier.branching.base import Brancher, View
from verifier.shapes import Bool, Float, Tensor


@BRANCHERS.register("babsr_paper")
@dataclass(frozen=True)
class PublishedBaBSR(Brancher[View]):
    """`threshold` for scores, `least_cost` for intercepts: what is not above it says nothing.

    The numbers that are returned order the neurons within each domain and mean nothing else.  A search keeps them in
    half precision, so the stage that decides has the upper half of [0, 1] to itself.
    """

    threshold: float = 1e-3
    least_cost: float = 1e-4

    def scores(self, view: View) -> Float[Tensor, "D A"]:
        groups = [kinks.ambiguous.squeeze(1) for kinks in view.sweep.kinks]
        if not groups:
            return view.trace.x0[:, 0, :0]
        estimates = zip(group_estimates(view), groups, strict=True)
        found = [(_known(gain.abs(), open_), _known(cost, open_)) for (gain, cost), open_ in estimates]
        score = torch.cat([size for size, _ in found], dim=1)
        fallback = self._fallback([cost for _, cost in found], groups)
        first = view.sweep.kinks[0].count
        best = _most(score[:, first:])
        by_score = (best > self.threshold) & (best >= _most(score[:, :first]))
        counts = by_score & (score > self.threshold)
        counts[:, :first] = False
        ranked = 0.5 + 0.5 * score / best.clamp(min=self.threshold)
        order = torch.where(counts, ranked, torch.where(by_score, 0.5 * fallback, fallback))
        return torch.where(torch.cat(groups, dim=1), order, -1.0)

    def _fallback(self, costs: list[Tensor], ambiguous: list[Tensor]) -> Float[Tensor, "D A"]:
        """By intercept, then by position: in [0, 1], with the group that decides in the upper half."""
        strong = torch.cat([_most(cost) > self.least_cost for cost in costs], dim=1)
        present = torch.cat([a.any(dim=1, keepdim=True) for a in ambiguous], dim=1)
        groups = len(costs)
        place = torch.arange(groups, device=strong.device) + groups * strong
        decides = torch.where(present, place, -1).argmax(dim=1, keepdim=True)
        found = []
        for k, cost in enumerate(costs):
            first = 1 - torch.arange(cost.shape[1], device=cost.device, dtype=cost.dtype) / max(1, cost.shape[1])
            within = torch.where(strong[:, k : k + 1], cost / _most(cost).clamp(min=self.least_cost), first)
            lower = 0.5 * (place[:, k : k + 1] + within) / (2 * groups + 1)
            found.append(torch.where(decides == k, 0.5 + 0.5 * within, lower))
        return torch.cat(found, dim=1)


def _known(values: Float[Tensor, "D a"], ambiguous: Bool[Tensor, "D a"]) -> Float[Tensor, "D a"]:
    """Stable neurons have nothing to say."""
    return torch.where(ambiguous, values, 0.0)


def _most(values: Float[Tensor, "D a"]) -> Float[Tensor, "D 1"]:
    """The largest of each domain; 0 where there is none."""
    return torch.nn.functional.pad(values, (0, 1)).amax(dim=1, keepdim=True)
