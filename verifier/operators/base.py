"""What every linear map offers, and the unit in which rounding is counted."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import TypeVar

import torch

from verifier.shapes import Float, Int, Tensor

UNIT_ROUNDOFF = 2.0**-53
"""Relative error of one float64 operation, rounded to nearest."""

FLOOR = 2.0**-1000
"""What underflow can cost a sum of products besides: four million results below 2^-1022, all flushed to zero."""

MapT = TypeVar("MapT", bound="LinearMap")


def gamma(depth: int) -> float:
    """Higham's gamma_n for float64, doubled: covers the rounding of the magnitudes it is multiplied with."""
    n_u = depth * UNIT_ROUNDOFF
    return 2.0 * n_u / (1.0 - n_u)


class LinearMap(ABC):
    """A matrix W of `n_out` rows and `n_in` columns that acts on the last axis and is not materialised.

    Guarantees of every subclass:

    - `<forward(x), y> = <x, transpose(y)>` for all x and y;
    - `magnitude(r) >= |W| r` for r >= 0, with equality for maps that are `tight`;
    - in float64, `|computed - exact| <= gamma(depth) * magnitude(|x|)` for `forward`, and likewise for `transpose`, as
      long as nothing underflows or overflows (docs/numerics.md).  `exact` refers to the matrix that the network's own
      weights define, so `depth` also counts the roundings that were made when weights were folded.
    """

    n_in: int
    n_out: int
    depth: int

    @abstractmethod
    def forward(self, x: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        """W x."""

    @abstractmethod
    def transpose(self, y: Float[Tensor, "*batch n_out"]) -> Float[Tensor, "*batch n_in"]:
        """W^T y."""

    @abstractmethod
    def magnitude(self, r: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        """An upper bound of |W| r for r >= 0."""

    @abstractmethod
    def to(self: MapT, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> MapT:
        """The same map on another device or in another precision."""

    @abstractmethod
    def describe(self) -> str:
        """A few words for `verify show`."""

    @property
    def weights(self) -> Tensor | None:
        """The numbers that the map stores; None if it only moves entries, or is made of other maps."""
        return None

    def reweighted(self: MapT, weights: Tensor, roundings: int = 0) -> MapT:
        """The same map with other numbers for its `weights`, made inexact by so many more operations."""
        raise TypeError(f"{self.describe()} stores no weights")

    @property
    def tight(self) -> bool:
        """Whether `magnitude(r)` is |W| r up to rounding, so that the interval image of a box is exact."""
        return True

    @property
    def parameters(self) -> int:
        """How many numbers the map stores, those of its parts included."""
        return 0 if self.weights is None else self.weights.numel()


def flat_size(shape: tuple[int, ...]) -> int:
    """Entries of a tensor of that shape."""
    return math.prod(shape)


def places_of(index: Int[Tensor, " r"], shape: tuple[int, ...]) -> list[Int[Tensor, " r"]]:
    """Where entries of a flat tensor lie, axis by axis.  (That of torch imports sympy, for a third of a second.)"""
    found = []
    for size in reversed(shape):
        found.append(index % size)
        index = index // size
    return found[::-1]
