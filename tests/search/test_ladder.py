"""Tiers: gains and costs are measured, hard subtrees are promoted, once and for all."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from falsify import instances
from search.cases import STILL, UNIT, decide, hard, long, nobody, random_case, root_of, wedge
from search.events import Kept, tree

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Until
from verifier.clock import Clock
from verifier.search import rungs as tiers_by_name
from verifier.search.domains import Outcome
from verifier.search.journal import Journal
from verifier.search.ladder import SLOWEST, Ladder, Schedule
from verifier.search.loop import BranchAndBound, Limits, run
from verifier.search.signs.root import Batch, Root
from verifier.search.signs.space import Policy, SignSpace
from verifier.search.tiers import Climbed, Climber, Tier

PLAIN = tiers_by_name.slopes(STILL, STILL)


class Seconds:
    """A clock that stands still unless somebody works."""

    now = 0.0

    def perf_counter(self) -> float:
        return self.now


@dataclass(frozen=True)
class Script:
    """What a rung is told to say: bounds of the whole boxes, variables that are all the same, seconds per domain."""

    lowers: tuple[float, ...]
    width: int = 2
    mark: float = 0.0
    root_seconds: float = 0.0
    tree_seconds: float = 0.0
    iterations: int = 1
    clock: Seconds | None = None


@dataclass(frozen=True)
class Rung(Tier):
    """Says what it is told."""

    script: Script = Script(())

    def climber(self, root: Root) -> RungClimber:
        return RungClimber(self, root)


def rung(*args: Any, **named: Any) -> Rung:
    script = Script(*args, **named)
    return Rung(f"rung{script.width}", PLAIN.first, PLAIN.solver, script.iterations, script=script)


class RungClimber(Climber):
    def __init__(self, tier: Rung, root: Root) -> None:
        super().__init__(tier, root)
        self.rung = tier.script
        self.inner = PLAIN.climber(root)
        self.adopted: list[tuple[list[list[float]], list[int], str]] = []
        self.starts: list[list[list[float]]] = []

    @property
    def width(self) -> int:
        return self.rung.width

    def _answer(self, found: Climbed, lower: torch.Tensor, seconds: float) -> Climbed:
        if self.rung.clock is not None:
            self.rung.clock.now += seconds
        variables = torch.full((len(lower), self.rung.width), self.rung.mark)
        return replace(found, lower=lower, variables=variables, iterations=self.rung.iterations)

    def begin(self, whole: Batch, below: Climbed | None, until: Until) -> Climbed:
        found = self.inner.begin(whole, None, until)
        return self._answer(found, torch.tensor(self.rung.lowers), self.rung.root_seconds)

    def climb(self, batch: Batch, start: torch.Tensor, until: Until) -> Climbed:
        self.starts.append(start.tolist())
        found = self.inner.begin(batch, None, until)
        return self._answer(found, found.lower, self.rung.tree_seconds * len(batch))

    def probe(self, batch: Batch, start: torch.Tensor) -> torch.Tensor:
        self.starts.append(start.tolist())
        return torch.zeros(len(batch))

    def adopt(self, batch: Batch, variables: torch.Tensor, other: Climber, kept: Any = None) -> torch.Tensor:
        self.adopted.append((variables.tolist(), batch.clause.tolist(), other.name))
        return torch.full((len(batch), self.rung.width), self.rung.mark)


def schedule(*rungs: Rung, ratios: tuple[float, ...] | None = None, patience: int = 0) -> tuple[Schedule, Batch]:
    """At work on a wedge with as many clauses as the rungs speak of; the boxes have been bounded."""
    clauses = [(0, [instances.row({0: 1}, -1)])] * len(rungs[0].script.lowers)
    root = root_of(instances.problem(wedge(), UNIT, clauses))
    made = Schedule(Ladder(rungs, ratios, patience), root)
    made.begin(Batch.whole(root), Until())
    return made, Batch.whole(root)


def placed(
    made: Schedule, whole: Batch, lower: list[float], rise: list[float], tier: int = 0
) -> tuple[list[int], torch.Tensor]:
    """Where domains of clause 0, 1, .. go; their variables are 7 everywhere."""
    start = torch.full((len(lower), made.widths[tier]), 7.0)
    seen = torch.tensor(lower), torch.tensor(rise)
    tiers, variables = made.place(tier, whole.select(torch.arange(len(lower))), start, seen)
    return tiers.tolist(), variables


# ---------------------------------------------------------------- gains


def test_gains_are_what_a_tier_adds_on_the_whole_boxes() -> None:
    made, _ = schedule(rung((-4.0, -2.0)), rung((-3.0, -2.5), 3), rung((-1.0, -2.5), 4), ratios=(2.0, 2.0))
    assert made.gains.tolist() == [[0.0, 0.0], [1.0, -0.5], [2.0, 0.0]]
    assert made.widths == [2, 3, 4]
    assert made.floor.tolist() == pytest.approx([4 * SLOWEST, 2 * SLOWEST])
    assert [made.name(t) for t in range(3)] == ["rung2", "rung3", "rung4"]


def test_tiers_after_one_that_closes_everything_are_not_asked() -> None:
    made, whole = schedule(rung((-4.0, -2.0)), rung((1.0, 0.5), 3), rung((9.0, 9.0), 4), ratios=(1.0, 1.0))
    assert made.widths == [2, 3, 0]
    tiers, _ = placed(made, whole, [-4.0, -4.0], [0.01, 0.01], tier=1)
    assert tiers == [1, 1]  # nobody is promoted to a tier of which nothing is known


def test_a_patient_ladder_tries_a_tier_once_the_one_below_has_left_enough_open(monkeypatch: pytest.MonkeyPatch) -> None:
    lower, climb = torch.tensor([-1.0, -1.0]), RungClimber.climb
    monkeypatch.setattr(RungClimber, "climb", lambda *args: replace(climb(*args), lower=lower))
    made, whole = schedule(
        rung((-4.0, -4.0)), rung((-3.0, -3.0), 3), rung((-2.0, -2.0), 4), ratios=(2.0, 1.0), patience=3
    )
    start, seen = torch.zeros(2, 4), []
    for tier in (0, 0, 0, 1, 1):
        made.grow(Until())
        seen.append((made.widths[:], placed(made, whole, [-4.0, -4.0], [1.0, 1.0])[0]))
        made.climb(tier, whole, start, Until())
    waiting, two = ([2, 0, 0], [0, 0]), ([2, 3, 0], [1, 1])
    assert seen == [waiting, waiting, two, two, two]
    assert made._costs[1].left == 4
    made.grow(Until(Clock.begin(0.0)))
    assert made.widths == [2, 3, 0]  # no time
    made.grow(Until())
    assert made.widths == [2, 3, 4]
    assert made.gains.tolist() == [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0]]
    assert placed(made, whole, [-4.0, -4.0], [1.0, 1.0])[0] == [2, 2]


def test_domains_that_are_closed_try_nobodys_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    lower, climb = torch.tensor([1.0, torch.nan]), RungClimber.climb  # what is no number is open
    monkeypatch.setattr(RungClimber, "climb", lambda *args: replace(climb(*args), lower=lower))
    made, whole = schedule(rung((-4.0, -4.0)), rung((-3.0, -3.0), 3), ratios=(2.0,), patience=3)
    for widths in ([2, 0], [2, 0], [2, 3]):
        made.climb(0, whole, torch.zeros(2, 4), Until())
        made.grow(Until())
        assert made.widths == widths


def test_no_time_leaves_the_lowest_tier() -> None:
    root = root_of(instances.problem(wedge(), UNIT, [(0, [instances.row({0: 1}, -1)])]))
    made = Schedule(Ladder((rung((-4.0,)), rung((-1.0,), 3)), (1.0,)), root)
    assert len(made.begin(Batch.whole(root), Until(Clock.begin(0.0)))) == 1
    assert made.widths == [2, 0]


# ---------------------------------------------------------------- promotion


def test_the_worked_example_is_promoted_at_its_ratio() -> None:
    """31 nodes or 15: worth it up to 31/15 = 2.0667 times the cost."""
    for ratio, expected in ((2.06, [1, 0]), (2.07, [0, 0])):
        made, whole = schedule(rung((-4.0, -4.0)), rung((-3.0, -4.0), 3), ratios=(ratio,))
        assert placed(made, whole, [-4.0, -4.0], [1.0, 1.0])[0] == expected  # the second clause gains nothing


def test_promotion_is_one_way() -> None:
    made, whole = schedule(rung((-4.0, -4.0)), rung((-3.0, -3.0), 3), ratios=(1e9,))
    assert placed(made, whole, [-4.0, -4.0], [1.0, 0.5], tier=0)[0] == [0, 0]
    assert placed(made, whole, [-0.1, -4.0], [100.0, 0.5], tier=1)[0] == [1, 1]


def test_the_rule_goes_upwards_pair_by_pair() -> None:
    """p = -4, rise 1: 31 nodes; a gain of 2 leaves 7, and another of 1 leaves 3.  Costs 4 and 2.3 are worth it."""
    rungs = rung((-4.0,)), rung((-2.0,), 3), rung((-1.0,), 4)
    for ratios, expected in (((4.0, 2.3), 2), ((4.0, 2.4), 1), ((5.0, 1.0), 0)):
        made, whole = schedule(*rungs, ratios=ratios)
        assert placed(made, whole, [-4.0], [1.0])[0] == [expected]
    made, whole = schedule(*rungs, ratios=(9.0, 2.0))
    # Already on the second tier, with -2: 7 nodes against 3, worth 2 but not more.
    assert placed(made, whole, [-2.0], [1.0], tier=1)[0] == [2]


def test_no_tier_is_skipped() -> None:
    """The second clause gains nothing from the tier in the middle, and so stays below it, whatever comes after."""
    rungs = rung((-4.0, -4.0)), rung((-2.0, -4.0), 3), rung((-1.0, -1.0), 4)
    made, whole = schedule(*rungs, ratios=(4.0, 2.0))
    assert placed(made, whole, [-4.0, -4.0], [1.0, 1.0])[0] == [2, 0]


def test_variables_are_adopted_and_padded() -> None:
    made, whole = schedule(rung((-4.0, -4.0, -4.0)), rung((-3.0, -3.0, -4.0), 5, mark=9.0), ratios=(2.0,))
    tiers, variables = placed(made, whole, [-4.0, -0.001, -4.0], [1.0, 1.0, 1.0])
    assert tiers == [1, 0, 0]
    assert variables.tolist() == [[9.0] * 5, [7.0, 7.0, 0.0, 0.0, 0.0], [7.0, 7.0, 0.0, 0.0, 0.0]]
    upper = made.climbers[1]
    assert isinstance(upper, RungClimber)
    assert upper.adopted == [([[7.0, 7.0]], [0], "rung2")]
    # A narrower tier above reads its own part only.
    narrow, whole = schedule(rung((-4.0,), 6), rung((-3.0,), 3, mark=9.0), ratios=(2.0,))
    _, variables = placed(narrow, whole, [-4.0], [1.0])
    assert variables.tolist() == [[9.0] * 3 + [0.0] * 3]
    narrow.climb(1, whole, variables, Until())
    narrow.probe(1, whole, variables)
    climber = narrow.climbers[1]
    assert isinstance(climber, RungClimber)
    assert climber.starts == [[[9.0] * 3]] * 2


def test_what_is_not_known_is_not_promoted() -> None:
    """At the root no rise is known; a bound may be no number."""
    made, whole = schedule(rung((-4.0, -4.0)), rung((-3.0, -3.0), 3), ratios=(1.0,))
    assert placed(made, whole, [-4.0, math.nan], [math.nan, 1.0])[0] == [0, 0]
    assert placed(made, whole, [-4.0, -4.0], [1.0, 0.0])[0] == [1, 1]  # no rise at all is as slow as can be


# ---------------------------------------------------------------- costs


def test_costs_are_measured_at_the_root_until_both_tiers_have_worked(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Seconds()
    monkeypatch.setattr("verifier.search.ladder.time", clock)
    # On two clauses: 0.1 s per iteration and domain below, 0.2 s above; 20 and 40 iterations per domain of the tree.
    below = rung((-4.0, -4.0), 2, root_seconds=4.0, tree_seconds=1.0, iterations=20, clock=clock)
    above = rung((-3.0, -3.0), 3, root_seconds=16.0, tree_seconds=6.0, iterations=40, clock=clock)
    made, whole = schedule(below, above)
    assert made.ratio(1) == pytest.approx(4.0)
    start = torch.zeros(2, 3)
    made.climb(0, whole, start, Until())
    assert made.ratio(1) == pytest.approx(4.0)
    made.climb(1, whole, start, Until())
    assert made.ratio(1) == pytest.approx(6.0)
    clock.now += 1000.0  # time that passes elsewhere does not count
    made.climb(1, whole.select(torch.tensor([0])), start[:1], Until())
    assert made.ratio(1) == pytest.approx(6.0)
    assert Schedule(replace(made.ladder, ratios=(2.5,)), whole.root).ratio(1) == 2.5


def test_a_tier_above_is_never_called_cheaper(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Seconds()
    monkeypatch.setattr("verifier.search.ladder.time", clock)
    below = rung((-4.0,), 2, root_seconds=4.0, tree_seconds=4.0, clock=clock)
    made, whole = schedule(below, rung((-3.0,), 3, root_seconds=1.0, tree_seconds=1.0, clock=clock))
    assert made.ratio(1) == 1.0
    for tier in range(2):
        made.climb(tier, whole, torch.zeros(1, 3), Until())
    assert made.ratio(1) == 1.0


# ---------------------------------------------------------------- in a search


TWO = PLAIN, long(Ascent(40, Steps(0.2, 0.02)), Ascent(20, Steps(0.1, 0.02)))


def stratified(root: Root, ratios: tuple[float, ...] | None) -> tuple[Outcome, Kept]:
    kept, until = Kept(), Until()
    policy = Policy(Ladder(TWO, ratios), batch=16, fill=8)
    space = SignSpace(root, policy, until, nobody, Journal([kept]))
    return run(BranchAndBound(space, Limits()), until), kept


@pytest.mark.usefixtures("unchecked")
def test_hard_subtrees_stay_on_their_tier() -> None:
    outcome, heard = stratified(root_of(hard(0.05)), (1.05,))
    assert outcome.reason is None
    nodes = tree(heard)
    assert outcome.progress.counts.tiers.keys() == {"alpha_crown", "long"}
    promoted = 0
    for node in nodes.values():
        if node.parent >= 0:
            above = nodes[node.parent].tier
            assert (above, node.tier) != ("long", "alpha_crown")
            promoted += above != node.tier
    assert promoted > 0


@pytest.mark.usefixtures("unchecked")
def test_fixed_ratios_grow_the_same_tree_twice() -> None:
    first, second = (tree(stratified(root_of(hard(0.05)), (1.05,))[1]) for _ in range(2))
    assert first == second
    assert len({node.tier for node in first.values()}) == 2


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("ratios", [None, (1.0,), (1.5,)])
@pytest.mark.parametrize("margin", [1e-3, -1e-3])
def test_tiers_do_not_change_the_verdict(ratios: tuple[float, ...] | None, margin: float) -> None:
    problem = random_case("residual", 2, (1, 2), mixed=True).problem([1e-3, margin])
    outcome = decide(problem, Policy(Ladder(TWO, ratios), batch=16, fill=8))
    assert outcome.reason is None
    assert (outcome.witness is not None) == (margin < 0)
