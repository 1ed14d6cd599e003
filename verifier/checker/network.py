"""A network as affine layers and groups of neurons: t_k = sum_j W_kj x_j + b_k, x_k = f_k(t_k), x_0 the input.

Weights are those of the file, as chains of maps; nothing is multiplied out.  Where several maps lie between two groups,
|W| stands for the product of their absolute values, which is at least the absolute value of their product.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from .functions import RELU, Function
from .maps import Chain, Dense
from .rationals import Array, Rationals
from .stream import Unreadable

_SMALL = 1 << 22
"""Entries of a matrix that stands for several chains in `Layer.signed`."""


@dataclass(frozen=True, eq=False)
class Layer:
    """The sum of chains of maps, each applied to a source; `biases` are chains applied to constant vectors.

    `size` is that of the sum t, `function` what the group makes of it; that of the output is not looked at.
    """

    size: int
    terms: tuple[tuple[int, Chain], ...]
    biases: tuple[tuple[Chain, Array], ...]
    function: Function = RELU

    @property
    def outputs(self) -> int:
        """How many entries the group gives."""
        return self.size // self.function.arity

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
        """[1, size]"""
        return np.asarray(_total([chain.forward(value[None]) for chain, value in self.biases], self.size))

    @cached_property
    def exact_bias(self) -> Rationals:
        found = Rationals.of(np.zeros((1, self.size)))
        for chain, value in self.biases:
            found = found + chain.forward(Rationals.of(value[None]))
        return found

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

    def bias_of(self, values: Any) -> Any:
        """The bias, in the arithmetic of some values."""
        return self.exact_bias if isinstance(values, Rationals) else self.bias

    def moved(self, values: Any) -> Any:
        """Plus the bias."""
        return values + self.bias_of(values)

    def forward(self, x: Mapping[int, Any]) -> Any:
        """W x for rows x[j] [m, n_j] of all sources; without the bias."""
        return _total([chain.forward(x[source]) for source, chain in self.terms], self.size)

    def transpose(self, mu: Any) -> list[tuple[int, Any]]:
        """W^T mu for rows mu [m, n], source by source; a source may come twice."""
        return [(source, chain.transpose(mu)) for source, chain in self.terms]


def _total(parts: Sequence[Any], size: int) -> Any:
    return functools.reduce(np.add, parts) if parts else np.zeros((1, size))


@dataclass(frozen=True, eq=False)
class Network:
    """Layers 1..K+1 (`layers[k - 1]` is layer k); the last of them is the output."""

    n_in: int
    layers: tuple[Layer, ...]

    @property
    def groups(self) -> int:
        return len(self.layers) - 1

    def size(self, k: int) -> int:
        """Of the input (0), of what group k is applied to, or of the output."""
        return self.layers[k - 1].size if k else self.n_in

    @cached_property
    def piecewise_linear(self) -> bool:
        """Whether all neurons are ReLUs."""
        return all(layer.function.bends_at_zero for layer in self.layers[:-1])

    def inputs(self, k: int) -> list[int]:
        """How many entries each source of layer k has."""
        return [self.layers[j - 1].outputs if j else self.n_in for j in self.layers[k - 1].sources]

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
    def room(self) -> int:
        """How many numbers one row needs at most on its way through a map."""
        maps = (m for layer in self.layers for chain in layer.chains for m in chain.maps)
        return max([self.n_in, *(layer.size for layer in self.layers), *(m.room for m in maps)])

    @cached_property
    def roundings(self) -> int:
        """By how many roundings an entry of a layer is off before anything is computed; zero unless a root is taken."""
        return max((chain.roundings for layer in self.layers for chain in layer.chains), default=0)


def pruned(n_in: int, layers: Sequence[Layer]) -> Network:
    """Without terms that are zero, and without groups that nothing reads then; those that may have no value stay."""
    kept = [tuple(term for term in layer.terms if not term[1].is_zero) for layer in layers]
    read = {source for source, _ in kept[-1]}
    read.update(k for k, layer in enumerate(layers[:-1], start=1) if layer.function.partial)
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
            found.append(Layer(layer.size, terms, layer.biases, layer.function))
    return Network(n_in, tuple(found))
