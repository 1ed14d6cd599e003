"""The clauses of a problem as mixed-integer programs, one after the other: what HiGHS claims, and what is confirmed.

A point that HiGHS finds is replayed, and decides if the network itself confirms it.  Everything else is a claim: it
closes nothing, and the search ends without a decision.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.lp.integer import Claim, MixedInteger
from verifier.clock import Stopwatch
from verifier.property.problem import Problem
from verifier.result.verdict import Reason, Verdict
from verifier.search.domains import Counts, Offer, Outcome, Progress
from verifier.search.loop import Search


@dataclass(frozen=True, eq=False)
class ClausePrograms:
    """The open clauses, each after its box; `region` gives the bounds of a box, `lower` a bound of all clauses."""

    problem: Problem
    clauses: Sequence[tuple[int, int]]
    region: Callable[[int], Region]
    lower: float

    def rows(self, clause: int) -> Objective:
        """The rows of a clause, to be at most zero."""
        rows = self.problem.rows[clause]
        inputs = None if rows.B is None else rows.B.unsqueeze(0)
        return Objective(len(self.problem.network.layers), rows.A.unsqueeze(0), inputs, -rows.c.unsqueeze(0))


class IntegerSearch(Search):
    """Each step solves the program of one clause."""

    def __init__(self, method: MixedInteger, programs: ClausePrograms, until: Until, offer: Offer) -> None:
        self._method, self._programs, self._until, self._offer = method, programs, until, offer
        self._waiting = list(programs.clauses)
        self._clock = Stopwatch()
        self._claimed = Verdict.UNSAT  # of the clauses so far
        count = len(self._waiting)
        self.progress = Progress(open=count, max_open=count, lower=programs.lower)
        self.outcome = None

    def step(self) -> None:
        box, clause = self._waiting.pop(0)
        programs = self._programs
        with self._clock:
            region, rows = programs.region(box), programs.rows(clause)
            claim = self._method.refute(programs.problem.network, region, rows, self._until)
        counts = self.progress.counts + Counts({"mip": claim.nodes}, batches=1, seconds=self._clock.lap())
        self.progress = replace(self.progress, counts=counts, open=len(self._waiting))
        self._conclude(claim, clause)

    def _conclude(self, claim: Claim, clause: int) -> None:
        """Replay what was found; end with a witness, without time, or after the last clause."""
        if claim.x0 is not None:
            self._claimed = Verdict.SAT
            witness = self._offer(torch.from_numpy(claim.x0).unsqueeze(0), torch.tensor([clause]))
            if witness is not None:
                self.outcome = Outcome(witness, None, self.progress)
                return
        if claim.x0 is None and not claim.empty:
            self.outcome = Outcome(None, Reason.TIMEOUT if claim.late else Reason.NUMERICS, self.progress)
        elif not self._waiting:
            self.outcome = Outcome(None, Reason.CLAIMED, self.progress, self._claimed)
