"""Bounds of later groups in children: a split narrows what follows it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace

import torch

from verifier.bounding.core.base import Region, Until
from verifier.bounding.hidden import Ends, GroupBounds, RootBounds
from verifier.search.signs.root import Batch, outward
from verifier.shapes import Bool, Int, Tensor


@dataclass(frozen=True, eq=False)
class Tightened:
    """Domains with bounds of their own, and which neurons of which of them were bounded anew.

    `rows` are those domains; `looked` says, for each of the groups from `first` on, which neurons of each of them.
    """

    batch: Batch
    rows: Int[Tensor, " d"]
    first: int
    looked: tuple[Bool[Tensor, "d _"], ...]

    @classmethod
    def nowhere(cls, batch: Batch) -> Tightened:
        """All domains as they were."""
        return cls(batch, torch.zeros(0, dtype=torch.long, device=batch.clause.device), batch.root.layer, ())


@dataclass(frozen=True)
class Tightening(ABC):
    """Whether and how the bounds of domains are computed anew.

    Domains whose bounds do not travel begin anew when the search moves to sharper bounds of the whole boxes.
    """

    travels: bool = field(default=True, kw_only=True)

    def repeatable(self) -> Tightening:
        """The same by bounds that whoever knows the tree can compute again: from the same ones, to the last digit."""
        return self

    def after_points(self) -> Tightening:
        """The same for domains that are also split at points, which help most by the bounds that follow."""
        return self

    @abstractmethod
    def tightened(self, batch: Batch, kinks: Int[Tensor, "D levels"], until: Until) -> Tightened:
        """The same domains with bounds that are nowhere looser; `kinks` is where they were just split."""


@dataclass(frozen=True)
class Never(Tightening):
    """Domains keep the bounds of the whole box, cut by their signs."""

    def tightened(self, batch: Batch, kinks: Int[Tensor, "D levels"], until: Until) -> Tightened:
        return Tightened.nowhere(batch)

    def after_points(self) -> Tightening:
        return AfterSplit(RootBounds(None), travels=self.travels)


@dataclass(frozen=True)
class AfterSplit(Tightening):
    """Groups after the one that was split are bounded again, in domains whose depth has passed a multiple of `every`.

    Guarantee: rigorous bounds, the better of the parent's and the new ones.  In each domain only those neurons are
    looked at that are ambiguous there, or whose sign is imposed: its bounds may contradict the sign.
    """

    method: GroupBounds = field(default_factory=RootBounds)
    every: int = 1
    kept: torch.dtype = torch.float32  # how bounds are kept, rounded outward

    def tightened(self, batch: Batch, kinks: Int[Tensor, "D levels"], until: Until) -> Tightened:
        depth, levels = batch.depth, (kinks >= 0).sum(dim=1)
        due = torch.nonzero(depth // self.every > (depth - levels) // self.every).flatten()
        low, high = batch.cut()
        found = Tightened.nowhere(batch)
        if len(due):
            some = batch.select(due)
            first = _first_group(some, kinks[due]) + 1
            (lows, highs), looked = self._bounds(some, first, until)
            low, high = low.index_copy(0, due, lows), high.index_copy(0, due, highs)
            found = Tightened(batch, due, first, looked)
        bounds = torch.cat([outward(low, -1, self.kept), outward(high, 1, self.kept)], dim=1)
        return replace(found, batch=replace(batch, bounds=bounds))

    def repeatable(self) -> AfterSplit:
        return replace(self, method=RootBounds(), kept=torch.float64, travels=False)

    def _bounds(self, batch: Batch, first: int, until: Until) -> tuple[Ends, tuple[Bool[Tensor, "D _"], ...]]:
        """Bounds of all kinks, those of the groups from `first` on computed anew; and whose."""
        root, known = batch.root, batch.region()
        assert known.splits is not None
        l_hat, u_hat, looked = list(known.l_hat), list(known.u_hat), []
        for k in range(first, len(l_hat) + 1):
            sides = tuple(l_hat[: k - 1]), tuple(u_hat[: k - 1])
            splits = known.splits[: k - 1]
            before = Region(known.lower, known.upper, *sides, known.functions[: k - 1], splits=splits, ball=known.ball)
            low, high = self.method.group(root.net, before, k, until)
            looked.append(known.ambiguous(k) | (known.splits[k - 1] != 0))
            l_hat[k - 1] = torch.where(looked[-1], torch.fmax(low, l_hat[k - 1]), l_hat[k - 1])
            u_hat[k - 1] = torch.where(looked[-1], torch.fmin(high, u_hat[k - 1]), u_hat[k - 1])
        none = known.lower[:, :0]
        lows = [none, *(low[:, index] for low, index in zip(l_hat, root.indices, strict=True))]
        highs = [none, *(high[:, index] for high, index in zip(u_hat, root.indices, strict=True))]
        return (torch.cat(lows, dim=1), torch.cat(highs, dim=1)), tuple(looked)


def _first_group(batch: Batch, kinks: Int[Tensor, "D levels"]) -> int:
    """The first group in which some domain was just split."""
    first = int(torch.where(kinks >= 0, kinks, batch.root.kinks).min())
    return batch.root.place(first)[0]
