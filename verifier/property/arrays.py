"""Properties that are given as arrays, without any file."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import ArrayLike

from verifier.errors import InputError
from verifier.property.property import Boxes, Clause, Doubles, ExactRow, Property, Rows

Numbers = ArrayLike | torch.Tensor
Unsafe = Sequence[tuple[Numbers, Numbers]]


def box_arrays(lower: Numbers, upper: Numbers) -> tuple[Doubles, Doubles]:
    """Both ends of a box as float64 arrays of the same shape."""
    low, high = _array(lower, "lower"), _array(upper, "upper")
    if low.shape != high.shape:
        raise InputError(f"lower has the shape {low.shape} and upper {high.shape}; they must be equal")
    if not low.size:
        raise InputError("the box has no inputs")
    return low, high


def _array(values: Numbers, name: str) -> Doubles:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu().numpy()
    try:
        array = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is no array of numbers") from error
    if not np.isfinite(array).all():
        raise InputError(f"{name} has entries that are infinite or no numbers")
    return array


def property_of_arrays(box: tuple[Doubles, Doubles], unsafe: Unsafe, n_y: int) -> Property:
    """The property of arrays.  Its numbers are taken as they are: a float is an exact rational."""
    low, high = box[0].reshape(-1), box[1].reshape(-1)
    n_x = len(low)
    if (low > high).any():
        none = np.zeros((0, n_x))
        boxes = Boxes.enclosed((none, none), (none, none))
        return Property(n_x, n_y, boxes, (), warnings=("the input box is empty: lower exceeds upper",))
    boxes = Boxes.enclosed((low[None], low[None]), (high[None], high[None]))
    clauses = []
    for number, (matrix, bound) in enumerate(unsafe):
        A, c = np.atleast_2d(_array(matrix, f"A of pair {number}")), np.atleast_1d(_array(bound, f"c of pair {number}"))
        if A.shape != (len(c), n_y):
            raise InputError(f"pair {number} of unsafe has A of shape {A.shape}, not ({len(c)}, {n_y})")
        exact = [
            ExactRow(tuple((j, Fraction(a)) for j, a in enumerate(row) if a != 0), (), Fraction(limit), strict=False)
            for row, limit in zip(A.tolist(), c.tolist(), strict=True)
        ]
        clauses.append(Clause(0, Rows.rounded(exact, n_x, n_y, (low, high))))
    return Property(n_x, n_y, boxes, tuple(clauses))
