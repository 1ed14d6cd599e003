"""Properties of several networks, of equal inputs or of products, as properties of one joint network.

Plain data: what is declared and how it is numbered.  `verifier.property.joining` makes the network of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

Terms = tuple[tuple[int, Fraction], ...]


@dataclass(frozen=True, slots=True)
class LinearSum:
    """Sum of y terms plus sum of x terms plus a constant; y counts all outputs, earlier products included."""

    y: Terms
    x: Terms
    constant: Fraction

    def value(self, x: Sequence[Fraction], y: Sequence[Fraction]) -> Fraction:
        """At a point, without any rounding."""
        found = sum((a * y[j] for j, a in self.y), self.constant)
        return sum((b * x[i] for i, b in self.x), found)


@dataclass(frozen=True, slots=True)
class ProductTerm:
    """Two sums, multiplied; a square if they are the same."""

    first: LinearSum
    second: LinearSum


@dataclass(frozen=True, slots=True)
class NamedNetwork:
    """A network that a property speaks of: how many inputs and outputs it has, and which other one it repeats."""

    name: str
    inputs: tuple[tuple[int, ...], ...]  # the shape of every tensor
    outputs: tuple[tuple[int, ...], ...]
    equal_to: str | None = None  # the same file
    isomorphic_to: str | None = None  # another file with tensors of the same shapes

    @property
    def n_x(self) -> int:
        return sum(map(math.prod, self.inputs))

    @property
    def n_y(self) -> int:
        return sum(map(math.prod, self.outputs))


@dataclass(frozen=True, slots=True)
class Joint:
    """How a property of several networks, or with equal inputs or products, is one of a single network.

    Declared inputs that are asserted to be equal are one input of the joint network: `shared[i]` is the one that stands
    for the i-th declared input, over all networks in their order.  Its outputs are the declared ones in the same
    order, and after them the `products` that conditions are about.
    """

    networks: tuple[NamedNetwork, ...]
    shared: tuple[int, ...]
    products: tuple[ProductTerm, ...] = ()

    @property
    def n_y(self) -> int:
        """The number of declared outputs."""
        return sum(network.n_y for network in self.networks)

    @property
    def plain(self) -> bool:
        """Whether the joint network is the only one that there is."""
        return len(self.networks) == 1 and not self.products and self.shared == tuple(range(len(self.shared)))

    def completed(self, x: Sequence[Fraction], y: Sequence[Fraction]) -> list[Fraction]:
        """The declared outputs and, from them, the products, without any rounding."""
        values = list(y[: self.n_y])
        for product in self.products:
            values.append(product.first.value(x, values) * product.second.value(x, values))
        return values
