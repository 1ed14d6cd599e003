"""Open domains as a struct of arrays: no Python object per domain."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.shapes import Float, Int, Int8, Tensor


@dataclass(frozen=True, eq=False)
class Domains:
    """A batch of domains: the clause, the signs of the kinks, a bound, and the variables that gave it."""

    clause: Int[Tensor, " D"]
    signs: Int8[Tensor, "D A"]
    lower: Float[Tensor, " D"]
    warm: Float[Tensor, "D V"]  # half precision: a warm start, never a proof
    scores: Float[Tensor, "D A"]  # half precision: what splitting each kink promises

    def __len__(self) -> int:
        return len(self.clause)

    def select(self, rows: Tensor) -> Domains:
        return Domains(self.clause[rows], self.signs[rows], self.lower[rows], self.warm[rows], self.scores[rows])

    def open(self, inherited: Float[Tensor, " D"]) -> Domains:
        """Those that are not closed (a bound of +inf), with the better of their own and an inherited bound."""
        lower = torch.fmax(self.lower, inherited.to(self.lower.dtype))
        return Domains(self.clause, self.signs, lower, self.warm, self.scores).select(~(lower == torch.inf))

    def fields(self) -> tuple[Tensor, ...]:
        return self.clause, self.signs, self.lower, self.warm, self.scores

    def to(self, device: torch.device) -> Domains:
        return Domains(*(field.to(device) for field in self.fields()))


class Frontier:
    """Domains that wait, in main memory.  The worst bound leaves first; beyond `limit` domains the deepest one does.

    A bound that is NaN counts as the worst of all: it must not hide a domain.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._store: Domains | None = None
        self._rank = torch.zeros(0)  # what leaves first is smallest; +inf marks a free place
        self._depth = torch.zeros(0)
        self.open = 0
        self.most = 0

    def lower(self) -> float:
        """The worst bound of all that wait; +inf if nothing does."""
        return float(self._rank.min()) if self.open else float("inf")

    def push(self, domains: Domains) -> None:
        if not len(domains):
            return
        free = torch.nonzero(self._rank == torch.inf).flatten()
        if len(free) < len(domains):
            self._grow(domains, len(domains) - len(free))
            free = torch.nonzero(self._rank == torch.inf).flatten()
        assert self._store is not None
        places = free[: len(domains)]
        for mine, other in zip(self._store.fields(), domains.fields(), strict=True):
            mine[places] = other.to(mine.device, mine.dtype)
        known = domains.lower.to("cpu", torch.float32)
        self._rank[places] = torch.where(known.isnan(), -torch.inf, known.clamp(max=torch.finfo(known.dtype).max))
        self._depth[places] = (domains.signs != 0).sum(dim=1).to("cpu", torch.float32)
        self.open += len(domains)
        self.most = max(self.most, self.open)

    def pop(self, count: int) -> Domains:
        """Take out at most `count` domains.  Require: some are open."""
        assert self._store is not None
        count = min(count, self.open)
        rank = self._rank
        if self.open > self._limit:  # deepest first: a dive ends in leaves and frees memory
            rank = torch.where(self._rank == torch.inf, self._rank, -self._depth)
        places = rank.topk(count, largest=False).indices
        self._rank[places] = torch.inf
        self.open -= count
        return self._store.select(places)

    def _grow(self, like: Domains, missing: int) -> None:
        """Double the places, but slow down where `limit` would be passed."""
        now = len(self._rank)
        extra = max(missing, min(now, max(self._limit - now, now // 4)), 256)

        def more(field: Tensor) -> Tensor:
            return torch.zeros(extra, *field.shape[1:], dtype=field.dtype)

        if self._store is None:
            self._store = Domains(*(more(field) for field in like.fields()))
        else:
            self._store = Domains(*(torch.cat([field, more(field)]) for field in self._store.fields()))
        self._rank = torch.cat([self._rank, torch.full((extra,), torch.inf)])
        self._depth = torch.cat([self._depth, torch.zeros(extra)])
