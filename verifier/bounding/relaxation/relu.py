"""The neurons that carry variables, and the faces of their triangle relaxation."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from verifier.bounding.core.base import Region
from verifier.bounding.core.rounding import TINY, round_up
from verifier.bounding.core.state import SHARED, State
from verifier.shapes import Bool, Float, Int, Tensor


def chord(
    low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]
) -> tuple[Float[Tensor, "*axes"], Float[Tensor, "*axes"]]:
    """Slope p and intercept of an upper face: max(t, 0) <= p t + intercept for low <= t <= high, where low < 0 < high.

    p >= high / (high - low) holds whatever was rounded or has underflowed; the intercept may be too small by one
    rounding.  NaN where the bounds are not finite or too large: then there is no face, and no bound.
    """
    width = high - low
    slope = torch.where(torch.isfinite(width), round_up(high / width), torch.nan)
    if slope.dtype is torch.float64:
        slope = slope + TINY
        return slope, TINY - slope * low
    return slope, -slope * low


@dataclass(frozen=True, eq=False)
class Kinks(State):
    """The neurons of one group that are not stable in the same way in all regions, and their faces.

    All other neurons pass in every region (`passing` 1) or block in every region (`passing` 0).
    """

    index: Int[Tensor, " a"] = field(metadata=SHARED)
    passing: Float[Tensor, " n"] = field(metadata=SHARED)
    l_hat: Float[Tensor, "D 1 a"]
    u_hat: Float[Tensor, "D 1 a"]
    ambiguous: Bool[Tensor, "D 1 a"]
    upper: Float[Tensor, "D 1 a"]  # slope of the upper face
    intercept: Float[Tensor, "D 1 a"]  # of the upper face, >= 0
    sign: Float[Tensor, "D 1 a"] | None  # +1 passing and -1 blocking by a split; None if the region knows no splits

    @classmethod
    def of(cls, region: Region, k: int) -> Kinks:
        l_hat, u_hat = region.l_hat[k - 1], region.u_hat[k - 1]
        passing, blocking = l_hat >= 0, (u_hat <= 0) & (l_hat < 0)
        split = None if region.splits is None else region.splits[k - 1]
        if region.kinks is not None:
            index = region.kinks[k - 1]
        else:
            loose = ~(passing.all(dim=0) | blocking.all(dim=0))
            if split is not None:
                loose |= (split != 0).any(dim=0)
            index = torch.nonzero(loose).flatten()
        low, high = l_hat[:, index].unsqueeze(1), u_hat[:, index].unsqueeze(1)
        ambiguous = ~((low >= 0) | (high <= 0))  # so that NaN counts as ambiguous, and spoils the bound
        stable = (low >= 0).to(low.dtype)
        slope, intercept = chord(low, high)
        upper, intercept = torch.where(ambiguous, slope, stable), torch.where(ambiguous, intercept, 0.0)
        sign = None if split is None else split[:, index].to(low.dtype).unsqueeze(1)
        everywhere = passing.all(dim=0).to(low.dtype).index_fill_(0, index, 0.0)
        return cls(index, everywhere, low, high, ambiguous, upper, intercept, sign)

    def faces(self, ambiguous: Float[Tensor, "#D #S a"]) -> Float[Tensor, "#D #S a"]:
        """Lower slopes: the given ones where a choice exists, 1 or 0 where the neuron is stable."""
        return torch.where(self.ambiguous, ambiguous, self.upper)

    def adaptive(self) -> Float[Tensor, "D 1 a"]:
        """CROWN's lower slopes: the face that cuts off less area."""
        return self.faces((self.u_hat > -self.l_hat).to(self.l_hat.dtype))

    def parallel(self) -> Float[Tensor, "D 1 a"]:
        """Wong and Kolter's lower slopes: parallel to the upper face."""
        return self.faces(self.upper.clamp(max=1.0))
