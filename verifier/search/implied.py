"""Signs of ReLUs that a clause itself forces.

A row q . x + const <= 0 over activations x >= 0 with all q >= 0 and const >= 0 holds only where every x with a positive
coefficient is zero: there those neurons block.  All other points are safe, so the search may begin with these signs.
Encodings of logical formulas are full of such rows, and hopeless to search without them.

guarantees: exact.  The signs of all coefficients and of the constant are found without rounding
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import torch

from verifier.network.network import Network
from verifier.operators.matrix import stored_rows
from verifier.property.problem import ClauseRows, Problem
from verifier.shapes import Int, Int8, Tensor


def implied_signs(
    problem: Problem, clauses: Sequence[int], kinks: tuple[Int[Tensor, " _"], ...]
) -> Int8[Tensor, "C A"]:
    """-1 for kinks that block wherever the clause holds, else 0; kinks are counted through all groups."""
    found = torch.zeros(len(clauses), sum(len(index) for index in kinks), dtype=torch.int8)
    for i, clause in enumerate(clauses):
        for row in range(len(problem.rows[clause].c)):
            blocked = _blocked(problem.network, problem.rows[clause], row)
            for group, neurons in blocked:
                first = sum(len(index) for index in kinks[: group - 1])
                found[i, first : first + len(kinks[group - 1])][neurons[kinks[group - 1]].cpu()] = -1
    return found.to(problem.lower.device)


def all_force(problem: Problem) -> bool:
    """Whether every clause forces some signs."""
    return all(forcing_rows(problem, clause) for clause in range(len(problem.rows)))


def forcing_rows(problem: Problem, clause: int) -> list[int]:
    """The rows of a clause that force signs."""
    rows = problem.rows[clause]
    return [row for row in range(len(rows.c)) if _blocked(problem.network, rows, row)]


def _blocked(net: Network, rows: ClauseRows, row: int) -> list[tuple[int, Tensor]]:
    """The neurons of each group that one row forces to block, as masks."""
    outputs = torch.nonzero(rows.A[row]).flatten()
    if len(outputs) != 1 or (rows.B is not None and bool(rows.B[row].any())):
        return []
    y, factor = int(outputs[0]), float(rows.A[row, outputs[0]])
    weights = _weights(net, y)
    if weights is None or any(bool((w < 0 if factor > 0 else w > 0).any()) for _, w in weights):
        return []
    constant = Fraction(factor) * Fraction(float(net.output.bias[y])) - Fraction(float(rows.c[row]))
    return [(source, w != 0) for source, w in weights] if constant >= 0 else []


def _weights(net: Network, y: int) -> list[tuple[int, Tensor]] | None:
    """The weights of one output on each group; None if some are not exact, or if it reads anything but ReLUs."""
    output = net.output
    if bool(output.bias_error[y] != 0):
        return None
    found = []
    for source, term in output.terms:
        rows = stored_rows(term, torch.tensor([y], device=output.bias.device))
        if source == 0 or rows is None or not net.groups[source - 1].function.is_relu:
            return None
        weight = rows[0]
        if not torch.equal(weight.float().double(), weight):  # the product of several maps, and so rounded
            return None
        found.append((source, weight))
    return found
