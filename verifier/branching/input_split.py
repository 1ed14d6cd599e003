"""Where to cut a box: which input makes the bound of a row loose.

The gap between a row and the plane below it has two sources.  The plane itself varies over the box, by |slope_i|
times the width of input i.  And each bent neuron adds the gap of its relaxation times its coefficient: of a ReLU the
height of its triangle.  The gap depends on the radius of the neuron's bounds, and a zonotope tells how much each symbol
contributes to that radius: an input directly, an earlier neuron through its own radius, whose contributions are known
in turn.  One pass from the last group to the first therefore attributes the whole gap to the inputs.

requires:   the zonotopes of the boxes, and a backward sweep over the same bounds
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verifier.bounding.relaxation.zonotope import Zonotopes
from verifier.branching.base import Brancher
from verifier.shapes import Float, Tensor


@dataclass(frozen=True, eq=False)
class BoxView:
    """What the rule sees of a batch of bounded boxes, for one row of each.

    `owed` is what symbols cost besides, where the sweep does not know it.
    """

    found: Zonotopes
    coefficients: Sequence[Float[Tensor, "D _"] | None]  # of x[k] in the sweep
    variation: Float[Tensor, "D n0"]  # of the plane, over the width of each input
    owed: Float[Tensor, "g D"] | None = None


@dataclass(frozen=True)
class InputSplit(Brancher[BoxView]):
    """Scores the inputs by what they contribute to the looseness."""

    plane_share: float = 0.5  # the plane's variation counts less: halving a box lifts its least value in one half only

    def scores(self, view: BoxView) -> Float[Tensor, "D n0"]:
        found, (boxes, n0) = view.found, view.variation.shape
        inputs = n0 if found.moving is None else len(found.moving)
        symbols = max([inputs, *(noise.start + noise.neuron.shape[1] for noise in found.noises)])
        owed = found.output.centre.new_zeros(symbols, boxes)
        if view.owed is not None:
            owed[: len(view.owed)] += view.owed
        for k in range(len(found.noises), 0, -1):
            noise, lam = found.noises[k - 1], view.coefficients[k - 1] if view.coefficients else None
            places = noise.neuron.shape[1]
            if not places:
                continue
            weight = owed[noise.start : noise.start + places].T / noise.scale
            if lam is not None:
                at = lam.to(owed.dtype).gather(1, noise.neuron)
                weight = weight + torch.where(at < 0, noise.above * -at, noise.below * at)
            weight = torch.where(noise.present, weight, 0.0)
            owed[: len(noise.share)] += (noise.share * weight).sum(dim=-1)
        gaps = owed[:inputs].T
        if found.moving is not None:
            gaps = gaps.new_zeros(boxes, n0).index_copy_(1, found.moving, gaps)
        return gaps + self.plane_share * view.variation.to(owed.dtype)
