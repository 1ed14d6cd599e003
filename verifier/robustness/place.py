"""An input in the middle of its balls: what is asked at each radius, and how far other points are."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from verifier.errors import InputError
from verifier.loading import Given, Loaded, Original
from verifier.property.property import Property
from verifier.robustness.neighbourhood import Neighbourhood
from verifier.robustness.radius import between

LINE = 32
"""Points on the way from the centre to a counterexample that are tried at a time."""


@dataclass(frozen=True, slots=True)
class Unstated(Given):
    """A network by its name, of which properties will be asked that no file states."""

    network: str | None

    def load(self) -> Loaded:
        raise NotImplementedError

    @property
    def names(self) -> tuple[str | None, str | None]:
        return self.network, None


@dataclass(frozen=True, eq=False)
class Place:
    """An input before normalisation, in the shape of its network, and the class that it is to keep."""

    model: Original
    centre: NDArray[Any]
    label: int
    around: Neighbourhood

    @classmethod
    def of(cls, model: Original, centre: NDArray[Any], label: int | None, around: Neighbourhood) -> Place:
        """Without a label, the network's own class at the centre.  Raises InputError for what makes no sense."""
        if label is None:
            own = around.normalised(centre).astype(model.dtype)
            label = int(np.argmax(model.run(own)))
        if not (model.n_out >= 2 and 0 <= label < model.n_out):
            raise InputError(f"label {label} is not one of {model.n_out} classes, of which there must be two")
        return cls(model, centre, label, around)

    @cached_property
    def own(self) -> NDArray[np.floating]:
        """The centre as the network gets it."""
        return self.around.normalised(self.centre).astype(self.model.dtype)

    def first(self, most: Fraction | None) -> Fraction:
        """A radius at which hardly any input keeps its class, if that is allowed."""
        large = between(Fraction(0), 2 * self.around.large(self.centre))
        return large if most is None else min(large, most)

    @cached_property
    def margin(self) -> float:
        """By how much the class wins at the centre."""
        y = self.model.run(self.own).astype(np.float64)
        return float(y[self.label] - np.delete(y, self.label).max())

    def property(self, eps: Fraction) -> Property:
        """What `verify robust --eps` would write, read back.  Requires: a decimal that a float prints as."""
        return self.around.stated(self.centre, self.label, self.model.n_out, repr(float(eps)))

    def distance(self, x: NDArray[np.floating]) -> Fraction:
        """Of an input of the network from the centre."""
        return self.around.distance(self.centre, x)

    def nearer(self, x: NDArray[np.floating]) -> Iterator[NDArray[np.floating]]:
        """Points on the way from the centre to x at which the class has just changed, the nearest first."""
        middle = self.around.normalised(self.centre)
        way = x.astype(np.float64) - middle
        low, high = 0.0, 1.0
        for _ in range(2):
            shares = np.linspace(low, high, LINE + 1)[1:]
            points = (middle + shares[:, None] * way).astype(self.model.dtype)
            wrong = np.flatnonzero(np.argmax(self.model.run(points), axis=1) != self.label)
            if not len(wrong):
                return
            first = int(wrong[0])
            low, high = (low if first == 0 else float(shares[first - 1])), float(shares[first])
        for share in (high, high + (1 - high) / LINE):  # in real arithmetic the border may lie a little further out
            yield (middle + share * way).astype(self.model.dtype)
