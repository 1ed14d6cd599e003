"""Local robustness as a property: all points near an input must keep its class.

The text is VNN-LIB 1.0.  Its box contains the exact one: centre plus and minus eps, clipped, then normalised, all in
rational arithmetic; the decimals are rounded outward at the 17th significant digit.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifier.errors import InputError

DIGITS = 17
Number = float | str | Fraction


@dataclass(frozen=True, slots=True)
class Scaling:
    """How an image becomes a network input: (pixel - mean) / std, per channel or the same for all.

    A float stands for the decimal that Python prints for it: 0.1 means one tenth.
    """

    mean: Sequence[Number] = (0,)
    std: Sequence[Number] = (1,)

    def per_value(self, shape: tuple[int, ...]) -> tuple[list[Fraction], list[Fraction]]:
        """Mean and std of every entry of a flat input.

        With several channels the channel axis is the first one that is not a batch axis of size 1 (CHW or 1CHW).
        Raises InputError if there are not as many values as channels, or if a std is not positive.
        """
        means, stds = _per_value(self.mean, "mean", shape), _per_value(self.std, "std", shape)
        if min(stds, default=Fraction(1)) <= 0:
            raise InputError("std must be positive")
        return means, stds


@dataclass(frozen=True, slots=True, eq=False)
class LocalRobustness:
    """The ball of radius `eps` in the maximum norm around `centre`, in which class `label` of `classes` must win.

    Requires: `centre` and `eps` are in pixel space, before `scaling`.  The bounds are cut off at `clip` in pixel space.
    """

    centre: NDArray[Any]
    label: int
    classes: int
    eps: Number
    clip: tuple[Number, Number] | None = None
    scaling: Scaling = Scaling()

    def vnnlib(self) -> str:
        """The property's text.  Raises InputError if some value makes no sense."""
        if not (self.classes >= 2 and 0 <= self.label < self.classes):
            raise InputError(f"label {self.label} is not one of {self.classes} classes, of which there must be two")
        bounds = self.bounds()
        lines = [f"; local robustness: class {self.label} within {self.eps} of the centre in the maximum norm"]
        lines += [f"(declare-const X_{i} Real)" for i in range(len(bounds))]
        lines += [f"(declare-const Y_{j} Real)" for j in range(self.classes)]
        for i, (low, high) in enumerate(bounds):
            lines.append(f"(assert (>= X_{i} {decimal_text(low, down=True)}))")
            lines.append(f"(assert (<= X_{i} {decimal_text(high, down=False)}))")
        lines.append("(assert (or")
        lines += [f"    (and (>= Y_{j} Y_{self.label}))" for j in range(self.classes) if j != self.label]
        return "\n".join([*lines, "))", ""])

    def bounds(self) -> list[tuple[Fraction, Fraction]]:
        """The exact box, flat in C order."""
        eps = exact(self.eps, "eps")
        if eps < 0:
            raise InputError(f"eps is {self.eps}, it must not be negative")
        if self.centre.dtype.kind not in "fiub" or not self.centre.size:
            raise InputError("the centre must be a non-empty array of numbers")
        if not np.isfinite(self.centre).all():
            raise InputError("the centre holds values that are not finite")
        clip = None if self.clip is None else (exact(self.clip[0], "clip"), exact(self.clip[1], "clip"))
        means, stds = self.scaling.per_value(self.centre.shape)
        found = []
        for i, value in enumerate(self.centre.reshape(-1).tolist()):
            low, high = Fraction(value) - eps, Fraction(value) + eps
            if clip is not None:
                low, high = max(low, clip[0]), min(high, clip[1])
            if low > high:
                raise InputError(f"value {i} of the centre, {value}, is further than eps from the clipping range")
            found.append(((low - means[i]) / stds[i], (high - means[i]) / stds[i]))
        return found


def _per_value(values: Sequence[Number], what: str, shape: tuple[int, ...]) -> list[Fraction]:
    """One number per entry of a flat array of that shape."""
    found = [exact(value, what) for value in values]
    size = math.prod(shape)
    if len(found) == 1:
        return found * size
    channels = next((n for n in shape[:-1] if n != 1), 1) if len(shape) > 1 else size
    if len(found) != channels:
        raise InputError(f"{what} has {len(found)} values, an input of shape {list(shape)} has {channels} channels")
    return [value for value in found for _ in range(size // channels)]


def exact(value: Number, what: str) -> Fraction:
    """The rational that a number stands for: a float is the decimal that is printed for it."""
    try:
        if isinstance(value, float | np.floating) and not math.isfinite(value):
            raise ValueError
        return value if isinstance(value, Fraction) else Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise InputError(f"{what} is '{value}', which is not a finite number") from None


def decimal_text(value: Fraction, down: bool) -> str:
    """A plain decimal (no exponent) at or below the value if `down`, at or above it otherwise; exact if it is short."""
    rounding = decimal.ROUND_FLOOR if down else decimal.ROUND_CEILING
    context = decimal.Context(prec=DIGITS, rounding=rounding, Emin=-999999, Emax=999999, traps=[])
    quotient = context.divide(decimal.Decimal(value.numerator), decimal.Decimal(value.denominator))
    text = format(quotient, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    if text in ("-0", ""):
        text = "0"
    return text if "." in text else text + ".0"
