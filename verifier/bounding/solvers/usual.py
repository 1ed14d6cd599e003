"""What was best for other objectives of the same network: slopes of ReLUs, groups that cuts help at, kinds of masks.

Objectives at neurons of one layer after the other ask for much the same slopes before it.  Ascents that begin with the
mean of those slopes, weighted by the coefficients that take them, are after four iterations where they would be after
eight.  Any slopes give a valid bound.

Cuts gain something at few groups, in deep networks mostly the first ones.  Elsewhere they only cost their passes.
Learning their masks gains much in dense networks and little in others, so the first objectives try both.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from verifier.bounding.core.sweep import Kinks, Sweep
from verifier.shapes import Float, Tensor

EXTRA = 0.15
"""What masks have to gain by being learned, in parts of what an ascent with given ones gains: it takes longer."""

FADING = 0.5
"""How much of what was learned before counts beside the newest objectives."""


@dataclass(eq=False)
class UsualSlopes:
    """Of every group: the sum of the weights at each kink, and that of the slopes with their weights; useless cuts."""

    _seen: dict[int, tuple[Float[Tensor, " a"], Float[Tensor, " a"]]] = field(default_factory=dict)
    # For each layer, at which groups, counted from 0, cuts were tried for its objectives, and where they helped.
    _told: dict[int, tuple[frozenset[int], frozenset[int]]] = field(default_factory=dict)

    masks_pay: bool | None = None  # whether it pays to learn masks; None: nobody has tried

    def begin(self, sweep: Sweep, point: Float[Tensor, "D S V"]) -> Float[Tensor, "D S V"]:
        """The point with the usual slopes, where some are known.  Require: the slopes of all groups come first."""
        parts = list(point.split([*(n.count for n in sweep.neurons), point.shape[-1] - _slopes(sweep)], dim=-1))
        for k, part in enumerate(parts[:-1]):
            if self._knows(k, part):
                weight, total = self._seen[k]
                mean = (total / weight).to(part)
                parts[k] = torch.where(mean.isfinite(), mean, part)  # no weights at all, or too large ones
        return torch.cat(parts, dim=-1)

    def learn(
        self, sweep: Sweep, point: Float[Tensor, "D S V"], coefficients: Sequence[Float[Tensor, "D S _"] | None]
    ) -> None:
        """Remember the slopes of a point; those at positive coefficients of x are the ones that matter."""
        slopes = point[..., : _slopes(sweep)].split([n.count for n in sweep.neurons], dim=-1)
        for k, (part, lam) in enumerate(zip(slopes, coefficients, strict=True)):
            if lam is None or not isinstance(sweep.neurons[k], Kinks):  # nobody reads the group, or it has curves
                continue
            positive = lam.clamp(min=0).nan_to_num(0.0, 0.0, 0.0)
            weight, total = positive.sum(dim=(0, 1)), (positive * part).sum(dim=(0, 1))
            if self._knows(k, part):
                weight, total = (n + FADING * o for n, o in zip((weight, total), self._seen[k], strict=True))
            self._seen[k] = weight, total

    def knows_cuts(self, layer: int) -> bool:
        """Whether an objective of that layer has told which cuts help."""
        return layer in self._told

    def cuts(self, layer: int) -> frozenset[int]:
        """The groups before a layer at which cuts are worth looking for, as layers before it have told.

        Where the last group that was tried did not help, no later one is expected to.  The objectives of one layer get
        the same answer, so that what is found for parts of them can be put together.
        """
        told = [groups for k, groups in self._told.items() if k < layer]
        useless = {k for tried, useful in told for k in tried - useful}
        end = min((max(tried) for tried, useful in told if tried and max(tried) not in useful), default=layer)
        return frozenset(k for k in range(layer - 1) if k < end and k not in useless)

    def learn_cuts(self, layer: int, tried: frozenset[int], useful: frozenset[int]) -> None:
        """At which groups cuts were tried for objectives of a layer, and where they helped."""
        self._told[layer] = tried, useful

    def learn_masks(self, learned: float, given: float) -> None:
        """What ascents with learned and with given masks have gained over bounds without cuts."""
        self.masks_pay = learned >= (1.0 + EXTRA) * given

    def _knows(self, k: int, slopes: Float[Tensor, "D S a"]) -> bool:
        return k in self._seen and self._seen[k][0].shape == slopes.shape[-1:]


def _slopes(sweep: Sweep) -> int:
    return sum(neurons.count for neurons in sweep.neurons)
