"""Only the outputs that a property asks for.

A property often looks at few outputs of a network.  Its rows have no weight on the others, so that it says the same of
the cone of those that it looks at (`verifier.network.cone`); what the others depend on needs no bounds.

guarantees: a point is unsafe by the smaller property of the cone if and only if it is by the given one, in real
            arithmetic.  Whoever tries points judges them by the original network and property
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from verifier.network.cone import cone
from verifier.network.network import Network
from verifier.property.heads import Restated
from verifier.property.property import Clause, ExactRow, Property, RoundedRows


def only_asked(network: Network, prop: Property) -> Restated | None:
    """Network and property of the outputs that some row looks at; None if that is all of them, or none."""
    if prop.n_y != network.n_out or not prop.clauses:
        return None
    asked = np.zeros(prop.n_y, dtype=np.bool_)
    for clause in prop.clauses:
        asked |= _looks_at(clause.rows, prop.n_y)
        if asked.all():
            return None
    if not asked.any():
        return None
    outputs = np.flatnonzero(asked).tolist()
    place = {output: i for i, output in enumerate(outputs)}
    clauses = tuple(Clause(clause.box, _restricted(clause.rows, asked, place)) for clause in prop.clauses)
    return Restated(cone(network, outputs), replace(prop, n_y=len(outputs), clauses=clauses), False)


def _looks_at(rows: RoundedRows, n_y: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """By the exact rows, because a float may be rounded to zero, and by the floats, which proofs are about."""
    found = np.zeros(n_y, dtype=np.bool_)
    for row in rows.exact:
        found[[j for j, a in row.y if a]] = True
    return found | rows.A.any(axis=0)


def _restricted(
    rows: RoundedRows, asked: np.ndarray[tuple[int], np.dtype[np.bool_]], place: dict[int, int]
) -> RoundedRows:
    """The same rows over those outputs."""
    exact = tuple(
        ExactRow(tuple((place[j], a) for j, a in row.y if j in place), row.x, row.bound, row.strict)
        for row in rows.exact
    )
    error = None if rows.A_error is None else rows.A_error[:, asked]
    return replace(rows, A=rows.A[:, asked], exact=exact, A_error=error)
