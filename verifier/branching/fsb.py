"""Filtered smart branching: a few candidates by cheap scores, then the one whose children are really bounded best.

source: De Palma et al., Improved branch and bound for neural network verification via Lagrangian decomposition
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.branching import BRANCHERS
from verifier.branching.babsr import estimates
from verifier.branching.base import Brancher, View
from verifier.branching.intercept import Intercept
from verifier.shapes import Float, Tensor


@BRANCHERS.register("fsb")
@dataclass(frozen=True)
class FilteredSmart(Brancher[View]):
    """`candidates` by each of two scores: BaBSR's, and the intercepts of the optimised dual.

    Children of all candidates are bounded as one batch.  A candidate counts by its worse child, then by the other one.
    """

    candidates: int = 4
    other_child: float = 0.1  # the weight of the better child, which breaks ties

    def scores(self, view: View) -> Float[Tensor, "D A"]:
        base = Intercept().scores(view)
        count = min(self.candidates, base.shape[1])
        changes = torch.where(base >= 0, estimates(view)[0], -1.0)
        candidates = torch.cat([base.topk(count, dim=1).indices, changes.topk(count, dim=1).indices], dim=1)
        children = view.probe(candidates).nan_to_num(nan=-torch.inf)
        # Rises, as a share of the distance to zero: all that is closed counts as 1.
        parent = view.trace.lower[:, :1].clamp(max=-torch.finfo(base.dtype).tiny).unsqueeze(-1)
        rise = ((children - parent) / -parent).clamp(-1.0, 1.0)
        worse, better = rise.amin(dim=-1), rise.amax(dim=-1)
        merit = worse + self.other_child * better
        # Places count, not values: a search keeps scores in half precision, and rises may be small shares.
        place = 1.0 + merit.argsort(dim=1).argsort(dim=1).to(base.dtype) / merit.shape[1]
        low = base / (1 + base.amax(dim=1, keepdim=True).clamp(min=0)) * 0.1
        found = torch.where(base >= 0, low, -1.0)
        found = found.scatter_reduce(1, candidates, place, "amax")  # above all that are no candidates
        return torch.where(base >= 0, found, -1.0)
