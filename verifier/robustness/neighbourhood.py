"""Where an input may move: the one place that knows norms, clipping and normalisation."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifier.property.ball import norm_number
from verifier.property.property import Property
from verifier.property.robustness import LocalRobustness, Number, Scaling, clip_pair, exact_number
from verifier.property.vnnlib import parse

SQUARE = 10**60
"""Squares of distances are rounded to this share."""


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Balls in some norm around inputs before normalisation, cut off at `clip`; centre and radius come later."""

    norm: str = "inf"
    clip: tuple[Number, Number] | None = None
    scaling: Scaling = field(default_factory=Scaling)

    @classmethod
    def of(cls, norm: object, clip: Any, mean: Any, std: Any) -> Neighbourhood:
        """Takes one number for `mean` and `std`, or one per channel.  Raises InputError for an unknown norm."""
        return cls(
            str(norm_number(norm) or "inf"),
            None if clip is None else clip_pair(clip),
            Scaling.of(mean, std),
        )

    def ball(self, centre: NDArray[Any], label: int, classes: int, eps: Number) -> LocalRobustness:
        """That all inputs within `eps` of the centre have the class `label`."""
        return LocalRobustness(centre, label, classes, eps, self.clip, self.scaling, self.norm)

    def stated(self, centre: NDArray[Any], label: int, classes: int, eps: Number) -> Property:
        """The same as a property: what its text says, if it has one."""
        near = self.ball(centre, label, classes, eps)
        return parse(near.vnnlib()) if self.norm == "inf" else near.property()

    def text(self, centre: NDArray[Any], label: int, classes: int, eps: Number) -> str:
        """The same as the text of a file, in VNN-LIB if that has a form for it."""
        near = self.ball(centre, label, classes, eps)
        if self.norm == "inf":
            return near.vnnlib()
        near.property()  # which says what is wrong with it, if anything is
        return near.as_json()

    def normalised(self, centre: NDArray[Any]) -> NDArray[np.float64]:
        """The centre as the network gets it, flat, but for rounding."""
        mean, std = self.scaling.floats(centre.shape)
        found: NDArray[np.float64] = (centre.reshape(-1).astype(np.float64) - mean) / std
        return found

    def distance(self, centre: NDArray[Any], x: NDArray[Any]) -> Fraction:
        """How far an input of the network is from the centre, before normalisation.  Never less; roots are rounded."""
        mean, std = self.scaling.per_value(centre.shape)
        values = zip(x.reshape(-1).tolist(), mean, std, centre.reshape(-1).tolist(), strict=True)
        parts = [abs(Fraction(value) * s + m - Fraction(middle)) for value, m, s, middle in values]
        if self.norm == "inf":
            return max(parts)
        if self.norm == "1":
            return sum(parts, Fraction(0))
        square = sum((part * part for part in parts), Fraction(0)) * SQUARE
        return Fraction(math.isqrt(math.ceil(square)) + (1 if square else 0), math.isqrt(SQUARE))

    def large(self, centre: NDArray[Any]) -> Fraction:
        """A radius at which hardly any input keeps its class: all values may move by half of their range, or many."""
        ends = (centre.min().item(), centre.max().item()) if self.clip is None else self.clip
        low, high = (exact_number(end, "clip") for end in ends)
        half = (high - low) / 2 if high > low else Fraction(1, 2)
        many = {"inf": 1, "2": math.ceil(math.sqrt(centre.size) / 4), "1": math.ceil(centre.size / 16)}
        return half * many[self.norm]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        clip = None if self.clip is None else [str(end) for end in self.clip]
        mean, std = ([str(value) for value in part] for part in (self.scaling.mean, self.scaling.std))
        return {"norm": self.norm, "clip": clip, "mean": mean, "std": std}
