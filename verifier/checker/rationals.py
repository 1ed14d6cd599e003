"""Arrays of rational numbers: integers over one common denominator, so that sums and products need no gcd.

They take the place of float64 arrays in the inequality: `+ - *`, `@`, minima, maxima, absolute values and comparisons
mean the same, without rounding.  Floats that meet them are taken exactly.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Ints = NDArray[np.int64]

_FEW = 8
"""Products of so few rows are made entry by entry; more of them limb by limb."""


class Rationals(np.lib.mixins.NDArrayOperatorsMixin):
    """`above` / `below`: an array of Python integers, and one positive integer."""

    def __init__(self, above: Array, below: int = 1) -> None:
        self.above, self.below = np.asarray(above, dtype=object), below

    @classmethod
    def of(cls, values: Any) -> Rationals:
        """Numbers as they are: integers, fractions, or floats, which must be finite."""
        given = np.asarray(values)
        if given.dtype == object:
            below = math.lcm(*{number.denominator for number in given.flat})
            whole = np.frompyfunc(lambda number: number.numerator * (below // number.denominator), 1, 1)(given)
            return cls(whole, below)
        if given.dtype.kind != "f":
            return cls(given.astype(object))
        if not np.isfinite(given).all():
            raise OverflowError("a number that is not finite is no rational")
        mantissa, exponent = np.frexp(given)
        digits = np.ldexp(mantissa, 53).astype(np.int64)  # exact: 53 bits and a sign
        zeros = np.frexp((digits & -digits).astype(np.float64))[1] - 1
        zeros = np.where(digits == 0, 0, zeros)
        power = np.where(digits == 0, 0, exponent.astype(np.int64) - 53 + zeros)
        least = min(int(power.min(initial=0)), 0)
        return cls((digits >> zeros).astype(object) << (power - least).astype(object), 1 << -least)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.above.shape

    def __len__(self) -> int:
        return len(self.above)

    def __getitem__(self, place: Any) -> Rationals:
        return Rationals(self.above[place], self.below)

    def sum(self, axis: int) -> Rationals:
        return Rationals(self.above.sum(axis=axis), self.below)

    @property
    def fractions(self) -> Array:
        """Its numbers, one by one."""
        found = np.frompyfunc(lambda number: Fraction(number, self.below), 1, 1)(self.above)
        return np.asarray(found, dtype=object)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **given: Any) -> Any:
        if method != "__call__" or given:
            return NotImplemented
        parts: list[Any] = [part if isinstance(part, Rationals) else Rationals.of(part) for part in inputs]
        if ufunc in (np.multiply, np.matmul):
            first, second = parts
            combine = product if ufunc is np.matmul else np.multiply
            return Rationals(combine(first.above, second.above), first.below * second.below)
        if ufunc in (np.absolute, np.negative):
            return Rationals(ufunc(parts[0].above), parts[0].below)
        if ufunc in (np.add, np.subtract, np.minimum, np.maximum):
            first, second, below = _common(*parts)
            return Rationals(ufunc(first, second), below)
        if ufunc in (np.less, np.less_equal, np.greater, np.greater_equal, np.equal, np.not_equal):
            first, second, _ = _common(*parts)
            return np.asarray(ufunc(first, second), np.bool_)
        return NotImplemented


def _common(first: Rationals, second: Rationals) -> tuple[Array, Array, int]:
    """Both over one denominator."""
    below = math.lcm(first.below, second.below)
    a, b = (part.above if part.below == below else part.above * (below // part.below) for part in (first, second))
    return a, b, below


def where(mask: Array, first: Any, second: Any) -> Any:
    """As numpy's, for floats and for rationals."""
    if not isinstance(first, Rationals) and not isinstance(second, Rationals):
        return np.where(mask, first, second)
    parts = [part if isinstance(part, Rationals) else Rationals.of(part) for part in (first, second)]
    a, b, below = _common(*parts)
    return Rationals(np.where(mask, a, b), below)


def product(x: Array, matrix: Array) -> Array:
    """x @ matrix; of integers by limbs that are so short that float64 makes no rounding."""
    if x.dtype != object or matrix.dtype != object or x.shape[-2] < _FEW:
        return np.asarray(np.matmul(x, matrix), dtype=np.result_type(x, matrix))
    width = (53 - x.shape[-1].bit_length()) // 2
    first, second = _limbs(x, width), _limbs(matrix, width)
    sums: list[Any] = [0] * (len(first) + len(second) - 1)
    for i, a in enumerate(first):
        for j, b in enumerate(second):
            sums[i + j] = sums[i + j] + np.matmul(a, b).astype(np.int64)
    found = sums[-1].astype(object)
    for part in sums[-2::-1]:
        found = (found << width) + part
    return np.asarray(found, dtype=object)


def _limbs(values: Array, width: int) -> list[Array]:
    """Arrays of floats below 2^width, signed, whose sum with weights 2^(width i) is the values."""
    sign, size = np.sign(values).astype(np.float64), np.abs(values)
    mask, found = (1 << width) - 1, []  # type: int, list[Array]
    while not found or size.any():
        found.append(sign * (size & mask).astype(np.float64))
        size = size >> width
    return found
