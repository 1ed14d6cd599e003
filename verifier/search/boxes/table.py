"""The clauses that are searched, by the box that they share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from verifier.bounding.rows import Conjunction
from verifier.property.problem import Problem
from verifier.shapes import Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class Table:
    """N root boxes with up to C clauses each.

    `number` names the clause as the property counts them, -1 where there is none; `place` says where its rows are.
    """

    lower: Float[Tensor, "N n0"]
    upper: Float[Tensor, "N n0"]
    clauses: Conjunction
    number: Int[Tensor, "N C"]
    place: Int[Tensor, "N C"]

    @classmethod
    def of(cls, problem: Problem, clauses: Sequence[int]) -> Table:
        """The given clauses of the problem, with their boxes.  Require: at least one."""
        wanted = {k: place for place, k in enumerate(clauses)}
        kept = [(box, [k for k in members if k in wanted]) for box, members in enumerate(problem.clauses_of)]
        kept = [(box, members) for box, members in kept if members]
        boxes = torch.tensor([box for box, _ in kept], device=problem.lower.device)
        number = torch.full((len(kept), max(len(members) for _, members in kept)), -1, device=boxes.device)
        place = torch.zeros_like(number)
        for n, (_, members) in enumerate(kept):
            number[n, : len(members)] = torch.tensor(members)
            place[n, : len(members)] = torch.tensor([wanted[k] for k in members])
        rows = Conjunction.of(problem, [[k] for k in clauses])
        return cls(problem.lower[boxes], problem.upper[boxes], rows, number, place)

    def rows(self, root: Int[Tensor, " P"], clause: Int[Tensor, " P"]) -> Conjunction:
        """The rows of clauses, each given by its root box and its place there."""
        return self.clauses.select(self.place[root, clause])
