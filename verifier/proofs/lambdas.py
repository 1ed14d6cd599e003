"""The weights of a clause's rows as a proof has them: of the rows of the file, however the search has scaled them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from verifier.errors import InputError
from verifier.proofs.stream import sets
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

    def words(self, clauses: Sequence[int], weights: NDArray[np.float64]) -> list[bytes]:
        """Weights of the search [rows, m] as a proof has them, each of its own clause."""
        found, own = [b""] * len(clauses), np.array(clauses, dtype=np.int64)
        for clause in np.unique(own).tolist():
            factors, places = self._factors[clause], np.flatnonzero(own == clause)
            if len(factors) > 1:
                rows = weights[places, : len(factors)] * factors
                for place, word in zip(places.tolist(), _weighted(rows), strict=True):
                    found[place] = word
        return found


def _weighted(rows: NDArray[np.float64]) -> Iterator[bytes]:
    """Which rows have weights, and these."""
    some = rows > 0
    data, ends = rows[some].astype("<f8").tobytes(), 8 * np.cumsum(some.sum(axis=1))
    for members, start, stop in zip(sets(some), [0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        assert isinstance(members, bytes)
        yield members + data[start:stop]


def _factors(problem: Problem, clause: int) -> NDArray[np.float64]:
    found = problem.property.clauses[clause].rows.factors()
    if not ((found <= USUAL) & (found >= 1.0 / USUAL)).all():
        raise InputError(f"clause {clause} has coefficients that --proof cannot write down")
    return found
