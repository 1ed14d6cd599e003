"""Cuts with one bit per input: masks whose bits for negative weights are the opposites of those for positive ones.

The oracle with one threshold of 1/2 for a whole group keeps W_ij > 0 where x_j is in the lower half of its box, and
W_ij < 0 where it is in the upper half.  So one sign per input is enough, sigma_j = +1 in the lower half and -1 in the
upper one, and with v the vertex of the inputs' box that sigma points to (l_j for +1, u_j for -1)

    W.I = (W + |W| sigma) / 2        offset = (W.I) v        zc = b + W v

W x_in and W^T mu are computed in any case: such a cut costs one more pass with |W|, where other masks cost two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import add

import torch

from verifier.bounding.core.base import Region
from verifier.bounding.core.state import SHARED, State
from verifier.bounding.core.sweep import Values, read
from verifier.bounding.cuts.anderson import Cut, at_kinks
from verifier.network.network import Affine
from verifier.operators import LinearMap
from verifier.operators.signed import absolute
from verifier.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class BalancedGeometry(State):
    """|W| at the kinks of one group, and the boxes of its sources."""

    layer: Affine
    index: Int[Tensor, " a"] = field(metadata=SHARED)
    magnitudes: tuple[LinearMap, ...]  # source by source
    low: tuple[Float[Tensor, "D 1 _"], ...]
    high: tuple[Float[Tensor, "D 1 _"], ...]

    @classmethod
    def of(cls, layer: Affine, region: Region, index: Int[Tensor, " a"]) -> BalancedGeometry | None:
        """None if the entries of some map are out of reach: the group then takes no cuts."""
        found = [at_kinks(term, index, absolute) for _, term in layer.terms]
        magnitudes = tuple(term for term in found if term is not None)
        if len(magnitudes) < len(found):
            return None
        boxes = [region.source(source) for source, _ in layer.terms]
        low, high = (tuple(box[side].unsqueeze(1) for box in boxes) for side in (0, 1))
        return cls(layer, index, magnitudes, low, high)

    @property
    def cut_bytes(self) -> int:
        """What the cuts of one region and objective keep."""
        return self.layer.bias.element_size() * (2 * len(self.index) + sum(term.n_in for term in self.magnitudes))

    @property
    def pass_bytes(self) -> int:
        """What a masked pass of one region and objective holds besides: a vector, and a result."""
        return self.layer.bias.element_size() * max(term.n_in + term.n_out for term in self.magnitudes)

    def bits(self, values: Values) -> Bool[Tensor, "D S n"]:
        """The oracle with z = 1/2: which inputs are in the lower half of their box; all sources side by side."""
        boxes = zip(self.layer.terms, self.low, self.high, strict=True)
        return torch.cat([2 * read(values, source) <= low + high for (source, _), low, high in boxes], dim=-1)

    def cut(self, bits: Bool[Tensor, "D #S n"]) -> BalancedCut:
        """The cut of given bits, with constants for these regions."""
        sizes = [term.n_in for _, term in self.layer.terms]
        parts = bits.split(sizes, dim=-1)
        signs = tuple(part.to(low.dtype).sub_(0.5) for part, low in zip(parts, self.low, strict=True))
        boxes = zip(parts, self.low, self.high, strict=True)
        vertex = [torch.where(part, low, high) for part, low, high in boxes]
        plain = self._plain(vertex)
        rest = [term.forward(sign * v) for term, sign, v in zip(self.magnitudes, signs, vertex, strict=True)]
        offset = 0.5 * plain + reduce(add, rest)
        return BalancedCut(offset, self.layer.bias[self.index] + plain, self, signs)

    def _plain(self, vertex: Sequence[Tensor]) -> Float[Tensor, "D S a"]:
        """W v at the kinks."""
        parts = (term.forward(v) for (_, term), v in zip(self.layer.terms, vertex, strict=True))
        return reduce(add, parts).index_select(-1, self.index)


@dataclass(frozen=True, eq=False)
class BalancedCut(Cut):
    """One pass with |W|, and an elementwise product."""

    geometry: BalancedGeometry
    signs: tuple[Float[Tensor, "D #S _"], ...]  # sigma / 2

    @property
    def whole(self) -> float:
        return 0.5

    def forward(self, values: Values) -> Float[Tensor, "D S a"]:
        return reduce(add, (term.forward(sign * read(values, source)) for source, term, sign in self._terms()))

    def transpose(self, beta: Float[Tensor, "D S a"]) -> list[tuple[int, Float[Tensor, "D S _"]]]:
        return [(source, term.transpose(beta).mul_(sign)) for source, term, sign in self._terms()]

    def _terms(self) -> Iterable[tuple[int, LinearMap, Tensor]]:
        sources = (source for source, _ in self.geometry.layer.terms)
        return zip(sources, self.geometry.magnitudes, self.signs, strict=True)
