"""Sharper bounds in the middle of a search: asked for at the right moment, and nothing that was open is lost."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import torch
from falsify import instances
from forks import watched
from networks import points
from search.cases import (
    BIG_M,
    CUTS,
    GAP,
    UNIT,
    Case,
    Hours,
    Late,
    begun,
    expanded,
    ignore,
    inside,
    narrow,
    nobody,
    random_case,
    signs_at,
    slopes,
    unbounded,
    wedge,
)
from search.events import Kept

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Bound, Bounder, Objective, Region, Until
from verifier.bounding.hidden import Known, RootBounds, Sharpened
from verifier.bounding.solvers.alpha_crown import AlphaCrown
from verifier.bounding.solvers.crown import Linear
from verifier.bounding.solvers.propagated import Propagated
from verifier.bounding.solvers.solver import Certified
from verifier.clock import Clock
from verifier.network.network import Network
from verifier.processes import Forked, forkable
from verifier.property.problem import Problem
from verifier.result.verdict import Reason
from verifier.search import sharpen
from verifier.search.domains import Outcome, Progress
from verifier.search.hidden_trees import HiddenTrees
from verifier.search.journal import Journal, Superseded
from verifier.search.ladder import Ladder
from verifier.search.loop import BranchAndBound, Limits
from verifier.search.problem import ProblemSearch, Splitting
from verifier.search.sharpen import SOON, Blunt, Sharpener, Sharpening, Trees
from verifier.search.signs.root import Batch, Root
from verifier.search.signs.space import Policy, SignDomains, SignSpace
from verifier.search.signs.tighten import AfterSplit
from verifier.search.space import Space

LOOSE = RootBounds(None)
SHORT = Ascent(6, Steps(0.2, 0.03))
SHARP = Certified(AlphaCrown(Ascent(10, Steps(0.1, 0.02))))
PLAIN = narrow(8)
CUT = replace(PLAIN, ladder=Ladder((CUTS,)))
TWO = replace(PLAIN, ladder=Ladder((*PLAIN.ladder.tiers, CUTS), (1.05,)))


# ---------------------------------------------------------------- when


@dataclass(frozen=True)
class Still(Bounder):
    """Answers nothing, and notes how long it may take."""

    allowed: list[float]

    def bound(self, net: Network, region: Region, objective: Objective, until: Until) -> Bound:
        self.allowed.append(until.clock.remaining())
        return Bound(torch.full((region.count, objective.count), torch.nan, dtype=torch.float64), None)


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Hours:
    made = Hours()
    monkeypatch.setattr(sharpen, "time", made)
    return made


def regions_of(problem: Problem, bounds: RootBounds = LOOSE) -> list[Region]:
    sides = zip(problem.lower.split(1), problem.upper.split(1), strict=True)
    return [bounds.region(problem.network, low, high, Until()) for low, high in sides]


@pytest.fixture(scope="module")
def problem() -> Problem:
    return random_case("residual", 6, (1, 2), boxes=2).problem([GAP, GAP])


def sharpener(problem: Problem, options: Sharpening, cores: int = 1, until: Until | None = None) -> Sharpener:
    blunt = Blunt(problem.network, dict(enumerate(regions_of(problem))))
    return Sharpener(options, blunt, until or Until(), cores)


def moments(made: Sharpener, hours: Hours, left: Callable[[float], float]) -> list[float]:
    """After how many seconds it says yes, if a tenth of a second passes between two looks."""
    began, found = hours.now, []
    for tick in range(200):
        hours.now = began + tick / 10
        if made.ready(Progress(left=left(tick / 10))):
            found.append(tick / 10)
    return found


def test_a_single_core_begins_after_some_time(problem: Problem, hours: Hours) -> None:
    with closing(sharpener(problem, Sharpening(Linear(), after=4.0))) as made:
        assert moments(made, hours, lambda seconds: 1.0)[0] == 4.0


def test_where_splits_do_their_work_only_after_some_more_time(problem: Problem, hours: Hours) -> None:
    def moment(left: Callable[[float], float]) -> float:
        with closing(sharpener(problem, Sharpening(Linear(), after=4.0, little=0.1))) as made:
            return moments(made, hours, left)[0]

    assert moment(lambda seconds: 0.5) == 4.0
    assert moment(lambda seconds: 0.49) == 8.0
    assert moment(lambda seconds: 0.1) == 8.0
    assert moment(lambda seconds: 0.05) == 16.0
    assert moment(lambda seconds: 0.05 if seconds < 6 else 1.0) == 6.0


@pytest.mark.parametrize(
    ("after", "seconds", "wait"), [(0.5, 0.2, 0.5), (0.5, 1.5, 1.5), (0.0, 0.75, 0.0), (0.0, 1.0, 3.0)]
)
def test_where_whole_boxes_are_dear_it_begins_later(
    after: float, seconds: float, wait: float, problem: Problem, hours: Hours
) -> None:
    """Searches that need not wait do so only where the boxes took long, and then three times as long."""
    with closing(sharpener(problem, Sharpening(Linear(), after=after))) as made:
        made.told([[] for _ in problem.lower], seconds)
        assert moments(made, hours, lambda elapsed: 1.0)[0] == wait


STAGES = Trees(Propagated.in_rounds(SHORT, SHORT, averaged=3), SHORT, (2, 4))


def test_trees_follow_the_first_stage_as_long_as_they_pay(
    problem: Problem, hours: Hours, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each stage begins with what the one before found, after half the time that it took, and a second at least."""
    leaves: list[int] = []
    usual = HiddenTrees.completed

    def completed(self: HiddenTrees, *args: Any) -> Region:
        leaves.append(self.leaves)
        hours.now += 3.0
        return usual(self, *args)

    monkeypatch.setattr(HiddenTrees, "completed", completed)
    monkeypatch.setattr(sharpen, "WORTH", -1.0)
    with closing(sharpener(problem, Sharpening(SHARP, after=0.0, trees=STAGES))) as made:
        stages, waits = [], []
        while not made.over:
            waits.append(moments(made, hours, lambda seconds: 1.0)[0])
            stages.append(made.regions())
    assert leaves == [2, 2, 4, 4]  # two boxes
    assert waits == [0.0, 1.0, 3.0]  # nothing, at least a second, half of two boxes' time
    for before, after in itertools.pairwise(stages):
        for old, new in zip(before, after, strict=True):
            for k in range(old.known):
                assert bool((new.l_hat[k] >= old.l_hat[k]).all())
                assert bool((new.u_hat[k] <= old.u_hat[k]).all())
    assert any(not torch.equal(a.l_hat[-1], b.l_hat[-1]) for a, b in zip(stages[0], stages[-1], strict=True))


