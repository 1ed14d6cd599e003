"""Batches as dataclasses of tensors, and the few operations that all of them share.

A `State` is a frozen dataclass whose fields are tensors, tuples, other states, or plain values.  The first axis of a
tensor counts regions, the second one, where there is one, objectives; a field marked SHARED counts neither, and a
tensor marked COMMON may have a first axis of size 1 that serves all regions.  A second axis of size 1 always serves
all objectives.  What is None or no tensor is the same for all regions.

Regions of a search often have much in common: all but a few groups are as they are on the whole box.  Such a tensor is
one row of memory that is `repeated` for all regions.  Selecting keeps it so, and `once` computes from it once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, TypeVar

import torch

from verifier.shapes import Float, Tensor

SHARED = {"axes": "shared"}
COMMON = {"axes": "common"}

HALF_MOST = 60000.0  # half precision ends soon after it

T = TypeVar("T")
StateT = TypeVar("StateT", bound="State")


def tree_map(change: Callable[..., Tensor], first: T, *others: T, axis: int | None = None) -> T:
    """Change all tensors of a state, or of a tuple of states; `others` of the same structure go along with it.

    With `axis` 0 (regions) or 1 (objectives) tensors without that axis stay as they are.  Raises ValueError if plain
    values differ.
    """
    if isinstance(first, Tensor):
        changed: Any = change(first, *others)
    elif isinstance(first, tuple):
        changed = tuple(tree_map(change, *same, axis=axis) for same in zip(first, *others, strict=True))
    elif isinstance(first, State):
        found = {}
        for f in fields(first):
            same = [getattr(one, f.name) for one in (first, *others)]
            without = axis is not None and _without(f.metadata.get("axes"), axis, same)
            found[f.name] = same[0] if without else tree_map(change, *same, axis=axis)
        changed = replace(first, **found)
    else:
        if any(other is not first and other != first for other in others):
            raise ValueError(f"{first} and {others} differ: only states of one structure can be put together")
        changed = first
    result: T = changed
    return result


def _without(axes: str | None, axis: int, same: Sequence[Any]) -> bool:
    """Whether a field has no such axis."""
    if axes != "common" or axis != 0 or not any(isinstance(value, Tensor) and len(value) == 1 for value in same):
        return axes == "shared"
    if len(same) > 1:
        raise ValueError("a tensor that may serve all regions, or one, cannot be put together with another one")
    return True


@dataclass(frozen=True, eq=False)
class State:
    """A batch of regions, or of what belongs to them."""

    def select(self: StateT, rows: Tensor | slice) -> StateT:
        """Some of the regions, by index or by a mask; a region may be named more than once."""
        if isinstance(rows, Tensor) and rows.dtype is torch.bool:  # listed once, and not for each tensor again
            rows = torch.nonzero(rows).flatten()
        return tree_map(partial(_selected, rows=rows), self, axis=0)

    def part(self: StateT, start: int, stop: int) -> StateT:
        """The objectives from `start` up to `stop`."""
        return tree_map(lambda t: t if t.shape[1] == 1 else t[:, start:stop], self, axis=1)

    def to(self: StateT, where: torch.dtype | torch.device) -> StateT:
        """On another device, or with all floats in another precision: in float32 no bound is rigorous."""
        if isinstance(where, torch.device):
            return tree_map(lambda t: t.to(where), self)
        return tree_map(lambda t: t.to(where) if t.is_floating_point() else t, self)

    @classmethod
    def aligned(cls, parts: Sequence[StateT]) -> Sequence[StateT]:
        """States that are to be put together, made alike."""
        return parts


def is_repeated(tensor: Tensor) -> bool:
    """Whether all regions have the same row of memory."""
    return len(tensor) > 1 and tensor.stride(0) == 0


def repeated(state: T, count: int) -> T:
    """A single region, or what belongs to it, for that many regions; it takes no more memory."""
    return tree_map(lambda t: t.expand(count, *t.shape[1:]), state, axis=0)


def once(make: Callable[..., T], *given: Any) -> T:
    """What is made of states or tensors: for one region only, if what is given is the same in all of them.

    Require: regions do not mix.
    """
    tensors: list[Tensor] = []
    for one in given:
        tree_map(lambda t: tensors.append(t) or t, one, axis=0)  # type: ignore[func-returns-value]
    if not tensors or not all(map(is_repeated, tensors)):
        return make(*given)
    first = [tree_map(lambda t: t[:1], one, axis=0) for one in given]
    return repeated(make(*first), len(tensors[0]))


def _selected(tensor: Tensor, rows: Tensor | slice) -> Tensor:
    if not is_repeated(tensor):
        return tensor[rows]
    count = len(rows) if isinstance(rows, Tensor) else len(range(*rows.indices(len(tensor))))
    return tensor[:1].expand(count, *tensor.shape[1:])


def halved(values: Float[Tensor, "*axes"]) -> Float[Tensor, "*axes"]:
    """Numbers in half precision, cut off where it ends: enough to start from, never a proof."""
    return values.clamp(-HALF_MOST, HALF_MOST).half()


def cat(parts: Sequence[StateT], dim: int = 0) -> StateT:
    """Several batches of regions as one or, with dim 1, several parts of an objective.  Require: at least one."""
    if len(parts) == 1:
        return parts[0]
    return tree_map(lambda *same: torch.cat(same, dim=dim), *parts[0].aligned(parts), axis=dim)
