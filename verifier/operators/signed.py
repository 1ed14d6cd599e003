"""Positive and negative parts of a map, for masks and intervals that treat the signs of entries differently.

Parts refer to the entries of the matrix itself.  For a product of maps they are not the products of the parts, so a
composed map has parts only if all but one of its factors merely move entries, or if it is small enough to be written
out.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import torch

from verifier.operators.base import LinearMap
from verifier.operators.compose import Chain, Composed
from verifier.operators.conv import Conv
from verifier.operators.matrix import Dense, Sparse, stored
from verifier.operators.select import Select
from verifier.shapes import Float, Tensor

MATERIALISE_ENTRIES = 8_000_000
"""Composed maps with at most this many entries are written out as one matrix."""

ROWS = 256
"""Of such a matrix, made at a time."""

_WRITTEN: WeakKeyDictionary[LinearMap, LinearMap] = WeakKeyDictionary()
"""Matrices of composed maps, while anybody holds these: a search asks for them again and again."""


@dataclass(frozen=True, eq=False)
class Signed(LinearMap):
    """[W+ W-]: acts on the concatenation of two vectors, the first for positive entries, the second for negative."""

    positive: LinearMap
    negative: LinearMap

    @property
    def n_in(self) -> int:  # type: ignore[override]
        return 2 * self.positive.n_in

    @property
    def n_out(self) -> int:  # type: ignore[override]
        return self.positive.n_out

    @property
    def depth(self) -> int:  # type: ignore[override]
        return self.positive.depth + self.negative.depth

    def forward(self, x: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        first, second = x.chunk(2, dim=-1)
        return self.positive.forward(first) + self.negative.forward(second)

    def transpose(self, y: Float[Tensor, "*batch n_out"]) -> Float[Tensor, "*batch n_in"]:
        return torch.cat([self.positive.transpose(y), self.negative.transpose(y)], dim=-1)

    def magnitude(self, r: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        first, second = r.chunk(2, dim=-1)
        return self.positive.magnitude(first) + self.negative.magnitude(second)

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Signed:
        return Signed(self.positive.to(device, dtype), self.negative.to(device, dtype))

    def describe(self) -> str:
        return f"signed {self.positive.describe()}"


def signed(linear: LinearMap) -> LinearMap | None:
    """The map [W+ W-] on doubled vectors, or None if the entries of W are out of reach.

    One convolution with twice the channels is cheaper than two, so plain maps are stacked into one.
    """
    if isinstance(linear, Dense) and linear.repeats == 1:
        return replace(linear, weight=_stack(linear.weight))
    if isinstance(linear, Conv) and linear.groups == 1:
        in_shape = (2 * linear.in_shape[0], *linear.in_shape[1:])
        return replace(linear, weight=_stack(linear.weight), in_shape=in_shape)
    if isinstance(linear, Sparse):
        columns = linear.columns + linear.n_in * (linear.values < 0)
        return linear.moved(linear.rows, columns, (linear.n_out, 2 * linear.n_in))
    found = parts(linear)
    return None if found is None else Signed(*found)


def within_reach(linear: LinearMap) -> bool:
    """Whether the entries of W are known or can be written out, so that `parts` and `signed` give an answer."""
    if linear.weights is not None or isinstance(linear, Select):
        return True
    if isinstance(linear, Chain) and (place := _only_factor(linear)) is not None and within_reach(linear.maps[place]):
        return True
    return linear.n_in * linear.n_out <= MATERIALISE_ENTRIES


def parts(linear: LinearMap) -> tuple[LinearMap, LinearMap] | None:
    """(W+, W-) with W = W+ + W-, or None if the entries of W are out of reach."""
    if isinstance(linear, Sparse):
        return linear.where(linear.values > 0), linear.where(linear.values < 0)
    if linear.weights is not None:
        positive, negative = _clamped(linear.weights)
        return linear.reweighted(positive), linear.reweighted(negative)
    if isinstance(linear, Select):
        return linear, Select.nothing(linear.n_out, linear.n_in, linear.index.device)
    if isinstance(linear, Chain):
        found = _parts_of_moved(linear)
        if found is not None:
            return found
    if linear.n_in * linear.n_out > MATERIALISE_ENTRIES:
        return None
    return parts(_written_out(linear))


def absolute(linear: LinearMap) -> LinearMap | None:
    """|W|, or None if the entries of W are out of reach."""
    if isinstance(linear, Conv):
        return linear.absolute
    if linear.weights is not None:
        return linear.reweighted(linear.weights.abs())
    if isinstance(linear, Select):
        return linear
    if isinstance(linear, Chain) and (place := _only_factor(linear)) is not None:
        inner = absolute(linear.maps[place])
        return None if inner is None else _replaced(linear, place, inner)
    if linear.n_in * linear.n_out > MATERIALISE_ENTRIES:
        return None
    return absolute(_written_out(linear))


def _parts_of_moved(chain: Chain) -> tuple[LinearMap, LinearMap] | None:
    """Parts of a product in which all factors but one move entries without adding any."""
    place = _only_factor(chain)
    found = None if place is None else parts(chain.maps[place])
    if place is None or found is None:
        return None
    return _replaced(chain, place, found[0]), _replaced(chain, place, found[1])


def _only_factor(chain: Chain) -> int | None:
    """Where the one factor stands that does more than move entries; None if there are several or none."""
    heavy = [i for i, m in enumerate(chain.maps) if not (isinstance(m, Select) and m.injective)]
    return heavy[0] if len(heavy) == 1 else None


def _replaced(chain: Chain, place: int, factor: LinearMap) -> Chain:
    """The chain with another factor at that place."""
    return Chain((*chain.maps[:place], factor, *chain.maps[place + 1 :]))


def _written_out(linear: LinearMap) -> LinearMap:
    """The product matrix; its entries carry rounding errors within gamma(depth) * magnitude.

    Some rows at a time: between its factors a product may be much wider than at its ends.
    """
    found = _WRITTEN.get(linear)
    if found is None:
        like = _any_tensor(linear)
        dtype, device = (torch.float64, None) if like is None else (like.dtype, like.device)
        rows = []
        for start in range(0, linear.n_out, ROWS):
            units = torch.zeros(min(ROWS, linear.n_out - start), linear.n_out, dtype=dtype, device=device)
            units.diagonal(start).fill_(1.0)
            rows.append(linear.transpose(units))
        found = _WRITTEN[linear] = stored(torch.cat(rows), roundings=linear.depth)
    return found


def _any_tensor(linear: LinearMap) -> Tensor | None:
    """Some stored tensor of floats, which tells device and precision; None if the map only selects."""
    inner = linear.maps if isinstance(linear, Composed) else ()
    return next((found for found in (linear.weights, *map(_any_tensor, inner)) if found is not None), None)


def _clamped(values: Tensor) -> tuple[Tensor, Tensor]:
    return values.clamp(min=0), values.clamp(max=0)


def _stack(weight: Tensor) -> Tensor:
    return torch.cat(_clamped(weight), dim=1)