def test_a_stage_that_saves_little_is_the_last(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharpen, "WORTH", 2.0)
    with closing(sharpener(problem, Sharpening(SHARP, trees=STAGES))) as made:
        assert not made.over
        made.regions()
        assert made.over


def test_what_a_stage_saves() -> None:
    """Faces of [-1, 1] lose 1/2 and those of [-1, 3] lose 3/4; the group that gains most counts."""

    def region(*ends: list[tuple[float, float]]) -> Region:
        sides = [[torch.tensor([[pair[side] for pair in group]]).double() for group in ends] for side in (0, 1)]
        box = torch.zeros(1, 1).double()
        return Region(box, box, tuple(sides[0]), tuple(sides[1]))

    known = region([(-1, 1), (-1, 3)], [(-1, 1), (0, 2)])
    blunt = Blunt(wedge(), {0: known})
    assert blunt.saved([known]) == 0.0
    assert blunt.saved([region([(-1, 1), (0, 3)], [(-1, 1), (0, 2)])]) == pytest.approx(0.6)
    assert blunt.saved([region([(-1, 1), (-1, 3)], [(0, 1), (0, 2)])]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("options", "timeout", "expected"),
    [
        (Sharpening(Linear(), share=0.25, most=120.0), None, 120.0),
        (Sharpening(Linear(), share=0.25, most=120.0), 1000.0, 120.0),
        (Sharpening(Linear(), share=0.25, most=120.0), 100.0, 25.0),
        (Sharpening(Linear(), share=0.5, most=10.0), 100.0, 10.0),
    ],
)
def test_the_time_that_it_may_take(
    problem: Problem, options: Sharpening, timeout: float | None, expected: float
) -> None:
    still = Still([])
    with closing(sharpener(problem, replace(options, bounder=still), until=Until(Clock.begin(timeout)))) as made:
        found = made.regions()
    assert still.allowed
    assert all(0.8 * expected < allowed <= expected for allowed in still.allowed)
    for mine, known in zip(found, regions_of(problem), strict=True):  # nothing was found: they are as before
        for k in range(known.known):
            assert torch.equal(mine.l_hat[k], known.l_hat[k])
            assert torch.equal(mine.u_hat[k], known.u_hat[k])


@pytest.mark.skipif(not forkable(), reason="forks work on Linux only")
def test_a_second_core_does_it_beside_the_search(problem: Problem, hours: Hours) -> None:
    """It begins soon, is asked for when it is done, and gives what one core gives."""
    until = Until(Clock.begin(1000))
    with watched() as forks, closing(sharpener(problem, Sharpening(SHARP), 2, until)) as made:
        assert not made.ready(Progress(left=1.0))
        hours.now += 0.9 * SOON
        assert not made.ready(Progress(left=1.0))
        assert not forks.pairs
        hours.now += 0.2 * SOON
        while not made.ready(Progress(left=0.01)):  # however little is left
            pass
        assert len(forks.pairs) == 1
        beside = made.regions()
    with closing(sharpener(problem, Sharpening(SHARP))) as alone:
        for one, other in zip(beside, alone.regions(), strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one.l_hat + one.u_hat, other.l_hat + other.u_hat, strict=True))


