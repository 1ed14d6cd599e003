"""Decides instances by boxes of the input alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from falsify import instances

from verifier.bounding.core.base import Until
from verifier.clock import Clock
from verifier.falsify.target import Target
from verifier.property.problem import Problem
from verifier.result.counterexample import Counterexample
from verifier.search.boxes.space import Finish, InputOptions, InputSpace
from verifier.search.domains import Outcome
from verifier.search.loop import BranchAndBound, Limits, run

Offer = Callable[[torch.Tensor, torch.Tensor], Counterexample | None]


def replayed(target: Target) -> Offer:
    """The falsifier is off: points are judged as they are."""

    def offer(x: torch.Tensor, clauses: torch.Tensor) -> Counterexample | None:
        x = x.to(torch.float32).clamp(*target.bounds(clauses))
        y = target.network.forward(x)
        worst = target.rows.margins(x, y, clauses).amax(-1)
        return target.replay(x, worst, clauses, target.rows.noise(y, clauses))

    return offer


def blind(x: torch.Tensor, clauses: torch.Tensor) -> None:
    """Finds nothing."""


def decide(
    problem: Problem,
    options: InputOptions | None = None,
    finish: Finish | None = None,
    offer: Offer | None = None,
    seconds: float = 60,
) -> Outcome:
    until = Until(Clock.begin(seconds))
    offer = offer or replayed(instances.target(problem))
    space = InputSpace(problem, range(len(problem.rows)), offer, until, finish, options)
    return run(BranchAndBound(space, Limits(max_domains=100_000)), until)
