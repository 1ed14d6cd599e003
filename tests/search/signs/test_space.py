"""The tree of signs as a whole: limits, rounding, doubt, odd instances, and that nothing depends on luck."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import pytest
import torch
from falsify import instances
from search.cases import (
    STILL,
    UNIT,
    Late,
    decide,
    domains_of,
    grow,
    hard,
    narrow,
    patterns,
    random_case,
    root_of,
    slopes,
    unsigned,
    wedge,
)

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Until
from verifier.bounding.rows import Conjunction
from verifier.bounding.solvers.alpha_crown import of_rows
from verifier.branching.base import Brancher, View
from verifier.branching.intercept import Intercept
from verifier.clock import Clock
from verifier.network.network import Network
from verifier.property.problem import Problem
from verifier.result.verdict import Reason
from verifier.search.domains import Progress
from verifier.search.loop import Limits
from verifier.search.offers import Offers
from verifier.search.signs.root import Root
from verifier.search.signs.space import Brood, Policy


def timeless(progress: Progress) -> Progress:
    """The same without the seconds."""
    return replace(progress, counts=replace(progress.counts, seconds=0.0))


# ---------------------------------------------------------------- batches, repetition


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("family", ["dense", "conv", "residual"])
def test_bounding_a_batch_of_domains_equals_bounding_each(family: str) -> None:
    root = root_of(random_case(family, 3, (2, 1, 3), mixed=True, boxes=2).problem([0.1, 0.1, 0.1]))
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(-1, 2, (7, root.kinks), generator=generator, dtype=torch.int8)
    batch = domains_of(root, signs, torch.arange(7) % 3)
    ascent = Ascent(12, Steps(0.2, 0.05))

    def climbed(rows: torch.Tensor) -> torch.Tensor:
        some = batch.select(rows)
        dual = of_rows(some.sweep(torch.float64), some.rows(torch.float64))
        return ascent.run(dual, dual.best_start(), Until()).lower

    together = climbed(torch.arange(7))
    for k in range(7):
        torch.testing.assert_close(climbed(torch.tensor([k]))[0], together[k], rtol=0, atol=1e-9)


@pytest.mark.usefixtures("unchecked")
def test_the_same_search_twice_grows_the_same_tree() -> None:
    first, second = (decide(hard(), Policy(batch=32, fill=16)) for _ in range(2))
    assert timeless(first.progress) == timeless(second.progress)
    assert first.progress.counts.batches > 3


@pytest.mark.usefixtures("unchecked")
def test_a_small_memory_changes_the_order_but_not_the_answer() -> None:
    usual, squeezed = (decide(hard(), narrow(8), limits=Limits(room)) for room in (2**20, 1))
    assert (squeezed.witness, squeezed.reason) == (usual.witness, usual.reason) == (None, None)
    assert squeezed.progress.max_open < usual.progress.max_open
    assert decide(hard(-1e-3), narrow(8), limits=Limits(1)).witness is not None


@pytest.mark.usefixtures("unchecked")
def test_few_domains_are_split_several_levels_at_once() -> None:
    """So that batches are full: far fewer of them, for nearly as many domains."""
    one, several = (decide(hard(), replace(narrow(64), fill=fill)).progress for fill in (1, 64))
    assert several.counts.batches < 0.7 * one.counts.batches
    assert several.domains < 3 * one.domains


# ---------------------------------------------------------------- limits and progress


@pytest.mark.usefixtures("unchecked")
def test_the_limit_of_domains_ends_with_the_bound_so_far() -> None:
    for most in (1, 20, 60):
        outcome = decide(hard(), narrow(8), limits=Limits(max_domains=most))
        assert (outcome.witness, outcome.reason) == (None, Reason.LIMIT)
        assert most <= outcome.progress.domains < most + 8
        assert -10 < outcome.progress.lower <= 0
        assert outcome.progress.open > 0


@pytest.mark.usefixtures("unchecked")
def test_the_limit_of_batches_ends_with_the_bound_so_far() -> None:
    bounds = []
    for most in (1, 3, 9):
        outcome = decide(hard(), narrow(8), limits=Limits(max_batches=most))
        assert (outcome.reason, outcome.progress.counts.batches) == (Reason.LIMIT, most)
        bounds.append(outcome.progress.lower)
    assert -10 < bounds[0] < bounds[1] < bounds[2] <= 0


@pytest.mark.usefixtures("unchecked")
def test_bounds_do_not_fall_while_the_search_goes_on() -> None:
    heard: list[Progress] = []
    outcome = grow(root_of(hard()), narrow(4), report=heard.append)
    assert outcome.reason is None
    assert outcome.progress == heard[-1]
    bounds = [progress.lower for progress in heard]
    assert all(a <= b for a, b in itertools.pairwise(bounds))
    assert bounds[-1] == math.inf
    assert all(progress.open <= progress.max_open for progress in heard)
    assert [p.domains for p in heard] == sorted(p.domains for p in heard)
    assert [p.counts.batches for p in heard] == list(range(1, len(heard) + 1))


@pytest.mark.usefixtures("unchecked")
def test_every_domain_is_counted_once() -> None:
    """A binary tree has one node more below than above: 2 children for every domain that was split."""
    counts = grow(root_of(hard()), narrow(4)).progress.counts
    assert list(counts.tiers) == ["alpha_crown"]
    assert counts.domains % 2 == 1
    assert 0 < counts.leaves < counts.tiers["alpha_crown"]
    assert counts.seconds > 0
    assert counts.iterations >= counts.batches


def test_improvements_count_per_level() -> None:
    """Two levels at once, one level, a bound that fell, and the root, where nothing was split."""
    root = root_of(instances.problem(wedge(), UNIT, [(0, [instances.row({0: 1}, -1)])]))
    kinks = torch.tensor([[0, 1], [0, -1], [1, -1], [-1, -1]])
    number, lower = torch.arange(4), torch.full((4,), -4.0)
    rise = torch.tensor([math.nan, 2.0, 2.0, math.nan])
    brood = Brood(domains_of(root, torch.zeros(4, 2)), number, kinks, lower, rise, torch.zeros(4, 0), 0)
    found = brood.risen(torch.tensor([-1.0, -3.0, -5.0, -1.0]))
    assert found[:3].tolist() == [1.5, 1.5, 1.0]
    assert math.isnan(found[3])


def test_known_bounds_of_the_whole_box_are_kept() -> None:
    root = root_of(hard()).knowing(torch.tensor([-1e-4], dtype=torch.float64))
    outcome = grow(root, limits=Limits(max_domains=1))
    assert outcome.progress.lower == pytest.approx(-1e-4)


@pytest.mark.parametrize("looks", [0, 40])
def test_a_deadline_is_kept_and_leaves_a_bound(looks: int) -> None:
    problem = random_case("conv", 0, (1,) * 12).problem([1e-7] * 12)  # far too many domains, one at a time
    outcome = decide(problem, narrow(2), clock=Late(looks), bounded=True)
    assert (outcome.witness, outcome.reason) == (None, Reason.TIMEOUT)
    assert outcome.progress.counts.batches <= looks
    assert -10 < outcome.progress.lower <= 0


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(("bound", "end"), [("-0.001", None), ("0.5", Reason.NUMERICS)])
@pytest.mark.parametrize("fill", [1, 64])
def test_time_that_runs_out_in_a_leaf_is_a_timeout(bound: str, end: Reason | None, fill: int) -> None:
    """Neither a doubt nor a proof: with enough time the first is proved, and the second, unconfirmed, is doubtful."""
    problem = instances.problem(wedge(), UNIT, [(0, [instances.row({0: 1}, bound)])])
    policy = Policy(slopes(STILL, STILL), fill=fill)
    reasons = []
    for looks in range(0, 40, 2):
        outcome = grow(unsigned(root_of(problem)), policy, until=Until(Late(looks)))
        assert (outcome.progress.lower == math.inf) == (outcome.reason is None)
        reasons.append(outcome.reason)
    late = reasons.count(Reason.TIMEOUT)
    assert 2 <= late < 20
    assert reasons == [Reason.TIMEOUT] * late + [end] * (20 - late)


# ---------------------------------------------------------------- rounding and doubt


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("offset", [0.25, 0.1, 1 / 3])
@pytest.mark.parametrize("strict", [False, True])
def test_a_minimum_of_exactly_zero_is_never_unsat(offset: float, strict: bool) -> None:
    problem = instances.problem(wedge(offset), UNIT, [(0, [instances.row({0: 1}, 0, strict=strict)])])
    outcome = decide(problem)
    assert outcome.witness is not None or outcome.reason is Reason.NUMERICS
    assert not (strict and outcome.witness is not None and outcome.witness.y[0] >= 0)
    # A model that disagrees with the network confirms nothing: what is left is doubt.
    judge = instances.target(problem, shift=1.0)
    doubtful = grow(root_of(problem), offer=Offers(None, judge, Clock.begin()))
    assert (doubtful.witness, doubtful.reason) == (None, Reason.NUMERICS)
    assert doubtful.progress.open == 0
    assert -1e-6 < doubtful.progress.lower <= 0


def test_a_leaf_that_touches_the_unsafe_set_is_doubtful() -> None:
    """At the leaf x >= 1/4 of the wedge the row x - 1/4 <= 0 holds at one point only, and nobody confirms it."""
    problem = instances.problem(wedge(), UNIT, [(0, [instances.row({0: 1}, 0)])])
    assert grow(root_of(problem)).reason is Reason.NUMERICS
    above = instances.problem(wedge(), UNIT, [(0, [instances.row({0: 1}, "-0.000000001")])])
    assert grow(root_of(above)).reason is None


def far(margin: str) -> Problem:
    """y = x + 1000.00005 and y <= 1000.00005, for x >= margin: float32 has no digits left for what matters."""
    hidden = instances.layer("hidden", 0, [[1.0], [-1.0]], [0.0, 0.0])
    net = Network((1,), (hidden,), instances.layer("out", 1, [[1.0, -1.0]], [1000.00005]))
    return instances.problem(net, instances.boxes([[margin]], [[1]]), [(0, [instances.row({0: 1}, 1000.00005)])])


@dataclass(frozen=True, eq=False)
class OptimisticRows(Conjunction):
    """Bounds of these rows are too high in float32: by one unit of float32 at 1000, or by more."""

    excess: float = 6.2e-5

    def select(self, rows: torch.Tensor) -> OptimisticRows:
        return OptimisticRows(**{**vars(super().select(rows)), "excess": self.excess})

    def to(self, dtype: torch.dtype) -> Conjunction:
        moved = super().to(dtype)
        return moved if dtype is torch.float64 else replace(moved, c=moved.c - self.excess)


def optimistic(root: Root, excess: float = 6.2e-5) -> Root:
    return replace(root, rows=OptimisticRows(**vars(root.rows), excess=excess))


def test_a_float32_bound_closes_nothing() -> None:
    root = optimistic(root_of(far("-0.00001")))
    whole = domains_of(root, torch.zeros(1, root.kinks))
    dual = of_rows(whole.sweep(), whole.rows())
    climbed = Ascent(60, Steps(0.2, 0.01)).run(dual, dual.best_start(), Until())
    assert float(climbed.lower) > 1e-5  # more than any threshold in the search
    outcome = grow(root)
    assert outcome.reason is Reason.NUMERICS
    assert outcome.progress.lower <= 0


def test_optimism_of_float32_does_not_stop_a_proof() -> None:
    assert grow(optimistic(root_of(far("0.000001")))).reason is None


@pytest.mark.usefixtures("unchecked")
def test_ascents_go_on_after_float32_was_too_optimistic() -> None:
    """Else they would all stop at once, prove nothing, and twice as many leaves would be left."""
    root = root_of(hard())
    usual, misled = (grow(each, Policy(batch=16, fill=16)) for each in (root, optimistic(root, 0.05)))
    assert usual.reason is misled.reason is None
    assert misled.progress.counts.leaves <= 1.3 * usual.progress.counts.leaves


def test_weights_that_overflow_in_float32() -> None:
    """Bounds in float32 are no numbers here; the domains must stay open.  The row holds at x = (-1, -1)."""
    hidden = instances.layer("hidden", 0, [[1e39, 0.0], [0.0, 1.0]], [0.0, 0.0])
    net = Network((2,), (hidden,), instances.layer("out", 1, [[1.0, 1.0]], [0.0]))
    problem = instances.problem(net, instances.boxes([[-1, -1]], [[1, 1]]), [(0, [instances.row({0: 1}, "0.5")])])
    outcome = decide(problem)
    assert outcome.witness is not None or outcome.reason is Reason.NUMERICS


def test_a_kink_too_small_for_float32_is_split_and_the_search_ends() -> None:
    """Between -1e-60 and 1e-60 a neuron is ambiguous in float64 and stable in float32."""
    hidden = instances.layer("hidden", 0, [[1e-60, 0.0], [0.0, 1.0], [0.0, -1.0]], [0.0, 0.0, 0.0])
    net = Network((2,), (hidden,), instances.layer("out", 1, [[1e60, 1.0, 1.0], [0.0, 0.0, 0.0]], [0.0, 0.0]))
    box = instances.boxes([[-1, -1]], [[1, 1]])
    # y_0 = relu(x_0) + |x_1| >= 0; the relaxation needs both kinks.
    safe = instances.problem(net, box, [(0, [instances.row({0: 1}, "-0.001")])])
    assert root_of(safe).kinks == 3
    limits = Limits(max_domains=500)
    assert decide(safe, limits=limits).reason in (None, Reason.NUMERICS)
    touched = instances.problem(net, box, [(0, [instances.row({0: 1}, 0)])])
    outcome = decide(touched, limits=limits)
    assert outcome.witness is not None or outcome.reason is Reason.NUMERICS


# ---------------------------------------------------------------- branching rules that give no hint


class Blunt(Brancher):
    """Has no opinion, or nonsense."""

    def __init__(self, value: float) -> None:
        self.value = value

    def scores(self, view: View) -> torch.Tensor:
        return torch.full_like(Intercept().scores(view), self.value)


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, -math.inf])
def test_useless_scores_cost_time_but_no_verdict(value: float) -> None:
    policy, limits = Policy(brancher=Blunt(value), batch=16, fill=16), Limits(max_domains=20000)
    case = random_case("dense", 3, (1, 2))
    safe = decide(case.problem([1e-3, 1e-3]), policy, limits=limits)
    assert (safe.witness, safe.reason) == (None, None)
    assert decide(case.problem([1e-3, -1e-3]), policy, limits=limits).witness is not None


# ---------------------------------------------------------------- odd instances


def test_an_affine_network_is_decided_at_once() -> None:
    """x_0 + x_1 <= -t and -x_0 - x_1 <= -t: both hold together if and only if t <= 0."""
    box = instances.boxes([[-1, -1]], [[1, 1]])
    for bound, expected in (("-0.001", False), ("0.001", True)):
        rows = [instances.row({0: 1, 1: 1}, bound), instances.row({0: -1, 1: -1}, bound)]
        outcome = decide(instances.problem(instances.identity(2), box, [(0, rows)]))
        assert (outcome.witness is not None) == expected
        assert outcome.reason is None
        assert (outcome.progress.domains, outcome.progress.counts.batches) == (1, 1)


def test_stable_neurons_leave_a_single_leaf() -> None:
    net = wedge(-5.0)  # x + 5 > 0 everywhere
    for bound, expected in (("3.999", False), ("4.001", True)):
        outcome = decide(instances.problem(net, UNIT, [(0, [instances.row({0: 1}, bound)])]))
        assert (outcome.witness is not None) == expected
        assert outcome.progress.domains == 1


def test_a_clause_without_rows_holds_everywhere() -> None:
    outcome = decide(instances.problem(wedge(), UNIT, [(0, [instances.row({0: 1}, -1)]), (0, [])]))
    assert outcome.witness is not None
    assert outcome.witness.clause == 1


def test_a_box_that_is_a_point() -> None:
    point = instances.boxes([["0.5"]], [["0.5"]])
    assert decide(instances.problem(wedge(), point, [(0, [instances.row({0: 1}, "0.24")])])).reason is None
    assert decide(instances.problem(wedge(), point, [(0, [instances.row({0: 1}, "0.25")])])).witness is not None


def test_all_signs_of_a_wedge_are_visited() -> None:
    """With bounds that never improve every sign pattern ends in a leaf or is closed on the way."""
    problem = instances.problem(wedge(), UNIT, [(0, [instances.row({0: 1}, "-0.001")])])
    outcome = grow(unsigned(root_of(problem)), Policy(slopes(STILL, STILL), batch=1, fill=1))
    assert outcome.reason is None
    assert outcome.progress.counts.leaves <= len(patterns(2))
    assert outcome.progress.domains >= 3
