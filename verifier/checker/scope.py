"""What is known at a node of a proof: a box of the input, and bounds of neurons."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .functions import Function
from .network import Layer, Network
from .rationals import Array, Ints, Rationals

UNIT = 2.0**-53
LARGEST = 2.0**200
"""Beyond it underflow could not be priced by a constant: nothing is then proved."""

SMALLEST = 2.0**-100
"""What every size holds besides: multipliers of a price up to LARGEST are then at most 2^300."""

TINY = 2.0**-250
"""More than all underflows of one evaluation, where no number is above LARGEST and no multiplier above 2^300."""


@dataclass(frozen=True, eq=False)
class Scope:
    """Bounds of the input [d, n0] and, group by group (`lower[k - 1]` for group k), of the pre-activations [d, n_k].

    A node has one scope (d = 1); several nodes that are judged together have their scopes one below the other.
    `sizes[k - 1]` is at least |W| X + |b| of layer k, X the largest |x| of what it reads, and at least SMALLEST;
    infinite if that or an X is above LARGEST.  Arrays are never written to.
    Every unsafe point of the part in question lies in the scope.  It also lies in `before`, which is what an earlier
    node knew (`keep`), with the signs since then.
    """

    low: Array
    high: Array
    lower: tuple[Array, ...]
    upper: tuple[Array, ...]
    sizes: tuple[Array, ...]
    functions: tuple[Function, ...]
    before: Scope | None = None

    @classmethod
    def start(cls, net: Network, low: Array, high: Array) -> Scope:
        """A box of which nothing else is known."""
        lower = tuple(np.full((1, layer.size), -np.inf) for layer in net.layers[:-1])
        sizes = tuple(np.full((1, layer.size), np.inf) for layer in net.layers)
        functions = tuple(layer.function for layer in net.layers[:-1])
        return cls(low[None], high[None], lower, tuple(-bound for bound in lower), sizes, functions)

    # -- several at once -----------------------------------------------------------------------------------------------

    @classmethod
    def stacked(cls, scopes: Sequence[Scope]) -> Scope:
        """One below the other; what was kept is not looked at."""
        if len(scopes) == 1:
            return replace(scopes[0], before=None)
        low, high = (np.concatenate(part) for part in zip(*((s.low, s.high) for s in scopes), strict=True))
        columns = zip(*((*s.lower, *s.upper, *s.sizes) for s in scopes), strict=True)
        parts = tuple(np.concatenate(column) for column in columns)
        groups = len(scopes[0].lower)
        lower, upper, sizes = parts[:groups], parts[groups : 2 * groups], parts[2 * groups :]
        return cls(low, high, lower, upper, sizes, scopes[0].functions)

    def rows(self, index: Ints) -> Scope:
        """Some of them, each as often as it is named; if there is but one, that one for all."""
        if len(self.low) == 1:
            return self
        lower, upper, sizes = (tuple(part[index] for part in parts) for parts in (self.lower, self.upper, self.sizes))
        return Scope(self.low[index], self.high[index], lower, upper, sizes, self.functions)

    def known_at(self, found: Scope, d: int) -> Scope:
        """With the bounds of neurons that row d of another one has, which are not looser."""
        one = slice(d, d + 1)
        parts = (found.lower, found.upper, found.sizes)
        lower, upper, sizes = (tuple(part[one].copy() for part in group) for group in parts)
        return replace(self, lower=lower, upper=upper, sizes=sizes)

    # -- what is in it -------------------------------------------------------------------------------------------------

    def box(self, j: int) -> tuple[Any, Any]:
        """Of what source j gives: the input (0), or group j."""
        if j == 0:
            return self.low, self.high
        return self.functions[j - 1].image(self.lower[j - 1], self.upper[j - 1])

    def middle(self, j: int) -> tuple[Any, Any]:
        """The same as a middle and a radius."""
        low, high = self.box(j)
        middle = 0.5 * (low + high)
        return middle, np.maximum(high - middle, middle - low)

    def largest(self, j: int) -> Array:
        low, high = self.box(j)
        found: Array = np.maximum(np.abs(low), np.abs(high))
        return found

    def widest(self, k: int) -> Array:
        """The largest |t| of group k; infinite where its bounds exclude each other, so that nothing is proved there."""
        low, high = self.lower[k - 1], self.upper[k - 1]
        return np.where(low <= high, np.maximum(np.abs(low), np.abs(high)), np.inf)

    @property
    def vacant(self) -> bool:
        """Whether the bounds of some neuron exclude each other, so that there is no unsafe point."""
        return any(bool((low > high).any()) for low, high in zip(self.lower, self.upper, strict=True))

    # -- what can be learnt --------------------------------------------------------------------------------------------

    def bounded(self, k: int, lower: Array, upper: Array) -> Scope:
        """With bounds of group k intersected."""
        lows, highs = list(self.lower), list(self.upper)
        lows[k - 1], highs[k - 1] = np.maximum(lows[k - 1], lower), np.minimum(highs[k - 1], upper)
        return replace(self, lower=tuple(lows), upper=tuple(highs))

    def passing(self, k: int, some: Array, at: float = 0.0) -> Scope:
        """With t >= 0, or another number, for some neurons of group k, also in what was kept."""
        before = None if self.before is None else self.before.passing(k, some, at)
        return replace(self.bounded(k, np.where(some, at, -np.inf), np.full(len(some), np.inf)), before=before)

    def blocking(self, k: int, some: Array, at: float = 0.0) -> Scope:
        """With t <= 0, or another number, for some neurons of group k, also in what was kept."""
        before = None if self.before is None else self.before.blocking(k, some, at)
        return replace(self.bounded(k, np.full(len(some), -np.inf), np.where(some, at, np.inf)), before=before)

    def sized(self, net: Network, k: int) -> Scope:
        """With `sizes` of layer k from the bounds as they are now; they may have been larger."""
        layer, sizes = net.layers[k - 1], list(self.sizes)
        reads = {j: self.largest(j) for j in layer.sources}
        found = layer.absolute.moved(layer.absolute.forward(reads)) + SMALLEST
        usable = np.ones((len(self.low), 1), np.bool_)
        for largest in reads.values():
            usable &= (largest <= LARGEST).all(axis=1, keepdims=True)
        sizes[k - 1] = np.where(usable & (found <= LARGEST), found, np.inf)
        return replace(self, sizes=tuple(sizes))

    def exact(self, groups: Iterable[int]) -> Scope:
        """The same numbers as rationals, for the input and some groups, whose bounds must be finite."""
        lower: list[Any] = list(self.lower)
        upper: list[Any] = list(self.upper)
        low: Any = Rationals.of(self.low)
        high: Any = Rationals.of(self.high)
        for k in groups:
            if k:
                lower[k - 1], upper[k - 1] = Rationals.of(lower[k - 1]), Rationals.of(upper[k - 1])
        return Scope(low, high, tuple(lower), tuple(upper), (), self.functions)


def interval(net: Network, scope: Scope, k: int) -> tuple[Array, Array]:
    """Bounds of layer k over the boxes of what it reads: middle and radius, with 8 gamma_N (|W| X + |b|) off."""
    centre, radius = image(net.layers[k - 1], scope)
    spread = radius + 2.0 * allowance(net, 4.0 * scope.sizes[k - 1])
    usable = np.isfinite(centre) & np.isfinite(spread)
    return np.where(usable, centre - spread, -np.inf), np.where(usable, centre + spread, np.inf)


def image(layer: Layer, scope: Scope) -> tuple[Any, Any]:
    """The middle and the radius of W x + b, for floats and for rationals alike."""
    reads = {j: scope.middle(j) for j in layer.sources}
    middle, radius = ({j: part[i] for j, part in reads.items()} for i in (0, 1))
    return layer.moved(layer.forward(middle)), layer.signed.forward(radius)


def allowance(net: Network, price: Array, summands: int = 0) -> Array:
    """gamma_N S and what underflow may cost, for S = `price`; infinite where the analysis does not hold."""
    bound = 2.0 * (net.depth + summands) * UNIT
    usable = (price <= LARGEST) & (net.gain <= LARGEST) & (bound < 0.01)
    return np.where(usable, bound / (1.0 - bound) * price + TINY, np.inf)


def hull(boxes: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """The smallest box that holds all of them."""
    return np.min([low for low, _ in boxes], axis=0), np.max([high for _, high in boxes], axis=0)
