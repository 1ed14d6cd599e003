"""The clauses that are searched, by the box that they share, as one table of rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verifier.bounding.rows import Conjunction
from verifier.property.problem import Problem
from verifier.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class Table:
    """N root boxes with up to C clauses of up to m rows A y + B x - c each; what is missing is padded with zeros.

    `number` names the clause as the property counts them, -1 where there is none.
    """

    lower: Float[Tensor, "N n0"]
    upper: Float[Tensor, "N n0"]
    A: Float[Tensor, "N C m n_y"]
    B: Float[Tensor, "N C m n0"] | None
    c: Float[Tensor, "N C m"]
    present: Bool[Tensor, "N C m"]
    number: Int[Tensor, "N C"]

    @classmethod
    def of(cls, problem: Problem, clauses: Sequence[int]) -> Table:
        """The given clauses of the problem, with their boxes.  Require: at least one."""
        wanted = set(clauses)
        kept = [(box, [k for k in members if k in wanted]) for box, members in enumerate(problem.clauses_of)]
        kept = [(box, members) for box, members in kept if members]
        shape = (
            len(kept),
            max(len(members) for _, members in kept),
            max(1, *(len(problem.rows[k].c) for k in wanted)),
        )
        new = problem.lower.new_zeros
        A, c = new(*shape, problem.network.n_out), new(*shape)
        B = new(*shape, problem.network.n_in) if any(problem.rows[k].B is not None for k in wanted) else None
        present = torch.zeros(shape, dtype=torch.bool, device=c.device)
        number = torch.full(shape[:2], -1, device=c.device)
        for n, (_, members) in enumerate(kept):
            for i, k in enumerate(members):
                rows = problem.rows[k]
                place = (n, i, slice(len(rows.c)))
                A[place], c[place], present[place] = rows.A, rows.c, True
                if B is not None and rows.B is not None:
                    B[place] = rows.B
                number[n, i] = k
        boxes = torch.tensor([box for box, _ in kept], device=c.device)
        return cls(problem.lower[boxes], problem.upper[boxes], A, B, c, present, number)

    def rows(self, root: Int[Tensor, " P"], clause: Int[Tensor, " P"]) -> Conjunction:
        """The rows of clauses, each given by its root box and its place there."""
        B = None if self.B is None else self.B[root, clause]
        return Conjunction(self.A[root, clause], B, self.c[root, clause], self.present[root, clause])
