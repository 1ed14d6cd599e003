"""The search as a whole: limits, doubt, rounding, odd instances, and that nothing depends on luck."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace

import pytest
import torch
from falsify import instances
from search.cases import decide, ignore, patterns, random_case, root_of

from verifier.bounding.ascent import Ascent, Steps
from verifier.bounding.base import Until
from verifier.bounding.clauses import ClauseBounds
from verifier.bounding.conjunction import ConjunctionDual
from verifier.bounding.sweep import Sweep, Trace
from verifier.branching.base import Brancher
from verifier.branching.intercept import Intercept
from verifier.clock import Clock
from verifier.network.network import Network
from verifier.property.canonical import Problem
from verifier.result.counterexample import Counterexample
from verifier.result.verdict import Reason
from verifier.search.boxes import BoxSearch, as_they_are
from verifier.search.engine import Outcome, Policy, Progress, search
from verifier.search.root import Root

UNIT = instances.boxes([[-1]], [[1]])


def nobody(x: torch.Tensor, clauses: torch.Tensor) -> Counterexample | None:
    """A falsifier that never finds anything."""


def wedge(offset: float = 0.25) -> Network:
    """y = |x - offset|."""
    hidden = instances.layer("hidden", 0, [[1.0], [-1.0]], [-offset, offset])
    return Network((1,), (hidden,), instances.layer("out", 1, [[1.0, 1.0]], [0.0]))


def hard(margin: float = 1e-3, rows: int = 3) -> Problem:
    """Hundreds of domains with the default policy."""
    return random_case("residual", 1, (rows,)).problem([margin])


# ---------------------------------------------------------------- batches, repetition


@pytest.mark.parametrize("family", ["dense", "conv", "residual"])
def test_bounding_a_batch_of_domains_equals_bounding_each(family: str) -> None:
    root = root_of(random_case(family, 3, (2, 1, 3), mixed=True).problem([0.1, 0.1, 0.1]))
    generator = torch.Generator().manual_seed(0)
    signs = torch.randint(-1, 2, (7, root.kinks), generator=generator, dtype=torch.int8)
    clause = torch.arange(7) % 3
    ascent = Ascent(12, Steps(0.2, 0.05))
    together = root.dual(signs, clause, torch.float64)
    found = ascent.run(together, together.best_start(), Until())
    for k in range(7):
        alone = root.dual(signs[k : k + 1], clause[k : k + 1], torch.float64)
        lower = ascent.run(alone, alone.best_start(), Until()).lower
        torch.testing.assert_close(lower[0], found.lower[k], rtol=0, atol=1e-9)


@pytest.mark.usefixtures("unchecked")
def test_the_same_search_twice_grows_the_same_tree() -> None:
    first, second = (decide(hard(), Policy(batch=32)) for _ in range(2))
    assert first.progress == second.progress
    assert first.progress.batches > 3


@pytest.mark.usefixtures("unchecked")
def test_a_small_memory_changes_the_order_but_not_the_answer() -> None:
    usual, squeezed = (decide(hard(), Policy(batch=8, memory_bytes=room)) for room in (2**20, 1))
    assert (squeezed.witness, squeezed.reason) == (usual.witness, usual.reason) == (None, None)
    assert squeezed.progress.max_open <= usual.progress.max_open
    assert decide(hard(-1e-3), Policy(batch=8, memory_bytes=1)).witness is not None


# ---------------------------------------------------------------- limits


@pytest.mark.usefixtures("unchecked")
def test_the_limit_of_domains_ends_with_the_bound_so_far() -> None:
    exact = 1e-3
    for most in (1, 20, 60):
        outcome = decide(hard(exact), Policy(batch=8, max_domains=most))
        assert (outcome.witness, outcome.reason) == (None, Reason.LIMIT)
        assert most <= outcome.progress.domains < most + 8
        assert -10 < outcome.progress.lower <= 0
        assert outcome.progress.open > 0


@pytest.mark.usefixtures("unchecked")
def test_bounds_do_not_fall_while_the_search_goes_on() -> None:
    heard: list[Progress] = []
    problem = hard()
    root = root_of(problem)
    outcome = search(root, Policy(batch=4), Until(), nobody, heard.append)
    assert outcome.reason is None
    bounds = [progress.lower for progress in heard]
    assert all(a <= b for a, b in itertools.pairwise(bounds))
    assert bounds[-1] == math.inf
    assert all(progress.open <= progress.max_open for progress in heard)
    assert [p.domains for p in heard] == sorted(p.domains for p in heard)


def test_known_bounds_of_the_whole_box_are_kept() -> None:
    root = root_of(hard())
    known = torch.tensor([-1e-4], dtype=torch.float64)
    outcome = search(replace(root, known=known), Policy(max_domains=1), Until(), nobody)
    assert outcome.progress.lower == pytest.approx(-1e-4)


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_a_deadline_is_kept_and_leaves_a_bound(seconds: float) -> None:
    problem = random_case("conv", 0, (1,) * 12).problem([1e-7] * 12)  # far too many domains, one at a time
    start = time.monotonic()
    outcome = decide(problem, Policy(batch=2), clock=Clock.begin(seconds), bounded=True)
    assert time.monotonic() - start < seconds + 1
    assert (outcome.witness, outcome.reason) == (None, Reason.TIMEOUT)
    assert -10 < outcome.progress.lower <= 0


class Late(Clock):
    """Expires after some looks at it, so that time can run out anywhere in a search."""

    def __init__(self, looks: int) -> None:
        super().__init__(time.monotonic())
        object.__setattr__(self, "looks", iter(range(looks)))

    def expired(self) -> bool:
        return next(self.looks, None) is None  # type: ignore[attr-defined]


@pytest.mark.parametrize(("bound", "end"), [("-0.001", None), ("0.5", Reason.NUMERICS)])
def test_time_that_runs_out_in_a_leaf_is_a_timeout(bound: str, end: Reason | None) -> None:
    """Neither a doubt nor a proof: with enough time the first is proved, and the second, unconfirmed, is doubtful."""
    problem = instances.problem(wedge(), UNIT, [(0, [instances.row({0: 1}, bound)])])
    still = Ascent(0, Steps(0.1, 0.1))  # the bounds close little, so that much depends on the leaves
    reasons = []
    for looks in range(0, 40, 2):
        outcome = search(root_of(problem), Policy(still, still), Until(Late(looks)), nobody)
        assert (outcome.progress.lower == math.inf) == (outcome.reason is None)
        reasons.append(outcome.reason)
    late = reasons.count(Reason.TIMEOUT)
    assert 2 <= late < 20
    assert reasons == [Reason.TIMEOUT] * late + [end] * (20 - late)


# ---------------------------------------------------------------- rounding and doubt


@pytest.mark.parametrize("offset", [0.25, 0.1, 1 / 3])
@pytest.mark.parametrize("strict", [False, True])
def test_a_minimum_of_exactly_zero_is_never_unsat(offset: float, strict: bool) -> None:
    problem = instances.problem(wedge(offset), UNIT, [(0, [instances.row({0: 1}, 0, strict=strict)])])
    outcome = decide(problem)
    assert outcome.witness is not None or outcome.reason is Reason.NUMERICS
    assert not (strict and outcome.witness is not None and outcome.witness.y[0] >= 0)
    # A model that disagrees with the network confirms nothing: what is left is doubt.
    judge = instances.arena(problem, shift=1.0)
    root = root_of(problem)
    doubtful = search(root, Policy(), Until(), lambda x, k: as_they_are(judge, x.float(), k))
    assert (doubtful.witness, doubtful.reason) == (None, Reason.NUMERICS)
    assert doubtful.progress.open == 0
    assert -1e-6 < doubtful.progress.lower <= 0


def test_a_leaf_that_touches_the_unsafe_set_is_doubtful() -> None:
    """At the leaf x >= 1/4 of the wedge the row x - 1/4 <= 0 holds at one point only, and nobody confirms it."""
    problem = instances.problem(wedge(), UNIT, [(0, [instances.row({0: 1}, 0)])])
    assert search(root_of(problem), Policy(), Until(), nobody).reason is Reason.NUMERICS
    above = instances.problem(wedge(), UNIT, [(0, [instances.row({0: 1}, "-0.000000001")])])
    assert search(root_of(above), Policy(), Until(), nobody).reason is None


def far(margin: str) -> Problem:
    """y = x + 1000.00005 and y <= 1000.00005, for x >= margin: float32 has no digits left for what matters."""
    hidden = instances.layer("hidden", 0, [[1.0], [-1.0]], [0.0, 0.0])
    net = Network((1,), (hidden,), instances.layer("out", 1, [[1.0, -1.0]], [1000.00005]))
    return instances.problem(net, instances.boxes([[margin]], [[1]]), [(0, [instances.row({0: 1}, 1000.00005)])])


class OptimisticRoot(Root):
    """Its float32 bounds are too high: by one unit of float32 at 1000, or by more."""

    excess = 6.2e-5

    def dual(self, signs: torch.Tensor, clause: torch.Tensor, dtype: torch.dtype = torch.float32) -> ConjunctionDual:
        dual = super().dual(signs, clause, dtype)
        return dual if dtype is torch.float64 else replace(dual, rows=replace(dual.rows, c=dual.rows.c - self.excess))


class VeryOptimisticRoot(OptimisticRoot):
    excess = 0.05


def test_a_float32_bound_closes_nothing() -> None:
    root = OptimisticRoot(**vars(root_of(far("-0.00001"))))
    dual = root.dual(torch.zeros(1, root.kinks, dtype=torch.int8), torch.tensor([0]))
    climbed = Ascent(20, Steps(0.2, 0.02)).run(dual, dual.start(), Until())
    assert float(climbed.lower) > 1e-5  # more than any threshold in the search
    outcome = search(root, Policy(), Until(), nobody)
    assert outcome.reason is Reason.NUMERICS
    assert outcome.progress.lower <= 0


def test_optimism_of_float32_does_not_stop_a_proof() -> None:
    assert search(OptimisticRoot(**vars(root_of(far("0.000001")))), Policy(), Until(), nobody).reason is None


@pytest.mark.usefixtures("unchecked")
def test_ascents_go_on_after_float32_was_too_optimistic() -> None:
    """Else they would all stop at once, prove nothing, and twice as many leaves would be left."""
    root = root_of(hard())
    usual = search(root, Policy(batch=16), Until(), nobody)
    misled = search(VeryOptimisticRoot(**vars(root)), Policy(batch=16), Until(), nobody)
    assert usual.reason is misled.reason is None
    assert misled.progress.leaves <= 1.3 * usual.progress.leaves


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
    limited = Policy(max_domains=500)
    assert decide(safe, limited).reason in (None, Reason.NUMERICS)
    touched = instances.problem(net, box, [(0, [instances.row({0: 1}, 0)])])
    outcome = decide(touched, limited)
    assert outcome.witness is not None or outcome.reason is Reason.NUMERICS


# ---------------------------------------------------------------- branching rules that give no hint


class Blunt(Brancher):
    """Has no opinion, or nonsense."""

    def __init__(self, value: float) -> None:
        self.value = value

    def scores(self, sweep: Sweep, trace: Trace) -> torch.Tensor:
        return torch.full_like(Intercept().scores(sweep, trace), self.value)


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, -math.inf])
def test_useless_scores_cost_time_but_no_verdict(value: float) -> None:
    policy = Policy(brancher=Blunt(value), batch=16, max_domains=20000)
    case = random_case("dense", 3, (1, 2))
    safe = decide(case.problem([1e-3, 1e-3]), policy)
    assert (safe.witness, safe.reason) == (None, None)
    assert decide(case.problem([1e-3, -1e-3]), policy).witness is not None


# ---------------------------------------------------------------- odd instances


def test_an_affine_network_is_decided_at_once() -> None:
    """x_0 + x_1 <= -t and -x_0 - x_1 <= -t: both hold together if and only if t <= 0."""
    box = instances.boxes([[-1, -1]], [[1, 1]])
    for bound, expected in (("-0.001", False), ("0.001", True)):
        rows = [instances.row({0: 1, 1: 1}, bound), instances.row({0: -1, 1: -1}, bound)]
        outcome = decide(instances.problem(instances.identity(2), box, [(0, rows)]))
        assert (outcome.witness is not None) == expected
        assert outcome.reason is None
        assert (outcome.progress.domains, outcome.progress.leaves, outcome.progress.batches) == (1, 1, 0)


def test_stable_neurons_leave_a_single_leaf() -> None:
    net = wedge(-5.0)  # x + 5 > 0 everywhere
    for bound, expected in (("3.999", False), ("4.001", True)):
        outcome = decide(instances.problem(net, UNIT, [(0, [instances.row({0: 1}, bound)])]))
        assert (outcome.witness is not None) == expected
        assert outcome.progress.leaves == 1


def test_a_clause_without_rows_holds_everywhere() -> None:
    outcome = decide(instances.problem(wedge(), UNIT, [(0, [instances.row({0: 1}, -1)]), (0, [])]))
    assert outcome.witness is not None
    assert outcome.witness.clause == 1


def test_a_box_that_is_a_point() -> None:
    point = instances.boxes([["0.5"]], [["0.5"]])
    assert decide(instances.problem(wedge(), point, [(0, [instances.row({0: 1}, "0.24")])])).reason is None
    assert decide(instances.problem(wedge(), point, [(0, [instances.row({0: 1}, "0.25")])])).witness is not None


# ---------------------------------------------------------------- several boxes


def boxed(margins: list[float]) -> Problem:
    """Four clauses on two boxes."""
    return random_case("residual", 2, (1, 2, 2, 1), boxes=2).problem(margins)


def test_clauses_of_closed_bounds_are_not_searched() -> None:
    outcome = decide(boxed([50.0, 50.0, 50.0, 50.0]), bounded=True)
    assert outcome == Outcome(None, None, Progress())


def test_a_witness_in_the_last_box_is_found() -> None:
    outcome = decide(boxed([1e-3, 1e-3, 1e-3, -1e-3]))
    assert outcome.witness is not None
    assert outcome.witness.clause == 3


@pytest.mark.usefixtures("unchecked")
def test_the_limit_counts_the_domains_of_all_boxes() -> None:
    whole = decide(boxed([1e-3] * 4), Policy(batch=4), bounded=True).progress.domains
    assert whole > 12
    for most in (2, whole // 2, whole - 4):  # the last batch may end beyond the limit
        outcome = decide(boxed([1e-3] * 4), Policy(batch=4, max_domains=most), bounded=True)
        assert outcome.reason is Reason.LIMIT
        assert outcome.progress.domains < most + 4
        assert -20 < outcome.progress.lower <= 0
    assert decide(boxed([1e-3] * 4), Policy(batch=4, max_domains=whole + 1), bounded=True).reason is None


def test_points_are_offered_for_their_own_clauses() -> None:
    problem = boxed([1e-3] * 4)
    seen: set[int] = set()

    def watch(x: torch.Tensor, clauses: torch.Tensor) -> None:
        assert bool(((problem.lower[1] - 1e-6 <= x) & (x <= problem.upper[1] + 1e-6)).all())
        assert len(x) == len(clauses)
        seen.update(clauses.tolist())

    search(root_of(problem, box=1), Policy(batch=4), Until(), watch)
    assert seen == {1, 3}


def test_doubt_in_one_box_does_not_hide_a_witness_in_the_next() -> None:
    box = instances.boxes([[-1], [-1]], [[1], [1]])
    touching, holds = instances.row({0: 1}, 0, strict=True), instances.row({0: 1}, "0.5")
    doubt = instances.problem(wedge(), box, [(0, [touching]), (1, [instances.row({0: 1}, -1)])])
    outcome = decide(doubt)
    assert (outcome.witness, outcome.reason) == (None, Reason.NUMERICS)
    assert -1e-6 < outcome.progress.lower <= 0
    assert decide(instances.problem(wedge(), box, [(0, [touching]), (1, [holds])])).witness is not None


def test_boxes_that_wait_count_in_the_bound() -> None:
    problem = boxed([1e-3, 5.0, 1e-3, 5.0])
    heard: list[Progress] = []
    assert problem.clauses_of == ((0, 2), (1, 3))
    clauses = ClauseBounds(torch.tensor([-0.5, 1.0, -7.0, -9.0], dtype=torch.float64), {}, {})
    BoxSearch(Policy(batch=4)).run(problem, clauses, instances.arena(problem), Clock.begin(60), heard.append)
    assert heard[0].lower == -9.0
    stopped = BoxSearch(Policy(max_domains=1)).run(problem, clauses, instances.arena(problem), Clock.begin(60), ignore)
    assert (stopped.reason, stopped.progress.lower) == (Reason.LIMIT, -9.0)


def test_all_signs_of_a_wedge_are_visited() -> None:
    """With bounds that never improve every sign pattern ends in a leaf or is closed on the way."""
    problem = instances.problem(wedge(), UNIT, [(0, [instances.row({0: 1}, "-0.001")])])
    still = Ascent(0, Steps(0.1, 0.1))
    outcome = search(root_of(problem), Policy(still, still, batch=1), Until(), nobody)
    assert outcome.reason is None
    assert outcome.progress.leaves <= len(patterns(2))
    assert outcome.progress.domains >= 3
