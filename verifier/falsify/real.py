"""Whether a witness holds in real arithmetic: the judge of what the network's own run has confirmed.

requires:   a lowered network in float64, with all of its errors counted
guarantees: a confirmation is a proof that some point of the decimal box is unsafe; a refusal says nothing
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray

from verifier.bounding.core.base import Region
from verifier.bounding.relaxation.interval import interval_image
from verifier.network.entries import entries_of, least_unit
from verifier.network.network import Affine, Network
from verifier.operators import Chain, Conv, Dense, Diagonal, LinearMap, Select, Sparse, Sum
from verifier.property.property import Doubles, ExactRow, Property
from verifier.shapes import Float64, Tensor

MOST_ENTRIES = 200_000
"""Weights of the largest network that is evaluated so: a tenth of a second."""

MOST_NEURONS = 4_000_000
"""Of the largest network whose points are judged: with more of them a point takes as long as an attack."""

Ends = Sequence[tuple[Fraction, Fraction]]
"""For every number a lower and an upper bound."""


@dataclass(frozen=True, eq=False)
class RealArithmetic:
    """A network and a property without rounding.

    A point is evaluated by intervals of float64 first, with all rounding errors; where these leave a doubt, and the
    network is small, in rational arithmetic.  That settles points exactly on the border, which belongs to the unsafe
    set.
    """

    network: Network  # float64, on the CPU
    prop: Property

    def confirms(self, x: NDArray[np.floating], box: int) -> bool:
        """Whether the point of a decimal box that is nearest to x is unsafe in some clause of that box."""
        if self.network.neurons > MOST_NEURONS:
            return False
        low, high = self.prop.boxes.around(box, x)
        inputs = _ends(low, high)
        y_low, y_high = enclosed_outputs(self.network, low, high)
        finite = bool(torch.isfinite(y_low).all()) and bool(torch.isfinite(y_high).all())
        if finite and self._unsafe(box, inputs, _ends(y_low.numpy(), y_high.numpy())):
            return True
        if self._rational is None or not np.array_equal(low, high):
            return False
        return self._unsafe(box, inputs, [(y, y) for y in self._rational.forward(low.tolist())])

    def _unsafe(self, box: int, x: Ends, y: Ends) -> bool:
        clauses = (clause for clause in self.prop.clauses if clause.box == box)
        return any(all(holds(row, x, y) for row in clause.rows.exact) for clause in clauses)

    @cached_property
    def _rational(self) -> RationalNetwork | None:
        return RationalNetwork.of(self.network)


def holds(row: ExactRow, x: Ends, y: Ends) -> bool:
    """Whether a row holds for all numbers between the ends."""
    most = _most(row.y, y) + _most(row.x, x)
    return most < row.bound if row.strict else most <= row.bound


def _most(terms: Iterable[tuple[int, Fraction]], ends: Ends) -> Fraction:
    return sum((a * ends[j][1 if a > 0 else 0] for j, a in terms), Fraction(0))


def enclosed_outputs(
    network: Network, low: Doubles, high: Doubles
) -> tuple[Float64[Tensor, " n"], Float64[Tensor, " n"]]:
    """Bounds of the outputs over a box, with all rounding errors; meant for boxes that are hardly more than a point."""
    region = Region(torch.from_numpy(low).unsqueeze(0), torch.from_numpy(high).unsqueeze(0))
    for layer in network.layers:
        exact = None if network.piecewise_linear else exact_value(layer, region)
        ends = interval_image(layer, region) if exact is None else (exact, exact)
        region = region.extended(layer, *ends)
    return region.l_hat[-1][0], region.u_hat[-1][0]


def exact_value(layer: Affine, region: Region) -> Float64[Tensor, "1 n"] | None:
    """The value of a layer whose sources are known exactly, if floats compute it without any rounding.

    Binarised networks sum up whole numbers, and where such a sum is 0 a step jumps: no error must be added there.
    """
    if bool(layer.bias_error.any()):
        return None
    parts = [layer.bias.unsqueeze(0)]
    for source, term in layer.terms:
        low, high = region.source(source)
        part = _exact_product(term, low) if torch.equal(low, high) else None
        if part is None:
            return None
        parts.append(part)
    return _exact_sum(parts)


def _exact_product(linear: LinearMap, x: Float64[Tensor, "1 n_in"]) -> Float64[Tensor, "1 n_out"] | None:
    """linear x, if no sum of products on the way has more digits than a float64."""
    if isinstance(linear, Select):
        return linear.forward(x)
    if isinstance(linear, Chain):
        value: Tensor | None = x
        for factor in linear.maps:
            value = None if value is None else _exact_product(factor, value)
        return value
    if isinstance(linear, Sum):
        parts = [_exact_product(part, x) for part in linear.maps]
        known = [part for part in parts if part is not None]
        return _exact_sum(known) if len(known) == len(parts) else None
    if not isinstance(linear, Dense | Sparse | Diagonal | Conv) or linear.roundings or linear.weights is None:
        return None
    least = least_unit(linear.weights) * least_unit(x)
    within = bool(linear.magnitude(x.abs()).max() <= 2.0**52 * least) and least >= np.finfo(np.float64).tiny
    return linear.forward(x) if within else None


def _exact_sum(parts: Sequence[Float64[Tensor, "1 n"]]) -> Float64[Tensor, "1 n"] | None:
    """The sum of vectors, if it has no more digits than a float64."""
    least = min(least_unit(part) for part in parts)
    size = sum((part.abs() for part in parts), torch.zeros(()))
    if not bool((size <= 2.0**52 * least).all()):
        return None
    return sum(parts[1:], parts[0])


def _ends(low: Doubles, high: Doubles) -> list[tuple[Fraction, Fraction]]:
    return [(Fraction(a), Fraction(b)) for a, b in zip(low.tolist(), high.tolist(), strict=True)]


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
        """None if the network is too large or not piecewise linear, or if folding has rounded some number of it."""
        if network.parameters > MOST_ENTRIES or not network.piecewise_linear:
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
