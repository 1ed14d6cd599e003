"""Choosing what to split."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Generic, TypeVar

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

    @cached_property
    def x_hat(self) -> list[Float[Tensor, "D _"]]:
        """The pre-activations of all groups at the input that minimises the relaxation, by the network itself."""
        return self.sweep.net.preactivations(self.trace.x0[:, 0])[:-1]

    def at(self, k: int) -> Float[Tensor, "D _"]:
        """Those of group k, counted from 0."""
        return self.x_hat[k]


ViewT = TypeVar("ViewT")


class Brancher(ABC, Generic[ViewT]):
    """Scores what each domain can be split at: the higher, the more splitting there promises.

    guarantees: nothing but a good order; any choice keeps a search correct
    """

    any_function: ClassVar[bool] = False
    """Whether it knows what to say of other neurons than ReLUs."""

    @abstractmethod
    def scores(self, view: ViewT) -> Float[Tensor, "D A"]:
        """Of a `View`: non-negative for ambiguous kinks, -1 for stable ones; kinks are counted through all groups."""


def nothing_tried(kinks: Int[Tensor, "D c"]) -> Float[Tensor, "D c 2"]:
    """The `probe` for whoever reads scores off a sweep that is there, and tries no split out."""
    raise AssertionError("nothing is tried out")
