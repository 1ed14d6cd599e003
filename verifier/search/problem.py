"""A whole problem: what the root bounds left open, searched as one tree, by signs of ReLUs or by boxes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING

import torch

from verifier.bounding.clauses import ClauseBounds
from verifier.bounding.core.base import Until
from verifier.bounding.core.closing import closes
from verifier.bounding.forward import FEW_MOVING, inputs_that_move
from verifier.bounding.frugal import Frugal, is_large
from verifier.bounding.hidden import GroupBounds, RootBounds
from verifier.bounding.lp.integer import MixedInteger
from verifier.clock import Clock
from verifier.errors import InputError
from verifier.falsify.base import Falsifier
from verifier.falsify.hunt import Hunt
from verifier.falsify.target import Target
from verifier.network.network import Network
from verifier.property.problem import Problem
from verifier.search.boxes.boxes import moves
from verifier.search.boxes.space import InputOptions, contraction_of
from verifier.search.domains import Offer, Outcome, Progress
from verifier.search.groups import OneAfterAnother
from verifier.search.journal import Journal, Merged, Settled
from verifier.search.keeper import Keeper
from verifier.search.loop import Limits, Report, Search, run
from verifier.search.offers import Offers
from verifier.search.race import Race
from verifier.search.saved import (
    Keeping,
    Members,
    Saved,
)
from verifier.search.sharpen import Sharpening
from verifier.search.signs.space import Policy
from verifier.search.task import SearchTask

if TYPE_CHECKING:
    from verifier.search.cluster.engine import ClusterEngine

FEW_INPUTS = 16
"""Where more of them move, halving each input once already makes more boxes than any search can bound."""

FEW_OF_LARGE = 8
"""The same in networks of which a box takes about a second."""

MANY_BOXES = 16
"""With more boxes of few moving inputs, the bounds that a search by signs begins with take longer than all the rest."""


class Splitting(Enum):
    """What domains are."""

    AUTO = "auto"  # boxes where few inputs move or rows contract boxes, in a race with signs; else signs
    RELUS = "relus"
    INPUTS = "inputs"
    MIP = "mip"  # mixed-integer programs: HiGHS splits, and proves nothing


@dataclass(frozen=True)
class ProblemSearch:
    """Branch and bound on all open boxes, with intermediate bounds by `intermediate` where none are known yet.

    One frontier holds all clauses of all boxes.  Only where the bounds of very many boxes do not fit into
    `root_bytes`, they are searched in groups.
    """

    policy: Policy = field(default_factory=Policy)
    limits: Limits = field(default_factory=Limits)
    intermediate: GroupBounds = field(default_factory=RootBounds)
    falsifier: Falsifier | None = None
    seed: int = 0  # of its restarts
    sharpening: Sharpening | None = None
    splitting: Splitting = Splitting.AUTO
    inputs: InputOptions = field(default_factory=InputOptions)
    integer: MixedInteger = field(default_factory=MixedInteger)
    root_bytes: int = 2**28
    cores: int = 1  # processes that share the work
    domain_bytes: int = 4 * 2**30  # of the domains that a search by signs bounds together
    journal: Journal = field(default_factory=Journal)
    keeping: Keeping | None = None  # whether another run can go on where this one was
    engine: ClusterEngine | None = None  # where trees are searched; None: by processes of this machine

    def within(self, memory_bytes: int) -> ProblemSearch:
        """The same, holding no more than so many bytes: fewer domains at a time, zonotopes with fewer symbols."""
        each = memory_bytes // self.cores
        return replace(
            self,
            limits=replace(self.limits, memory_bytes=min(self.limits.memory_bytes, memory_bytes // 4)),
            inputs=replace(self.inputs, memory_bytes=min(self.inputs.memory_bytes, each // 4)),
            root_bytes=min(self.root_bytes, each // 8),
            domain_bytes=each // 4,
        )

    def by_inputs(self, problem: Problem) -> bool:
        """Whether boxes of the input are cut, at least at first."""
        if self.splitting is Splitting.AUTO:
            moving = moves(problem.lower, problem.upper).sum(dim=1)
            few = FEW_OF_LARGE if is_large(problem.network, 1) else FEW_INPUTS
            return bool((moving <= few).all()) or contraction_of(problem, self.inputs) is not None
        return self.splitting is Splitting.INPUTS

    def by_many_boxes(self, problem: Problem) -> bool:
        """Whether boxes of the input are cut from the first to the last, because there are so many of them."""
        if len(problem.lower) <= MANY_BOXES or not self.by_inputs(problem):
            return False
        return bool((moves(problem.lower, problem.upper).sum(dim=1) <= FEW_INPUTS).all())

    def by_slices(self, problem: Problem) -> bool:
        """Whether boxes are cut into slices before their signs are searched: a large network, and few inputs move."""
        net, box = problem.network, (problem.lower, problem.upper)
        if self.splitting is not Splitting.AUTO or not isinstance(self.intermediate, Frugal) or self.by_inputs(problem):
            return False
        few = len(problem.lower) <= MANY_BOXES and len(inputs_that_move(box)) <= FEW_MOVING
        return few and net.piecewise_linear and is_large(net, 1)

    def check(self, network: Network) -> None:
        """Raises InputError, in one sentence, if some method that was asked for knows ReLUs only and others exist."""
        found = network.bent
        if found is None:
            return
        tiers = ((f"the tier '{tier.name}'", tier.solver.any_function) for tier in self.policy.ladder.tiers)
        rule = f"the branching rule {type(self.policy.brancher).__name__}", self.policy.brancher.any_function
        hidden = "the bounder of hidden neurons", self.intermediate.any_function
        programs = "a mixed-integer program", self.splitting is not Splitting.MIP
        for what, suits in (*tiers, rule, hidden, programs):
            if not suits:
                raise InputError(f"{what} knows ReLUs only, but {found}")

    def run(  # noqa: PLR0913 (a problem, and all that may look at its search)
        self,
        problem: Problem,
        found: ClauseBounds,
        target: Target,
        clock: Clock,
        report: Report,
        keeper: Keeper | None = None,
        hunt: Hunt | None = None,
    ) -> Outcome:
        """Decide all clauses that `found` has not closed.  `report` hears the totals after each step.

        The `keeper` looks at the search after each step, and may know where another run of it was.  A `hunt` for
        counterexamples takes turns with it.
        """
        if problem.merged:
            self.journal.hear(Merged(sum(layer.superfluous for layer in problem.merged)))
        closed = torch.nonzero(closes(found.lower)).flatten().tolist()
        self.journal.hear(Settled(tuple(closed), lambda: found))
        until, left = Until(clock), None if keeper is None else keeper.left
        offer = Offers(self.falsifier, target, clock, self.seed)
        search = self.begun(problem, found, target.dtype, until, offer, left)
        if search is None:
            return Outcome(None, None, Progress())
        if keeper is None:
            return run(search, until, report, hunt)

        def told(progress: Progress) -> None:
            report(progress)
            keeper.look(search)

        return run(search, until, told, hunt)

    def begun(
        self,
        problem: Problem,
        found: ClauseBounds,
        dtype: torch.dtype,
        until: Until,
        offer: Offer,
        left: Saved | None = None,
    ) -> Search | None:
        """The search of all clauses that `found` has not closed; None if there are none.

        `dtype` is the precision of the network; `offer` gets points, and ends the search if one is a counterexample.
        `left` is what an earlier run has saved of it.
        """
        waiting = open_clauses(problem, found)
        if not waiting:
            return None
        options = replace(self, inputs=replace(self.inputs, double=dtype is torch.float64))
        task = SearchTask(options, problem, found, until, offer)
        return self._search(task, waiting) if left is None else task.going_on(waiting, left)

    def _search(self, task: SearchTask, waiting: list[Members]) -> Search:
        """The search of some boxes: by their signs, group after group, or by smaller boxes, or a race of both."""
        if self.splitting is Splitting.MIP:
            return task.integer(waiting)
        together = self._together(task.problem)
        groups = [waiting[i : i + together] for i in range(0, len(waiting), together)]
        if self.by_slices(task.problem):
            return task.sliced(waiting)
        if not self.by_inputs(task.problem):
            return OneAfterAnother([task.group(group) for group in groups], self.limits, task.until)
        if self.splitting is Splitting.INPUTS or len(groups) > 1 or len(waiting) > MANY_BOXES:
            return task.boxes(waiting)
        return Race([partial(task.boxes, waiting), partial(task.bounded_signs, waiting)])

    def _together(self, problem: Problem) -> int:
        """How many boxes are searched together."""
        return max(1, self.root_bytes // (24 * (problem.network.neurons + problem.network.n_in)))


def open_clauses(problem: Problem, found: ClauseBounds) -> list[Members]:
    """Boxes with their clauses that are not closed."""
    closed = closes(found.lower).tolist()
    members = ((box, tuple(k for k in clauses if not closed[k])) for box, clauses in enumerate(problem.clauses_of))
    return [(box, clauses) for box, clauses in members if clauses]
