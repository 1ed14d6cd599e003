"""The weights of a clause's rows as a proof has them: of the rows of the file, however the search has scaled them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from verifier.errors import InputError
from verifier.proofs.stream import Pieces
from verifier.property.problem import Problem

USUAL = 2.0**500
"""Rows that were scaled by more, or by less than its inverse, are left alone: multipliers would leave the floats."""


class Lambdas:
    """Turns weights of the search's rows into those of the file's.

    The only row of a clause has the weight one in a proof, whatever the search has scaled it by; then the multipliers
    of a witness that are no shares have to be scaled (`unit`).
    """

    def __init__(self, problem: Problem) -> None:
        """Raises InputError for rows whose coefficients are at the ends of the floats."""
        self._factors = [_factors(problem, clause) for clause in range(len(problem.rows))]

    def unit(self, clause: int) -> float:
        """How many times larger the objective of a proof is than that of the search."""
        factors = self._factors[clause]
        return float(1.0 / factors[0]) if len(factors) == 1 else 1.0

    def bytes_of(self, clause: int, weights: NDArray[np.float64]) -> bytes:
        """Weights of the search as a proof has them."""
        factors = self._factors[clause]
        if len(factors) == 1:
            return b""
        rows = weights[: len(factors)] * factors
        some = rows > 0
        pieces = Pieces().members(some).doubles(*rows[some].tolist()).done()
        return b"".join(piece for piece in pieces if isinstance(piece, bytes))


def _factors(problem: Problem, clause: int) -> NDArray[np.float64]:
    found = problem.property.clauses[clause].rows.factors()
    if not ((found <= USUAL) & (found >= 1.0 / USUAL)).all():
        raise InputError(f"clause {clause} has coefficients that --proof cannot write down")
    return found
