"""Cuts with one bit per input: masks whose bits for negative weights are the opposites of those for positive ones.

The oracle with one threshold of 1/2 for a whole group keeps W_ij > 0 where x_j is in the lower half of its box, and
W_ij < 0 where it is in the upper half.  So one sign per input is enough, sigma_j = +1 in the lower half and -1 in the
upper one, and with v the vertex of the inputs' box that sigma points to (l_j for +1, u_j for -1)

    W.I = (W + |W| sigma) / 2        offset = (W.I) v        zc = b + W v

W x_in and W^T mu are computed in any case: such a cut costs one more pass with |W|, where other masks cost two.

A cut is linear in its mask, so masks may be mixed: with a share s_j of [0, 1] for sigma_j = +1, and a = s l and
c = (1 - s) u entry by entry,

    sigma = 2 s - 1        offset = (W (a + c) + |W| (a - c)) / 2        zc = b + W (a + c)

is a valid cut as well.  Shares are numbers that an ascent can learn.  If kappa <= 0 are the multipliers of the cut at
the kinks, and a unit of zc adds kappa times t to the bound, then a unit of s_j adds

    (x_j - (l_j + u_j) / 2) (|W|^T kappa)_j  +  (u_j - l_j) (W^T (kappa (1/2 - t)))_j

The sign of the first term is the oracle's answer; the first product is known from the sweep that gave the bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, reduce
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
        parts = bits.split(self.sizes, dim=-1)
        signs = tuple(part.to(low.dtype).sub_(0.5) for part, low in zip(parts, self.low, strict=True))
        boxes = zip(parts, self.low, self.high, strict=True)
        vertex = [torch.where(part, low, high) for part, low, high in boxes]
        plain = self._plain(vertex)
        rest = [term.forward(sign * v) for term, sign, v in zip(self.magnitudes, signs, vertex, strict=True)]
        offset = 0.5 * plain + reduce(add, rest)
        return BalancedCut(offset, self.layer.bias[self.index] + plain, self, signs)

    def mixed(self, shares: Float[Tensor, "D S n"]) -> BalancedCut:
        """The cut of a mixture of masks.  Require: shares of [0, 1]; the bits that `cut` takes are its ends."""
        parts = shares.split(self.sizes, dim=-1)
        lower = [part * low for part, low in zip(parts, self.low, strict=True)]
        upper = [(1.0 - part) * high for part, high in zip(parts, self.high, strict=True)]
        plain = self._plain([a + c for a, c in zip(lower, upper, strict=True)])
        rest = [m.forward(a.sub_(c).mul_(0.5)) for m, a, c in zip(self.magnitudes, lower, upper, strict=True)]
        offset = torch.add(reduce(add, rest), plain, alpha=0.5)
        signs = tuple(part - 0.5 for part in parts)
        return BalancedCut(offset, plain.add_(self.layer.bias.index_select(-1, self.index)), self, signs, mixed=True)

    @cached_property
    def sizes(self) -> list[int]:
        """The inputs of each source."""
        return [term.n_in for _, term in self.layer.terms]

    def learned(
        self, values: Values, pulled: Sequence[Float[Tensor, "D S _"]], swing: Float[Tensor, "D S a"]
    ) -> Float[Tensor, "D S n"]:
        """What a unit of each share adds to the bound, all sources side by side.

        `pulled` is |W|^T kappa, source by source, and `swing` kappa (1/2 - t) at the kinks.
        """
        whole = swing.new_zeros(*swing.shape[:-1], self.layer.size).index_copy_(-1, self.index, swing)
        found = []
        for (source, term), back, low, high in zip(self.layer.terms, pulled, self.low, self.high, strict=True):
            middle = torch.add(low, high).mul_(0.5)
            found.append(torch.sub(read(values, source), middle).mul_(back).addcmul_(high - low, term.transpose(whole)))
        return torch.cat(found, dim=-1) if len(found) > 1 else found[0]

    def _plain(self, vertex: Sequence[Tensor]) -> Float[Tensor, "D S a"]:
        """W v at the kinks."""
        parts = (term.forward(v) for (_, term), v in zip(self.layer.terms, vertex, strict=True))
        return reduce(add, parts).index_select(-1, self.index)


@dataclass(frozen=True, eq=False)
class BalancedCut(Cut):
    """One pass with |W|, and an elementwise product."""

    geometry: BalancedGeometry
    signs: tuple[Float[Tensor, "D #S _"], ...]  # sigma / 2
    mixed: bool = False  # whether sigma may lie between -1 and 1

    @property
    def whole(self) -> float:
        return 0.5

    def forward(self, values: Values) -> Float[Tensor, "D S a"]:
        return reduce(add, (term.forward(sign * read(values, source)) for source, term, sign in self._terms()))

    def transpose(self, beta: Float[Tensor, "D S a"]) -> list[tuple[int, Float[Tensor, "D S _"]]]:
        return self.signed(self.pulled(beta))

    def pulled(self, beta: Float[Tensor, "D S a"]) -> list[Float[Tensor, "D S _"]]:
        """|W| transposed, times beta; source by source."""
        return [term.transpose(beta) for term in self.geometry.magnitudes]

    def signed(self, pulled: Sequence[Float[Tensor, "D S _"]]) -> list[tuple[int, Float[Tensor, "D S _"]]]:
        """The rest of (W.I), transposed, times what was pulled."""
        sources = (source for source, _ in self.geometry.layer.terms)
        return [(source, back * sign) for source, back, sign in zip(sources, pulled, self.signs, strict=True)]

    def pure(self, count: int) -> Sequence[Cut]:
        """A share of an input is kept by those of the masks whose number, from 1/2 on, is below it times `count`.

        Require: the geometry is that of these regions.
        """
        if not self.mixed:
            return (self,)
        shares = torch.cat(self.signs, dim=-1) + 0.5
        return tuple(self.geometry.cut(shares > (number + 0.5) / count) for number in range(count))

    def _terms(self) -> Iterable[tuple[int, LinearMap, Tensor]]:
        sources = (source for source, _ in self.geometry.layer.terms)
        return zip(sources, self.geometry.magnitudes, self.signs, strict=True)
