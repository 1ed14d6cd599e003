"""Domains that wait."""

from __future__ import annotations

from typing import Generic

import torch

from verifier.bounding.core.rounding import float32_below
from verifier.bounding.core.state import cat, tree_map
from verifier.search.domains import DomainsT
from verifier.shapes import Tensor


class Frontier(Generic[DomainsT]):
    """Open domains in main memory.  The worst bound leaves first; beyond the memory budget the deepest one does.

    Domains of different tiers never leave together, so that a batch is bounded by one method.  A bound that is NaN
    counts as the worst of all: it must not hide a domain.
    """

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        self._store: DomainsT | None = None
        self._rank = torch.zeros(0)  # what leaves first is smallest; +inf marks a free place
        self.open = 0
        self.most = 0

    @property
    def limit(self) -> int:
        """How many domains the memory holds."""
        return self.memory_bytes // self._store.bytes_each if self._store is not None else self.memory_bytes

    def lower(self) -> float:
        """The worst bound of all that wait; +inf if nothing does."""
        return float(self._rank.min()) if self.open else float("inf")

    def share(self) -> float:
        """How much of the tree waits: a root counts 1, and every split halves a domain."""
        if self._store is None:
            return 0.0
        return float(torch.exp2(-self._store.depth[self._rank < torch.inf].float()).sum())

    def push(self, domains: DomainsT) -> None:
        if not len(domains):
            return
        free = torch.nonzero(self._rank == torch.inf).flatten()
        if len(free) < len(domains):
            self._grow(domains, len(domains) - len(free))
            free = torch.nonzero(self._rank == torch.inf).flatten()
        assert self._store is not None
        places = free[: len(domains)]
        tree_map(lambda mine, other: mine.index_copy_(0, places, other.to(mine)), self._store, domains)
        known = float32_below(domains.lower.to("cpu"))
        self._rank[places] = torch.where(known.isnan(), -torch.inf, known.clamp(max=torch.finfo(known.dtype).max))
        self.open += len(domains)
        self.most = max(self.most, self.open)

    def pop(self, count: int) -> DomainsT:
        """Take out at most `count` domains of the tier whose turn it is.  Require: some are open."""
        assert self._store is not None
        rank = self._rank
        if self.open > self.limit:  # deepest first: a dive ends in leaves and frees memory
            rank = torch.where(self._rank == torch.inf, self._rank, -self._store.depth.float())
        tier = self._store.tier[rank.argmin()]
        rank = torch.where(self._store.tier == tier, rank, torch.inf)
        count = min(count, int((rank < torch.inf).sum()))
        places = rank.topk(count, largest=False).indices
        self._rank[places] = torch.inf
        self.open -= count
        return self._store.select(places)

    def all(self) -> DomainsT | None:
        """Everything that waits; None if nothing ever did."""
        return None if self._store is None else self._store.select(self._rank < torch.inf)

    def halve(self) -> Frontier[DomainsT]:
        """Give every second domain, from the worst to the best, to another frontier.  Require: some are open."""
        assert self._store is not None
        places = self._rank.argsort()[: self.open][1::2]
        other: Frontier[DomainsT] = Frontier(self.memory_bytes)
        other.push(self._store.select(places))
        self._rank[places] = torch.inf
        self.open -= len(places)
        return other

    def _grow(self, like: DomainsT, missing: int) -> None:
        """Double the places, but slow down where the memory budget would be passed."""
        now = len(self._rank)
        extra = max(missing, min(now, max(self.memory_bytes // like.bytes_each - now, now // 4)), 256)

        def more(array: Tensor) -> Tensor:
            return torch.zeros(extra, *array.shape[1:], dtype=array.dtype)

        new = tree_map(more, like if self._store is None else self._store)
        self._store = new if self._store is None else cat([self._store, new])
        self._rank = torch.cat([self._rank, torch.full((extra,), torch.inf)])