def test_a_second_core_may_take_twice_the_share(
    problem: Problem, hours: Hours, monkeypatch: pytest.MonkeyPatch
) -> None:
    class AtOnce:
        """An answer without a fork."""

        def __init__(self, work: Callable[[object], list[Region]]) -> None:
            self.found = work(None)

        def now(self) -> list[Region]:
            return self.found

        def end(self) -> None: ...

    monkeypatch.setattr(sharpen, "Forked", AtOnce)
    still = Still([])
    with closing(sharpener(problem, Sharpening(still, share=0.25), 2, Until(Clock.begin(100)))) as made:
        assert not made.ready(Progress())
        hours.now += SOON
        assert made.ready(Progress())
    assert all(40 < allowed <= 50 for allowed in still.allowed)
    assert still.allowed


@pytest.mark.skipif(not forkable(), reason="forks work on Linux only")
def test_a_search_that_ends_first_ends_the_second_core(problem: Problem) -> None:
    with watched() as forks, closing(sharpener(problem, Sharpening(SHARP, after=0.0), cores=2)) as made:
        made.ready(Progress())
        assert len(forks.pairs) == 1  # `watched` sees that it is gone


@pytest.mark.parametrize("looks", range(0, 12, 2))
def test_a_deadline_in_the_middle_leaves_valid_bounds_that_are_nowhere_looser(problem: Problem, looks: int) -> None:
    class Short(Late):
        def within(self, seconds: float) -> Late:
            return self

    with closing(sharpener(problem, Sharpening(SHARP), until=Until(Short(looks)))) as made:
        found = made.regions()
    for box, (mine, known) in enumerate(zip(found, regions_of(problem), strict=True)):
        x = points(problem.lower[box], problem.upper[box], 200, box)
        for k, x_hat in enumerate(problem.network.preactivations(x)[:-1]):
            assert bool((mine.l_hat[k] >= known.l_hat[k]).all())
            assert bool((mine.u_hat[k] <= known.u_hat[k]).all())
            assert bool(((mine.l_hat[k] <= x_hat) & (x_hat <= mine.u_hat[k])).all())
    pairs = zip(found, regions_of(problem), strict=True)
    assert any(not torch.equal(mine.l_hat[-1], known.l_hat[-1]) for mine, known in pairs) or looks < 9


# ---------------------------------------------------------------- what is adopted

# Family, rows per clause, whether rows look at the input, boxes, seed.
CASES = [
    ("dense", (2, 1), False, 1, 15),
    ("conv", (2, 1), False, 1, 6),
    ("residual", (2, 1), False, 1, 11),
    ("residual", (1, 2, 2, 1), True, 2, 2),
]
WHICH = pytest.mark.parametrize("which", CASES, ids=str)
Which = tuple[str, tuple[int, ...], bool, int, int]


@cache
def made(which: Which) -> Case:
    family, counts, mixed, boxes, seed = which
    return random_case(family, seed, counts, mixed, boxes)


@cache
def unsafe(which: Which) -> Problem:
    """All clauses hold somewhere, but nobody looks: so the search goes on as long as there is something to split."""
    return made(which).problem([-0.3] * len(which[1]))


def space_over(problem: Problem, regions: Sequence[Region], policy: Policy) -> SignSpace:
    root = Root.of(problem, regions, problem.clauses_of)
    return SignSpace(root, policy, Until(), nobody)


def sharper(problem: Problem, regions: Sequence[Region], bounder: Bounder = SHARP) -> list[Region]:
    return [Sharpened(Known(r), bounder).region(problem.network, r.lower, r.upper, Until()) for r in regions]


@dataclass(frozen=True, eq=False)
class Move:
    """A search with loose bounds, and what one with sharper bounds makes of its open domains."""

    before: SignSpace
    waiting: SignDomains
    after: SignSpace
    begun: SignDomains
    adopted: SignDomains

    def is_open(self, clause: int) -> bool:
        """Whether the sharper bounds leave something to do."""
        return clause in self.begun.clause.tolist()


@cache
def moved(problem: Problem, policies: tuple[Policy, Policy], batches: int, patient: bool = True) -> Move:
    """A patient space takes over all domains, whatever its own first bounds are."""
    loose = regions_of(problem)
    before = space_over(problem, loose, policies[0])
    waiting = begun(before, batches + 1)
    after = space_over(problem, sharper(problem, loose), policies[1])
    first = begun(after)
    return Move(before, waiting, after, first, after.adopt(waiting, hopeless(first) if patient else first, before))


def hopeless(begun: SignDomains) -> SignDomains:
    """The same, as if the first bounds were worse than anything."""
    return replace(begun, lower=torch.full_like(begun.lower, -torch.inf))


