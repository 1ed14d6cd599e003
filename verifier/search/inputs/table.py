"""The clauses that are searched, by the box that they share, as one table of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verifier.bounding.conjunction import Conjunction
from verifier.property.canonical import Problem
from verifier.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class Table:
    """N root boxes; each has up to C clauses with R rows A y + B x - c in total, padded with zeros.

    `own[n, i]` marks the rows of clause i of box n.  `number` names the clause as the property counts them, -1 where
    there is none.
    """

    lower: Float[Tensor, "N n0"]
    upper: Float[Tensor, "N n0"]
    A: Float[Tensor, "N R n_y"]
    B: Float[Tensor, "N R n0"] | None
    c: Float[Tensor, "N R"]
    own: Bool[Tensor, "N C R"]
    number: Int[Tensor, "N C"]

    @classmethod
    def of(cls, problem: Problem, clauses: Sequence[int]) -> Table:
        """The given clauses of the problem, with their boxes.  Require: at least one."""
        wanted = set(clauses)
        kept = [(box, [k for k in members if k in wanted]) for box, members in enumerate(problem.clauses_of)]
        kept = [(box, members) for box, members in kept if members]
        most = max(len(members) for _, members in kept)
        rows = max(1, *(sum(len(problem.rows[k].c) for k in members) for _, members in kept))
        new, N = problem.lower.new_zeros, len(kept)
        A, c = new(N, rows, problem.network.n_out), new(N, rows)
        B = new(N, rows, problem.network.n_in) if any(problem.rows[k].B is not None for k in wanted) else None
        own = torch.zeros(N, most, rows, dtype=torch.bool, device=c.device)
        number = torch.full((N, most), -1, device=c.device)
        for n, (_, members) in enumerate(kept):
            start = 0
            for i, k in enumerate(members):
                clause, stop = problem.rows[k], start + len(problem.rows[k].c)
                A[n, start:stop], c[n, start:stop], own[n, i, start:stop] = clause.A, clause.c, True
                if B is not None and clause.B is not None:
                    B[n, start:stop] = clause.B
                number[n, i], start = k, stop
        boxes = torch.tensor([box for box, _ in kept], device=c.device)
        return cls(problem.lower[boxes], problem.upper[boxes], A, B, c, own, number)

    def rows(self, roots: Int[Tensor, " D"]) -> Conjunction:
        """All rows of domains, given the root box of each."""
        B = None if self.B is None else self.B[roots]
        return Conjunction(self.A[roots], B, self.c[roots], self.own[roots].any(dim=1))
