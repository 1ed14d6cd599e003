"""Very many boxes with few moving inputs: a first look by affine forms alone.

A form of a box costs one pass through the network, for all neurons and rows at once, where a sweep for each hidden
neuron that is ambiguous somewhere costs as many; and boxes are treated as many at a time as fit into memory.  Clauses
that stay open are left to a search by boxes, which begins with the same forms.

requires:   a problem in float64, whose boxes have few inputs that move
guarantees: those of `ClauseBounder`, by single rows
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from verifier.bounding.clauses import ClauseBounds
from verifier.bounding.core.base import Until
from verifier.bounding.core.closing import closes
from verifier.bounding.relaxation.form import AffineForm
from verifier.bounding.relaxation.least import least_rows
from verifier.bounding.relaxation.zonotope import fits_single, propagate
from verifier.bounding.rows import Conjunction
from verifier.network.network import Network
from verifier.property.problem import Problem
from verifier.shapes import Float, Int, Tensor

LIKELY = 64
"""Symbols besides those of inputs that the first boxes are thought to need."""

GROWTH = 8
"""How many times more boxes than before are treated at once, at most: what they need is seen, not foreseen."""


@dataclass(frozen=True)
class FormBounder:
    """Bounds every row of every clause by the form of its box, in float32 where that loses nothing that matters."""

    memory_bytes: int = 32 * 2**20  # of one tensor of the forms
    first: int = 8  # boxes that show what forms need
    most: int = 4096
    double: bool = False  # never in float32

    def bound(
        self, problem: Problem, until: Until, report: Callable[[float], None] = lambda worst: None
    ) -> ClauseBounds:
        """`report` hears the worst bound so far after each batch."""
        table = ClauseTable.of(problem)
        lower = problem.lower.new_full((len(problem.rows),), -torch.inf)
        rounds = not self.double and fits_single(problem.network)
        single = problem.network.to(dtype=torch.float32) if rounds else None
        net, start, seen = problem.network, 0, torch.inf
        widest, moving = max(layer.size for layer in net.layers), int((problem.lower < problem.upper).any(dim=0).sum())
        count = max(1, min(self.first, self.memory_bytes // (8 * widest * (moving + LIKELY))))
        while start < len(problem.lower) and not until.expired():
            stop = min(start + count, len(problem.lower))
            clauses, found, bytes_each = self._group(problem, net, table, (start, stop))
            lower[clauses] = found
            if start == 0 and single is not None:
                _, rough, _ = self._group(problem, single, table, (start, stop))
                if int(closes(rough).sum()) >= int(closes(found).sum()):
                    net, bytes_each = single, bytes_each // 2
            seen = min(seen, float(found.min())) if len(found) else seen
            report(seen)
            count = max(1, min(GROWTH * count, self.most, self.memory_bytes // bytes_each))
            start = stop
        return ClauseBounds(lower, {}, {})

    @staticmethod
    def _group(
        problem: Problem, net: Network, table: ClauseTable, part: tuple[int, int]
    ) -> tuple[Int[Tensor, " k"], Float[Tensor, " k"], int]:
        """The clauses of boxes start..stop-1, their bounds, and the bytes of the largest tensor, per box."""
        start, stop = part
        low, high = problem.lower[start:stop], problem.upper[start:stop]
        moving = torch.nonzero((low < high).any(dim=0)).flatten()
        forms = propagate(net, low, high, moving=moving)
        clauses = table.of_boxes(start, stop)
        inputs = AffineForm.of_box(low, high, net.output.bias.dtype, moving)
        rows = table.rows.select(clauses)
        found = least_rows(rows, (inputs, forms.output), table.box[clauses] - start).amax(dim=1)
        widest = max([problem.network.n_in, *(layer.size for layer in problem.network.layers)])
        return clauses, found, widest * max(1, len(forms.output.spread)) * net.output.bias.element_size()


@dataclass(frozen=True, eq=False)
class ClauseTable:
    """All clauses: their rows and boxes, and an order in which those of one box lie together."""

    rows: Conjunction
    box: Int[Tensor, " k"]
    order: Int[Tensor, " k"]
    begins: Int[Tensor, " N_plus_1"]

    @classmethod
    def of(cls, problem: Problem) -> ClauseTable:
        device = problem.lower.device
        box = torch.tensor([clause.box for clause in problem.property.clauses], dtype=torch.long, device=device)
        counts = torch.bincount(box, minlength=len(problem.lower))
        begins = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        return cls(Conjunction.of_each(problem), box, box.argsort(stable=True), begins)

    def of_boxes(self, start: int, stop: int) -> Int[Tensor, " k"]:
        """The clauses of some boxes."""
        return self.order[int(self.begins[start]) : int(self.begins[stop])]