def places(before: Root, after: Root) -> list[int]:
    """Where the kinks of `after` are among those of `before`, found by group and neuron."""
    known = {before.place(kink): kink for kink in range(before.kinks)}
    return [known[after.place(kink)] for kink in range(after.kinks)]


@pytest.mark.usefixtures("unchecked")
@WHICH
@pytest.mark.parametrize("patient", [True, False])
@pytest.mark.parametrize("batches", [0, 8])
def test_nothing_that_was_open_is_lost(which: Which, batches: int, patient: bool) -> None:
    """Every point of an open domain lies in a domain of the same clause, unless that is not open any more."""
    problem = unsafe(which)
    move = moved(problem, (PLAIN, PLAIN), batches, patient)
    before, after, adopted = move.before.root, move.after.root, move.adopted
    assert after.kinks < before.kinks
    for row, number in enumerate(move.waiting.number.tolist()):
        clause = int(move.waiting.clause[row])
        box = int(before.box[clause])
        x = points(problem.lower[box], problem.upper[box], 400, number)
        x = x[inside(move.waiting.signs[row], signs_at(before, x))]
        if not move.is_open(clause):
            continue
        found = torch.zeros(len(x), dtype=torch.bool)
        for signs in adopted.signs[adopted.clause == clause]:
            found |= inside(signs, signs_at(after, x))
        assert bool(found.all())


def excluded(space: SignSpace, waiting: SignDomains, row: int, before: Root) -> bool:
    """Whether the bounds of a space contradict a sign of a domain: looked up neuron by neuron."""
    box = int(before.box[waiting.clause[row]])
    for kink, sign in enumerate(waiting.signs[row].tolist()):
        group, neuron = before.place(kink)
        low, high = (float(side[group - 1][box, neuron]) for side in (space.root.region.l_hat, space.root.region.u_hat))
        if (sign > 0 and high < 0) or (sign < 0 and low > 0):
            return True
    return False


@pytest.mark.usefixtures("unchecked")
@WHICH
def test_only_closed_clauses_and_contradicted_signs_are_left_out(which: Which) -> None:
    move = moved(unsafe(which), (PLAIN, PLAIN), 8)
    kept = move.adopted.number.tolist()
    for row, number in enumerate(move.waiting.number.tolist()):
        gone = not move.is_open(int(move.waiting.clause[row])) or excluded(
            move.after, move.waiting, row, move.before.root
        )
        assert (number in kept) != gone
    assert len(kept) == len(set(kept))
    assert 0 < len(kept) < len(move.waiting)  # both happen


@pytest.mark.usefixtures("unchecked")
@WHICH
def test_clauses_whose_new_bound_is_better_begin_anew(which: Which) -> None:
    """Than the worst of its domains; with fewer batches before more of them do."""
    anew = []
    for batches in (0, 8):
        move = moved(unsafe(which), (PLAIN, PLAIN), batches, False)
        for lower, clause, number in zip(
            move.begun.lower.tolist(), move.begun.clause.tolist(), move.begun.number.tolist(), strict=True
        ):
            old = move.waiting.clause == clause
            better = bool(old.any()) and lower >= float(move.waiting.lower[old].min())
            mine = set(move.adopted.number[move.adopted.clause == clause].tolist())
            assert (mine == {number}) if better else mine <= set(move.waiting.number[old].tolist())
            anew.append(better)
    assert any(anew)


def test_a_bound_that_is_no_number_is_the_worst() -> None:
    move = moved(unsafe(CASES[0]), (PLAIN, PLAIN), 8)
    nothing = torch.full_like(move.waiting.lower, torch.nan)
    adopted = move.after.adopt(replace(move.waiting, lower=nothing), move.begun, move.before)
    assert sorted(adopted.number.tolist()) == sorted(move.begun.number.tolist())
    unknown = replace(move.begun, lower=torch.full_like(move.begun.lower, torch.nan))
    assert move.after.adopt(move.waiting, unknown, move.before).number.tolist() == move.adopted.number.tolist()


@pytest.mark.usefixtures("unchecked")
@WHICH
def test_clauses_that_were_closed_stay_closed(which: Which) -> None:
    """Nothing of them waits, so the new search need not look at them again, whatever its own bounds say."""
    move = moved(unsafe(which), (PLAIN, PLAIN), 8)
    first = int(move.waiting.clause[0])
    others = move.waiting.select(move.waiting.clause != first)
    for there in (move.begun, hopeless(move.begun)):
        assert first not in move.after.adopt(others, there, move.before).clause.tolist()
        assert not len(move.after.adopt(others.select(others.clause < 0), there, move.before))


