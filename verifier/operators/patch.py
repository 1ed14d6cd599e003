"""Patches: the part of an image that a place of a later image depends on.

A place p of an image behind convolutions reads, of an image before them, a patch whose size is the same for all p, and
which begins at stride * p - offset.  It may reach beyond the image, where convolutions pad with zeros.

requires:   convolutions without groups
guarantees: what a patch leaves out does not depend on the place
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F

from verifier.operators.base import LinearMap, flat_size
from verifier.operators.compose import Chain
from verifier.operators.conv import Conv
from verifier.operators.select import Select
from verifier.shapes import Float, Int, Tensor


@dataclass(frozen=True)
class Patch:
    """Of images [channels, *sizes] the places from stride * p - offset on, `size` of them along each axis."""

    image: tuple[int, ...]
    stride: tuple[int, ...]
    offset: tuple[int, ...]
    size: tuple[int, ...]
    moved: Select | None = None  # the image is made of the source by this selection

    @classmethod
    def point(cls, image: tuple[int, ...]) -> Patch:
        """The place itself."""
        axes = len(image) - 1
        return cls(image, (1,) * axes, (0,) * axes, (1,) * axes)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.image[0], *self.size)

    @property
    def entries(self) -> int:
        return flat_size(self.shape)

    @property
    def n_in(self) -> int:
        """Entries of the source."""
        return flat_size(self.image) if self.moved is None else self.moved.n_in

    @property
    def share(self) -> float:
        """Of the whole image; above 1 where most of it lies outside."""
        return self.entries / flat_size(self.image)

    def through(self, term: LinearMap) -> Patch | None:
        """What the patch depends on by a map; None if that is no patch, or unknown."""
        if isinstance(term, Select) and term.is_identity:
            return self
        conv, moved = _windows(term)
        if self.moved is not None or conv is None or conv.groups > 1 or conv.out_shape != self.image:
            return None
        reach = [d * (k - 1) + 1 for d, k in zip(conv.dilation, conv.weight.shape[2:], strict=True)]
        stride = tuple(s * t for s, t in zip(self.stride, conv.stride, strict=True))
        offset = tuple(o * t + b for o, t, (b, _) in zip(self.offset, conv.stride, conv.padding, strict=True))
        size = tuple((n - 1) * t + r for n, t, r in zip(self.size, conv.stride, reach, strict=True))
        return Patch(conv.in_shape, stride, offset, size, moved)

    def joined(self, other: Patch) -> Patch | None:
        """The smallest patch around both; None if they do not move together."""
        if (self.image, self.stride, self.moved) != (other.image, other.stride, other.moved):
            return None
        offset = tuple(map(max, self.offset, other.offset))
        ends = tuple(
            max(n - o, m - q) for n, o, m, q in zip(self.size, self.offset, other.size, other.offset, strict=True)
        )
        return replace(self, offset=offset, size=tuple(map(sum, zip(offset, ends, strict=True))))

    def widened(self, rows: Float[Tensor, "R _"], to: Patch) -> Float[Tensor, "R _"]:
        """Rows over this patch as rows over a larger one."""
        if to == self:
            return rows
        sides = [
            (q - o, m - n - (q - o)) for o, n, q, m in zip(self.offset, self.size, to.offset, to.size, strict=True)
        ]
        return F.pad(rows.reshape(-1, *self.shape), [side for pair in reversed(sides) for side in pair]).flatten(1)

    def index(self, places: Int[Tensor, "P a"]) -> Int[Tensor, "P e"]:
        """Which entry of the source each entry of the patch is, for each place; one past the end where none is."""
        found = torch.arange(self.image[0], device=places.device).expand(len(places), -1)
        inside = torch.ones_like(found, dtype=torch.bool)
        columns = zip(places.T, self.image[1:], self.stride, self.offset, self.size, strict=True)
        for place, length, stride, offset, size in columns:
            along = place.unsqueeze(1) * stride - offset + torch.arange(size, device=places.device)
            fits = (along >= 0) & (along < length)
            found = (found.unsqueeze(2) * length + along.unsqueeze(1)).flatten(1)
            inside = (inside.unsqueeze(2) & fits.unsqueeze(1)).flatten(1)
        if self.moved is not None:
            found = self.moved.index[torch.where(inside, found, 0)]
            inside = inside & (found >= 0)
        return torch.where(inside, found, self.n_in)


WRITTEN_OUT = 2**19
"""Entries up to which the map from one patch to another is written out: one product of matrices is faster then."""


@dataclass(frozen=True, eq=False)
class PatchMap:
    """The transpose of a map, from rows over one patch to rows over a patch of its source.  Require: it has one."""

    term: LinearMap
    start: Patch
    end: Patch
    matrix: Float[Tensor, "e_start e_end"] | None = None

    @classmethod
    def of(cls, term: LinearMap, start: Patch, end: Patch, like: Tensor) -> PatchMap:
        """To a patch that contains all that the first one depends on."""
        found = cls(term, start, end)
        if isinstance(term, Select) or start.entries * end.entries > WRITTEN_OUT:
            return found
        return replace(found, matrix=found.transpose(torch.eye(start.entries, dtype=like.dtype, device=like.device)))

    def transpose(self, rows: Float[Tensor, "R e_start"]) -> Float[Tensor, "R e_end"]:
        """New rows: whoever gets them may overwrite them."""
        if self.matrix is not None:
            return rows @ self.matrix
        near = self.start.through(self.term)
        assert near is not None
        conv, _ = _windows(self.term)
        if conv is None:
            return near.widened(rows.clone(), self.end)
        return near.widened(conv.spread(rows.reshape(-1, *self.start.shape)).flatten(1), self.end)


def _windows(term: LinearMap) -> tuple[Conv | None, Select | None]:
    """The convolution that a map is, and the selection before it, which takes no entry twice."""
    if isinstance(term, Conv):
        return term, None
    if isinstance(term, Chain) and len(term.maps) == 2:
        first, last = term.maps
        if isinstance(first, Select) and first.injective and isinstance(last, Conv):
            return last, first
    return None, None


def windows(
    conv: Conv, rows: Int[Tensor, " r"], columns: Int[Tensor, " c"]
) -> tuple[Int[Tensor, "r e"], Float[Tensor, "r e"]]:
    """Some rows of a convolution without groups, tap by tap: among `columns` the place of each, or one past the end."""
    taps = conv.taps()
    position = torch.full((conv.n_in + 1,), len(columns), device=rows.device)
    position[columns] = torch.arange(len(columns), device=rows.device)
    return position[taps[rows % len(taps)]], conv.weight.flatten(1)[rows // len(taps)]
