"""Local robustness as a property: all points near an input must keep its class.

In the maximum norm it has a text in VNN-LIB 1.0.  Its box contains the exact one: centre plus and minus eps, clipped,
then normalised, all in rational arithmetic; the decimals are rounded outward at the 17th significant digit.
"""

from __future__ import annotations

import decimal
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from verifier.arguments import shown
from verifier.errors import InputError
from verifier.property.ball import Ball, norm_number
from verifier.property.near import Near, Side
from verifier.property.property import Boxes, Clause, ExactRow, Property, RoundedRows

if TYPE_CHECKING:
    from verifier.network.models.module import ModuleModel
    from verifier.network.models.onnx import OnnxModel

DIGITS = 17
FORM = "local robustness"
"""The first key of a statement that has no form in VNN-LIB."""
Number = float | str | Fraction


@dataclass(frozen=True, slots=True)
class Scaling:
    """How an image becomes a network input: (pixel - mean) / std, per channel or the same for all.

    A float stands for the decimal that Python prints for it: 0.1 means one tenth.
    """

    mean: Sequence[Number] = (0,)
    std: Sequence[Number] = (1,)

    @classmethod
    def of(cls, mean: Any, std: Any) -> Scaling:
        """From one number or several, also as text with commas."""
        return cls(_several(mean), _several(std))

    def per_value(self, shape: tuple[int, ...]) -> tuple[list[Fraction], list[Fraction]]:
        """Mean and std of every entry of a flat input.

        With several channels the channel axis is the first one that is not a batch axis of size 1 (CHW or 1CHW).
        Raises InputError if there are not as many values as channels, or if a std is not positive.
        """
        means, stds = _per_value(self.mean, "mean", shape), _per_value(self.std, "std", shape)
        if min(stds, default=Fraction(1)) <= 0:
            raise InputError("std must be positive")
        return means, stds

    def floats(self, shape: tuple[int, ...]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The same, rounded."""
        means, stds = self.per_value(shape)
        return np.array([float(mean) for mean in means]), np.array([float(std) for std in stds])


@dataclass(frozen=True, slots=True, eq=False)
class Robustness(ABC):
    """What a centre may become, and that class `label` of `classes` must win there.

    Requires: `centre` is in pixel space, before normalisation; it may have the axes of an image where a network takes
    flat inputs.
    """

    centre: NDArray[Any]
    label: int | None  # None until the network is asked
    classes: int

    def inputs(self) -> int:
        """How many of them the property speaks of."""
        return self.centre.size

    def fronted(self, model: OnnxModel | ModuleModel) -> OnnxModel | ModuleModel:
        """The network that the property speaks of, made of the one that was given; mostly that one itself."""
        return model

    @abstractmethod
    def property(self) -> Property:
        """What is asked, with all numbers as they are.  Raises InputError if some value makes no sense."""

    @abstractmethod
    def vnnlib(self) -> str:
        """The property's text.  Raises InputError if some value makes no sense, or if it has no text."""

    @abstractmethod
    def scales(self) -> tuple[list[Fraction], list[Fraction]]:
        """Mean and std of every entry of the flat centre."""

    def values(self) -> list[Fraction]:
        """The flat centre.  Raises InputError if it does not consist of finite numbers."""
        if self.centre.dtype.kind not in "fiub" or not self.centre.size:
            raise InputError("the centre must be a non-empty array of numbers")
        if not np.isfinite(self.centre).all():
            raise InputError("the centre holds values that are not finite")
        return [Fraction(value) for value in self.centre.reshape(-1).tolist()]

    def point(self) -> list[Fraction]:
        """The flat centre as the network gets it."""
        return [(v - mean) / std for v, mean, std in zip(self.values(), *self.scales(), strict=True)]

    def _winner(self) -> int:
        """The class that must win.  Raises InputError if there is none of that number, or no other one."""
        if self.label is None or not (self.classes >= 2 and 0 <= self.label < self.classes):
            raise InputError(f"label {self.label} is not one of {self.classes} classes, of which there must be two")
        return self.label

    def _clipping(self, clip: tuple[Number, Number]) -> Side:
        """The range of valid values.  Raises InputError if it is empty, or if the centre is not in it."""
        low, high = (exact_number(end, "clip") for end in clip_pair(clip))
        if low > high:
            raise InputError(f"clip is {clip[0]} to {clip[1]}: there is nothing between")
        for i, value in enumerate(self.values()):
            if not low <= value <= high:
                raise InputError(f"value {i} of the centre, {float(value)}, is not in the clipping range")
        return low, high

    def _over(self, boxes: Boxes, ball: Ball | None = None) -> Property:
        """That another class wins somewhere in the boxes."""
        label, size = self._winner(), self.inputs()
        rows = [
            ExactRow(tuple(sorted(((label, Fraction(1)), (j, Fraction(-1))))), (), Fraction(0), strict=False)
            for j in range(self.classes)
            if j != label
        ]
        rounded = [RoundedRows.of([row], size, self.classes, (boxes.lower[0], boxes.upper[0])) for row in rows]
        clauses = tuple(Clause(box, row) for box in range(len(boxes)) for row in rounded)
        return Property(size, self.classes, boxes, clauses, ball=ball)

    def _text(self, title: str, inputs: Iterable[str]) -> str:
        """The same as VNN-LIB 1.0, from the lines about the inputs."""
        label = self._winner()
        lines = [f"; local robustness: class {label} {title}"]
        lines += [f"(declare-const X_{i} Real)" for i in range(self.inputs())]
        lines += [f"(declare-const Y_{j} Real)" for j in range(self.classes)]
        lines += [*inputs, "(assert (or"]
        lines += [f"    (and (>= Y_{j} Y_{label}))" for j in range(self.classes) if j != label]
        return "\n".join([*lines, "))", ""])


@dataclass(frozen=True, slots=True, eq=False)
class LocalRobustness(Robustness):
    """The points within `eps` of `centre` in a norm ('inf', 2 or 1).

    Requires: `eps` is in pixel space, before `scaling`.  The bounds are cut off at `clip` in pixel space.
    """

    eps: Number
    clip: tuple[Number, Number] | None = None
    scaling: Scaling = Scaling()
    norm: str | float = "inf"

    def property(self) -> Property:
        self._winner()
        near = self.near()
        return self._over(near.boxes(), near.ball)

    def vnnlib(self) -> str:
        self._winner()
        if norm_number(self.norm) is not None:
            raise InputError(
                f"a ball in the norm {self.norm} has no form in VNN-LIB 1.0, whose input sets are boxes: decide it "
                "without a file"
            )
        lines = [f"(assert {atom})" for i, side in enumerate(self.bounds()) for atom in side_atoms(i, side)]
        return self._text(f"within {self.eps} of the centre in the maximum norm", lines)

    def scales(self) -> tuple[list[Fraction], list[Fraction]]:
        return self.scaling.per_value(self.centre.shape)

    def as_json(self) -> str:
        """What is asked, in a form that every norm has; `robustness_of` reads it."""
        clip = None if self.clip is None else [str(end) for end in self.clip]
        mean, std = ([str(value) for value in part] for part in (self.scaling.mean, self.scaling.std))
        head = {FORM: 1, "label": self._winner(), "norm": str(self.norm), "eps": str(self.eps), "clip": clip}
        shape, values = list(self.centre.shape), self.centre.reshape(-1).tolist()
        return json.dumps(head | {"mean": mean, "std": std, "shape": shape, "centre": values}) + "\n"

    def bounds(self) -> list[tuple[Fraction, Fraction]]:
        """The exact box, flat in C order."""
        return self.near().sides

    def near(self) -> Near:
        """The points, in the coordinates of the network."""
        eps = exact_number(self.eps, "eps")
        if eps < 0:
            raise InputError(f"eps is {self.eps}, it must not be negative")
        values, (means, stds) = self.values(), self.scales()
        limits = self._range(eps, values, list(zip(means, stds, strict=True)))
        return Near(self.point(), stds, eps, norm_number(self.norm), limits)

    def _range(
        self, eps: Fraction, values: list[Fraction], scales: list[tuple[Fraction, Fraction]]
    ) -> list[Side] | None:
        """The clipping range in the coordinates of the network."""
        if self.clip is None:
            return None
        low, high = (exact_number(end, "clip") for end in clip_pair(self.clip))
        for i, value in enumerate(values):
            if max(value - eps, low) > min(value + eps, high):
                raise InputError(
                    f"value {i} of the centre, {float(value)}, is further than eps from the clipping range"
                )
        return [((low - mean) / std, (high - mean) / std) for mean, std in scales]


def robustness_of(text: bytes) -> LocalRobustness | None:
    """What `as_json` has written, for a network whose classes are not counted yet; None if it is something else.

    Raises InputError if a value is missing or makes no sense.
    """
    if not text.lstrip().startswith(f'{{"{FORM}"'.encode()):
        return None
    try:
        data = json.loads(text)
        centre = np.array(data["centre"], dtype=np.float64).reshape(data["shape"])
        clip = None if data["clip"] is None else (str(data["clip"][0]), str(data["clip"][1]))
        scaling = Scaling([str(value) for value in data["mean"]], [str(value) for value in data["std"]])
        return LocalRobustness(centre, int(data["label"]), 0, str(data["eps"]), clip, scaling, str(data["norm"]))
    except (ValueError, TypeError, KeyError, IndexError) as error:
        raise InputError("this is no statement of local robustness: a value is missing or of another kind") from error


def _per_value(values: Sequence[Number], what: str, shape: tuple[int, ...]) -> list[Fraction]:
    """One number per entry of a flat array of that shape."""
    found = [exact_number(value, what) for value in values]
    size = math.prod(shape)
    if len(found) == 1:
        return found * size
    channels = next((n for n in shape[:-1] if n != 1), 1) if len(shape) > 1 else size
    if len(found) != channels:
        raise InputError(f"{what} has {len(found)} values, an input of shape {list(shape)} has {channels} channels")
    return [value for value in found for _ in range(size // channels)]


def clip_pair(clip: Any) -> tuple[Number, Number]:
    """The range of valid inputs as it was given.  Raises InputError unless it is a pair."""
    try:
        low, high = clip
    except (TypeError, ValueError):
        raise InputError(f"clip is a pair of numbers, the range of valid inputs, not {shown(clip)}") from None
    return low, high


def _several(values: Any) -> tuple[Number, ...]:
    if isinstance(values, str):
        return tuple(values.split(","))
    return tuple(values) if isinstance(values, Sequence) or hasattr(values, "__len__") else (values,)


def exact_number(value: Number, what: str) -> Fraction:
    """The rational that a number stands for: a float is the decimal that is printed for it."""
    try:
        if isinstance(value, float | np.floating) and not math.isfinite(value):
            raise ValueError
        return value if isinstance(value, Fraction) else Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise InputError(f"{what} is '{value}', which is not a finite number") from None


def side_atoms(i: int, side: Side) -> tuple[str, str]:
    """That input i lies between two numbers, in VNN-LIB; the decimals are rounded outward."""
    return f"(>= X_{i} {decimal_text(side[0], down=True)})", f"(<= X_{i} {decimal_text(side[1], down=False)})"


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