@pytest.mark.usefixtures("unchecked")
@WHICH
def test_domains_of_clauses_that_the_new_root_closes_are_left_out(which: Which) -> None:
    """The clause that gains most is moved to where only the sharper bounds close it; the others stay open."""
    problem = unsafe(which)
    loose = regions_of(problem)
    spaces = [space_over(problem, regions, PLAIN) for regions in (loose, sharper(problem, loose))]
    lower, better = (space.schedule.begin(Batch.whole(space.root), Until())[0].lower for space in spaces)
    clause = int((better - lower).argmax())
    assert better[clause] - lower[clause] > 1e-3
    margins = [-0.3] * len(which[1])
    margins[int(spaces[0].root.numbers[clause])] -= float(lower[clause] + better[clause]) / 2
    move = moved(made(which).problem(margins), (PLAIN, PLAIN), 0)
    assert clause in move.waiting.clause.tolist()
    assert sorted(move.adopted.clause.tolist()) == sorted(set(move.waiting.clause.tolist()) - {clause})


@pytest.mark.usefixtures("unchecked")
@WHICH
def test_what_is_kept_keeps_its_place(which: Which) -> None:
    """Signs, scores, slopes, multipliers and row weights, neuron by neuron."""
    move = moved(unsafe(which), (PLAIN, TWO), 5)
    before, after, adopted = move.before.root, move.after.root, move.adopted
    own, kinks, weights = places(before, after), before.kinks, before.rows.c.shape[1]
    rows = [move.waiting.number.tolist().index(number) for number in adopted.number.tolist()]
    old = move.waiting.select(torch.tensor(rows, dtype=torch.long))
    assert torch.equal(adopted.signs, old.signs[:, own])
    assert torch.equal(adopted.scores, old.scores[:, own])
    for name in ("clause", "lower", "depth", "rise"):
        assert torch.equal(getattr(adopted, name).nan_to_num(), getattr(old, name).nan_to_num())
    assert adopted.tier.eq(0).all()
    columns = [*range(weights), *(weights + k for k in own), *(weights + kinks + k for k in own)]
    width = 2 * after.kinks + weights
    assert torch.equal(adopted.variables[:, :width], old.variables[:, columns])
    assert not adopted.variables[:, width:].any()
    assert adopted.variables.shape[1] == max(climber.width for climber in move.after.schedule.climbers)


def test_domains_with_bounds_of_their_own_keep_them() -> None:
    tight = replace(PLAIN, tightening=AfterSplit())
    move = moved(unsafe(CASES[0]), (tight, tight), 5)
    own = places(move.before.root, move.after.root)
    rows = [move.waiting.number.tolist().index(number) for number in move.adopted.number.tolist()]
    assert rows
    low, high = move.waiting.bounds[rows].chunk(2, dim=1)
    assert torch.equal(move.adopted.bounds, torch.cat([low[:, own], high[:, own]], dim=1))
    counted = move.after.journal.counts.domains
    expanded(move.after, move.adopted.select(torch.arange(min(4, len(rows)))))
    assert move.after.journal.counts.domains > counted


# ---------------------------------------------------------------- what the variables are worth


def batch_of(space: SignSpace, waiting: SignDomains) -> Batch:
    return Batch(space.root, waiting.clause, waiting.signs)


def worth(space: SignSpace, waiting: SignDomains) -> torch.Tensor:
    """The bounds that the variables of domains give by themselves."""
    return space.schedule.probe(0, batch_of(space, waiting), waiting.variables.float())


@pytest.mark.usefixtures("unchecked")
@WHICH
@pytest.mark.parametrize("policy", [PLAIN, CUT], ids=["slopes", "cuts"])
def test_the_same_bounds_give_the_same_worth(which: Which, policy: Policy) -> None:
    problem = unsafe(which)
    loose = regions_of(problem)
    before = space_over(problem, loose, policy)
    waiting = begun(before, 5)
    after = space_over(problem, loose, policy)
    adopted = after.adopt(waiting, hopeless(begun(after)), before)
    assert adopted.number.tolist() == waiting.number.tolist()
    torch.testing.assert_close(worth(after, adopted), worth(before, waiting), rtol=1e-6, atol=1e-6)


def shrunk(region: Region, factor: float) -> Region:
    """The bounds of all ambiguous neurons nearer to zero.  No longer valid, but the dual function does not know."""

    def smaller(values: torch.Tensor, k: int) -> torch.Tensor:
        return torch.where(region.ambiguous(k + 1), factor * values, values)

    return replace(
        region,
        l_hat=tuple(smaller(low, k) for k, low in enumerate(region.l_hat)),
        u_hat=tuple(smaller(high, k) for k, high in enumerate(region.u_hat)),
    )


@pytest.mark.usefixtures("unchecked")
@WHICH
def test_tighter_bounds_with_the_same_kinks_lose_nothing(which: Which) -> None:
    """The slopes of all upper faces are the same and their intercepts smaller, so no bound may fall."""
    problem = unsafe(which)
    loose = regions_of(problem)
    before = space_over(problem, loose, PLAIN)
    waiting = begun(before, 5)
    after = space_over(problem, [shrunk(region, 0.9) for region in loose], PLAIN)
    first = begun(after)
    adopted = after.adopt(waiting, hopeless(first), before)
    assert after.root.kinks == before.root.kinks
    old = waiting.select(torch.isin(waiting.clause, first.clause))
    assert adopted.number.tolist() == old.number.tolist()
    assert bool((worth(after, adopted) >= worth(before, old) - 1e-5).all())


