"""From parents to children: signs for the kinks with the highest scores."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from verifier.search.frontier import Domains
from verifier.shapes import Int, Int8, Tensor


@dataclass(frozen=True, eq=False)
class Children:
    """Children of several parents, one below the other."""

    parent: Int[Tensor, " C"]
    signs: Int8[Tensor, "C A"]

    def select(self, rows: Tensor) -> Children:
        return Children(self.parent[rows], self.signs[rows])


def split(parents: Domains, batch: int) -> Children:
    """Split every parent at its best kinks, several levels at once while that keeps the batch within `batch`.

    Require: every parent has an ambiguous kink (a score >= 0).  Guarantee: the children of a parent cover it.
    """
    open_kinks = int((parents.scores >= 0).sum(dim=1).min())
    levels = max(1, min(open_kinks, int(math.log2(max(2, batch / len(parents))))))
    best = parents.scores.topk(levels, dim=1).indices
    count = 2**levels
    pattern = (torch.arange(count, device=best.device).unsqueeze(1) >> torch.arange(levels, device=best.device)) & 1
    signs = parents.signs.repeat_interleave(count, dim=0)
    choice = (2 * pattern - 1).to(torch.int8).repeat(len(parents), 1)
    signs.scatter_(1, best.repeat_interleave(count, dim=0), choice)
    parent = torch.arange(len(parents), device=best.device).repeat_interleave(count)
    return Children(parent, signs)
