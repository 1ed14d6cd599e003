"""The neurons that carry variables, and the faces of their triangle relaxation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING

import torch

from verifier.bounding.core.base import Region
from verifier.bounding.core.rounding import TINY, round_up
from verifier.bounding.core.select import by_sign
from verifier.bounding.core.state import SHARED, State, once
from verifier.shapes import Bool, Float, Int, Int8, Tensor

if TYPE_CHECKING:
    from verifier.bounding.core.sweep import Choice, Remainder, Taken, Values
    from verifier.bounding.relaxation.smooth import Lines


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

    All other neurons pass in every region (`passing` 1) or block in every region (`passing` 0).  Where a batch of
    regions has little in common, all neurons may be listed: then nothing is gathered or scattered.
    """

    index: Int[Tensor, " a"] = field(metadata=SHARED)  # ascending
    passing: Float[Tensor, " n"] = field(metadata=SHARED)
    l_hat: Float[Tensor, "D 1 a"]
    u_hat: Float[Tensor, "D 1 a"]
    ambiguous: Bool[Tensor, "D 1 a"]
    upper: Float[Tensor, "D 1 a"]  # slope of the upper face
    intercept: Float[Tensor, "D 1 a"]  # of the upper face, >= 0
    sign: Float[Tensor, "D 1 a"] | None  # +1 passing and -1 blocking by a split; None if the region knows no splits

    @classmethod
    def of(cls, region: Region, k: int) -> Kinks:
        low, high = region.l_hat[k - 1], region.u_hat[k - 1]
        split = None if region.splits is None else region.splits[k - 1]
        index = _loose(low, high, split) if region.kinks is None else region.kinks[k - 1]
        return once(partial(cls._at, index), low, high, split)

    @classmethod
    def _at(
        cls,
        index: Int[Tensor, " a"],
        low: Float[Tensor, "D n"],
        high: Float[Tensor, "D n"],
        split: Int8[Tensor, "D n"] | None,
    ) -> Kinks:
        """Require: all that is not listed is stable in the same way in all regions."""
        if len(index) == low.shape[1]:
            passing = torch.zeros_like(low[0])
        else:
            passing = (low >= 0).all(dim=0).to(low.dtype).index_fill_(0, index, 0.0)
            low = low[:, index]
            high = high[:, index]
        sign = None if split is None else split[:, index].to(low.dtype).unsqueeze(1)
        return cls(index, passing, *_faces(low.unsqueeze(1), high.unsqueeze(1)), sign)

    def gather(self, vector: Float[Tensor, "*axes n"]) -> Float[Tensor, "*axes a"]:
        """The entries at the kinks."""
        return vector if self._all else vector.index_select(-1, self.index)

    def scatter(self, vector: Float[Tensor, "*axes n"], at_kinks: Float[Tensor, "D S a"]) -> Float[Tensor, "D S n"]:
        """The given entries at the kinks, those of the vector where neurons pass, and zero where they block."""
        return at_kinks if self._all else (vector * self.passing).index_copy_(-1, self.index, at_kinks)

    @cached_property
    def count(self) -> int:
        return self.index.shape[0]

    @property
    def entries(self) -> int:
        """Entries of x_hat that a branch can split."""
        return self.count

    @property
    def pace(self) -> float:
        """How large the steps of its variables are, compared with others."""
        return 1.0

    @property
    def least_split(self) -> float:
        """Multipliers of signs are not negative."""
        return 0.0

    @property
    def open(self) -> Bool[Tensor, "D a"]:
        """Which entries a split would help."""
        return self.ambiguous.squeeze(1)

    @cached_property
    def _all(self) -> bool:
        return self.count == self.passing.shape[0]

    def relax(
        self, lam: Float[Tensor, "D S n"], choice: Choice, rest: Remainder, priced: bool
    ) -> tuple[Float[Tensor, "D S n"], Float[Tensor, "D S a"], None]:
        """The coefficients of x_hat, and those of x at the kinks: each takes the face that its sign asks for."""
        face = choice.face
        at_kinks = self.gather(lam)
        negative = at_kinks.clamp(max=0)
        upper = self.upper if face is None else face.slope
        mu = at_kinks * by_sign(at_kinks, choice.slope, upper)
        if self.sign is not None and choice.split is not None:
            mu = mu - self.sign * choice.split
        if face is None:
            offset = (negative @ self.intercept.squeeze(1).unsqueeze(-1)).squeeze(-1)
            rest.value += offset
            if priced:
                rest.summed -= offset
        else:
            mu = face.charge(negative, mu, rest)
        return self.scatter(lam, mu), at_kinks, None

    def activate(
        self, x_hat: Float[Tensor, "D S a"], values: Values, taken: Taken
    ) -> tuple[Float[Tensor, "D S a"], tuple[Tensor, ...] | None]:
        """x on the faces that a sweep took, and what a unit of each cut's share adds to the upper ones."""
        upper, gains = torch.addcmul(self.intercept, x_hat, self.upper), None
        if taken.choice.face is not None:
            upper, gains = taken.choice.face.above(upper, values, x_hat)
        return by_sign(taken.lam, x_hat * taken.choice.slope, upper), gains

    def gains(self, x_hat: Float[Tensor, "D S a"], taken: Taken) -> Float[Tensor, "D S a"]:
        """What a unit of each lower slope adds to the bound."""
        return taken.lam.clamp(min=0) * x_hat * self.ambiguous

    def split_gains(self, x_hat: Float[Tensor, "D S a"], split: Float[Tensor, "D S a"]) -> Float[Tensor, "D S a"]:
        """What a unit of each multiplier of a sign adds to the bound."""
        return torch.zeros_like(x_hat) if self.sign is None else -self.sign * x_hat

    def losses(
        self, lam: Float[Tensor, "D S a"] | None, faces: Lines | None, point: Callable[[], Tensor]
    ) -> tuple[Float[Tensor, "#D a"], Float[Tensor, "#D a"]]:
        """What the upper faces cost the first objective, and how far they are from the ReLU; no point is asked for."""
        gap = self.intercept.squeeze(1)
        return torch.zeros_like(gap) if lam is None else (-lam[:, 0]).clamp(min=0) * gap, gap

    def faces(self, ambiguous: Float[Tensor, "#D #S a"]) -> Float[Tensor, "#D #S a"]:
        """Lower slopes: the given ones where a choice exists, 1 or 0 where the neuron is stable."""
        return torch.where(self.ambiguous, ambiguous, self.upper)

    def adaptive(self) -> Float[Tensor, "D 1 a"]:
        """CROWN's lower slopes: the face that cuts off less area."""
        return self.faces((self.u_hat > -self.l_hat).to(self.l_hat.dtype))

    def parallel(self) -> Float[Tensor, "D 1 a"]:
        """Wong and Kolter's lower slopes: parallel to the upper face."""
        return self.faces(self.upper.clamp(max=1.0))


def _loose(
    low: Float[Tensor, "D n"], high: Float[Tensor, "D n"], split: Int8[Tensor, "D n"] | None
) -> Int[Tensor, " a"]:
    """The neurons that do not pass in all regions, nor block in all of them, or whose sign some branch has imposed."""
    passing, blocking = low >= 0, (high <= 0) & (low < 0)
    loose = ~(passing.all(dim=0) | blocking.all(dim=0))
    if split is not None:
        loose |= (split != 0).any(dim=0)
    return torch.nonzero(loose).flatten()


def _faces(low: Float[Tensor, "D 1 a"], high: Float[Tensor, "D 1 a"]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """The bounds, who is ambiguous, and slope and intercept of the upper faces."""
    passing = low >= 0
    ambiguous = ~(passing | (high <= 0))  # so that NaN counts as ambiguous, and spoils the bound
    slope, intercept = chord(low, high)
    upper = torch.where(ambiguous, slope, passing.to(low.dtype))
    return low, high, ambiguous, upper, torch.where(ambiguous, intercept, 0.0)
