"""Products and sums of maps, simplified where that is exact (or one counted rounding per entry).

Factors whose product would underflow or overflow stay apart: such an entry carries no relative error that could be
counted.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, replace
from functools import reduce
from typing import TypeVar

import torch

from verifier.operators.base import LinearMap
from verifier.operators.conv import Conv
from verifier.operators.matrix import Dense, Sparse
from verifier.operators.select import Diagonal, Select
from verifier.shapes import Float, Tensor

ComposedT = TypeVar("ComposedT", bound="Composed")


@dataclass(frozen=True, eq=False)
class Composed(LinearMap):
    """What products and sums of maps have in common."""

    maps: tuple[LinearMap, ...]

    @property
    def n_in(self) -> int:  # type: ignore[override]
        return self.maps[0].n_in

    @property
    def n_out(self) -> int:  # type: ignore[override]
        return self.maps[-1].n_out

    @property
    def parameters(self) -> int:
        return sum(m.parameters for m in self.maps)

    def to(self: ComposedT, device: torch.device | str | None = None, dtype: torch.dtype | None = None) -> ComposedT:
        return replace(self, maps=tuple(m.to(device, dtype) for m in self.maps))


@dataclass(frozen=True, eq=False)
class Chain(Composed):
    """maps[-1] ... maps[1] maps[0]: the first of `maps` is applied first."""

    def __post_init__(self) -> None:
        for inner, outer in zip(self.maps, self.maps[1:], strict=False):
            if inner.n_out != outer.n_in:
                raise ValueError(f"a map to {inner.n_out} entries cannot feed one that takes {outer.n_in}")

    @property
    def depth(self) -> int:  # type: ignore[override]
        return sum(m.depth for m in self.maps)

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

    @property
    def tight(self) -> bool:
        """Entries of a product cancel only where one that adds up several entries follows another one."""
        adding = [k for k, m in enumerate(self.maps) if not isinstance(m, Select | Diagonal)]
        last = adding[-1] if adding else 0
        spread = any(isinstance(m, Select) and not m.injective for m in self.maps[:last])
        return len(adding) <= 1 and not spread and all(m.tight for m in self.maps)

    def describe(self) -> str:
        return ", ".join(m.describe() for m in self.maps)


@dataclass(frozen=True, eq=False)
class Sum(Composed):
    """The sum of several maps between the same spaces."""

    def __post_init__(self) -> None:
        if len({(m.n_in, m.n_out) for m in self.maps}) != 1:
            raise ValueError("maps of different sizes cannot be added")

    @property
    def depth(self) -> int:  # type: ignore[override]
        return max(m.depth for m in self.maps) + len(self.maps)

    def forward(self, x: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        return reduce(operator.add, (m.forward(x) for m in self.maps))

    def transpose(self, y: Float[Tensor, "*batch n_out"]) -> Float[Tensor, "*batch n_in"]:
        return reduce(operator.add, (m.transpose(y) for m in self.maps))

    def magnitude(self, r: Float[Tensor, "*batch n_in"]) -> Float[Tensor, "*batch n_out"]:
        return reduce(operator.add, (m.magnitude(r) for m in self.maps))

    @property
    def tight(self) -> bool:
        """Never: what is added may cancel."""
        return False

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
    selections = [p.index for p in parts if isinstance(p, Select)]
    if len(selections) == len(parts):
        indices = torch.stack(selections)
        if bool(((indices >= 0).sum(dim=0) <= 1).all()):  # no entry is written twice: the pieces of one concatenation
            return Select(indices.max(dim=0).values, first.n_in)
    return Sum(tuple(parts))


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
    scale: Tensor | None = None
    if isinstance(inner, Diagonal):
        scale = outer.scale
    elif isinstance(inner, Dense):
        shared = _shared(outer.scale, inner.repeats, inner.weight.shape[0])
        scale = None if shared is None else shared[:, None]
    elif isinstance(inner, Sparse):
        scale = outer.scale[inner.rows]
    elif isinstance(inner, Conv):
        shared = _per_channel(outer.scale, inner.weight.shape[0])
        scale = None if shared is None else shared.reshape(-1, *[1] * (inner.weight.dim() - 1))
    return _scaled(inner, scale, outer.roundings + 1)


def _fuse_diagonal_before(outer: LinearMap, inner: Diagonal) -> LinearMap | None:
    scale: Tensor | None = None
    if isinstance(outer, Dense):
        scale = _shared(inner.scale, outer.repeats, outer.weight.shape[1])
    elif isinstance(outer, Sparse):
        scale = inner.scale[outer.columns]
    elif isinstance(outer, Conv):
        shared = _per_channel(inner.scale, outer.in_shape[0])
        if shared is not None:
            per_group = shared.reshape(outer.groups, 1, -1).expand(-1, outer.weight.shape[0] // outer.groups, -1)
            scale = per_group.reshape(*outer.weight.shape[:2], *[1] * (outer.weight.dim() - 2))
    return _scaled(outer, scale, inner.roundings + 1)


def _scaled(linear: LinearMap, scale: Tensor | None, roundings: int) -> LinearMap | None:
    """The map with its weights times a scale; None without a scale, or if some product that is not zero is too small
    or too large for a relative error.
    """
    weights = linear.weights
    if scale is None or weights is None:
        return None
    found = weights * scale
    size, info = found.abs(), torch.finfo(found.dtype)
    zero = (weights == 0) | (scale == 0)
    relative = bool((zero | ((size >= info.tiny) & (size <= info.max))).all())
    return linear.reweighted(found, roundings) if relative else None


def _shared(scale: Tensor, repeats: int, size: int) -> Tensor | None:
    """The scale of one block, if all blocks have the same."""
    blocks = scale.reshape(repeats, size)
    return blocks[0] if bool((blocks == blocks[0]).all()) else None


def _per_channel(scale: Tensor, channels: int) -> Tensor | None:
    """The scale of every channel, if it does not vary inside of one."""
    planes = scale.reshape(channels, -1)
    return planes[:, 0] if bool((planes == planes[:, :1]).all()) else None
