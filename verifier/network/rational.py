"""A small network at one point without any rounding: numbers are integers over a power of two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import torch

from verifier.network.entries import entries_of
from verifier.network.network import Affine, Network

MOST_ENTRIES = 200_000
"""Weights of the largest network that is evaluated so: a tenth of a second."""


@dataclass(frozen=True, slots=True)
class Dyadic:
    """The numbers `wholes[i] / 2**places`."""

    wholes: list[int]
    places: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Dyadic:
        """Floats as they are.  Require: all are finite."""
        pairs = [value.as_integer_ratio() for value in values]
        places = max((below.bit_length() - 1 for _, below in pairs), default=0)
        return cls([above << (places + 1 - below.bit_length()) for above, below in pairs], places)

    def at(self, places: int) -> list[int]:
        """The same numbers as multiples of 2**-places.  Require: not fewer places than there are."""
        return [whole << (places - self.places) for whole in self.wholes]

    def fractions(self) -> list[Fraction]:
        return [Fraction(whole, 1 << self.places) for whole in self.wholes]


@dataclass(frozen=True, slots=True)
class _Term:
    """A matrix by its entries, applied to one source."""

    source: int
    rows: list[int]
    columns: list[int]
    values: Dyadic

    def product(self, x: Dyadic, n_out: int) -> Dyadic:
        """The matrix times the vector."""
        sums = [0] * n_out
        for row, column, value in zip(self.rows, self.columns, self.values.wholes, strict=True):
            sums[row] += value * x.wholes[column]
        return Dyadic(sums, self.values.places + x.places)


@dataclass(frozen=True, slots=True)
class _Layer:
    """Some matrices and a bias."""

    terms: tuple[_Term, ...]
    bias: Dyadic

    def value(self, x: Sequence[Dyadic]) -> Dyadic:
        """The layer before its ReLU, given the value of every source."""
        size = len(self.bias.wholes)
        parts = [self.bias, *(term.product(x[term.source], size) for term in self.terms)]
        places = max(part.places for part in parts)
        return Dyadic([sum(column) for column in zip(*(part.at(places) for part in parts), strict=True)], places)


@dataclass(frozen=True, slots=True)
class RationalNetwork:
    """A network whose weights are exactly those of its file."""

    layers: tuple[_Layer, ...]

    @classmethod
    def of(cls, network: Network) -> RationalNetwork | None:
        """None if the network is too large, or if some weight or bias of it was rounded when layers were folded."""
        if network.parameters > MOST_ENTRIES:
            return None
        layers: list[_Layer] = []
        left = MOST_ENTRIES
        for affine in network.layers:
            layer = _exact(affine)
            left -= 0 if layer is None else sum(len(term.rows) for term in layer.terms)
            if layer is None or left < 0:
                return None
            layers.append(layer)
        return cls(tuple(layers))

    def forward(self, x: Sequence[float]) -> list[Fraction]:
        """The outputs at a point.  Require: finite inputs."""
        values = [Dyadic.of(x)]
        for layer in self.layers:
            found = layer.value(values)
            values.append(Dyadic([max(whole, 0) for whole in found.wholes], found.places))
        return found.fractions()


def _exact(affine: Affine) -> _Layer | None:
    """A layer by its entries; None if they are not exact."""
    if bool((affine.bias_error != 0).any()) or not bool(torch.isfinite(affine.bias).all()):
        return None
    terms = []
    for source, linear in affine.terms:
        entries = entries_of(linear)
        if entries is None or not bool(torch.isfinite(entries.values).all()):
            return None
        values = Dyadic.of(entries.values.tolist())
        terms.append(_Term(source, entries.rows.tolist(), entries.columns.tolist(), values))
    return _Layer(tuple(terms), Dyadic.of(affine.bias.tolist()))
