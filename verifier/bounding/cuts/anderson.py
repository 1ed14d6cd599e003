"""Anderson cuts: masks over the weights of a group, and the linear-time oracle that finds them.

For a neuron with weights w, bias b and boxes [l, u] of its inputs, every 0/1 mask I gives a valid cut

    x <= (w I) . x_in - offset + z zc,    offset = w I . l_check,    zc = b + offset + w (1 - I) . u_check

where l_check, u_check are the corners of the inputs' box that minimise and maximise w . x_in ([SCB]
eq:primal-anderson).  Masks are held in one of two forms:

- `RowMasks`: one bit per weight of each neuron, as in [SCB] sec:masked-passes, for kinks only; or one share, for
  mixtures of cuts;
- `SharedMasks`: two bits per *input*, one for positive and one for negative weights, shared by all neurons of the
  group.  They arise from the oracle with one threshold for the whole group, and cost two ordinary passes.

With the threshold 1/2 one bit per input is enough, and one pass: see `balanced`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from operator import add

import torch

from verifier.bounding.core.base import Region
from verifier.bounding.core.state import SHARED, State
from verifier.bounding.core.sweep import Values, read
from verifier.network.network import Affine
from verifier.operators import Chain, Dense, LinearMap, Select, Sparse
from verifier.operators.rows import row_support
from verifier.operators.signed import signed
from verifier.shapes import Bool, Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class Cut(State, ABC):
    """One cut for each kink of a group (`a` of them), in every region and for every objective.

    (W.I) = whole W + rest.  The passes are those of the rest: whoever takes cuts with whole > 0 has W x_in and W^T mu
    at hand anyway.
    """

    offset: Float[Tensor, "D S a"]
    zc: Float[Tensor, "D S a"]

    @property
    @abstractmethod
    def whole(self) -> float:
        """How much of W itself the masked matrix holds."""

    def pure(self, count: int) -> Sequence[Cut]:
        """Cuts whose masks are bits, and whose mean comes near to this one: itself, or `count` of them."""
        return (self,)

    @abstractmethod
    def forward(self, values: Values) -> Float[Tensor, "D S a"]:
        """The rest of (W.I) times x_in, at the kinks."""

    @abstractmethod
    def transpose(self, beta: Float[Tensor, "D S a"]) -> list[tuple[int, Float[Tensor, "D S _"]]]:
        """The rest of (W.I), transposed, times beta; source by source."""


# ---------------------------------------------------------------- masks shared by the neurons of a group


@dataclass(frozen=True, eq=False)
class SharedGeometry(State):
    """The signed maps to the kinks of one group and the boxes of its sources, doubled: for W+, then for W-."""

    index: Int[Tensor, " a"] = field(metadata=SHARED)
    bias: Float[Tensor, " a"] = field(metadata=SHARED)
    terms: tuple[tuple[int, LinearMap], ...]
    l_check: tuple[Float[Tensor, "D 1 _"], ...]
    u_check: tuple[Float[Tensor, "D 1 _"], ...]

    @classmethod
    def of(cls, layer: Affine, region: Region, index: Int[Tensor, " a"]) -> SharedGeometry | None:
        """None if some map has no positive and negative part within reach: the group then takes no cuts."""
        terms, lows, highs = [], [], []
        for source, term in layer.terms:
            stacked = at_kinks(term, index, signed)
            if stacked is None:
                return None
            low, high = (side.unsqueeze(1) for side in region.source(source))
            terms.append((source, stacked))
            lows.append(torch.cat([low, high], dim=-1))
            highs.append(torch.cat([high, low], dim=-1))
        return cls(index, layer.bias[index], tuple(terms), tuple(lows), tuple(highs))

    @property
    def cut_bytes(self) -> int:
        """What the cuts of one region and objective keep."""
        return self.bias.element_size() * (2 * len(self.index) + sum(term.n_in for _, term in self.terms))

    @property
    def pass_bytes(self) -> int:
        """What a masked pass of one region and objective holds besides: a doubled vector twice, and a result."""
        return self.bias.element_size() * max(2 * term.n_in + term.n_out for _, term in self.terms)

    def bits(self, values: Values, z: float) -> Bool[Tensor, "D S n"]:
        """The oracle with one z for all neurons: which inputs each sign of weight keeps, source by source."""
        found = []
        for (source, _), low, high in zip(self.terms, self.l_check, self.u_check, strict=True):
            x = read(values, source)
            n = x.shape[-1]
            width = high[..., :n] - low[..., :n]
            t = torch.where(width > 0, (x - low[..., :n]) / width, torch.zeros_like(x))
            found.append(torch.cat([t <= z, 1 - t <= z], dim=-1))
        return torch.cat(found, dim=-1)

    def cut(self, bits: Bool[Tensor, "D #S n"]) -> SharedCut:
        """The cut of given masks, with constants for these regions."""
        masks = bits.split([term.n_in for _, term in self.terms], dim=-1)
        kept = tuple(mask.to(low.dtype) for mask, low in zip(masks, self.l_check, strict=True))
        offset = self._rows([m * low for m, low in zip(kept, self.l_check, strict=True)])
        rest = self._rows([(1 - m) * high for m, high in zip(kept, self.u_check, strict=True)])
        return SharedCut(offset, self.bias + offset + rest, self, kept)

    def _rows(self, doubled: Sequence[Tensor]) -> Float[Tensor, "D S a"]:
        return reduce(add, (term.forward(vector) for (_, term), vector in zip(self.terms, doubled, strict=True)))


@dataclass(frozen=True, eq=False)
class SharedCut(Cut):
    """Two ordinary passes with doubled channels, and an elementwise product."""

    geometry: SharedGeometry
    kept: tuple[Float[Tensor, "D S _"], ...]

    @property
    def whole(self) -> float:
        return 0.0

    def forward(self, values: Values) -> Float[Tensor, "D S a"]:
        doubled = []
        for (source, _), kept in zip(self.geometry.terms, self.kept, strict=True):
            x = read(values, source)
            doubled.append(kept * torch.cat([x, x], dim=-1))
        return self.geometry._rows(doubled)

    def transpose(self, beta: Float[Tensor, "D S a"]) -> list[tuple[int, Float[Tensor, "D S _"]]]:
        found = []
        for (source, term), kept in zip(self.geometry.terms, self.kept, strict=True):
            first, second = (kept * term.transpose(beta)).chunk(2, dim=-1)
            found.append((source, first + second))
        return found


# ---------------------------------------------------------------- one bit per weight


@dataclass(frozen=True, eq=False)
class RowGeometry(State):
    """The weights of the kinks of one group, written out: row i has weights[i, t] at input columns[i, t].

    `columns` counts through the concatenation of the group's sources; unused places point at column 0 with weight 0.
    """

    sources: tuple[int, ...]
    sizes: tuple[int, ...]
    columns: Int[Tensor, "a t"] = field(metadata=SHARED)
    weights: Float[Tensor, "a t"] = field(metadata=SHARED)
    bias: Float[Tensor, " a"] = field(metadata=SHARED)
    w_l: Float[Tensor, "D 1 a t"]  # weights times l_check
    w_u: Float[Tensor, "D 1 a t"]  # weights times u_check
    is_dense: bool  # every row lists all columns in order

    @classmethod
    def of(cls, layer: Affine, region: Region, index: Int[Tensor, " a"]) -> RowGeometry:
        columns, weights, is_dense = _padded_rows(layer, index)
        boxes = [region.source(source) for source, _ in layer.terms]
        low, high = (torch.cat([box[side] for box in boxes], dim=-1) for side in (0, 1))
        lows, highs = (side.unsqueeze(1) if is_dense else side[:, columns] for side in (low, high))
        w_l = torch.where(weights > 0, lows, highs) * weights
        w_u = torch.where(weights > 0, highs, lows) * weights
        sizes = tuple(term.n_in for _, term in layer.terms)
        sources = tuple(source for source, _ in layer.terms)
        bias = layer.bias[index]
        return cls(sources, sizes, columns, weights, bias, w_l.unsqueeze(1), w_u.unsqueeze(1), is_dense)

    @property
    def cut_bytes(self) -> int:
        """What the cuts of one region and objective keep: a byte per weight, and constants."""
        return self.columns.numel() + 2 * self.bias.numel() * self.bias.element_size()

    @property
    def pass_bytes(self) -> int:
        """What a masked pass of one region and objective holds besides: three copies of all weights."""
        return 3 * self.columns.numel() * self.bias.element_size()

    def weighted(self, values: Values) -> Float[Tensor, "D S a t"]:
        """weights times inputs, entry by entry."""
        found = [read(values, source) for source in self.sources]
        x = torch.cat(found, dim=-1) if len(found) > 1 else found[0]
        return (x.unsqueeze(-2) if self.is_dense else x[..., self.columns]) * self.weights

    def spread(self, entries: Float[Tensor, "D S a t"]) -> list[tuple[int, Float[Tensor, "D S _"]]]:
        """The column sums of entries that sit at (row, column), source by source."""
        if self.is_dense:
            total = entries.sum(dim=-2)
        else:
            flat = entries.reshape(*entries.shape[:2], -1)
            total = entries.new_zeros(*entries.shape[:2], sum(self.sizes))
            total.index_add_(-1, self.columns.flatten(), flat)
        return list(zip(self.sources, total.split(self.sizes, dim=-1), strict=True))

    def excess(self, values: Values, z: Float[Tensor, "D S a"]) -> Float[Tensor, "D S a t"]:
        """((1 - z) l_check + z u_check - x_in) W: the mask of the most violated cut keeps what is >= 0."""
        z = z.unsqueeze(-1)
        return (1 - z) * self.w_l + z * self.w_u - self.weighted(values)

    def bits(self, values: Values, z: Float[Tensor, "D S a"]) -> Bool[Tensor, "D S a t"]:
        """The oracle: the mask of the most violated cut."""
        return self.excess(values, z) >= 0

    def cut(self, mask: Bool[Tensor, "D S a t"] | Float[Tensor, "D S a t"]) -> RowMaskCut:
        """The cut of a given mask, with constants for these regions; shares of [0, 1] mix the cuts of several masks."""
        kept = mask.to(self.w_l.dtype)
        offset = (kept * self.w_l).sum(dim=-1)
        zc = self.bias + offset + ((1 - kept) * self.w_u).sum(dim=-1)
        return RowMaskCut(offset, zc, self, mask)


@dataclass(frozen=True, eq=False)
class RowMaskCut(Cut):
    """Passes over the weights of the kinks with single entries switched off."""

    # The passes read the weights only, which all regions share: the rest of the geometry is large.
    geometry: RowGeometry = field(metadata=SHARED)
    mask: Bool[Tensor, "D S a t"] | Float[Tensor, "D S a t"]

    @property
    def whole(self) -> float:
        return 0.0

    def pure(self, count: int) -> Sequence[Cut]:
        """A share s of a weight is kept by those of the masks whose number, from 1/2 on, is below s `count`.

        Require: the geometry is that of these regions.
        """
        if not self.mask.is_floating_point():
            return (self,)
        return tuple(self.geometry.cut(self.mask > (number + 0.5) / count) for number in range(count))

    def forward(self, values: Values) -> Float[Tensor, "D S a"]:
        return (self.geometry.weighted(values) * self.mask).sum(dim=-1)

    def transpose(self, beta: Float[Tensor, "D S a"]) -> list[tuple[int, Float[Tensor, "D S _"]]]:
        return self.geometry.spread(self.mask * self.geometry.weights * beta.unsqueeze(-1))


def _padded_rows(layer: Affine, index: Int[Tensor, " a"]) -> tuple[Tensor, Tensor, bool]:
    """Columns and weights of the given rows, all terms side by side, padded to the longest row."""
    terms = [term for _, term in layer.terms]
    if all(isinstance(term, Dense) and term.repeats == 1 for term in terms):  # columns then take no memory
        weights = torch.cat([term.weight[index] for term in terms if isinstance(term, Dense)], dim=1)
        return torch.arange(weights.shape[1], device=index.device).expand_as(weights), weights, True
    blocks, offset = [], 0
    for _, term in layer.terms:
        support = row_support(term, index, layer.bias.dtype)
        lengths = support.indptr.diff()
        width = int(lengths.max()) if len(index) else 0
        place = torch.arange(len(support.columns), device=index.device) - support.indptr[:-1].repeat_interleave(lengths)
        row = torch.arange(len(index), device=index.device).repeat_interleave(lengths)
        columns = torch.zeros(len(index), width, dtype=torch.long, device=index.device)
        weights = torch.zeros(len(index), width, dtype=layer.bias.dtype, device=index.device)
        columns[row, place] = support.columns + offset
        weights[row, place] = support.values
        blocks.append((columns, weights))
        offset += term.n_in
    columns, weights = (torch.cat([block[i] for block in blocks], dim=1) for i in (0, 1))
    every = torch.arange(offset, device=index.device)
    is_dense = columns.shape[1] == offset and bool((columns == every).all())
    return columns, weights, is_dense


def at_kinks(
    term: LinearMap, index: Int[Tensor, " a"], form: Callable[[LinearMap], LinearMap | None]
) -> LinearMap | None:
    """Some rows of what `form` makes of a map; of a stored matrix no others are computed."""
    if isinstance(term, Dense) and term.repeats == 1:
        return form(replace(term, weight=term.weight[index]))
    if isinstance(term, Sparse):
        return form(term.taken(index))
    whole = form(term)
    return None if whole is None else Chain((whole, Select(index, term.n_out)))


def reads_only_moved_inputs(layer: Affine) -> bool:
    """Layers without a sum (each neuron reads one input) gain nothing from cuts: M equals A there."""
    return len(layer.terms) == 1 and isinstance(layer.terms[0][1], Select)
