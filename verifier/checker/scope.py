"""What is known at a node of a proof: a box, bounds of neurons, the clauses that are still open."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from .maps import Array, halved, rational
from .network import Layer, Network

UNIT = 2.0**-53
LARGEST = 2.0**200
"""Beyond it underflow could not be priced by a constant: nothing is then proved."""

SMALLEST = 2.0**-100
"""What every size holds besides: multipliers of a price up to LARGEST are then at most 2^300."""

TINY = 2.0**-250
"""More than all underflows of one evaluation, where no number is above LARGEST and no multiplier above 2^300."""


@dataclass(frozen=True, eq=False)
class Scope:
    """Bounds of the input and, group by group (`lower[k - 1]` for group k), of the pre-activations.

    `sizes[k - 1]` is at least |W| X + |b| of layer k, X the largest |x| of what it reads, and at least SMALLEST;
    infinite if that or an X is above LARGEST.  Arrays are never written to.
    Every point of the part in question that is unsafe by an open clause lies in the scope.  It also lies in `before`,
    which is what an earlier node knew (`keep`), with the signs since then.
    """

    low: Array
    high: Array
    lower: tuple[Array, ...]
    upper: tuple[Array, ...]
    sizes: tuple[Array, ...]
    open: frozenset[int]
    before: Scope | None = None

    @classmethod
    def start(cls, net: Network, low: Array, high: Array, clauses: frozenset[int]) -> Scope:
        """A box of which nothing else is known."""
        lower = tuple(np.full(layer.size, -np.inf) for layer in net.layers[:-1])
        sizes = tuple(np.full(layer.size, np.inf) for layer in net.layers)
        return cls(low, high, lower, tuple(-bound for bound in lower), sizes, clauses)

    def box(self, j: int) -> tuple[Array, Array]:
        """Of what source j gives: the input (0), or group j after its ReLUs."""
        if j == 0:
            return self.low, self.high
        return np.maximum(self.lower[j - 1], 0), np.maximum(self.upper[j - 1], 0)

    def largest(self, j: int) -> Array:
        low, high = self.box(j)
        return np.maximum(np.abs(low), np.abs(high))

    def widest(self, k: int) -> Array:
        """The largest |t| of group k."""
        return np.maximum(np.abs(self.lower[k - 1]), np.abs(self.upper[k - 1]))

    def bounded(self, k: int, lower: Array, upper: Array) -> Scope:
        """With bounds of group k intersected."""
        lows, highs = list(self.lower), list(self.upper)
        lows[k - 1], highs[k - 1] = np.maximum(lows[k - 1], lower), np.minimum(highs[k - 1], upper)
        return replace(self, lower=tuple(lows), upper=tuple(highs))

    def at_least_zero(self, k: int, i: int) -> Scope:
        before = None if self.before is None else self.before.at_least_zero(k, i)
        return replace(self._one(k, i, max(self.lower[k - 1][i], 0.0), self.upper[k - 1][i]), before=before)

    def at_most_zero(self, k: int, i: int) -> Scope:
        before = None if self.before is None else self.before.at_most_zero(k, i)
        return replace(self._one(k, i, self.lower[k - 1][i], min(self.upper[k - 1][i], 0.0)), before=before)

    def blocking(self, k: int, some: Array) -> Scope:
        """With t <= 0 for some neurons of group k."""
        before = None if self.before is None else self.before.blocking(k, some)
        upper = np.where(some, np.minimum(self.upper[k - 1], 0.0), self.upper[k - 1])
        return replace(self.bounded(k, self.lower[k - 1], upper), before=before)

    def _one(self, k: int, i: int, low: float, high: float) -> Scope:
        lows, highs = list(self.lower), list(self.upper)
        lows[k - 1], highs[k - 1] = lows[k - 1].copy(), highs[k - 1].copy()
        lows[k - 1][i], highs[k - 1][i] = low, high
        return replace(self, lower=tuple(lows), upper=tuple(highs))

    def sized(self, net: Network, k: int) -> Scope:
        """With `sizes` of layer k from the bounds as they are now; they may have been larger."""
        layer, sizes = net.layers[k - 1], list(self.sizes)
        reads = {j: self.largest(j) for j in layer.sources}
        found = layer.absolute.forward(reads) + layer.bias_size + SMALLEST
        usable = all((largest <= LARGEST).all() for largest in reads.values())
        sizes[k - 1] = np.where(usable & (found <= LARGEST), found, np.inf)
        return replace(self, sizes=tuple(sizes))

    def exact(self, layer: int) -> Scope:
        """The same numbers as fractions, below a layer; raises OverflowError or ValueError where one is not finite."""
        lower, upper = (tuple(map(rational, part[: layer - 1])) for part in (self.lower, self.upper))
        sizes = tuple(map(rational, self.sizes[:layer]))
        return Scope(rational(self.low), rational(self.high), lower, upper, sizes, self.open)


def interval(net: Network, scope: Scope, k: int) -> tuple[Array, Array]:
    """Bounds of layer k over the boxes of what it reads: middle and radius, with 8 gamma_N (|W| X + |b|) off."""
    centre, radius = image(net.layers[k - 1], scope)
    spread = radius + 2.0 * allowance(net, 4.0 * scope.sizes[k - 1])
    usable = np.isfinite(centre) & np.isfinite(spread)
    return np.where(usable, centre - spread, -np.inf), np.where(usable, centre + spread, np.inf)


def image(layer: Layer, scope: Scope) -> tuple[Array, Array]:
    """The middle and the radius of W x + b, for floats and for rationals alike."""
    middle, radius = {}, {}
    for j in layer.sources:
        low, high = scope.box(j)
        middle[j] = halved(low + high)
        radius[j] = np.maximum(high - middle[j], middle[j] - low)
    return layer.forward(middle) + layer.bias, layer.signed.forward(radius)


def allowance(net: Network, price: Array, summands: int = 0) -> Array:
    """gamma_N S and what underflow may cost, for S = `price`; infinite where the analysis does not hold."""
    bound = 2.0 * (net.depth + summands) * UNIT
    usable = (price <= LARGEST) & (net.gain <= LARGEST) & (bound < 0.01)
    return np.where(usable, bound / (1.0 - bound) * price + TINY, np.inf)


def hull(boxes: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """The smallest box that holds all of them."""
    return np.min([low for low, _ in boxes], axis=0), np.max([high for _, high in boxes], axis=0)
