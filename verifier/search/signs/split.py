"""From parents to children: signs for the kinks with the highest scores."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from verifier.bounding.core.state import State
from verifier.shapes import Float, Int, Int8, Tensor


@dataclass(frozen=True, eq=False)
class Children(State):
    """Children of several parents, one below the other."""

    parent: Int[Tensor, " C"]
    signs: Int8[Tensor, "C A"]
    kinks: Int[Tensor, "C levels"]  # where the parent was split; -1 where it could not be split so often


def split(signs: Int8[Tensor, "P A"], scores: Float[Tensor, "P A"], batch: int) -> Children:
    """Split every parent at its best kinks, several levels at once while that keeps the batch within `batch`.

    Require: some kinks; those that may be split have a score >= 0.  Guarantee: the children of a parent cover it and
    differ from each other.  A parent with fewer such kinks than others gets fewer children; with none, itself.
    """
    may_split = scores >= 0
    most, room = int(may_split.sum(dim=1).max()), int(math.log2(max(2, batch / len(signs))))
    levels = max(1, min(most, room))
    best = scores.topk(levels, dim=1).indices
    free, now = may_split.gather(1, best).unsqueeze(1), signs.gather(1, best).unsqueeze(1)  # [P, 1, levels]
    numbers = torch.arange(2**levels, device=best.device).unsqueeze(1)
    bits = ((numbers >> torch.arange(levels, device=best.device)) & 1).unsqueeze(0)  # [1, 2^levels, levels]
    choice = torch.where(free, (2 * bits - 1).to(torch.int8), now)  # [P, 2^levels, levels]
    different = (free | (bits == 0)).all(dim=2)  # one pattern only for what is not split
    made = signs.repeat_interleave(len(numbers), dim=0)
    made.scatter_(1, best.repeat_interleave(len(numbers), dim=0), choice.flatten(0, 1))
    parent = torch.arange(len(signs), device=best.device).repeat_interleave(len(numbers))
    kinks = torch.where(free.squeeze(1), best, -1).repeat_interleave(len(numbers), dim=0)
    return Children(parent, made, kinks).select(different.flatten())
