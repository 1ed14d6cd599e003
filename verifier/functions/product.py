"""s t: products of two values that both depend on the input.

A bilinear function takes its extrema over a box at corners, so that for any slopes (a, c)

    min of s t - a s - c t  =  the least of its values at the four corners,

and McCormick's faces are those whose slopes are ends of the box.  Nothing has to hold exactly: whatever the slopes, the
corners decide.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.functions.base import Function, limited, slack
from verifier.shapes import Float, Tensor


@dataclass(frozen=True)
class Product(Function):
    """The product of the first half of the entries with the second half."""

    name = "Product"
    arity = 2

    @property
    def is_product(self) -> bool:
        return True

    def value(self, t: Float[Tensor, "*batch n_hat"]) -> Float[Tensor, "*batch n"]:
        left, right = self.parts(t)
        return left * right

    def pull(
        self, t: Float[Tensor, "*batch n_hat"], cotangent: Float[Tensor, "*batch n"]
    ) -> Float[Tensor, "*batch n_hat"]:
        left, right = self.parts(t)
        return torch.cat([cotangent * right, cotangent * left], dim=-1)

    def image(
        self, low: Float[Tensor, "*batch n_hat"], high: Float[Tensor, "*batch n_hat"]
    ) -> tuple[Float[Tensor, "*batch n"], Float[Tensor, "*batch n"]]:
        (l_s, l_t), (u_s, u_t) = self.parts(low), self.parts(high)
        corners = torch.stack([l_s * l_t, l_s * u_t, u_s * l_t, u_s * u_t])
        size = torch.maximum(l_s.abs(), u_s.abs()) * torch.maximum(l_t.abs(), u_t.abs())
        error = slack(size, ulps=1)
        return limited(corners.amin(dim=0) - error, corners.amax(dim=0) + error)

    def below(
        self,
        slopes: tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"]],
        low: tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"]],
        high: tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"]],
        sign: Float[Tensor, "*axes"],
    ) -> tuple[Float[Tensor, "*axes"], tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"]]]:
        """At most the least value of sign (s t - a s - c t) over the box, and the corner where it is attained."""
        a, c = slopes
        values = []
        for s in (low[0], high[0]):
            for t in (low[1], high[1]):
                values.append(sign * (s * t - a * s - c * t))
        least, place = torch.stack(values).min(dim=0)
        corner = (torch.where(place >= 2, high[0], low[0]), torch.where(place % 2 == 1, high[1], low[1]))
        s, t = (torch.maximum(x.abs(), y.abs()) for x, y in zip(low, high, strict=True))
        return least - slack(s * t, a * s, c * t, ulps=4), corner

    def beyond(
        self,
        slopes: tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"]],
        low: tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"]],
        high: tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"]],
        side: Float[Tensor, "*axes"] | float,
    ) -> Float[Tensor, "*axes"]:
        """At most the least value of s t - a s - c t over the box (`side` 1), or at least the largest one (-1).

        s t - a s - c t = (s - c) (t - a) - a c.  The extrema of the first product are at two of the four corners, or on
        the right side of 0.  Require: c and a are not larger than s and t can be, but for rounding.
        """
        (a, c), (l_s, l_t), (u_s, u_t) = slopes, low, high
        falling = torch.as_tensor(side, device=a.device) > 0
        first, second = a - l_t, u_t - a
        across, along = torch.where(falling, second, first), torch.where(falling, first, second)
        reach = torch.maximum((c - l_s) * across, (u_s - c) * along).clamp(min=0)
        s, t = torch.maximum(l_s.abs(), u_s.abs()), torch.maximum(l_t.abs(), u_t.abs())
        return -a * c - side * (reach + slack(s * t, a * s, c * t, ulps=8))


PRODUCT = Product()
