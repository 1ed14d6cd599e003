"""Choosing what to split."""

from __future__ import annotations

from abc import ABC, abstractmethod

from verifier.bounding.sweep import Sweep, Trace
from verifier.shapes import Float, Tensor


class Brancher(ABC):
    """Scores the kinks of each domain: the higher, the more splitting it promises."""

    @abstractmethod
    def scores(self, sweep: Sweep, trace: Trace) -> Float[Tensor, "D A"]:
        """Non-negative for ambiguous kinks, -1 for stable ones; kinks are counted through all groups.

        Require: `trace` is a backward sweep with one objective per domain.
        """