@pytest.mark.usefixtures("unchecked")
@WHICH
@pytest.mark.parametrize("policies", [(PLAIN, TWO), (CUT, CUT)], ids=["slopes", "cuts"])
def test_adopted_variables_give_valid_bounds(which: Which, policies: tuple[Policy, Policy]) -> None:
    """Below the largest row of the clause at every point of the domain; so do the bounds of the first children."""
    problem = unsafe(which)
    move = moved(problem, policies, 6)
    after, adopted = move.after, move.adopted
    assert len(adopted)
    bounds = worth(after, adopted)
    assert not bool(bounds.isnan().any())
    for row in range(len(adopted)):
        box = int(after.root.box[adopted.clause[row]])
        x = points(problem.lower[box], problem.upper[box], 300, row)
        x = x[inside(adopted.signs[row], signs_at(after.root, x))]
        rows = problem.rows[int(after.root.numbers[adopted.clause[row]])]
        g = problem.network.forward(x) @ rows.A.T - rows.c
        g = g if rows.B is None else g + x @ rows.B.T
        assert bool((g.amax(dim=1) >= float(bounds[row]) - 1e-4).all())


@pytest.mark.usefixtures("unchecked")
def test_cuts_start_from_slopes_and_slopes_from_cuts() -> None:
    """Where the other search had other cuts, their shares begin at zero; where it had more, they are dropped."""
    problem = unsafe(CASES[0])
    loose = regions_of(problem)
    plain, cut, fresh_plain, fresh_cut = (space_over(problem, loose, p) for p in (PLAIN, CUT, PLAIN, CUT))
    waiting = begun(plain, 5)
    adopted = fresh_cut.adopt(waiting, hopeless(begun(fresh_cut)), plain)
    assert adopted.variables.shape[1] > waiting.variables.shape[1]
    torch.testing.assert_close(worth(fresh_cut, adopted), worth(plain, waiting), rtol=1e-5, atol=1e-5)
    waiting = begun(cut, 5)
    adopted = fresh_plain.adopt(waiting, hopeless(begun(fresh_plain)), cut)
    weights, kinks = cut.root.rows.c.shape[1], cut.root.kinks
    assert torch.equal(adopted.variables, waiting.variables[:, : weights + 2 * kinks])


def test_where_variables_make_no_sense_everything_begins_anew() -> None:
    problem = unsafe(CASES[0])
    loose = regions_of(problem)
    before, after = (space_over(problem, loose, replace(PLAIN, ladder=Ladder((BIG_M,)))) for _ in range(2))
    waiting = begun(before, 2)
    assert len(waiting)
    first = hopeless(begun(after))
    assert after.adopt(waiting, first, before).number.tolist() == first.number.tolist()


# ---------------------------------------------------------------- trees that move


class Patient(SignSpace):
    """Takes over all domains, whatever its own first bounds are."""

    def adopt(self, domains: SignDomains, begun: SignDomains, before: Space[SignDomains, Any, Any, Any]) -> SignDomains:
        return super().adopt(domains, hopeless(begun), before)


def patient(space: SignSpace, journal: Journal) -> Patient:
    return Patient(space.root, space.policy, Until(), nobody, journal)


@pytest.mark.usefixtures("unchecked")
def test_a_tree_that_moves_keeps_its_counts_and_its_doubts() -> None:
    problem = unsafe(CASES[0])
    loose = regions_of(problem)
    before = space_over(problem, loose, PLAIN)
    tree = BranchAndBound(before, Limits())
    for _ in range(6):
        tree.step()
    domains, batches = tree.progress.domains, tree.progress.counts.batches
    tree.doubt, tree.undecided = Reason.NUMERICS, -7.0
    after = patient(space_over(problem, sharper(problem, loose), PLAIN), before.journal)
    there = BranchAndBound(after, Limits())
    there.adopt(tree)
    assert there.progress.domains == domains + 2
    assert there.progress.counts.batches == batches + 1
    assert (there.doubt, there.progress.lower) == (Reason.NUMERICS, -7.0)
    assert 0 < there.open <= tree.open
    assert there.progress.open == there.open
    assert there.progress.max_open >= tree.progress.max_open


class Fresh(SignSpace):
    """Takes over nothing."""

    def adopt(self, domains: SignDomains, begun: SignDomains, before: Space[SignDomains, Any, Any, Any]) -> SignDomains:
        return begun


