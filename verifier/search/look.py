"""A look before the climb: whether cuts are worth what they cost, measured on domains of the tree.

At the root cuts nearly always gain something.  What counts is the tree: if its bound is worse by some part without
cuts, about the same part of its levels comes on top, each of which doubles it; and without cuts a domain is cheaper.
So the same domains are bounded twice, once, and the tree goes on with what will be faster.

source: [SCB] sec:stratified, for the first tier.  The rise per level, from which the paper estimates the levels that
        are left, falls as a tree grows; the part of them that cuts save does not
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import asdict, dataclass

from verifier.shapes import Float, Tensor

LEVELS = 10.0
"""Levels of a tree for which the choice matters: whatever bounds a smaller one, it ends within seconds."""


@dataclass(frozen=True, slots=True)
class Look:
    """One kind of bounds and a cheaper one, `plain`, of the same domains."""

    tier: str
    plain: str
    domains: int  # that neither of both has closed
    bound: float  # the mean of their bounds
    plain_bound: float
    cost_ratio: float  # how many times dearer a domain is
    groups: tuple[int, ...] = ()  # that have cuts: on the whole boxes these gained nothing at the others

    @classmethod
    def at(
        cls,
        names: tuple[str, str],
        lower: tuple[Float[Tensor, " D"], Float[Tensor, " D"]],
        seconds: tuple[float, float],
        groups: Iterable[int] = (),
    ) -> Look | None:
        """None if nothing is left to compare, or no clock has ticked."""
        left = (lower[0] < 0) & (lower[1] < 0)
        count = int(left.sum())
        if not count or min(seconds) <= 0:
            return None
        dear, cheap = (float(side[left].double().mean()) for side in lower)
        return cls(*names, count, dear, cheap, seconds[0] / seconds[1], tuple(sorted(groups)))

    @property
    def saved(self) -> float:
        """log2 of how many times smaller a tree is with the dearer bounds."""
        part = 1.0 - self.bound / self.plain_bound
        return LEVELS * max(0.0, part) if math.isfinite(part) else 0.0

    @property
    def price(self) -> float:
        """log2 of how many times dearer the domains are."""
        return math.log2(max(1.0, self.cost_ratio))

    @property
    def chosen(self) -> str:
        """The bounds that the tree goes on with."""
        return self.tier if self.saved >= self.price else self.plain

    @property
    def clear(self) -> bool:
        """Whether the cheaper bounds win so clearly that nobody needs to look again when hidden bounds get sharper."""
        return 2.0 * self.saved < self.price

    def as_dict(self) -> dict[str, object]:
        return asdict(self) | {"saved": self.saved, "chosen": self.chosen}

    def __str__(self) -> str:
        where = ", ".join(map(str, self.groups)) or "none"
        return (
            f"on {self.domains} domains {self.tier} gives {self.bound:.4g} and {self.plain} {self.plain_bound:.4g} on "
            f"average, at {self.cost_ratio:.1f} times the cost: {self.chosen} goes on (groups with cuts: {where})"
        )
