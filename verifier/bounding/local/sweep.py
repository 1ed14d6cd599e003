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
    """Sweeps from the neurons of one layer, over one region, in one precision.

    Rows over patches lie one below the other, whole ones side by side: [neurons that do not block, rows].
    """

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
        for k in range(1, layer):
            if (k, slope) not in passes.tolls:
                price = reference.price(net.layers[k - 1], k, dtype, more)
                passes.tolls[k, slope] = Toll.of(Kinks.of(region, k), reference.x_hat[k - 1], slope, price, dtype)
        tolls = tuple(passes.tolls[k, slope] for k in range(1, layer))
        departures = (*reference.reach, *reference.spread)
        lost = LOST * (1.0 + sum(float(part.sum()) for part in departures)) if single else 0.0
        radius = rounded_up(reference.reach[0], dtype)
        value, price = reference.x_hat[-1], reference.price(net.layers[layer - 1], layer, dtype, more)
        return cls(passes, region, layer, RowForms.of(net, layer), tolls, radius, value, price, lost)

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

    def prepare(self) -> None:
        """Cut the maps that whole rows take, so that forks need not do it each for itself."""
        for k, patch in enumerate(self.forms.sources[1:], start=1):
            if patch is None:
                for source, _ in self.net.layers[k - 1].terms:
                    self.passes.between(self.region, k, source)

    def lower(self, neurons: Int[Tensor, " R"], sign: Float[Tensor, " R"]) -> Float[Tensor, " R"]:
        """Lower bounds of sign times x_hat of some neurons."""
        rows = torch.arange(len(neurons), device=neurons.device)
        start = self.forms.layer
        if start is None:
            spots = Spots(neurons.new_zeros(1, 0), torch.zeros_like(neurons))
            mu = self.radius.new_zeros(self.net.layers[self.layer - 1].size, len(neurons))
            mu[neurons, rows] = sign.to(mu.dtype)
        else:
            places, which = (neurons % self._places).unique(return_inverse=True)
            spots = Spots(torch.stack(places_of(places, start.image[1:]), dim=1), which)
            mu = self.radius.new_zeros(len(neurons), start.entries)
            mu[rows, neurons // self._places] = sign.to(mu.dtype)
        paid = self._walk(mu, spots)
        terms = growth(self._widest + len(self.net.layers) + FEW, self.radius.dtype)
        error = self.price[neurons] + paid.value + terms * paid.summed + self.lost
        return settled(sign * self.value[neurons], error)

    def _walk(self, mu: Float[Tensor, "_ _"], spots: Spots) -> Paid:
        nothing = self.value.new_zeros(len(spots.which))
        paid = Paid(nothing, nothing.clone())
        lam: list[Tensor | None] = [None] * self.layer
        self._pull(self.layer, mu, lam, spots)
        for k in range(self.layer - 1, 0, -1):
            own, lam[k] = lam[k], None
            if own is not None:
                self._pull(k, self._relaxed(k, own, spots, paid), lam, spots)
        if lam[0] is not None:
            patch = self.forms.sources[0]
            if patch is None:
                paid.add(_sums(lam[0].abs_().T, self.radius[self.passes.neurons(self.region, 0)]))
            else:
                paid.add(_sums(lam[0].abs_(), spots.taken(patch, self.radius.unsqueeze(0))[0]))
        return paid

    def _relaxed(self, k: int, lam: Float[Tensor, "_ _"], spots: Spots, paid: Paid) -> Float[Tensor, "_ _"]:
        """The coefficients of x_hat[k]; those of x[k] are overwritten."""
        patch, size = self.forms.sources[k], lam.abs()
        if patch is None:
            middle, half, both, side = self._tables(k)
            paid.add(_sums(size.T, both), _sums(lam.T, side))
            return lam.mul_(middle.unsqueeze(1)).addcmul_(size, half.unsqueeze(1))
        middle, half, both, side = spots.taken(patch, self.tolls[k - 1].tables)
        paid.add(_sums(size, both), _sums(lam, side))
        return lam.mul_(middle).addcmul_(size, half)

    def _tables(self, k: int) -> Float[Tensor, "4 a"]:
        """What whole rows pay, which hold the neurons that do not block."""
        if k not in self._taken:
            self._taken[k] = self.tolls[k - 1].tables.index_select(1, self.passes.neurons(self.region, k))
        return self._taken[k]

    @cached_property
    def _taken(self) -> dict[int, Float[Tensor, "4 a"]]:
        return {}

    def _pull(self, k: int, mu: Float[Tensor, "_ _"], lam: list[Tensor | None], spots: Spots) -> None:
        """Take multipliers of x_hat[k] back through the map of layer k."""
        start = self.forms.layer if k == self.layer else self.forms.sources[k]
        for source, term in self.net.layers[k - 1].terms:
            local, patch = self._maps.get((k, source)), self.forms.sources[source]
            if local is not None:
                part = local.transpose(mu)
                if patch is None:
                    part = spots.whole(local.end, part, self.passes.neurons(self.region, source))
            elif start is None and k < self.layer:
                part = self.passes.transpose(self.region, k, source, mu)
            else:  # rows begin here, or the map does not know patches
                whole = mu.T if start is None else spots.spread(start, mu)
                part = term.transpose(whole).index_select(1, self.passes.neurons(self.region, source)).T.contiguous()
            known = lam[source]
            lam[source] = part if known is None else known.add_(part)


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