@pytest.mark.usefixtures("unchecked")
def test_a_tree_that_begins_anew() -> None:
    """What was doubtful before stays so: nobody knows to which of the domains it belongs."""
    problem = unsafe(CASES[0])
    loose = regions_of(problem)
    tree = BranchAndBound(space_over(problem, loose, PLAIN), Limits())
    tree.step()
    tree.step()
    tree.doubt, tree.undecided = Reason.NUMERICS, -1e9
    there = BranchAndBound(Fresh(tree.space.root, PLAIN, Until(), nobody), Limits())
    there.adopt(tree)
    assert (there.open, there.doubt) == (2, Reason.NUMERICS)
    assert there.progress.left == 1.0
    assert there.progress.lower == -1e9


@pytest.mark.usefixtures("unchecked")
def test_a_new_root_that_decides_everything_needs_no_domains() -> None:
    """|x - 0.25| <= 0.1 on [-1, 1], with bounds that leave no kink at all: the leaf alone has the word."""
    problem = instances.problem(wedge(), UNIT, [(0, [instances.row({0: 1}, "0.1")])])
    region = regions_of(problem)[0]
    kept = Kept()
    journal = Journal([kept])
    tree = BranchAndBound(patient(space_over(problem, [region], PLAIN), journal), Limits())
    tree.step()
    assert tree.open == 1
    stable = replace(region, l_hat=(torch.zeros_like(region.l_hat[0]),))
    there = BranchAndBound(patient(space_over(problem, [stable], PLAIN), journal), Limits())
    there.adopt(tree)
    assert (there.open, there.doubt) == (0, Reason.NUMERICS)  # nobody confirms the leaf's point
    ((gone, by),) = [(event.number.tolist(), event.by.tolist()) for event in kept.of(Superseded)]
    assert (gone, by) == ([0], [1])


# ---------------------------------------------------------------- whole searches


@dataclass
class Seen:
    """How often domains were taken over, how many, and how many kinks there were before and after."""

    patient: bool = True
    domains: int = 0
    times: int = 0
    before: int = 0
    after: int = 0


@pytest.fixture
def seen(monkeypatch: pytest.MonkeyPatch) -> Seen:
    """A patient one lets the search go on with all domains that can be taken over."""
    found, usual = Seen(), SignSpace.adopt

    def watching(self: SignSpace, domains: SignDomains, begun: SignDomains, before: SignSpace) -> SignDomains:
        out = usual(self, domains, hopeless(begun) if found.patient else begun, before)
        found.times += 1
        found.domains += int(torch.isin(out.number, domains.number).sum())
        found.before, found.after = before.root.kinks, self.root.kinks
        return out

    monkeypatch.setattr(SignSpace, "adopt", watching)
    return found


