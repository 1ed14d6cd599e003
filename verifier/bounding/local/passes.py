"""How the rows of local sweeps are kept, and the maps between them.

A sweep that starts at one neuron of an image is zero outside of the patch that the neuron depends on.  Rows are kept as
such patches, side by side whatever their places are, until a patch is most of its image; from there on they are whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from verifier.bounding.core.base import Region
from verifier.network.network import Network
from verifier.operators import Conv, LinearMap
from verifier.operators.base import flat_size
from verifier.operators.patch import Patch, written_out
from verifier.shapes import Float, Int, Tensor

FASTER = {torch.float64: 4.0, torch.float32: 1.3}
"""How many times the products of a convolution a product of matrices may have, and is as fast."""

MOST = 0.7
"""The share of an image from which on rows are carried whole."""


@dataclass(frozen=True, eq=False)
class Spots:
    """Where rows start: the places that occur, and which of them each row starts at."""

    places: Int[Tensor, "P a"]
    which: Int[Tensor, " R"]

    def taken(self, patch: Patch, tables: Float[Tensor, "t n"]) -> Float[Tensor, "t R e"]:
        """For each row the part of some tables that its patch covers; zeros outside of the image."""
        padded = torch.cat([tables, tables.new_zeros(len(tables), 1)], dim=1)
        return padded[:, patch.index(self.places)].index_select(1, self.which)

    def whole(self, patch: Patch, rows: Float[Tensor, "R e"]) -> Float[Tensor, "R n"]:
        """Rows over patches as rows over the image."""
        index = patch.index(self.places).index_select(0, self.which)
        found = rows.new_zeros(len(rows), patch.n_in + 1).scatter_(1, index, rows)
        return found[:, :-1]


@dataclass(frozen=True, eq=False)
class RowForms:
    """How the rows of a sweep are kept: at each source over a patch, or None for the whole."""

    layer: Patch | None
    sources: tuple[Patch | None, ...]

    @classmethod
    def of(cls, net: Network, layer: int) -> RowForms:
        images = (term.out_shape for _, term in net.layers[layer - 1].terms if isinstance(term, Conv))
        image = next(images, None)
        start = None if image is None else Patch.point(image)
        found: list[Patch | None] = [None] * layer
        reached: set[int] = set()
        for k in range(layer, 0, -1):
            own = start if k == layer else found[k]
            if k < layer and k not in reached:
                continue
            for source, term in net.layers[k - 1].terms:
                part = None if own is None else own.through(term)
                known = found[source]
                if source in reached:
                    part = None if part is None or known is None else known.joined(part)
                found[source] = None if part is None or part.share > MOST else part
                reached.add(source)
        return cls(start, tuple(found))


@dataclass(frozen=True, eq=False)
class Active:
    """A map between neurons that do not block, written out."""

    rows: Int[Tensor, " r"]
    columns: Int[Tensor, " c"]
    matrix: Float[Tensor, "r c"]
    n_in: int

    @classmethod
    def of(cls, region: Region, k: int, source: int, term: LinearMap) -> Active | None:
        """Of a convolution between two groups, if that is faster; None if not."""
        if source == 0 or k > region.known or not isinstance(term, Conv) or term.groups > 1:
            return None
        rows, columns = (torch.nonzero(~(region.u_hat[j - 1][0] <= 0)).flatten() for j in (k, source))
        work = flat_size(term.out_shape[1:]) * term.weight.numel()
        if len(rows) * len(columns) > FASTER[term.weight.dtype] * work:
            return None
        return cls(rows, columns, written_out(term, rows, columns), term.n_in)

    def transpose(self, mu: Float[Tensor, "R n"]) -> Float[Tensor, "R n_in"]:
        found = mu.index_select(1, self.rows) @ self.matrix
        return mu.new_zeros(len(mu), self.n_in).index_copy_(1, self.columns, found)


@dataclass(frozen=True, eq=False)
class Passes:
    """The maps of a network in one precision, and those between groups of a region as far as they are written out."""

    net: Network
    known: dict[tuple[int, int], Active | None] = field(default_factory=dict)

    def transpose(self, region: Region, k: int, source: int, mu: Float[Tensor, "R n"]) -> Float[Tensor, "R n_in"]:
        term = next(term for j, term in self.net.layers[k - 1].terms if j == source)
        if (k, source) not in self.known:
            self.known[k, source] = Active.of(region, k, source, term)
        active = self.known[k, source]
        return term.transpose(mu) if active is None else active.transpose(mu)
