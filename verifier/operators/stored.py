"""Matrices whose entries are stored one by one: which form they take, and their rows."""

from __future__ import annotations

from verifier.operators.base import LinearMap
from verifier.operators.dense import Dense
from verifier.operators.sparse import Sparse, worth_it
from verifier.shapes import Float, Int, Tensor


def stored(weight: Float[Tensor, "m k"], repeats: int = 1, roundings: int = 0) -> Dense | Sparse:
    """The matrix in the form whose products are faster."""
    if repeats == 1 and worth_it(int(weight.count_nonzero()), (weight.shape[0], weight.shape[1])):
        return Sparse.of(weight, roundings)
    return Dense(weight.contiguous(), repeats, roundings)


def stored_rows(linear: LinearMap, index: Int[Tensor, " r"]) -> Float[Tensor, "r n_in"] | None:
    """Some rows as they are stored, without any arithmetic; None if the map does not store its rows."""
    if isinstance(linear, Sparse):
        return linear.taken(index).dense()
    if isinstance(linear, Dense) and linear.repeats == 1:
        return linear.weight[index]
    return None