@pytest.fixture
def after_batches(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Lets searches ask for sharper bounds after so many batches."""

    def patch(batches: int) -> None:
        def ready(self: Sharpener, progress: Progress) -> bool:
            return progress.counts.batches >= batches

        monkeypatch.setattr(Sharpener, "ready", ready)

    return patch


def decide(case: Case, margins: Sequence[float], policy: Policy, cores: int = 1, trees: Trees | None = None) -> Outcome:
    problem = case.problem(margins)
    whole = ProblemSearch(
        policy,
        Limits(max_domains=20000),
        LOOSE,
        sharpening=Sharpening(SHARP, after=0.0, little=0.0, trees=trees),
        splitting=Splitting.RELUS,
        cores=cores,
    )
    outcome = whole.run(problem, unbounded(problem), instances.target(problem), Clock.begin(120), ignore)
    if outcome.witness is not None:
        low, high = case.boxes[case.claims[outcome.witness.clause].box]
        instances.check(problem, outcome.witness, low.tolist(), high.tolist())
    return outcome


MEETINGS = [
    (("dense", (2, 1), False, 1, 7), "slopes", 1, 1, True),
    (("dense", (2, 1), False, 1, 7), "slopes", 2, 9, False),
    (("conv", (2,), False, 1, 0), "tightened", 1, 2, True),
    (("dense", (2, 1, 1, 2), False, 2, 9), "two tiers", 2, 4, True),
    (("residual", (1, 2, 2, 1), True, 2, 4), "cuts", 1, 5, True),
    (("residual", (1, 2, 2, 1), True, 2, 2), "two tiers", 1, 1, False),
    (("residual", (2,), False, 1, 7), "two tiers", 2, 6, True),
    (("residual", (2,), False, 1, 2), "multipliers", 1, 1, True),
]
POLICIES = {
    "slopes": PLAIN,
    "cuts": CUT,
    "two tiers": TWO,
    "tightened": replace(PLAIN, tightening=AfterSplit()),
    "multipliers": replace(PLAIN, ladder=Ladder((BIG_M,))),
}


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("which", "policy", "cores", "batches", "patient"), MEETINGS)
def test_verdicts_are_exact(
    which: Which,
    policy: str,
    cores: int,
    batches: int,
    patient: bool,
    seen: Seen,
    after_batches: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("verifier.search.parallel.WORTHWHILE", 1)
    after_batches(batches)
    seen.patient = patient
    case, safe = made(which), [GAP] * len(which[1])
    with watched() as forks:
        outcome = decide(case, safe, POLICIES[policy], cores)
        assert (outcome.witness, outcome.reason, outcome.progress.lower) == (None, None, math.inf)
        assert seen.times == 1
        assert seen.after < seen.before
        assert bool(forks.pairs) == (cores > 1)
        assert bool(seen.domains) == (policy != "multipliers") or not patient
        found = decide(case, [*safe[:-1], -GAP], POLICIES[policy], cores)
    assert found.witness is not None
    assert (found.witness.clause, found.reason) == (len(safe) - 1, None)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.slow
@pytest.mark.parametrize("batches", [1, 4])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("family", ["dense", "conv", "residual"])
def test_verdicts_are_exact_on_many(
    family: str,
    policy: str,
    batches: int,
    seen: Seen,
    after_batches: Callable[[int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("verifier.search.parallel.WORTHWHILE", 1)
    after_batches(batches)
    for seed in range(40, 44):
        seen.patient = seed < 42
        case = random_case(family, seed, (2, 1, 3), seed % 2 == 0, 1 + seed % 2)
        outcome = decide(case, [GAP] * 3, POLICIES[policy], 1 + seed % 3)
        assert (outcome.witness, outcome.reason) == (None, None)
        assert decide(case, [GAP, -GAP, GAP], POLICIES[policy], 1 + seed % 3).witness is not None


@pytest.mark.usefixtures("unchecked")
@pytest.mark.skipif(not forkable(), reason="forks work on Linux only")
def test_a_search_that_ends_before_the_second_core_needs_no_bounds(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forked, "now", lambda self: None)
    with watched() as forks:
        outcome = decide(made(("dense", (2, 1), False, 1, 1)), [GAP, GAP], PLAIN, 2)
        assert forks.pairs
    assert (outcome.witness, outcome.reason, seen.times) == (None, None, 0)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.skipif(not forkable(), reason="forks work on Linux only")
def test_a_second_core_that_is_done_at_once(seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Forked.now

    def patient(self: Forked[object]) -> object:
        while (found := usual(self)) is None:
            self.nap()
        return found

    monkeypatch.setattr(Forked, "now", patient)
    with watched() as forks:
        outcome = decide(made(("dense", (2, 1), False, 1, 7)), [GAP, GAP], PLAIN, 2)
        assert forks.pairs
    assert (outcome.witness, outcome.reason, seen.times) == (None, None, 1)


@pytest.mark.usefixtures("unchecked")
def test_limits_count_both_searches(after_batches: Callable[[int], None]) -> None:
    after_batches(3)
    problem = made(CASES[0]).problem([GAP, GAP])
    whole = ProblemSearch(PLAIN, Limits(max_batches=6), LOOSE, sharpening=Sharpening(SHARP), splitting=Splitting.RELUS)
    heard: list[Progress] = []
    whole.run(problem, unbounded(problem), instances.target(problem), Clock.begin(120), heard.append)
    assert heard[-1].counts.batches == 6
    assert [p.domains for p in heard] == sorted(p.domains for p in heard)


@pytest.mark.usefixtures("unchecked")
def test_ladders_begin_with_their_lowest_tier() -> None:
    assert TWO.ladder.lowest() == Ladder(TWO.ladder.tiers[:1])
    assert slopes(Ascent(1, Steps(0.1, 0.1)), Ascent(1, Steps(0.1, 0.1))).lowest().tiers[0].name == "alpha_crown"


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("which", "cores"),
    [
        (("dense", (2, 1), False, 1, 7), 1),
        (("residual", (1, 2, 2, 1), True, 2, 4), 2),
        pytest.param(("dense", (2, 1), False, 1, 7), 2, marks=pytest.mark.slow),
        pytest.param(("residual", (1, 2, 2, 1), True, 2, 4), 1, marks=pytest.mark.slow),
    ],
)
def test_verdicts_are_exact_when_a_tree_moves_stage_by_stage(
    which: Which, cores: int, after_batches: Callable[[int], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("verifier.search.parallel.WORTHWHILE", 1)
    monkeypatch.setattr(sharpen, "WORTH", -1.0)
    after_batches(1)
    case, safe = made(which), [GAP] * len(which[1])
    outcome = decide(case, safe, CUT, cores, STAGES)
    assert (outcome.witness, outcome.reason, outcome.progress.lower) == (None, None, math.inf)
    found = decide(case, [*safe[:-1], -GAP], CUT, cores, STAGES)
    assert found.witness is not None


def test_later_stages_of_trees_may_take_more() -> None:
    options = Sharpening(Linear(), share=0.6, tree_share=0.25)
    assert [options.share_of(stage) for stage in range(4)] == [0.6, 0.25, 0.5, 0.6]
