"""A look before the climb: which bounds are worth what they cost, measured on domains of the tree.

At the root cuts nearly always gain something, and learned masks more.  What counts is the tree: if its bound is
worse by some part without them, about the same part of its levels comes on top, each of which doubles it; and without
them a domain is cheaper.  So the same domains are bounded in all ways, and the tree goes on with what will be faster.

source: [SCB] sec:stratified, for the first tier.  The rise per level, from which the paper estimates the levels that
        are left, falls as a tree grows; the part of them that cuts save does not
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch

from verifier.shapes import Float, Tensor

LEVELS = 10.0
"""Levels of a tree for which the choice matters: whatever bounds a smaller one, it ends within seconds."""


AGAIN = 10.0
"""How many times what is learned in one ascent counts: children go on from it, and learn more."""


@dataclass(frozen=True, slots=True)
class Tried:
    """One kind of bounds: their mean, and how many times dearer a domain is than with the cheapest ones."""

    tier: str
    bound: float
    cost: float


@dataclass(frozen=True, slots=True)
class Look:
    """Several kinds of bounds of the same domains; the last ones are those without cuts.

    Between them and the first ones may be those of masks that are kept, and learn nothing.
    """

    tried: tuple[Tried, ...]
    domains: int  # that none of them has closed
    groups: tuple[int, ...] = ()  # that have cuts: on the whole boxes these gained nothing at the others

    @classmethod
    def at(
        cls,
        names: Sequence[str],
        lower: Sequence[Float[Tensor, " D"]],
        seconds: Sequence[float],
        groups: Iterable[int] = (),
    ) -> Look | None:
        """None if nothing is left to compare, or no clock has ticked."""
        left = (torch.stack(list(lower)) < 0).all(dim=0)
        count, least = int(left.sum()), min(seconds)
        if not count or least <= 0:
            return None
        means = [float(one[left].double().mean()) for one in lower]
        tried = (Tried(*one) for one in zip(names, means, (s / least for s in seconds), strict=True))
        return cls(tuple(tried), count, tuple(sorted(groups)))

    def levels(self, one: Tried) -> float:
        """Those that a tree is expected to have, of `LEVELS` with the worst of these bounds."""
        first, *_, last = self.tried
        own, learned = self._levels_now(one), self._levels_now(first)
        if one in (first, last) or own <= learned:
            return own
        return learned + AGAIN * (own - learned)

    def _levels_now(self, one: Tried) -> float:
        """The same by these bounds alone."""
        worst = min(other.bound for other in self.tried)
        if math.isinf(worst):
            return LEVELS if math.isinf(one.bound) else 0.0
        return LEVELS * one.bound / worst

    def work(self, one: Tried) -> float:
        """log2 of what the tree takes, in units of a domain with the cheapest bounds."""
        return self.levels(one) + math.log2(one.cost)

    @property
    def chosen(self) -> str:
        """The bounds that the tree goes on with: of two that are equal the first one."""
        return min(self.tried, key=self.work).tier

    @property
    def clear(self) -> bool:
        """Whether bounds without cuts win so clearly that nobody needs to look again when hidden bounds get sharper."""
        plain = self.tried[-1]
        return all(
            2.0 * (self.levels(plain) - self.levels(one)) < math.log2(one.cost / plain.cost) for one in self.tried[:-1]
        )

    def as_dict(self) -> dict[str, object]:
        tried = [
            {"tier": one.tier, "bound": one.bound, "cost": one.cost, "levels": self.levels(one)} for one in self.tried
        ]
        return {"tried": tried, "domains": self.domains, "groups": self.groups, "chosen": self.chosen}

    def __str__(self) -> str:
        tried = ", ".join(f"{one.tier} {one.bound:.4g} at {one.cost:.1f} times the cost" for one in self.tried)
        where = ", ".join(map(str, self.groups)) or "none"
        return f"{self.domains} domains have mean bounds of {tried}: {self.chosen} goes on (groups with cuts: {where})"
