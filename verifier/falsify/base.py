"""What every falsifier offers, and how several of them are combined."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from verifier.clock import Clock
from verifier.falsify.target import Target
from verifier.property.problem import Problem
from verifier.result.counterexample import Counterexample, Runnable
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
        """A short local search from given points, each for its own clause."""

    def search(self, problem: Problem, model: Runnable, until: Clock) -> Counterexample | None:
        """The first counterexample found, or None at the latest when `until` expires.

        Where real arithmetic confirms none, it is one of the original network alone.
        """
        if not problem.property.clauses or until.expired():
            return None
        target = Target.of(problem, model)
        return self.attack(target, until) or target.reserve.found()

    def refine(
        self, problem: Problem, model: Runnable, x: Float[Tensor, "P n0"], clauses: Int[Tensor, " P"], until: Clock
    ) -> Counterexample | None:
        """Tries points that somebody else offers, such as the minimisers of a relaxation.

        Requires: point i belongs to clause `clauses[i]`; it may lie outside of the clause's box.
        A caller with many batches of points builds an `Target` once and calls `improve`.
        """
        if not len(x) or until.expired():
            return None
        target = Target.of(problem, model, x.device)
        return self.improve(target, x.to(target.dtype), clauses, until) or target.reserve.found()


@dataclass(frozen=True, slots=True)
class FirstOf(Falsifier):
    """One falsifier after the other, until one finds something."""

    parts: tuple[Falsifier, ...]

    def attack(self, target: Target, until: Clock) -> Counterexample | None:
        for part in self.parts:
            if until.expired():
                return None
            if witness := part.attack(target, until):
                return witness
        return None

    def improve(
        self, target: Target, x: Float[Tensor, "P n0"], clause: Int[Tensor, " P"], until: Clock
    ) -> Counterexample | None:
        for part in self.parts:
            if until.expired():
                return None
            if witness := part.improve(target, x, clause, until):
                return witness
        return None
