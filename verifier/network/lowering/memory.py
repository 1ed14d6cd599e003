"""The memory behind traced tensors: views share it, and what is written through one of them is seen by all.

Torch itself says what is a view of what.  Beside every expression an ordinary tensor is computed (its shadow), and two
traced tensors share a `Storage` exactly if their shadows share memory; shape, strides and offset of the shadow say
which part of the memory a tensor shows.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.network.lowering.expression import Expression, select
from verifier.shapes import Int, Tensor


@dataclass(frozen=True)
class MemoryLayout:
    """Where the entries of a tensor lie in its memory."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @staticmethod
    def of(shadow: Tensor) -> MemoryLayout:
        return MemoryLayout(tuple(shadow.shape), tuple(shadow.stride()), int(shadow.storage_offset()))

    def spots(self) -> Int[Tensor, "..."]:
        """For every entry, in the shape of the tensor, its place in memory."""
        found = torch.tensor(self.offset)
        for n, stride in zip(self.shape, self.strides, strict=True):
            found = found.unsqueeze(-1) + torch.arange(n) * stride
        return found


class Storage:
    """One piece of memory.  `expression` holds the values of its owner, the tensor that it was allocated for.

    `version` counts the writes.  `shared` is for graphs that are not followed: others may show this memory, too.
    """

    def __init__(self, expression: Expression, layout: MemoryLayout) -> None:
        self.expression = expression
        self.layout = layout
        self.version = 0
        self.shared = False

    def read(self, layout: MemoryLayout) -> Expression:
        """The values of a tensor that shows this memory."""
        if layout == self.layout:
            return self.expression
        return select((self.expression,), self._entries(layout), layout.shape)

    def write(self, layout: MemoryLayout, values: Expression) -> None:
        """Store the values of a tensor that shows this memory; its entries must lie in different places."""
        self.version += 1
        if layout == self.layout:
            self.expression = values
            return
        entries, size = self._entries(layout), self.expression.size
        if len(torch.unique(entries)) != len(entries):
            raise ValueError("several entries of the tensor that is written to lie in one place")
        index = torch.arange(size)
        index[entries] = size + torch.arange(len(entries))
        if len(entries) == size:  # nothing of the old values is left
            self.expression = select((values,), index - size, self.layout.shape)
        else:
            self.expression = select((self.expression, values), index, self.layout.shape)

    def _entries(self, layout: MemoryLayout) -> Int[Tensor, " n"]:
        """Which entries of the owner a tensor shows, flattened."""
        own, shown = self.layout.spots().reshape(-1), layout.spots().reshape(-1)
        if not len(shown):
            return shown
        place = torch.full((int(max(own.max(), shown.max())) + 1,), -1)
        place[own] = torch.arange(len(own))
        entries = place[shown]
        if bool((entries < 0).any()):
            raise ValueError("a view shows memory outside of the tensor that it was made from")
        return entries


def overlap(first: Int[Tensor, "..."], second: Int[Tensor, "..."]) -> bool:
    """Whether two sets of places meet without being the same, entry by entry."""
    if first.shape == second.shape and torch.equal(first, second):
        return False
    return bool(torch.isin(first, second).any())


def same_memory(first: Tensor, second: Tensor) -> bool:
    return bool(first.untyped_storage()._cdata == second.untyped_storage()._cdata)
