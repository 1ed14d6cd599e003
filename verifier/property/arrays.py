"""Properties that are given as arrays, without any file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from verifier.arguments import shown
from verifier.errors import InputError
from verifier.property.ball import Ball, norm_number
from verifier.property.near import Near
from verifier.property.property import Boxes, Clause, Doubles, ExactRow, Property, RoundedRows

Numbers = ArrayLike | torch.Tensor
Unsafe = Sequence[tuple[Numbers, Numbers]]
Shape = tuple[int, ...]

EXACT = 2**53
"""Integers up to this size are exact in float64."""


def box_arrays(lower: Numbers, upper: Numbers) -> tuple[Doubles, Doubles]:
    """Both ends of a box as float64 arrays of the same shape, lower nowhere above upper."""
    low, high = as_array(lower, "lower"), as_array(upper, "upper")
    if low.shape != high.shape:
        raise InputError(f"lower has the shape {low.shape} and upper {high.shape}; they must be equal")
    if not low.size:
        raise InputError("the box has no inputs")
    if (low > high).any():
        first = int(np.argmax((low > high).reshape(-1)))
        raise InputError(f"lower exceeds upper at entry {first} of {low.size}: no input lies between them")
    return low, high


def check_shape(given: Shape, expected: Shape) -> None:
    """Raises InputError unless an array of shape `given` can only mean one input of shape `expected`.

    That is the shape itself with any number of leading ones, or a flat array.  Another shape of the same size, as of
    an image with its channels last, would be read in the wrong order.
    """
    flat = (math.prod(expected),)
    if _core(given) not in (_core(expected), _core(flat)):
        raise InputError(f"the network takes an input of shape {expected}, or flat of shape {flat}, not {given}")


def _core(shape: Shape) -> Shape:
    """The shape without its leading ones."""
    ones = next((i for i, n in enumerate(shape) if n != 1), len(shape))
    return shape[ones:]


def as_array(values: Numbers, name: str) -> Doubles:
    """A float64 array of the very same numbers; raises InputError for what is no array of finite real numbers."""
    array = _as_numpy(values, name)
    if array.dtype.kind not in "fiub":
        raise InputError(f"{name} is no array of real numbers, but {_kind(values, array)}")
    doubles = array.astype(np.float64)
    if not np.isfinite(doubles).all():
        raise InputError(f"{name} has entries that are infinite or no numbers")
    large = abs(doubles) >= EXACT
    inexact = (doubles.astype(array.dtype) != array).any() if array.dtype.kind == "f" else False
    if inexact or (array.dtype.kind in "iu" and array[large].tolist() != list(map(int, doubles[large].tolist()))):
        raise InputError(f"{name} has entries that no float64 number is equal to")
    return doubles


def _as_numpy(values: Numbers, name: str) -> NDArray[np.generic]:
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        raise InputError(f"{name} has entries that are masked")
    try:
        return _from_torch(values) if isinstance(values, torch.Tensor) else np.asarray(values)
    except Exception as error:  # of any kind: ragged lists, tensors without data, objects of the user
        raise InputError(f"{name} is no array of real numbers, but {shown(values)}") from error


def _from_torch(values: torch.Tensor) -> NDArray[np.generic]:
    found = values.detach().to_dense() if values.layout is not torch.strided else values.detach()
    if found.is_floating_point():
        found = found.to(torch.float64)  # exact; NumPy does not know all of torch's types
    return found.cpu().resolve_neg().numpy()


def _kind(values: object, array: NDArray[np.generic]) -> str:
    if array.dtype.kind == "O" or isinstance(values, str | bytes | None):
        return shown(values)
    return f"one of type {array.dtype}"


def clause_arrays(unsafe: Unsafe) -> list[tuple[Doubles, Doubles]]:
    """The pairs (A, c) as matrices and vectors with equally many rows.  Raises InputError, also if there is none."""
    if not isinstance(unsafe, list | tuple):
        raise InputError(f"unsafe is a list of pairs (A, c), not {shown(unsafe)}")
    if not unsafe:
        raise InputError("unsafe has no pair (A, c): nothing would be unsafe, so there is nothing to decide")
    return [_clause(pair, number) for number, pair in enumerate(unsafe)]


def _clause(pair: object, number: int) -> tuple[Doubles, Doubles]:
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise InputError(f"unsafe is a list of pairs (A, c), but entry {number} is {shown(pair)}; one pair is [(A, c)]")
    A, c = as_array(pair[0], f"A of pair {number}"), as_array(pair[1], f"c of pair {number}")
    if A.ndim not in (1, 2) or c.ndim > 1:
        ranks = f"A of shape {A.shape} and c of shape {c.shape}"
        raise InputError(f"pair {number} of unsafe has {ranks}; A is a matrix and c a vector; one pair is [(A, c)]")
    A, c = np.atleast_2d(A), np.atleast_1d(c)
    if len(A) != len(c) or not len(A):
        raise InputError(f"pair {number} of unsafe has A with {len(A)} rows and c with {len(c)} entries")
    return A, c


@dataclass(frozen=True, eq=False)
class InputSet:
    """Arrays as an input set: the points of a box, of a ball, or of both."""

    shape: Shape
    boxes: Boxes
    ball: Ball | None = None

    @staticmethod
    def of(lower: Numbers | None, upper: Numbers | None, around: Around | None) -> InputSet:
        """Raises InputError unless there is a box or a neighbourhood, or if they have no point in common.

        Numbers are taken as they are: a float is an exact rational.
        """
        if (lower is None) != (upper is None):
            raise InputError("a box needs both lower and upper")
        box = None if lower is None or upper is None else box_arrays(lower, upper)
        if around is not None:
            return around.inputs(box)
        assert box is not None
        low, high = (side.reshape(1, -1) for side in box)
        return InputSet(box[0].shape, Boxes.enclosed((low, low), (high, high)))


@dataclass(frozen=True, eq=False)
class Around:
    """All inputs x with norm(scale (x - centre)) <= eps; the norm is 'inf', 2 or 1, and `scale` one number or many.

    verifier.verify(module, around=verifier.Around(x, 0.5, norm=2), unsafe=[([[1.0, -1.0]], [0.0])])
    """

    centre: Numbers
    eps: float
    norm: str | float = "inf"
    scale: Numbers = 1.0

    def inputs(self, box: tuple[Doubles, Doubles] | None) -> InputSet:
        """Those of them that lie in a box, if one is given.  Raises InputError for what makes no sense."""
        centre, eps, scale = as_array(self.centre, "centre"), as_array(self.eps, "eps"), as_array(self.scale, "scale")
        if not centre.size or eps.ndim:
            raise InputError("a neighbourhood needs an array as its centre, and a number eps")
        if scale.size not in (1, centre.size) or not (scale > 0).all():
            raise InputError(f"scale needs positive numbers, one or as many as the centre has: {centre.size}")
        if box is not None and box[0].size != centre.size:
            raise InputError(f"the box has {box[0].size} inputs and the centre {centre.size}")
        within = None if box is None else list(zip(*map(_fractions, box), strict=True))
        weight = _fractions(np.broadcast_to(scale.reshape(-1), centre.size))
        near = Near(_fractions(centre), weight, Fraction(eps.item()), norm_number(self.norm), within)
        return InputSet(centre.shape, near.boxes(), near.ball)


def _fractions(values: Doubles) -> list[Fraction]:
    return [Fraction(value) for value in values.reshape(-1).tolist()]


def property_of_arrays(
    inputs: InputSet, unsafe: Sequence[tuple[Doubles, Doubles]], counts: tuple[int, int]
) -> Property:
    """The property of an input set and of clauses, for a network with `counts` inputs and outputs.

    Its numbers are taken as they are: a float is an exact rational.
    """
    boxes = inputs.boxes
    low, high = boxes.lower[0], boxes.upper[0]
    n_x, n_y = counts
    if len(low) != n_x:
        raise InputError(f"the box has {len(low)} inputs, the network {n_x}")
    clauses = []
    for number, (A, c) in enumerate(unsafe):
        if A.shape[1] != n_y:
            raise InputError(f"pair {number} of unsafe has A of shape {A.shape}, not ({len(c)}, {n_y})")
        exact = [
            ExactRow(tuple((j, Fraction(a)) for j, a in enumerate(row) if a != 0), (), Fraction(limit), strict=False)
            for row, limit in zip(A.tolist(), c.tolist(), strict=True)
        ]
        clauses.append(Clause(0, RoundedRows.of(exact, n_x, n_y, (low, high))))
    return Property(n_x, n_y, boxes, tuple(clauses), ball=inputs.ball)
