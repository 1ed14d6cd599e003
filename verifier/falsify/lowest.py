"""Points where rows are small: descents that go on below zero, for whoever asks how small rows can be."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from verifier.clock import Clock
from verifier.falsify.pgd import AdamSteps, Descent, SignSteps
from verifier.falsify.start import starts
from verifier.falsify.target import Target
from verifier.shapes import Float, Int, Tensor


@dataclass(frozen=True, slots=True)
class Lowest:
    """Descents of every clause from several starts, in coarse steps and in fine ones.

    requires:   clauses of one row each
    guarantees: nothing but points of the clauses' input sets; how low they lead is for the original network to say
    """

    descents: tuple[Descent, ...] = (Descent(SignSteps(), 40, last=0.02), Descent(AdamSteps(), 80))
    samples: int = 256
    restarts: int = 16
    seed: int = 0

    def points(self, target: Target, clause: Int[Tensor, " C"], until: Clock) -> Float[Tensor, "C k n0"]:
        """Of every clause the best point of each kind of descent."""
        generator = torch.Generator().manual_seed(self.seed)
        together = max(1, target.points_in_memory // max(self.samples, self.restarts))
        return torch.cat([self._of(target, some, generator, until) for some in clause.split(together)])

    def lowered(
        self, target: Target, x: Float[Tensor, "P n0"], clause: Int[Tensor, " P"], until: Clock
    ) -> Float[Tensor, "P n0"]:
        """Where the fine descents lead from given points of clauses."""
        return self._descended(self.descents[-1], target, target.room(clause).inside(x), clause, until)

    def _of(
        self, target: Target, clause: Int[Tensor, " C"], generator: torch.Generator, until: Clock
    ) -> Float[Tensor, "C k n0"]:
        _, first = starts(target, clause, self.samples, self.restarts, generator)
        found = []
        for descent in self.descents:
            x = self._descended(descent, target, first.flatten(0, 1), clause.repeat_interleave(self.restarts), until)
            rows = torch.arange(len(clause), device=target.device)
            value = target.slope(x, clause.repeat_interleave(self.restarts))[0].reshape(-1, self.restarts)
            found.append(x.reshape(len(clause), self.restarts, -1)[rows, value.nan_to_num(torch.inf).argmin(dim=1)])
        return torch.stack(found, dim=1)

    @staticmethod
    def _descended(
        descent: Descent, target: Target, x: Float[Tensor, "P n0"], clause: Int[Tensor, " P"], until: Clock
    ) -> Float[Tensor, "P n0"]:
        """Of each descent the point at which it was lowest."""
        room, memory = target.room(clause), None
        best, least = x, x.new_full((len(x),), torch.inf)
        for step in range(descent.steps):
            value, gradient = target.slope(x, clause)
            lower = value < least
            best, least = torch.where(lower.unsqueeze(1), x, best), torch.where(lower, value, least)
            if until.expired():
                break
            x, memory = descent.moved(room, x, gradient, step, memory)
        return best
