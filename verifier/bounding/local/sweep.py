"""CROWN's sweeps from single neurons, in either precision.

requires:   one region without splits; groups of ReLUs before the layer
guarantees: lower bounds of CROWN, with all rounding errors subtracted in float32 as well as in float64
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch

from verifier.bounding.core.base import Region
from verifier.bounding.core.closing import settled
from verifier.bounding.local.passes import Passes, RowForms, Spots
from verifier.bounding.local.reference import FEW, Reference, Toll, rounded_up
from verifier.bounding.relaxation.form import growth
from verifier.bounding.relaxation.relu import Kinks
from verifier.bounding.solvers.crown import Slope
from verifier.network.network import Network
from verifier.operators.base import flat_size, places_of
from verifier.operators.patch import PatchMap
from verifier.shapes import Float, Int, Tensor

LOST = 2.0**-40
"""What underflow in float32 can cost for each unit that values can depart from the reference.

An entry is a sum of at most 2^20 products, each off by at most 2^-126; in a product of two matrices the second one
magnifies that by at most 2^20 weights of 2^32.
"""


@dataclass(frozen=True, eq=False)
class LocalSweep:
    """Sweeps from the neurons of one layer, over one region, in one precision."""

    passes: Passes
    region: Region
    layer: int
    forms: RowForms
    tolls: tuple[Toll, ...]
    radius: Float[Tensor, " n0"]
    value: Float[Tensor, " n"]  # the reference at the layer
    price: Float[Tensor, " n"]  # of a unit of the layer's multiplier
    lost: float

    @classmethod
    def of(cls, passes: Passes, region: Region, reference: Reference, slope: Slope) -> LocalSweep:
        """From the last layer of the reference, in the network's precision; all else is in float64."""
        net = passes.net
        layer, dtype = len(reference.x_hat), net.output.bias.dtype
        single = dtype is not torch.float64
        more = len(net.layers) + (2 if single else 0)
        prices = [reference.price(net.layers[k - 1], k, dtype, more) for k in range(1, layer + 1)]
        tolls = [
            Toll.of(Kinks.of(region, k), reference.x_hat[k - 1], slope, prices[k - 1], dtype) for k in range(1, layer)
        ]
        departures = (*reference.reach, *reference.spread)
        lost = LOST * (1.0 + sum(float(part.sum()) for part in departures)) if single else 0.0
        radius = rounded_up(reference.reach[0], dtype)
        value, forms = reference.x_hat[-1], RowForms.of(net, layer)
        return cls(passes, region, layer, forms, tuple(tolls), radius, value, prices[-1], lost)

    @property
    def net(self) -> Network:
        return self.passes.net

    def order(self, neurons: Int[Tensor, " c"]) -> Int[Tensor, " c"]:
        """The order in which rows are best swept: patches of one place share what they read."""
        return (neurons % self._places).argsort(stable=True)

    @cached_property
    def bytes_each(self) -> int:
        """What one row takes."""
        return 6 * self._widest * self.radius.element_size()

    @cached_property
    def _places(self) -> int:
        start = self.forms.layer
        return 1 if start is None else flat_size(start.image[1:])

    @cached_property
    def _widest(self) -> int:
        """Entries of the longest row that is held."""
        sizes = [self.net.n_in, *(group.size for group in self.net.groups[: self.layer - 1])]
        return max(n if patch is None else patch.entries for n, patch in zip(sizes, self.forms.sources, strict=True))

    @cached_property
    def _maps(self) -> dict[tuple[int, int], PatchMap]:
        """From patches to patches, which may be more than their images, by layer and source."""
        found = {}
        for k in range(1, self.layer + 1):
            start = self.forms.layer if k == self.layer else self.forms.sources[k]
            for source, term in self.net.layers[k - 1].terms:
                near = None if start is None else start.through(term)
                if start is not None and near is not None:
                    found[k, source] = PatchMap.of(term, start, self.forms.sources[source] or near, self.radius)
        return found

    def lower(self, neurons: Int[Tensor, " R"], sign: Float[Tensor, " R"]) -> Float[Tensor, " R"]:
        """Lower bounds of sign times x_hat of some neurons."""
        rows = torch.arange(len(neurons), device=neurons.device)
        start = self.forms.layer
        if start is None:
            spots = Spots(neurons.new_zeros(1, 0), torch.zeros_like(neurons))
            mu = self.radius.new_zeros(len(neurons), self.net.layers[self.layer - 1].size)
            mu[rows, neurons] = sign.to(mu.dtype)
        else:
            places, which = (neurons % self._places).unique(return_inverse=True)
            spots = Spots(torch.stack(places_of(places, start.image[1:]), dim=1), which)
            mu = self.radius.new_zeros(len(neurons), start.entries)
            mu[rows, neurons // self._places] = sign.to(mu.dtype)
        paid = self._walk(mu, spots)
        terms = growth(self._widest + len(self.net.layers) + FEW, self.radius.dtype)
        error = self.price[neurons] + paid.value + terms * paid.summed + self.lost
        return settled(sign * self.value[neurons], error)

    def _walk(self, mu: Float[Tensor, "R e"], spots: Spots) -> Paid:
        nothing = self.value.new_zeros(len(mu))
        paid = Paid(nothing, nothing.clone())
        lam: list[Tensor | None] = [None] * self.layer
        self._pull(self.layer, mu, lam, spots)
        for k in range(self.layer - 1, 0, -1):
            own, lam[k] = lam[k], None
            if own is not None:
                self._pull(k, self._relaxed(k, own, spots, paid), lam, spots)
        if lam[0] is not None:
            patch = self.forms.sources[0]
            radius = self.radius if patch is None else spots.taken(patch, self.radius.unsqueeze(0))[0]
            paid.add(_sums(lam[0].abs_(), radius))
        return paid

    def _relaxed(self, k: int, lam: Float[Tensor, "R e"], spots: Spots, paid: Paid) -> Float[Tensor, "R e"]:
        """The coefficients of x_hat[k]; those of x[k] are overwritten."""
        patch, tables = self.forms.sources[k], self.tolls[k - 1].tables
        if patch is not None:
            tables = spots.taken(patch, tables)
        middle, half, both, side = tables
        size = lam.abs()
        paid.add(_sums(size, both), _sums(lam, side))
        return lam.mul_(middle).addcmul_(size, half)

    def _pull(self, k: int, mu: Float[Tensor, "R e"], lam: list[Tensor | None], spots: Spots) -> None:
        """Take multipliers of x_hat[k] back through the map of layer k."""
        start = self.forms.layer if k == self.layer else self.forms.sources[k]
        whole: Tensor | None = mu if start is None else None
        for source, _ in self.net.layers[k - 1].terms:
            local = self._maps.get((k, source))
            if local is not None:
                part = local.transpose(mu)
                if self.forms.sources[source] is None:
                    part = spots.whole(local.end, part)
            else:
                if whole is None:
                    assert start is not None
                    whole = spots.whole(start, mu)
                part = self.passes.transpose(self.region, k, source, whole)
            known = lam[source]
            lam[source] = part if known is None else known + part


@dataclass(eq=False)
class Paid:
    """What rows have paid so far, and the size of the terms of which that is the sum; in float64."""

    value: Float[Tensor, " R"]
    summed: Float[Tensor, " R"]

    def add(self, both: Float[Tensor, " R"], side: Float[Tensor, " R"] | None = None) -> None:
        """`side` may have any sign; it is made of terms that are no larger than those of `both`."""
        self.value += both
        self.summed += 2 * both
        if side is not None:
            self.value += side


def _sums(rows: Float[Tensor, "R e"], weights: Float[Tensor, "*R e"]) -> Float[Tensor, " R"]:
    """Weighted sums of rows, by weights that all share or that each has of its own."""
    return rows @ weights if weights.dim() == 1 else (rows * weights).sum(dim=1)
