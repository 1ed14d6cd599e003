"""What every falsifier offers, and how several of them are combined."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain

from verifier.clock import Clock
from verifier.falsify.target import Target
from verifier.result.counterexample import Counterexample
from verifier.shapes import Float, Int, Tensor

Wave = Callable[[Clock], Counterexample | None]
"""A part of an attack, given the time that it may take."""


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

    def waves(self, target: Target) -> Iterator[Wave]:
        """The same in parts, between which others can work; each is made before the next one is asked for."""
        yield partial(self.attack, target)

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
        return one_after_another(self.waves(target), until)

    def waves(self, target: Target) -> Iterator[Wave]:
        return chain.from_iterable(part.waves(target) for part in self.parts)

    def improve(
        self, target: Target, x: Float[Tensor, "P n0"], clause: Int[Tensor, " P"], until: Clock
    ) -> Counterexample | None:
        return one_after_another((partial(part.improve, target, x, clause) for part in self.parts), until)


def one_after_another(waves: Iterable[Wave], until: Clock) -> Counterexample | None:
    """What the first wave finds that finds something, as long as there is time."""
    for wave in waves:
        if until.expired():
            return None
        if witness := wave(until):
            return witness
    return None
