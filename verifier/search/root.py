"""What all domains of one input box share: the network, the root's bounds, the rows of its clauses."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from verifier.bounding.base import Region, widest
from verifier.bounding.conjunction import Conjunction, ConjunctionDual
from verifier.bounding.rounding import layer_slack
from verifier.bounding.sweep import Kinks, Sweep
from verifier.network.network import Network
from verifier.property.canonical import Problem
from verifier.shapes import Float, Int, Int8, Tensor


@dataclass(frozen=True, eq=False)
class Root:
    """An input box with rigorous bounds in float64, its kinks fixed for the whole tree.

    `rows` has one entry per clause of the box; `clauses` gives their numbers in the property, `known` lower bounds of
    their largest rows.  A domain is a clause and a sign for each kink: +1 passing, -1 blocking, 0 open; kinks are
    counted through all groups.
    """

    net: Network
    single: Network  # the same in float32
    region: Region
    clauses: tuple[int, ...]
    rows: Conjunction
    slacks: tuple[Float[Tensor, "1 _"], ...]
    known: Float[Tensor, " C"]

    @classmethod
    def of(
        cls, problem: Problem, region: Region, clauses: tuple[int, ...], known: Float[Tensor, " C"] | None = None
    ) -> Root:
        """Require: `region` holds the bounds of one box (D = 1), and all clauses have that box."""
        net = problem.network
        kinks = tuple(Kinks.of(region, k).index for k in range(1, len(net.layers)))
        length = widest(net, len(net.layers)) + len(net.layers)
        slacks = tuple(layer_slack(layer, region, length) for layer in net.layers)
        rows = _table(problem, clauses)
        if known is None:
            known = region.lower.new_full((len(clauses),), -torch.inf)
        return cls(net, net.to(dtype=torch.float32), replace(region, kinks=kinks), clauses, rows, slacks, known)

    @property
    def device(self) -> torch.device:
        return self.region.lower.device

    @property
    def sizes(self) -> list[int]:
        assert self.region.kinks is not None
        return [len(index) for index in self.region.kinks]

    @property
    def kinks(self) -> int:
        return sum(self.sizes)

    def bounds(self) -> tuple[Float[Tensor, " A"], Float[Tensor, " A"]]:
        """l_hat and u_hat of all kinks at the root."""
        assert self.region.kinks is not None
        sides = zip(self.region.l_hat, self.region.u_hat, self.region.kinks, strict=True)
        none = self.region.lower.new_zeros(0)
        pairs = [(none, none), *((low[0, index], high[0, index]) for low, high, index in sides)]
        return torch.cat([p[0] for p in pairs]), torch.cat([p[1] for p in pairs])

    def narrowed(self, signs: Int8[Tensor, "D A"]) -> Region:
        """The region of each domain: the root's bounds, cut by the signs."""
        assert self.region.kinks is not None
        count = len(signs)
        lows, highs, splits = [], [], []
        for k, sign in enumerate(signs.split(self.sizes, dim=1)):
            index = self.region.kinks[k]
            low, high = (side[k].repeat(count, 1) for side in (self.region.l_hat, self.region.u_hat))
            low[:, index] = torch.where(sign > 0, low[:, index].clamp(min=0), low[:, index])
            high[:, index] = torch.where(sign < 0, high[:, index].clamp(max=0), high[:, index])
            lows.append(low)
            highs.append(high)
            splits.append(torch.zeros_like(low, dtype=torch.int8).index_copy_(1, index, sign))
        return Region(
            self.region.lower.expand(count, -1),
            self.region.upper.expand(count, -1),
            tuple(lows),
            tuple(highs),
            kinks=self.region.kinks,
            splits=tuple(splits),
        )

    def dual(
        self, signs: Int8[Tensor, "D A"], clause: Int[Tensor, " D"], dtype: torch.dtype = torch.float32
    ) -> ConjunctionDual:
        """The dual function of a batch of domains."""
        region, rows = self.narrowed(signs), self.rows.select(clause)
        if dtype is torch.float64:
            slacks = tuple(slack.expand(len(signs), -1) for slack in self.slacks)
            return ConjunctionDual.of(Sweep.prepare(self.net, region, len(self.net.layers), slacks), rows)
        return ConjunctionDual.of(Sweep.prepare(self.single, region.to(dtype), len(self.net.layers)), rows.to(dtype))


def _table(problem: Problem, clauses: tuple[int, ...]) -> Conjunction:
    """The rows of the clauses, padded to the longest."""
    most = max(len(problem.rows[k].c) for k in clauses)
    new, shape = problem.lower.new_zeros, (len(clauses), max(1, most))
    A, c = new(*shape, problem.network.n_out), new(*shape)
    B = new(*shape, problem.network.n_in) if any(problem.rows[k].B is not None for k in clauses) else None
    present = torch.zeros(shape, dtype=torch.bool, device=c.device)
    for i, k in enumerate(clauses):
        rows = problem.rows[k]
        count = max(1, len(rows.c))  # a clause without rows gets 0 <= 0, which no bound can refute
        A[i, : len(rows.c)], c[i, : len(rows.c)], present[i, :count] = rows.A, rows.c, True
        if B is not None and rows.B is not None:
            B[i, : len(rows.c)] = rows.B
    return Conjunction(A, B, c, present)
