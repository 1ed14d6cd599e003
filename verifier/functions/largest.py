"""max(t_1, .., t_k): what a window of MaxPool gives.

Written with ReLUs it takes k - 1 neurons, which can be split and cut.  Networks with millions of windows have it whole:

- below, max t >= t_j for any j;
- above, for any slopes s_i in [0, 1] the largest value of max t - s . t over a box is taken where one entry is at its
  upper end and all others are at their lower ends: max t <= s . t + max_j (u_j - s_j (u_j - l_j)) - s . l.

With L the largest of all l_i, the slopes (u_i - L) / (u_i - l_i) of entries that can be the largest make all of these
u_j - s_j (u_j - l_j) equal to L.  That is exact where one entry is above all others, and the chord of a ReLU where
another one is a constant.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.functions.base import Function, limited, slack
from verifier.shapes import Bool, Float, Int, Tensor

Parts = Float[Tensor, "k *axes"]
"""The arguments of all neurons, one below the other."""


@dataclass(frozen=True)
class Largest(Function):
    """The largest of `entries` numbers.  The derivative counts for the first of those that are equal."""

    entries: int

    name = "Max"

    @property
    def arity(self) -> int:
        return self.entries

    def stacked(self, t: Float[Tensor, "*batch n_hat"]) -> Parts:
        return torch.stack(self.parts(t))

    def value(self, t: Float[Tensor, "*batch n_hat"]) -> Float[Tensor, "*batch n"]:
        found = self.parts(t)[0]
        for part in self.parts(t)[1:]:
            found = torch.maximum(found, part)
        return found

    def pull(
        self, t: Float[Tensor, "*batch n_hat"], cotangent: Float[Tensor, "*batch n"]
    ) -> Float[Tensor, "*batch n_hat"]:
        return torch.cat([cotangent * part for part in self._only(self.stacked(t).argmax(dim=0))], dim=-1)

    def image(
        self, low: Float[Tensor, "*batch n_hat"], high: Float[Tensor, "*batch n_hat"]
    ) -> tuple[Float[Tensor, "*batch n"], Float[Tensor, "*batch n"]]:
        return limited(self.value(low), self.value(high))

    def bends(
        self, low: Float[Tensor, "*batch n_hat"], high: Float[Tensor, "*batch n_hat"]
    ) -> Bool[Tensor, "*batch n_hat"]:
        """Entries that can be the largest, where several can."""
        able = self.stacked(high) > self.value(low)
        return torch.cat(tuple(able & (able.sum(dim=0) > 1)), dim=-1) & (low < high)

    def foremost(
        self, low: Float[Tensor, "*batch n_hat"], high: Float[Tensor, "*batch n_hat"]
    ) -> Int[Tensor, "*batch n"]:
        """The entry of every neuron that has the highest middle."""
        return (self.stacked(low) + self.stacked(high)).argmax(dim=0)

    def below(self, low: Float[Tensor, "*batch n_hat"], high: Float[Tensor, "*batch n_hat"]) -> Parts:
        """Slopes of a face x >= s . t without an offset: 1 for the foremost entry, 0 for the others."""
        return torch.stack(self._only(self.foremost(low, high))).to(low.dtype)

    def above(
        self, low: Float[Tensor, "*batch n_hat"], high: Float[Tensor, "*batch n_hat"]
    ) -> tuple[Parts, Float[Tensor, "*batch n"]]:
        """Slopes and offset of a face x <= s . t + h: sloped or level, whichever is lower in the middle.

        Guarantee: in float64 the offset includes all errors, and is infinite or no number where bounds are.
        """
        lows, highs = self.stacked(low), self.stacked(high)
        floor, ceiling = self.value(low), self.value(high)
        slopes = ((highs - floor) / (highs - lows)).nan_to_num(0.0).clamp(0.0, 1.0)
        level = (highs - floor).clamp(min=0).sum(dim=0) > 2 * (ceiling - floor)
        slopes = torch.where(level, 0.0, slopes)
        offset = (highs - slopes * (highs - lows)).amax(dim=0) - (slopes * lows).sum(dim=0)
        size = (lows.abs() + highs.abs()).sum(dim=0)
        return slopes, offset + slack(size, ulps=2 * self.entries + 8)

    def _only(self, chosen: Int[Tensor, "*batch n"]) -> list[Bool[Tensor, "*batch n"]]:
        """For every argument, where it is the chosen one."""
        return [chosen == i for i in range(self.entries)]
