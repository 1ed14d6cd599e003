"""The rows of all clauses that are searched, box by box, as one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verifier.property.canonical import Problem
from verifier.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class Table:
    """Rows A y + B x - c of N root boxes with up to C clauses of up to m rows each; what is missing is padded.

    `number` names each clause as the property counts them, -1 where there is none.
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
        """The given clauses of the problem, with their boxes.  Require: at least one clause."""
        wanted = set(clauses)
        groups = [(box, [k for k in members if k in wanted]) for box, members in enumerate(problem.clauses_of)]
        groups = [(box, members) for box, members in groups if members]
        most = max(len(members) for _, members in groups)
        width = max(1, *(len(problem.rows[k].c) for k in wanted))
        shape = (len(groups), most, width)
        new = problem.lower.new_zeros
        A, c = new(*shape, problem.network.n_out), new(*shape)
        B = new(*shape, problem.network.n_in) if any(problem.rows[k].B is not None for k in wanted) else None
        present = torch.zeros(shape, dtype=torch.bool, device=c.device)
        number = torch.full(shape[:2], -1, device=c.device)
        for n, (_, members) in enumerate(groups):
            for i, k in enumerate(members):
                rows, place = problem.rows[k], (n, i, slice(len(problem.rows[k].c)))
                A[place], c[place], present[place] = rows.A, rows.c, True
                if B is not None and rows.B is not None:
                    B[place] = rows.B
                number[n, i] = k
        boxes = torch.tensor([box for box, _ in groups], device=c.device)
        return cls(problem.lower[boxes], problem.upper[boxes], A, B, c, present, number)

    def of_boxes(self, boxes: Int[Tensor, " D"]) -> Rows:
        """The rows of domains, given the root box of each."""
        return Rows(
            self.A[boxes], None if self.B is None else self.B[boxes], self.c[boxes], self.present[boxes]
        )


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of C clauses in each of D domains."""

    A: Float[Tensor, "D C m n_y"]
    B: Float[Tensor, "D C m n0"] | None
    c: Float[Tensor, "D C m"]
    present: Bool[Tensor, "D C m"]
