"""Products and sums of maps, simplified where that is exact (or one counted rounding per entry).

Factors whose product would underflow or overflow stay apart: such an entry carries no relative error that could be
counted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import torch

from verifier.operators.base import LinearMap
from verifier.operators.conv import Conv
from verifier.operators.matrix import Dense, Sparse
from verifier.operators.select import Diagonal, Select
from verifier.shapes import Float, Tensor


@dataclass(frozen=True, eq=False)
class Chain(LinearMap):
    """maps[-1] ... maps[1] maps[0]: the first of `maps` is applied first."""

    maps: tuple[LinearMap, ...]

    def __post_init__(self) -> None:
        for inner, outer in zip(self.maps, self.maps[1:], strict=False):
            if inner.n_out != outer.n_in:
                raise ValueError(f"a map to {inner.n_out} entries cannot feed one that takes {outer.n_in}")

    @property
    def n_in(self) -> int:  # type: ignore[override]
        return self.maps[0].n_in

    @property
    def n_out(self) -> int:  # type: ignore[override]
        return self.maps[-1].n_out

    @property
    def depth(self) -> int:  # type: ignore[override]
        return sum(m.depth for m in self.maps)

    @property
    def parameters(self) -> int:
        return sum(m.parameters for m in self.maps)

    def forward(self, x: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        for m in self.maps:
            x = m.forward(x)
        return x

    def transpose(self, y: Float[Tensor, "*batch n_out"]) -> Float[Tensor, "*batch n_in"]:
        for m in reversed(self.maps):
            y = m.transpose(y)
        return y

    def magnitude(self, r: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        for m in self.maps:
            r = m.magnitude(r)
        return r

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Chain:
        return Chain(tuple(m.to(device, dtype) for m in self.maps))

    def describe(self) -> str:
        return ", ".join(m.describe() for m in self.maps)


@dataclass(frozen=True, eq=False)
class Sum(LinearMap):
    """The sum of several maps between the same spaces."""

    maps: tuple[LinearMap, ...]

    def __post_init__(self) -> None:
        if len({(m.n_in, m.n_out) for m in self.maps}) != 1:
            raise ValueError("maps of different sizes cannot be added")

    @property
    def n_in(self) -> int:  # type: ignore[override]
        return self.maps[0].n_in

    @property
    def n_out(self) -> int:  # type: ignore[override]
        return self.maps[0].n_out

    @property
    def depth(self) -> int:  # type: ignore[override]
        return max(m.depth for m in self.maps) + len(self.maps)

    @property
    def parameters(self) -> int:
        return sum(m.parameters for m in self.maps)

    def forward(self, x: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        return _total([m.forward(x) for m in self.maps])

    def transpose(self, y: Float[Tensor, "*batch n_out"]) -> Float[Tensor, "*batch n_in"]:
        return _total([m.transpose(y) for m in self.maps])

    def magnitude(self, r: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        return _total([m.magnitude(r) for m in self.maps])

    def to(self, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> Sum:
        return Sum(tuple(m.to(device, dtype) for m in self.maps))

    def describe(self) -> str:
        return " + ".join(f"({m.describe()})" for m in self.maps)


def compose(outer: LinearMap, inner: LinearMap) -> LinearMap:
    """The map `outer(inner(x))`.

    Neighbours are fused when every entry of the product is exact or takes one multiplication, which `roundings`
    then counts.  Products of two dense maps stay factored: their entries would carry errors that are not relative
    to the entry itself.
    """
    if outer.n_in != inner.n_out:
        raise ValueError(f"a map to {inner.n_out} entries cannot feed one that takes {outer.n_in}")
    maps = list(inner.maps) if isinstance(inner, Chain) else [inner]
    for following in outer.maps if isinstance(outer, Chain) else (outer,):
        fused = _fuse(following, maps[-1])
        if fused is None:
            maps.append(following)
        else:
            maps[-1] = fused
    return maps[0] if len(maps) == 1 else Chain(tuple(maps))


def add(first: LinearMap, second: LinearMap) -> LinearMap:
    """The map `first(x) + second(x)`."""
    parts: list[LinearMap] = []
    for term in (first, second):
        parts.extend(term.maps if isinstance(term, Sum) else (term,))
    if all(isinstance(p, Diagonal | Select) for p in parts) and _disjoint_selections(parts):
        indices = torch.stack([p.index for p in parts if isinstance(p, Select)])
        return Select(indices.max(dim=0).values, first.n_in)
    return Sum(tuple(parts))


def _disjoint_selections(parts: list[LinearMap]) -> bool:
    """Selections that never write the same entry: the pieces of one concatenation."""
    selections = [p for p in parts if isinstance(p, Select)]
    if len(selections) != len(parts):
        return False
    written = torch.stack([s.index >= 0 for s in selections]).sum(dim=0)
    return bool((written <= 1).all())


def _fuse(outer: LinearMap, inner: LinearMap) -> LinearMap | None:
    """One map for outer(inner(.)), or None when the two are better kept apart."""
    if isinstance(inner, Select) and inner.is_identity:
        return outer
    if isinstance(outer, Select):
        return _fuse_select_after(outer, inner)
    if isinstance(outer, Diagonal):
        return _fuse_diagonal_after(outer, inner)
    if isinstance(inner, Diagonal):
        return _fuse_diagonal_before(outer, inner)
    if isinstance(inner, Select) and inner.injective:
        return _fuse_select_before(outer, inner)
    return None


def _fuse_select_before(outer: LinearMap, inner: Select) -> LinearMap | None:
    if isinstance(outer, Dense) and outer.repeats == 1 and inner.n_in <= 2 * inner.n_out:
        return replace(outer, weight=inner.transpose(outer.weight))
    if isinstance(outer, Sparse):
        known = outer.where(inner.index[outer.columns] >= 0)
        return known.moved(known.rows, inner.index[known.columns], (outer.n_out, inner.n_in))
    return None


def _fuse_select_after(outer: Select, inner: LinearMap) -> LinearMap | None:
    if outer.is_identity:
        return inner
    if isinstance(inner, Select):
        index = torch.where(outer.index >= 0, inner.index[outer.index.clamp(min=0)], -1)
        return Select(index, inner.n_in)
    if isinstance(inner, Dense) and inner.repeats == 1 and outer.n_out <= 2 * outer.n_in:
        return replace(inner, weight=outer.forward(inner.weight.T).T.contiguous())
    if isinstance(inner, Sparse) and outer.n_out <= 2 * outer.n_in:
        return inner.taken(outer.index)
    return None


def _fuse_diagonal_after(outer: Diagonal, inner: LinearMap) -> LinearMap | None:
    roundings = outer.roundings + 1
    if isinstance(inner, Diagonal):
        scale = _product(outer.scale, inner.scale)
        return None if scale is None else Diagonal(scale, inner.roundings + roundings)
    if isinstance(inner, Dense):
        scale = _shared(outer.scale, inner.repeats, inner.weight.shape[0])
        return None if scale is None else _reweighted(inner, scale[:, None], roundings)
    if isinstance(inner, Sparse):
        factors = outer.scale[inner.rows]
        return None if _product(inner.values, factors) is None else inner.scaled(factors, roundings)
    if isinstance(inner, Conv):
        scale = _per_channel(outer.scale, inner.weight.shape[0])
        if scale is not None:
            return _reweighted(inner, scale.reshape(-1, *[1] * (inner.weight.dim() - 1)), roundings)
    return None


def _fuse_diagonal_before(outer: LinearMap, inner: Diagonal) -> LinearMap | None:
    roundings = inner.roundings + 1
    if isinstance(outer, Dense):
        scale = _shared(inner.scale, outer.repeats, outer.weight.shape[1])
        return None if scale is None else _reweighted(outer, scale, roundings)
    if isinstance(outer, Sparse):
        factors = inner.scale[outer.columns]
        return None if _product(outer.values, factors) is None else outer.scaled(factors, roundings)
    if isinstance(outer, Conv):
        scale = _per_channel(inner.scale, outer.in_shape[0])
        if scale is not None:
            per_group = scale.reshape(outer.groups, 1, -1).expand(-1, outer.weight.shape[0] // outer.groups, -1)
            factor = per_group.reshape(outer.weight.shape[0], outer.weight.shape[1])
            return _reweighted(outer, factor.reshape(*factor.shape, *[1] * (outer.weight.dim() - 2)), roundings)
    return None


StoredT = TypeVar("StoredT", Dense, Conv)


def _reweighted(linear: StoredT, factors: Tensor, roundings: int) -> StoredT | None:
    """The map with its weights times factors, or None if a product is out of range."""
    weight = _product(linear.weight, factors)
    return None if weight is None else replace(linear, weight=weight, roundings=linear.roundings + roundings)


def _product(first: Tensor, second: Tensor) -> Tensor | None:
    """Entry by entry, or None if some product is not zero and yet too small or too large for a relative error."""
    found = first * second
    size, info = found.abs(), torch.finfo(found.dtype)
    zero = (first == 0) | (second == 0)
    return found if bool((zero | ((size >= info.tiny) & (size <= info.max))).all()) else None


def _shared(scale: Tensor, repeats: int, size: int) -> Tensor | None:
    """The scale of one block, if all blocks have the same."""
    blocks = scale.reshape(repeats, size)
    return blocks[0] if bool((blocks == blocks[0]).all()) else None


def _per_channel(scale: Tensor, channels: int) -> Tensor | None:
    """The scale of every channel, if it does not vary inside of one."""
    planes = scale.reshape(channels, -1)
    return planes[:, 0] if bool((planes == planes[:, :1]).all()) else None


def _total(values: list[Tensor]) -> Tensor:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total
