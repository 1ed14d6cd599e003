"""How the rows of local sweeps are kept, and the maps between them.

A sweep that starts at one neuron of an image is zero outside of the patch that the neuron depends on.  Rows are kept as
such patches, side by side whatever their places are, until a patch is most of its image; from there on they are whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from verifier.bounding.core.base import Region
from verifier.bounding.local.reference import Toll
from verifier.bounding.solvers.crown import Slope
from verifier.network.network import Network
from verifier.operators import Conv, LinearMap, Select
from verifier.operators.blocks import DenseBlocks, arranged
from verifier.operators.matrix import stored_rows
from verifier.operators.patch import Patch
from verifier.shapes import Bool, Float, Int, Tensor

MOST = 0.3
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

    def whole(self, patch: Patch, rows: Float[Tensor, "R e"], neurons: Int[Tensor, " a"]) -> Float[Tensor, "a R"]:
        """Rows over patches as rows over some neurons of the image, side by side."""
        return self.spread(patch, rows).index_select(1, neurons).T.contiguous()

    def spread(self, patch: Patch, rows: Float[Tensor, "R e"]) -> Float[Tensor, "R n"]:
        """Rows over patches as rows over the whole image."""
        index = patch.index(self.places).index_select(0, self.which)
        return rows.new_zeros(len(rows), patch.n_in + 1).scatter_(1, index, rows)[:, :-1]


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
class Between:
    """The transpose of a map between neurons that do not block, for rows that lie side by side: [neurons, rows]."""

    term: LinearMap
    rows: Int[Tensor, " r"]
    columns: Int[Tensor, " c"]
    blocks: DenseBlocks | None = None
    moved: Int[Tensor, " c"] | None = None  # which row each column is, if they only move
    gone: Bool[Tensor, " c"] | None = None  # the columns that are no row; None: there are none

    @classmethod
    def of(cls, term: LinearMap, rows: Int[Tensor, " r"], columns: Int[Tensor, " c"]) -> Between:
        """In blocks, or by moving entries; else by the map itself."""
        if isinstance(term, Conv) and term.groups == 1:
            return cls(term, rows, columns, DenseBlocks.transposed(term, rows, columns))
        if isinstance(term, Select) and term.injective:
            taken = term.index[rows]
            moved = torch.full((term.n_in,), -1, device=rows.device)
            moved[taken[taken >= 0]] = torch.nonzero(taken >= 0).flatten()
            moved = moved[columns]
            gone = moved < 0
            return cls(term, rows, columns, moved=moved.clamp(min=0), gone=gone if bool(gone.any()) else None)
        known = stored_rows(term, rows)
        if known is None:
            return cls(term, rows, columns)
        return cls(term, rows, columns, DenseBlocks.whole(known[:, columns].T.contiguous()))

    def to(self, term: LinearMap) -> Between:
        """The same in the precision of another copy of the map."""
        if self.blocks is None or term.weights is None:
            return replace(self, term=term)
        return replace(self, term=term, blocks=self.blocks.to(term.weights.dtype))

    def transpose(self, mu: Float[Tensor, "r R"]) -> Float[Tensor, "c R"]:
        """New rows: whoever gets them may overwrite them."""
        if self.blocks is not None:
            return self.blocks.product(mu)
        if self.moved is not None:
            found = mu.index_select(0, self.moved)
            return found if self.gone is None else found.masked_fill_(self.gone.unsqueeze(1), 0.0)
        whole = mu.new_zeros(self.term.n_out, mu.shape[1]).index_copy_(0, self.rows, mu)
        return self.term.transpose(whole.T).T.index_select(0, self.columns)


@dataclass(frozen=True, eq=False)
class Passes:
    """The maps of a network in one precision, and what is known of one region, group after group.

    Rows that are whole hold the neurons that do not block, in an order in which neighbours follow each other; maps
    between these, and what rows pay at a group, are computed once.
    """

    net: Network
    double: Passes | None = None  # the same in float64, if this is float32
    live: dict[int, Int[Tensor, " a"]] = field(default_factory=dict)
    known: dict[tuple[int, int], Between] = field(default_factory=dict)
    tolls: dict[tuple[int, Slope], Toll] = field(default_factory=dict)

    def neurons(self, region: Region, source: int) -> Int[Tensor, " a"]:
        """The neurons of a source that do not block in a region, which has their bounds; of the input all."""
        if self.double is not None:
            return self.double.neurons(region, source)
        if source not in self.live:
            self.live[source] = self._arranged(region, source)
        return self.live[source]

    def _arranged(self, region: Region, source: int) -> Int[Tensor, " a"]:
        if source:
            found = torch.nonzero(~(region.u_hat[source - 1][0] <= 0)).flatten()
            images = (term.out_shape for _, term in self.net.groups[source - 1].terms if isinstance(term, Conv))
        else:
            found = torch.arange(self.net.n_in, device=region.lower.device)
            terms = (term for layer in self.net.layers for j, term in layer.terms if j == 0)
            images = (term.in_shape for term in terms if isinstance(term, Conv))
        image = next(images, None)
        return found if image is None else arranged(found, image)

    def transpose(self, region: Region, k: int, source: int, mu: Float[Tensor, "r R"]) -> Float[Tensor, "c R"]:
        """Take whole rows back through the map of a group whose bounds the region has."""
        return self.between(region, k, source).transpose(mu)

    def between(self, region: Region, k: int, source: int) -> Between:
        """The map from the neurons of a group that do not block to those of a source."""
        if (k, source) not in self.known:
            term = next(term for j, term in self.net.layers[k - 1].terms if j == source)
            if self.double is None:
                found = Between.of(term, self.neurons(region, k), self.neurons(region, source))
            else:
                found = self.double.between(region, k, source).to(term)
            self.known[k, source] = found
        return self.known[k, source]
