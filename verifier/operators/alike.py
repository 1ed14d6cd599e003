"""Rows of composed maps that are the same, or the same with the other sign.

A product of two activations reads each of its factors many times: in Q K^T of an attention with n tokens every entry of
Q and of K occurs n times.  Whatever is known of one such row holds for all.  Rows are not compared number by number:
entries that are selected, scaled and added are followed back to where they come from, and what adds up many of them is
not looked into.  So no two rows that differ are ever taken for one, while some that are the same may be missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count

import torch

from verifier.operators.base import LinearMap
from verifier.operators.compose import Chain, Sum
from verifier.operators.select import Diagonal, Select
from verifier.shapes import Bool, Float, Float64, Int, Tensor

MOST_PARTS = 16
"""Rows that add up more entries than that are not looked into."""


@dataclass(frozen=True, eq=False)
class Alike:
    """For every row: the first one that is like it, and whether it has the other sign."""

    first: Int[Tensor, " n"]
    mirrored: Bool[Tensor, " n"]

    @property
    def alone(self) -> Bool[Tensor, " n"]:
        """Rows that no earlier one is like."""
        return self.first == torch.arange(len(self.first), device=self.first.device)

    def to(self, device: torch.device | str | None) -> Alike:
        return Alike(self.first.to(device), self.mirrored.to(device))

    def shared(
        self, low: Float[Tensor, "*batch n"], high: Float[Tensor, "*batch n"]
    ) -> tuple[Float[Tensor, "*batch n"], Float[Tensor, "*batch n"]]:
        """Bounds of all rows, if each is no looser than that of the row that stands for it."""
        below, above = low[..., self.first], high[..., self.first]
        below, above = torch.where(self.mirrored, -above, below), torch.where(self.mirrored, -below, above)
        return torch.maximum(low, below), torch.minimum(high, above)


@dataclass(frozen=True, eq=False)
class Parts:
    """Every row as a sum of factors times named things; the name -1 stands for nothing."""

    names: Int[Tensor, "n w"]
    factors: Float64[Tensor, "n w"]

    def through(self, linear: LinearMap, fresh: count[int]) -> Parts:
        """The rows of a map that is applied to these."""
        match linear:
            case Select():
                kept = (linear.index >= 0).unsqueeze(1)
                place = linear.index.clamp(min=0)
                return Parts(torch.where(kept, self.names[place], -1), torch.where(kept, self.factors[place], 0.0))
            case Diagonal():
                scale = linear.scale.unsqueeze(1)
                exact = (self.factors.abs() == 1) | (self.factors == 0) | (scale.abs() == 1)
                if not bool(exact.all()):  # different products may be rounded to the same number
                    return Parts.new(linear.n_out, fresh, self.names)
                return Parts(self.names, self.factors * scale)
            case Chain():
                found = self
                for part in linear.maps:
                    found = found.through(part, fresh)
                return found
            case Sum():
                found = Parts.beside([self.through(part, fresh) for part in linear.maps])
                return found if found.names.shape[1] <= MOST_PARTS else Parts.new(linear.n_out, fresh, found.names)
            case _:
                return Parts.new(linear.n_out, fresh, self.names)

    @classmethod
    def new(cls, n: int, fresh: count[int], like: Tensor) -> Parts:
        """Things that were not named before."""
        names = next(fresh) * 2**40 + torch.arange(n, device=like.device)
        return cls(names.unsqueeze(1), torch.ones(n, 1, dtype=torch.float64, device=like.device))

    @classmethod
    def beside(cls, parts: Sequence[Parts]) -> Parts:
        """Sums of these, row by row, with the names in order and nothing at the end."""
        names, factors = torch.cat([p.names for p in parts], dim=1), torch.cat([p.factors for p in parts], dim=1)
        names, order = torch.where(factors == 0, -1, names).sort(dim=1, descending=True, stable=True)
        width = max(1, int((names >= 0).sum(dim=1).max()))
        return cls(names[:, :width], torch.where(names < 0, 0.0, factors.gather(1, order))[:, :width])


def alike(terms: Sequence[LinearMap], bias: Float64[Tensor, " n"], bias_error: Float64[Tensor, " n"]) -> Alike | None:
    """Which rows of [W_1, W_2, ...], with their constants, are alike; None if all differ.

    Weights that were rounded count as alike if they are made of the same rounded numbers, and so do constants with the
    same error: what is known of one row must hold for all that it can stand for.
    """
    if not any(isinstance(term, Select | Chain | Sum) for term in terms):
        return None
    fresh = count()
    found = Parts.beside([Parts.new(term.n_in, fresh, bias).through(term, fresh) for term in terms])
    if found.names.shape[1] > MOST_PARTS:
        return None
    sign = torch.where(found.factors[:, :1] < 0, -1.0, 1.0)
    columns = [found.names.double(), sign * found.factors, sign * bias.unsqueeze(1), bias_error.unsqueeze(1)]
    _, group = torch.unique(torch.cat(columns, dim=1) + 0.0, dim=0, return_inverse=True)
    place = torch.arange(len(group), device=group.device)
    first = torch.full_like(place, len(group)).scatter_reduce(0, group, place, "amin")[group]
    return None if bool((first == place).all()) else Alike(first, (sign != sign[first]).squeeze(1))
