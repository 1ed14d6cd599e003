"""Choosing what to split."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from verifier.bounding.core.base import Objective
from verifier.bounding.core.sweep import Sweep, Trace
from verifier.shapes import Float, Int, Tensor


@dataclass(frozen=True, eq=False)
class View:
    """What a brancher sees of a batch of bounded domains: one objective each, and the backward sweep of its bound.

    `probe(kinks)` gives cheap bounds of the two children (blocking, passing) of every domain and every kink asked for.
    """

    sweep: Sweep
    objective: Objective
    trace: Trace
    probe: Callable[[Int[Tensor, "D c"]], Float[Tensor, "D c 2"]]


class Brancher(ABC):
    """Scores the kinks of each domain: the higher, the more splitting it promises."""

    @abstractmethod
    def scores(self, view: View) -> Float[Tensor, "D A"]:
        """Non-negative for ambiguous kinks, -1 for stable ones; kinks are counted through all groups."""
