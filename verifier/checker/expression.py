"""Affine expressions in the input and the outputs of groups: what the values inside of a network are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .functions import RELU, Function
from .maps import Chain, Map, Scale, Select
from .network import Layer
from .rationals import Array, Ints
from .stream import Unreadable

_LARGEST = 1 << 24


@dataclass(frozen=True, eq=False)
class Expression:
    """A tensor whose entries are sums of chains of maps of sources, plus chains of constant vectors.

    `nonnegative` is known, not guessed: such a value passes a ReLU without a new group.
    """

    shape: tuple[int, ...]
    terms: tuple[tuple[int, Chain], ...]
    biases: tuple[tuple[Chain, Array], ...]
    nonnegative: bool = False

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def positions(self) -> Ints:
        return np.arange(self.size).reshape(self.shape)

    def reshaped(self, shape: tuple[int, ...]) -> Expression:
        if math.prod(shape) != self.size or min(shape, default=0) < 0:
            raise Unreadable(f"{self.size} entries do not fill the shape {shape}")
        return replace(self, shape=shape)

    def applied(self, outer: Map, shape: tuple[int, ...], keeps_sign: bool = False) -> Expression:
        if max(outer.n_in, outer.n_out) > _LARGEST or outer.n_in != self.size or outer.n_out != math.prod(shape):
            raise Unreadable(f"a map from {outer.n_in} to {outer.n_out} entries does not fit")
        if not np.isfinite(outer.entries).all():
            raise Unreadable("the network has a weight that is not finite")
        terms = tuple((source, chain.then(outer)) for source, chain in self.terms)
        biases = tuple((chain.then(outer), value) for chain, value in self.biases)
        return Expression(shape, terms, biases, keeps_sign and self.nonnegative)

    def taken(self, index: Ints) -> Expression:
        """Entries by position, in the shape of the index; -1 stands for zero."""
        return self.applied(Select(np.asarray(index, np.int64).reshape(-1), self.size), index.shape, keeps_sign=True)

    def moved(self, move: Callable[[Array], Array]) -> Expression:
        """What a function that only moves entries makes of it."""
        return self.taken(move(self.positions()))

    def along(self, axis: int, places: Ints) -> Expression:
        """Those places of one axis, in their order."""
        return self.moved(lambda index: np.take(index, places, axis=axis))

    def expanded(self, shape: tuple[int, ...]) -> Expression:
        return self if shape == self.shape else self.moved(lambda index: np.broadcast_to(index, shape))

    def scaled(self, factor: Array, divisor: Array, roundings: int = 0) -> Expression:
        """Times constants, over constants; everything is broadcast."""
        shape = np.broadcast_shapes(self.shape, factor.shape, divisor.shape)
        above, below = (np.broadcast_to(part, shape).reshape(-1).astype(np.float64) for part in (factor, divisor))
        if not np.isfinite(above).all() or not np.isfinite(below).all() or not below.all():
            raise Unreadable("the network multiplies or divides by a number that is not finite, or by zero")
        same = self.expanded(shape)
        if (above == below).all() and not roundings:
            return same
        return same.applied(Scale(above, below, roundings), shape, keeps_sign=bool((above * np.sign(below) >= 0).all()))

    def times(self, factor: float) -> Expression:
        return self.scaled(np.full((), factor), np.ones(()))

    def plus(self, other: Expression) -> Expression:
        shape = np.broadcast_shapes(self.shape, other.shape)
        a, b = self.expanded(shape), other.expanded(shape)
        return Expression(shape, a.terms + b.terms, a.biases + b.biases, a.nonnegative and b.nonnegative)

    def minus(self, other: Expression) -> Expression:
        return self.plus(other.times(-1.0))

    def layer(self, function: Function = RELU) -> Layer:
        """What a group, or the output, is applied to."""
        return Layer(self.size, self.terms, self.biases, function)


def constant(values: Array) -> Expression:
    if np.asarray(values).dtype.kind != "f":
        raise Unreadable("a number that is no float is added to floats")
    flat = np.asarray(values, np.float64).reshape(-1)
    if not np.isfinite(flat).all():
        raise Unreadable("the network has a constant that is not finite")
    return Expression(np.shape(values), (), ((Chain((), flat.size), flat),), bool((flat >= 0).all()))


def variable(source: int, shape: tuple[int, ...], nonnegative: bool = False) -> Expression:
    """The input (0), or what a group gives."""
    return Expression(shape, ((source, Chain((), math.prod(shape))),), (), nonnegative)


def joined(parts: Sequence[Expression], axis: int) -> Expression:
    """Side by side along an axis."""
    starts = np.cumsum([0, *(part.size for part in parts)])
    index = np.concatenate([part.positions() + start for part, start in zip(parts, starts, strict=False)], axis=axis)
    found = None
    for part, start in zip(parts, starts, strict=False):
        own = part.taken(np.where((index >= start) & (index < start + part.size), index - start, -1))
        found = own if found is None else found.plus(own)
    if found is None:
        raise Unreadable("nothing is joined")
    return found
