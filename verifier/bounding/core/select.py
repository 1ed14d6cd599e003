"""One of two tensors, entry by entry: what sweeps do most often, next to products.

On a CPU `torch.where` branches at every entry.  Signs of coefficients are as good as random, so it takes 15 us for 3072
of them where a product takes one.  The bits of floats are chosen without branches, three times as fast, and exactly.
"""

from __future__ import annotations

import torch

from verifier.shapes import Float, Tensor

_INTEGERS = {torch.float32: (torch.int32, 31), torch.float64: (torch.int64, 63)}
"""Integers as wide as the floats, and the place of the sign."""


def by_sign(
    x: Float[Tensor, "*axes"], positive: Float[Tensor, "*#axes"], negative: Float[Tensor, "*#axes"]
) -> Float[Tensor, "*axes"]:
    """`positive` where x > 0, `negative` where x < 0, and one of both where x is zero or no number."""
    if not x.is_cpu:
        return torch.where(x >= 0, positive, negative)
    whole, place = _INTEGERS[x.dtype]
    signs = x.view(whole) >> place  # every bit is that of the sign
    above, below = positive.view(whole), negative.view(whole)
    return signs.bitwise_and_(above ^ below).bitwise_xor_(above).view(x.dtype)
