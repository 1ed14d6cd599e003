"""Sums in another order: what another processor, or another version of a library, may compute.

Which instructions a library picks decides in which order it adds up products, and with it the last bits.  Under this
mode products of matrices, convolutions and sums run through their terms backwards.  Sums that are exact stay exact,
and everything else stays within the error model of docs/numerics.md, so every test has to pass under it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

ATEN = torch.ops.aten


def _sum(x: torch.Tensor, dim: list[int] | None, keepdim: bool = False, **more: Any) -> torch.Tensor:
    return torch.sum(x.flip(dim or list(range(x.dim()))), dim, keepdim, **more)


def _convolution(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *how: Any) -> torch.Tensor:
    *_, transposed, _padding, groups = how
    if groups > 1 or x.dim() == weight.dim() - 1:
        return torch.convolution(x, weight, bias, *how)
    return torch.convolution(x.flip(1), weight.flip(0 if transposed else 1), bias, *how)


BACKWARDS: Mapping[object, Callable[..., torch.Tensor]] = {
    ATEN.mm.default: lambda a, b: torch.mm(a.flip(1), b.flip(0)),
    ATEN.mv.default: lambda a, b: torch.mv(a.flip(1), b.flip(0)),
    ATEN.dot.default: lambda a, b: torch.dot(a.flip(0), b.flip(0)),
    ATEN.bmm.default: lambda a, b: torch.bmm(a.flip(2), b.flip(1)),
    ATEN.addmm.default: lambda c, a, b, **how: torch.addmm(c, a.flip(1), b.flip(0), **how),
    ATEN.sum.default: lambda x, **more: torch.sum(x.flatten().flip(0), **more),
    ATEN.sum.dim_IntList: _sum,
    ATEN.convolution.default: _convolution,
}


class Reordered(TorchDispatchMode):
    """Within it, the terms of sums are added up in the reverse order."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        dense = all(t.layout is torch.strided for t in args if isinstance(t, torch.Tensor))
        return (BACKWARDS.get(func, func) if dense else func)(*args, **(kwargs or {}))
