"""Tiers that solve a linear program for each domain, by HiGHS: Planet, and Planet with rounds of Anderson cuts.

All domains of a search share one program, whose numbers change from domain to domain; so each of them starts from the
basis of the one before, which as a rule is a relative of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from verifier.bounding.lp.dual import LinearPrograms
from verifier.bounding.solvers.solver import Solved, Task
from verifier.registry import Options, Positive, Step
from verifier.search import TIERS
from verifier.search.signs.root import Batch, Root
from verifier.search.tiers import Climber, Tier
from verifier.shapes import Tensor

TOGETHER = 32
"""Domains whose multipliers are evaluated together."""


class ProgramClimber(Climber):
    """Works in float64 throughout: a program gains nothing from single precision."""

    def _in_turn(self, batch: Batch, task: Task, bound: Callable[[Task, Tensor | slice], Solved]) -> Solved:
        parts = torch.arange(len(batch), device=self.root.device).split(self.tier.together or TOGETHER)
        found = [bound(self._task(batch.select(rows), torch.float64), rows) for rows in parts]
        return Solved.joined(found, dim=0)


@dataclass(frozen=True)
class ProgramTier(Tier):
    """A tier whose programs are kept by HiGHS while it works on one problem."""

    def climber(self, root: Root) -> Climber:
        assert isinstance(self.solver, LinearPrograms)
        solver = self.solver.at_work()
        return ProgramClimber(replace(self, first=solver, solver=solver), root)


class CutLpOptions(Options, frozen=True):
    """Linear programs with rounds of cuts that are violated by more than `tolerance`."""

    rounds: Positive = 1  # of cuts, each followed by a program
    tolerance: Step = 1e-6  # by which a cut must be violated to be added


@TIERS.register("planet_lp")
def planet_lp_tier() -> Tier:
    solver = LinearPrograms()
    return ProgramTier("planet_lp", solver, solver, 1, TOGETHER)


@TIERS.register("cut_lp", CutLpOptions)
def cut_lp_tier(options: CutLpOptions) -> Tier:
    solver = LinearPrograms(options.rounds, options.tolerance)
    return ProgramTier("cut_lp", solver, solver, 1 + options.rounds, TOGETHER)
