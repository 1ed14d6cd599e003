"""A network as affine layers and groups of ReLUs: t_k = sum_j W_kj x_j + b_k, x_k = max(t_k, 0), x_0 the input.

Weights are those of the file, as chains of maps; nothing is multiplied out.  Where several maps lie between two groups,
|W| stands for the product of their absolute values, which is at least the absolute value of their product.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .maps import Array, Chain, Dense, rational
from .stream import Unreadable

_SMALL = 1 << 22
"""Entries of a matrix that stands for several chains in `Layer.signed`."""


@dataclass(frozen=True, eq=False)
class Layer:
    """The sum of chains of maps, each applied to a source; `biases` are chains applied to constant vectors."""

    size: int
    terms: tuple[tuple[int, Chain], ...]
    biases: tuple[tuple[Chain, Array], ...]

    @property
    def sources(self) -> list[int]:
        return sorted({source for source, _ in self.terms})

    @cached_property
    def depth(self) -> int:
        """Roundings between an entry of a result and what it was made from, forward, transposed and in the bias."""
        return sum(chain.depth + 1 for chain in self.chains) + 1

    @cached_property
    def gain(self) -> float:
        return sum(chain.gain for chain in self.chains)

    @property
    def chains(self) -> list[Chain]:
        return [chain for _, chain in self.terms] + [chain for chain, _ in self.biases]

    @cached_property
    def bias(self) -> Array:
        return _total([chain.forward(value[None])[0] for chain, value in self.biases], self.size)

    @cached_property
    def bias_size(self) -> Array:
        """A bound of |b|, and of everything that was added up for it."""
        return self.absolute.bias

    @cached_property
    def absolute(self) -> Layer:
        terms = tuple((source, chain.mapped(np.abs)) for source, chain in self.terms)
        return Layer(self.size, terms, tuple((chain.mapped(np.abs), np.abs(value)) for chain, value in self.biases))

    @cached_property
    def signed(self) -> Layer:
        """Entries that are at least |W|, hardly more where chains cancel; the bias is of no use.

        A small matrix takes the place of several chains from one source: what its entries were added up from, times
        2^-30, is more than they lost by rounding, since no layer is 2^20 roundings deep (`Network` sees to that).
        """
        terms = []
        for source in self.sources:
            plain = [chain for j, chain in self.terms if j == source]
            sizes = [chain for j, chain in self.absolute.terms if j == source]
            if len(plain) > 1 and self.size * plain[0].n_in <= _SMALL:
                unit = np.eye(plain[0].n_in)
                whole, size = (_total([c.forward(unit) for c in chains], 0).T for chains in (plain, sizes))
                sizes = [Chain((Dense(np.abs(whole) + 2.0**-30 * size),), len(unit))]
            terms += [(source, chain) for chain in sizes]
        return Layer(self.size, tuple(terms), ())

    @cached_property
    def exact(self) -> Layer:
        """The same in rationals; `signed` are the same numbers, so that cuts are the same."""
        terms = tuple((source, chain.mapped(rational)) for source, chain in self.terms)
        biases = tuple((chain.mapped(rational), rational(value)) for chain, value in self.biases)
        found = Layer(self.size, terms, biases)
        sizes = tuple((source, chain.mapped(rational)) for source, chain in self.signed.terms)
        found.__dict__["signed"] = Layer(self.size, sizes, ())
        return found

    def forward(self, x: Mapping[int, Array]) -> Array:
        """W x for vectors x[j] of all sources, one each; without the bias."""
        return _total([chain.forward(x[source][None])[0] for source, chain in self.terms], self.size)

    def transpose(self, mu: Array) -> list[tuple[int, Array]]:
        """W^T mu for rows mu [m, n], source by source; a source may come twice."""
        return [(source, chain.transpose(mu)) for source, chain in self.terms]


def _total(parts: Sequence[Array], size: int) -> Array:
    """Their sum, without a first zero: it would turn rationals into floats."""
    if not parts:
        return np.zeros(size, np.int64)
    return functools.reduce(np.add, parts)


@dataclass(frozen=True, eq=False)
class Network:
    """Layers 1..K+1 (`layers[k - 1]` is layer k); the last of them is the output."""

    n_in: int
    layers: tuple[Layer, ...]

    @property
    def groups(self) -> int:
        return len(self.layers) - 1

    def size(self, k: int) -> int:
        """Of the input (0), of group k, or of the output."""
        return self.layers[k - 1].size if k else self.n_in

    def inputs(self, k: int) -> list[int]:
        """How many entries each source of layer k has."""
        return [self.size(source) for source in self.layers[k - 1].sources]

    def __post_init__(self) -> None:
        if self.depth >= 1 << 20:
            raise Unreadable("the network is too large for the analysis of rounding")

    @cached_property
    def depth(self) -> int:
        """N of docs/proofs.md: no sum of the inequality goes through more roundings."""
        return sum(layer.depth for layer in self.layers) + 4 * sum(layer.size for layer in self.layers) + self.n_in + 64

    @cached_property
    def gain(self) -> float:
        return max(layer.gain for layer in self.layers)

    @cached_property
    def roundings(self) -> int:
        """By how many roundings an entry of a layer is off before anything is computed; zero unless a root is taken."""
        return max((chain.roundings for layer in self.layers for chain in layer.chains), default=0)

    @cached_property
    def exact(self) -> Network:
        """The same in rationals."""
        return Network(self.n_in, tuple(layer.exact for layer in self.layers))


def pruned(n_in: int, layers: Sequence[Layer]) -> Network:
    """Without terms that are zero, and without groups that nothing reads then."""
    kept = [tuple(term for term in layer.terms if not term[1].is_zero) for layer in layers]
    read = {source for source, _ in kept[-1]}
    for k in range(len(layers) - 1, 0, -1):
        if k in read:
            read.update(source for source, _ in kept[k - 1])
    numbers = {0: 0}
    for k in range(1, len(layers)):
        if k in read:
            numbers[k] = len(numbers)
    found = []
    for k, layer in enumerate(layers, start=1):
        if k in read or k == len(layers):
            terms = tuple((numbers[source], chain) for source, chain in kept[k - 1])
            found.append(Layer(layer.size, terms, layer.biases))
    return Network(n_in, tuple(found))
