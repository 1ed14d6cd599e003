"""Functions that fill a tensor with other values: what the tensor holds afterwards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from verifier.network.expression import Expression, select
from verifier.network.lowering import Lowering, Traced, depends
from verifier.shapes import Tensor


def fill(low: Lowering, input: Any, value: Any) -> Expression:
    return low.value(value).expanded(low.value(input).shape)


def zero(low: Lowering, input: Any) -> Expression:
    return fill(low, input, 0.0)


def copy(low: Lowering, input: Any, src: Any, non_blocking: bool = False) -> Expression:
    return low.value(src).expanded(low.value(input).shape)


def masked_fill(low: Lowering, input: Any, mask: Tensor, value: Any) -> Expression:
    if isinstance(mask, Traced):
        low.refuse("its mask depends on the input")
    held, filler = low.value(input), low.value(value)
    if filler.size != 1:
        raise ValueError("masked_fill takes a single value")
    index = torch.arange(held.size).reshape(held.shape).masked_fill(mask, held.size)
    return select((held, filler), index.reshape(-1), tuple(index.shape))


def set_item(low: Lowering, input: Traced, where: Any, value: Any) -> Expression:
    """The values of `input` after `input[where] = value`: torch itself does the same with a tensor of positions."""
    if depends(where):
        low.refuse("its index depends on the input")
    held, given = low.value(input), low.value(value)
    touched = torch.arange(held.size).reshape(held.shape)[where]
    if touched.numel() != torch.unique(touched).numel():
        low.refuse("its index names an entry twice")
    index = torch.arange(held.size).reshape(held.shape)
    index[where] = torch.arange(held.size, held.size + given.size).reshape(given.shape)
    return select((held, given), index.reshape(-1), held.shape)


HANDLERS: dict[str, Callable[..., Any]] = {"fill": fill, "zero": zero, "copy": copy, "masked_fill": masked_fill}
