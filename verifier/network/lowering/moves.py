"""Functions that only move entries: reshapes, permutations, slices, concatenations, padding.

None of them is written out here.  The torch function itself is run on a tensor of positions, and its answer
says where every entry comes from; whatever torch means by its arguments is therefore what is lowered.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from verifier.network.lowering.expression import MAX_ENTRIES, Expression, select
from verifier.network.lowering.tracing import Lowering, Traced, depends, lowers
from verifier.operators.base import flat_size
from verifier.shapes import Tensor

# The operands are the first argument, or the members of the list that is the first argument.
_JOINING = frozenset("cat concat concatenate stack hstack vstack dstack column_stack row_stack".split())
_LIKE = frozenset("expand_as view_as reshape_as".split())

MOVES = frozenset(
    """reshape view flatten unflatten ravel squeeze unsqueeze permute transpose swapaxes swapdims movedim
    moveaxis t T mT expand broadcast_to repeat tile repeat_interleave getitem narrow select index_select
    gather take_along_dim split chunk unbind tensor_split split_with_sizes hsplit vsplit flip fliplr flipud
    roll rot90 where pad diagonal unfold pixel_shuffle pixel_unshuffle channel_shuffle atleast_1d atleast_2d
    atleast_3d""".split()
) | (_JOINING | _LIKE)


class _Positions:
    """Replaces operands by tensors that number their entries from 1; 0 is left for padding.

    The numbers are float64: exact up to 2^53, and every moving function takes floating-point input.
    """

    def __init__(self) -> None:
        self.parts: list[Expression] = []
        self.total = 0

    def stand_in(self, part: Expression) -> torch.Tensor:
        first = self.total + 1
        self.total += part.size
        self.parts.append(part)
        return torch.arange(first, self.total + 1, dtype=torch.float64).reshape(part.shape)

    def read(self, found: Any, fill: float) -> Any:
        if isinstance(found, torch.Tensor):
            index = found.reshape(-1).to(torch.long) - 1
            shape = tuple(found.shape)
            if len(self.parts) == 1 and torch.equal(index, torch.arange(self.total)):
                return self.parts[0].reshaped(shape)
            return select(self.parts, index, shape, fill)
        return tuple(self.read(item, fill) for item in found)


def move(lowering: Lowering, func: Callable[..., Any], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Apply a moving function to expressions."""
    positions = _Positions()
    fill = 0.0
    head: Any
    if name in _LIKE:
        func = torch.Tensor.expand if name == "expand_as" else torch.Tensor.reshape
        args = (args[0], args[1].shape)
    if name in _JOINING:
        members = args[0] if args else kwargs.pop("tensors")
        head = [positions.stand_in(lowering.value(member)) for member in members]
        rest = args[1:]
    elif name == "where":
        if func is torch.Tensor.where:  # the method names its condition second
            func, args = torch.where, (args[1], args[0], *args[2:])
        condition, *choices = args
        if isinstance(condition, Traced) or len(choices) != 2:
            lowering.refuse("its condition depends on the input")
        head = condition
        rest = tuple(positions.stand_in(lowering.value(choice)) for choice in choices)
    else:
        if name == "pad":
            args, kwargs, fill = _padding(lowering, args, kwargs)
        head = args[0] if args else kwargs.pop("input")
        if not isinstance(head, Traced):
            lowering.refuse("its arguments depend on the input")
        head, rest = positions.stand_in(head.expression), args[1:]
    if depends((rest, kwargs)):
        lowering.refuse("its arguments depend on the input")
    return positions.read(func(head, *rest, **kwargs), fill)


def _padding(
    lowering: Lowering, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any], float]:
    """Arguments of `pad` with the value taken out: positions are padded with 0."""
    names = ("input", "pad", "mode", "value")
    given = {**dict(zip(names, args, strict=False)), **kwargs}
    value = given.pop("value", None)
    fill = 0.0 if value is None else float(lowering.number(value))
    source = given["input"]
    spread = [int(side) for side in given["pad"]]
    grown = [n + spread[2 * i] + spread[2 * i + 1] for i, n in enumerate(reversed(source.shape)) if 2 * i < len(spread)]
    if min(grown, default=1) < 1 or flat_size(tuple(grown)) > MAX_ENTRIES:
        lowering.refuse(f"padding by {spread} leaves nothing, or far too much")
    return (source, spread), {"mode": given.get("mode", "constant")}, fill


@lowers("fill")
def fill(low: Lowering, input: Any, value: Any) -> Expression:
    return low.value(value).expanded(low.value(input).shape)


@lowers("zero")
def zero(low: Lowering, input: Any) -> Expression:
    return fill(low, input, 0.0)


@lowers("copy")
def copy(low: Lowering, input: Any, src: Any, non_blocking: bool = False) -> Expression:
    return fill(low, input, src)


@lowers("masked_fill")
def masked_fill(low: Lowering, input: Any, mask: Tensor, value: Any) -> Expression:
    if isinstance(mask, Traced):
        low.refuse("its mask depends on the input")
    held, filler = low.value(input), low.value(value)
    if filler.size != 1:
        raise ValueError("masked_fill takes a single value")
    index = held.positions().masked_fill(mask, held.size)
    return select((held, filler), index.reshape(-1), tuple(index.shape))


def set_item(low: Lowering, input: Traced, where: Any, value: Any) -> Expression:
    """The values of `input` after `input[where] = value`: torch itself does the same with a tensor of positions."""
    if depends(where):
        low.refuse("its index depends on the input")
    held, given = low.value(input), low.value(value)
    touched = held.positions()[where]
    if touched.numel() != torch.unique(touched).numel():
        low.refuse("its index names an entry twice")
    index = held.positions()
    index[where] = torch.arange(held.size, held.size + given.size).reshape(given.shape)
    return select((held, given), index.reshape(-1), held.shape)
