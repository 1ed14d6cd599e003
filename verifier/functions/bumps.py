"""Functions that are concave, then convex, then concave again: smooth relatives of the ReLU.

Their derivatives have no inverse in closed form.  It is looked up in a table and refined by secants.  The result need
not be exact, because a line is valid whatever point its tangent was taken at.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import ClassVar

import torch

from verifier.functions.curve import Curve, Piece
from verifier.shapes import Float, Tensor

CELLS = 256
SECANTS = 4
FAR = 40.0
"""So far from an inflection point, derivatives do not change any more."""


@dataclass(frozen=True)
class Bump(Curve):
    """Convex between two inflection points, concave elsewhere.

    The inflection points are the floats nearest to them.
    """

    inflections: ClassVar[tuple[float, float]]

    def pieces(self, low: Float[Tensor, "*axes"], high: Float[Tensor, "*axes"]) -> tuple[Piece, ...]:
        first, second = self.inflections
        return Piece(-torch.inf, first, False), Piece(first, second, True), Piece(second, torch.inf, False)

    def stationary(self, a: Float[Tensor, "*axes"], piece: Piece) -> Float[Tensor, "*axes"]:
        assert isinstance(piece.low, float)
        assert isinstance(piece.high, float)
        nodes, slopes = _table(self, piece.low, piece.high, a.device, a.dtype)
        key = a.contiguous()
        cell = torch.searchsorted(slopes, key) if piece.convex else torch.searchsorted(-slopes, -key)
        cell = cell.clamp(1, CELLS)
        left, right = nodes[cell - 1], nodes[cell]
        old, new = left, right
        old_rise, new_rise = slopes[cell - 1] - a, slopes[cell] - a
        for _ in range(SECANTS):
            guess = new - new_rise * (new - old) / (new_rise - old_rise)
            guess = torch.where(torch.isfinite(guess), guess, new)
            old, old_rise = new, new_rise
            new = torch.minimum(torch.maximum(guess, left), right)
            new_rise = self.slope(new) - a
        if piece.low == -torch.inf:
            return torch.where(a >= slopes[0], -torch.inf, new)
        return torch.where(a <= slopes[-1], torch.inf, new) if piece.high == torch.inf else new


@functools.lru_cache(maxsize=64)
def _table(
    function: Bump, low: float, high: float, device: torch.device, dtype: torch.dtype
) -> tuple[Float[Tensor, " c"], Float[Tensor, " c"]]:
    """Points of a piece, dense near inflection points, and the derivatives there, which rise or fall."""
    share = torch.linspace(0, 1, CELLS + 1, dtype=torch.float64)
    if low == -torch.inf:
        t = high - FAR * (1 - share) ** 2
    elif high == torch.inf:
        t = low + FAR * share**2
    else:
        t = low + (high - low) * (1 - torch.cos(torch.pi * share)) / 2
    slopes = function.slope(t)
    rises = low > -torch.inf and high < torch.inf
    slopes = slopes.cummax(dim=0).values if rises else slopes.cummin(dim=0).values
    return t.to(device, dtype), slopes.to(device, dtype)
