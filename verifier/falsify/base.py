"""What every falsifier offers, and how several of them are combined."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from verifier.clock import Clock
from verifier.falsify.target import Target
from verifier.result.counterexample import Counterexample
from verifier.shapes import Float, Int, Tensor


class Falsifier(ABC):
    """Looks for counterexamples.  A falsifier is its settings; it keeps nothing between two calls.

    Guarantees of every subclass: what is returned was replayed by the original network, judged in exact arithmetic
    and confirmed in real arithmetic; None says nothing about the property.  What only the original network confirms is
    in the target's reserve.  The same falsifier gives the same answer for the same target unless the deadline cuts it
    short.
    """

    @abstractmethod
    def attack(self, target: Target, until: Clock) -> Counterexample | None:
        """A search through all clauses."""

    @abstractmethod
    def improve(
        self, target: Target, x: Float[Tensor, "P n0"], clause: Int[Tensor, " P"], until: Clock
    ) -> Counterexample | None:
        """A short local search from given points, each for its own clause, whose box they may have left."""


@dataclass(frozen=True, slots=True)
class FirstOf(Falsifier):
    """One falsifier after the other, until one finds something."""

    parts: tuple[Falsifier, ...]

    def attack(self, target: Target, until: Clock) -> Counterexample | None:
        return self._first(until, lambda part: part.attack(target, until))

    def improve(
        self, target: Target, x: Float[Tensor, "P n0"], clause: Int[Tensor, " P"], until: Clock
    ) -> Counterexample | None:
        return self._first(until, lambda part: part.improve(target, x, clause, until))

    def _first(self, until: Clock, tried: Callable[[Falsifier], Counterexample | None]) -> Counterexample | None:
        for part in self.parts:
            if until.expired():
                return None
            if witness := tried(part):
                return witness
        return None
