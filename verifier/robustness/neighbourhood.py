"""Where an input may move: the one place that knows norms, clipping and normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifier.arguments import shown
from verifier.errors import InputError
from verifier.property.property import Property
from verifier.property.robustness import LocalRobustness, Number, Scaling, exact
from verifier.property.vnnlib import parse

NORMS = ("inf",)


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """Balls in some norm around inputs before normalisation, cut off at `clip`; centre and radius come later."""

    norm: str = "inf"
    clip: tuple[Number, Number] | None = None
    scaling: Scaling = field(default_factory=Scaling)

    def __post_init__(self) -> None:
        if self.norm not in NORMS:
            raise InputError(f"norm {shown(self.norm)} is unknown; there are {', '.join(NORMS)}")

    @classmethod
    def of(cls, norm: object, clip: Any, mean: Any, std: Any) -> Neighbourhood:
        """Takes one number for `mean` and `std`, or one per channel."""
        return cls(str(norm), None if clip is None else _pair(clip), Scaling(_several(mean), _several(std)))

    def ball(self, centre: NDArray[Any], label: int, classes: int, eps: Number) -> LocalRobustness:
        """That all inputs within `eps` of the centre have the class `label`."""
        return LocalRobustness(centre, label, classes, eps, self.clip, self.scaling)

    def stated(self, centre: NDArray[Any], label: int, classes: int, eps: Number) -> Property:
        """The same as a property: what its text says."""
        return parse(self.ball(centre, label, classes, eps).vnnlib())

    def normalised(self, centre: NDArray[Any]) -> NDArray[np.float64]:
        """The centre as the network gets it, flat, but for rounding."""
        mean, std = (np.array(list(map(float, part))) for part in self.scaling.per_value(centre.shape))
        found: NDArray[np.float64] = (centre.reshape(-1).astype(np.float64) - mean) / std
        return found

    def distance(self, centre: NDArray[Any], x: NDArray[Any]) -> Fraction:
        """How far an input of the network is from the centre, before normalisation."""
        mean, std = self.scaling.per_value(centre.shape)
        pairs = zip(x.reshape(-1).tolist(), mean, std, centre.reshape(-1).tolist(), strict=True)
        return max(abs(Fraction(value) * s + m - Fraction(middle)) for value, m, s, middle in pairs)

    def span(self, centre: NDArray[Any]) -> Fraction:
        """The range of values: of those that are valid, or of the centre's own; 1 if that is nothing."""
        ends = (centre.min().item(), centre.max().item()) if self.clip is None else self.clip
        low, high = (exact(end, "clip") for end in ends)
        return high - low if high > low else Fraction(1)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        clip = None if self.clip is None else [str(end) for end in self.clip]
        mean, std = ([str(value) for value in part] for part in (self.scaling.mean, self.scaling.std))
        return {"norm": self.norm, "clip": clip, "mean": mean, "std": std}


def _several(values: Any) -> tuple[Number, ...]:
    if isinstance(values, str):
        return tuple(values.split(","))
    return tuple(values) if isinstance(values, Sequence) or hasattr(values, "__len__") else (values,)


def _pair(clip: Any) -> tuple[Number, Number]:
    try:
        low, high = clip
    except (TypeError, ValueError):
        raise InputError(f"clip is a pair of numbers, the range of valid inputs, not {shown(clip)}") from None
    return low, high
