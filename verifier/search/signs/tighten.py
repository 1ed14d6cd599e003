"""Bounds of later groups in children: a split narrows what follows it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

import torch

from verifier.bounding.core.base import Region, Until
from verifier.bounding.hidden import GroupBounds, RootBounds
from verifier.search.signs.root import Batch, outward
from verifier.shapes import Float, Int, Tensor


class Tightening(ABC):
    """Whether and how the bounds of domains are computed anew."""

    @abstractmethod
    def tightened(self, batch: Batch, kinks: Int[Tensor, "D levels"], until: Until) -> Batch:
        """The same domains with bounds that are nowhere looser; `kinks` is where they were just split."""


@dataclass(frozen=True)
class Never(Tightening):
    """Domains keep the bounds of the whole box, cut by their signs."""

    def tightened(self, batch: Batch, kinks: Int[Tensor, "D levels"], until: Until) -> Batch:
        return batch


@dataclass(frozen=True)
class AfterSplit(Tightening):
    """Groups after the one that was split are bounded again, in domains whose depth has passed a multiple of `every`.

    Guarantee: rigorous bounds, the better of the parent's and the new ones; only ambiguous neurons are looked at.
    """

    method: GroupBounds = field(default_factory=RootBounds)
    every: int = 1

    def tightened(self, batch: Batch, kinks: Int[Tensor, "D levels"], until: Until) -> Batch:
        depth, levels = batch.depth, (kinks >= 0).sum(dim=1)
        due = torch.nonzero(depth // self.every > (depth - levels) // self.every).flatten()
        low, high = batch.cut()
        if len(due):
            some = batch.select(due)
            first = _first_group(some, kinks[due])
            lows, highs = self._bounds(some, first, until)
            low, high = low.index_copy(0, due, lows), high.index_copy(0, due, highs)
        return replace(batch, bounds=torch.cat([outward(low, -1), outward(high, 1)], dim=1))

    def _bounds(self, batch: Batch, first: int, until: Until) -> tuple[Float[Tensor, "D A"], Float[Tensor, "D A"]]:
        """Bounds of all kinks, those of the groups after `first` computed anew."""
        root, known = batch.root, batch.region()
        assert known.splits is not None
        l_hat, u_hat = list(known.l_hat), list(known.u_hat)
        for k in range(first + 1, len(l_hat) + 1):
            before = Region(
                known.lower,
                known.upper,
                tuple(l_hat[: k - 1]),
                tuple(u_hat[: k - 1]),
                known.functions[: k - 1],
                splits=known.splits[: k - 1],
            )
            low, high = self.method.group(root.net, before, k, until)
            l_hat[k - 1], u_hat[k - 1] = torch.fmax(low, l_hat[k - 1]), torch.fmin(high, u_hat[k - 1])
        none = known.lower[:, :0]
        lows = [none, *(low[:, index] for low, index in zip(l_hat, root.indices, strict=True))]
        highs = [none, *(high[:, index] for high, index in zip(u_hat, root.indices, strict=True))]
        return torch.cat(lows, dim=1), torch.cat(highs, dim=1)


def _first_group(batch: Batch, kinks: Int[Tensor, "D levels"]) -> int:
    """The first group in which some domain was just split."""
    first = int(torch.where(kinks >= 0, kinks, batch.root.kinks).min())
    return batch.root.place(first)[0]
