"""States: children start from them, and they prove what was found; kinds become each other."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import networks
import pytest
import torch
from bounding.cases import meetings
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Bound, Bounder, Objective, Region, Until
from verifier.bounding.core.state import cat
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.masks import Form
from verifier.bounding.hidden import RootBounds
from verifier.bounding.lp.bounder import CutLP, PlanetLP
from verifier.bounding.solvers.active_set import ActiveSet, Additions, OraclePoint
from verifier.bounding.solvers.alpha_crown import AlphaCrown, Slopes
from verifier.bounding.solvers.bdd_plus import BddPlus
from verifier.bounding.solvers.big_m import BigM
from verifier.bounding.solvers.crown import Linear, Slope
from verifier.bounding.solvers.lagrangian import Lagrangian
from verifier.bounding.solvers.multipliers import MultiplierVariables
from verifier.bounding.solvers.propagated import Propagated
from verifier.bounding.solvers.saddle_point import SaddlePoint
from verifier.bounding.solvers.solver import Solver, Task, Variables, converted
from verifier.network.network import Network

SHORT = Ascent(15, Steps(0.05, 0.01))
NOTHING = Ascent(0, SHORT.steps)
ACTIVE = ActiveSet(SHORT, SHORT, Additions(5, 1, 3), point=OraclePoint.AVERAGE)
SOLVERS: dict[str, Solver] = {
    "alpha_crown": AlphaCrown(SHORT),
    "propagated": Propagated.in_rounds(SHORT, SHORT, (0.5, 0.3)),
    "bdd_plus": BddPlus(15, weights=Steps(1.0, 10.0, linear=True)),
    "big_m": BigM(SHORT),
    "active_set": ACTIVE,
    "active_set_shared": replace(ACTIVE, masks=Form.SHARED),
    "saddle_point": SaddlePoint(15, initial=ActiveSet(NOTHING, SHORT, Additions(most=0)), primal_start=SHORT),
    "as_sp": SaddlePoint(15, initial=ACTIVE, primal_start=SHORT),
}
PROVING = [name for name, solver in SOLVERS.items() if solver.proves]


def stopped(solver: Solver) -> Solver:
    """The same solver without any iteration."""
    if isinstance(solver, SaddlePoint):
        return replace(solver, iterations=0, primal_start=NOTHING)
    if isinstance(solver, BddPlus):
        return replace(solver, iterations=0)
    assert isinstance(solver, AlphaCrown | BigM | ActiveSet | Propagated)
    return replace(solver, ascent=NOTHING)


def instance(family: str, seed: int, count: int = 3) -> tuple[Network, Region, Objective]:
    """A network, regions with fixed kinks, two objectives."""
    net = networks.FAMILIES[family](seed)
    lower, upper = networks.box(net, seed, 0.8, count)
    region = RootBounds().region(net, lower, upper, Until())
    kinks = Sweep.prepare(net, region, len(net.layers)).kinks
    splits = tuple(torch.zeros_like(low, dtype=torch.int8) for low in region.l_hat)
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(1, 2, net.n_out, generator=generator, dtype=torch.float64)
    region = replace(region, kinks=tuple(k.index for k in kinks), splits=splits)
    return net, region, Objective(len(net.layers), weights)


def child(region: Region, seed: int, signs: int = 3) -> Region:
    """Some ambiguous neurons of every region get a sign."""
    generator = torch.Generator().manual_seed(seed)
    low, high = [t.clone() for t in region.l_hat], [t.clone() for t in region.u_hat]
    assert region.splits is not None
    splits = [t.clone() for t in region.splits]
    for k in range(1, region.known + 1):
        for d in range(region.count):
            free = torch.nonzero(region.ambiguous(k)[d]).flatten()
            for neuron in free[torch.randperm(len(free), generator=generator)[:signs]].tolist():
                sign = int(torch.randint(0, 2, (), generator=generator)) * 2 - 1
                splits[k - 1][d, neuron] = sign
                (low if sign > 0 else high)[k - 1][d, neuron] = 0.0
    return replace(region, l_hat=tuple(low), u_hat=tuple(high), splits=tuple(splits))


def task_of(net: Network, region: Region, objective: Objective) -> Task:
    return Task(Sweep.prepare(net, region, objective.layer), objective)


def state(found: Bound) -> Variables:
    assert isinstance(found.state, Variables)
    return found.state


def went_on(solver: Solver, task: Task, parent: Variables) -> Bound:
    return solver.solve(task, solver.init(task, parent), Until())


@meetings(PROVING)
def test_a_state_gives_back_its_bound(family: str, solver: str) -> None:
    """Evaluated, and as the start of a run without iterations."""
    net, region, objective = instance(family, 7)
    first = SOLVERS[solver].bound(net, region, objective, Until())
    task = task_of(net, region, objective)
    torch.testing.assert_close(state(first).lower(task), first.lower, rtol=0, atol=1e-9)
    again = went_on(stopped(SOLVERS[solver]), task, state(first))
    torch.testing.assert_close(again.lower, first.lower, rtol=0, atol=1e-9)
    assert again.iterations == 0


@cache
def program_of_child(family: str, seed: int, cuts: bool) -> torch.Tensor:
    """What several solvers are compared with."""
    net, region, objective = instance(family, seed, count=1)
    reference: Bounder = CutLP(rounds=10) if cuts else PlanetLP()
    return reference.bound(net, child(region, seed), objective, Until()).lower


@meetings([*SOLVERS])
@given(seed=st.integers(0, 2**16))
@settings(max_examples=2)
def test_children_start_validly_from_their_parents(family: str, solver: str, seed: int) -> None:
    """Never above their own linear program, which needs the parent's masks to stay valid for them."""
    net, region, objective = instance(family, seed, count=1)
    parent = SOLVERS[solver].bound(net, region, objective, Until())
    below = child(region, seed)
    task = task_of(net, below, objective)
    program = program_of_child(family, seed, solver not in ("alpha_crown", "bdd_plus", "big_m")) + 2e-3
    assert bool((state(parent).lower(task) <= program).all())
    for kept in (state(parent), state(parent).to(torch.float16)):
        warm = went_on(SOLVERS[solver], task, kept)
        start = went_on(stopped(SOLVERS[solver]), task, kept)
        assert bool((warm.lower <= program).all())
        assert bool((warm.lower >= start.lower - 1e-9).all())


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("solver", ["active_set", "saddle_point"])
def test_children_resume_with_the_steps_of_big_m(family: str, solver: str) -> None:
    """Without iterations of their own, both are Big-M from the parent's multipliers."""
    net, region, objective = instance(family, 3)
    parent = state(BigM(SHORT).bound(net, region, objective, Until()))
    task = task_of(net, child(region, 3), objective)
    chosen = SOLVERS[solver]
    assert isinstance(chosen, ActiveSet | SaddlePoint)
    resumed = stopped(chosen.resuming(15)).resume(task, Until(), parent)
    initial = chosen if isinstance(chosen, ActiveSet) else chosen.initial
    big_m = BigM(replace(initial.initial, iterations=15))
    expected = big_m.resume(task, Until(), parent)
    torch.testing.assert_close(resumed.lower, expected.lower, rtol=0, atol=1e-9)
    found = state(resumed)
    assert isinstance(found, MultiplierVariables)
    multipliers = found.point if found.origin is None else found.origin
    torch.testing.assert_close(multipliers, state(expected).point, rtol=0, atol=1e-12)
    assert resumed.iterations == expected.iterations == 15
    at_once = stopped(chosen).resume(task, Until(), parent)
    assert at_once.iterations == 0
    assert bool((resumed.lower > at_once.lower).any())


def agreeing(region: Region, dual: Lagrangian, point: torch.Tensor, seed: int) -> Region:
    """Fix neurons to signs that let their x_hat keep its coefficient alpha - beta1.

    A blocking neuron's is the split's multiplier, which is not negative; a passing one's is what its output costs less
    that multiplier.  With beta0 = 0 that suffices exactly where the inner minimiser has x = 0.
    """
    generator = torch.Generator().manual_seed(seed)
    low, high = [t.clone() for t in region.l_hat], [t.clone() for t in region.u_hat]
    splits = [torch.zeros_like(t, dtype=torch.int8) for t in low]
    for k, (kinks, at, x) in enumerate(zip(dual.sweep.kinks, dual.views(point), dual.evaluate(point).x, strict=True)):
        for d, a in torch.nonzero(kinks.ambiguous[:, 0]).tolist():
            wanted = int(torch.randint(-1, 2, (), generator=generator))
            may_pass, may_block = bool((x[d, :, a] == 0).all()), bool((at.alpha >= at.beta1)[d, :, a].all())
            sign = wanted if (wanted > 0 and may_pass) or (wanted < 0 and may_block) else 0
            splits[k][d, kinks.index[a]] = sign
            if sign != 0:
                (low if sign > 0 else high)[k][d, kinks.index[a]] = 0.0
    return replace(region, l_hat=tuple(low), u_hat=tuple(high), splits=tuple(splits))


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("solver", ["big_m", "active_set", "saddle_point"])
@given(seed=st.integers(0, 2**16))
@settings(max_examples=8)
def test_a_split_that_agrees_with_the_prices_takes_nothing_away(family: str, solver: str, seed: int) -> None:
    """The child's start is the parent's bound and what the fixed neurons' relaxations have cost."""
    net, region, objective = instance(family, seed)
    dual = Lagrangian(Sweep.prepare(net, region, objective.layer), objective)
    point = torch.rand(dual.zero().shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    for at in dual.views(point):
        at.beta0.zero_()
        at.split.zero_()
    below = agreeing(region, dual, point, seed)
    start = went_on(stopped(SOLVERS[solver]), task_of(net, below, objective), MultiplierVariables(point))
    assert bool((start.lower >= dual.evaluate(point).lower - 1e-9).all())


def test_settled_multipliers_stay_as_they_are() -> None:
    net, region, objective = instance("residual", 3)
    parent = state(ACTIVE.bound(net, region, objective, Until()))
    task = task_of(net, child(region, 3), objective)
    once = ACTIVE.init(task, parent)
    assert not torch.equal(once.point, parent.point)
    assert torch.equal(ACTIVE.init(task, once).point, once.point)


@pytest.mark.parametrize("solver", SOLVERS)
def test_states_can_be_selected_and_put_together(solver: str) -> None:
    net, region, objective = instance("residual", 5)
    whole = state(SOLVERS[solver].bound(net, region, objective, Until()))
    task = task_of(net, region, objective)
    values = whole.lower(task)
    rows = torch.tensor([2, 0, 2])
    chosen = task_of(net, region.select(rows), objective)
    torch.testing.assert_close(whole.select(rows).lower(chosen), values[rows])
    first, second = whole.select(torch.tensor([2])), whole.select(torch.tensor([0, 2]))
    torch.testing.assert_close(cat([first, second]).lower(chosen), values[rows])
    parts = [whole.part(i, i + 1) for i in range(2)]
    torch.testing.assert_close(parts[1].lower(task.part(1, 2)), values[:, 1:])
    torch.testing.assert_close(cat(parts, dim=1).lower(task), values)


@pytest.mark.parametrize("solver", SOLVERS)
def test_half_of_the_precision_is_close(solver: str) -> None:
    net, region, objective = instance("conv", 4)
    whole = state(SOLVERS[solver].bound(net, region, objective, Until()))
    task = task_of(net, region, objective)
    torch.testing.assert_close(whole.to(torch.float16).lower(task), whole.lower(task), rtol=0, atol=2e-2)


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("solver", ["big_m", "active_set", "saddle_point"])
def test_slopes_become_multipliers_of_the_same_value(family: str, solver: str) -> None:
    net, region, objective = instance(family, 9)
    below = child(region, 9)
    slopes = SOLVERS["alpha_crown"].bound(net, below, objective, Until())
    task = task_of(net, below, objective)
    start = went_on(stopped(SOLVERS[solver]), task, converted(task, state(slopes), "multipliers"))
    torch.testing.assert_close(start.lower, slopes.lower, rtol=0, atol=1e-9)


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_slopes_become_shares_and_shares_slopes(family: str) -> None:
    net, region, objective = instance(family, 9)
    task = task_of(net, region, objective)
    slopes = state(SOLVERS["alpha_crown"].bound(net, region, objective, Until()))
    shares = state(SOLVERS["propagated"].bound(net, region, objective, Until()))
    assert torch.equal(converted(task, slopes, "shares").lower(task), slopes.lower(task))
    left = converted(task, shares, "slopes")
    assert isinstance(left, Slopes)
    assert torch.equal(left.point, shares.point[..., : left.point.shape[-1]])
    assert bool((left.lower(task) <= PlanetLP().bound(net, region, objective, Until()).lower + 1e-9).all())


@meetings(["alpha_crown", "propagated", "big_m", "active_set"])
@given(seed=st.integers(0, 2**16))
@settings(max_examples=3)
def test_pairs_lose_nothing_of_what_is_converted_to_them_or_back(family: str, solver: str, seed: int) -> None:
    """The hull of a ReLU is all that multipliers without cuts can speak of; signs of splits are met on the way."""
    net, region, objective = instance(family, seed)
    task = task_of(net, child(region, seed), objective)
    plain = converted(task, state(SOLVERS[solver].begin(task, Until())), "multipliers")
    assert isinstance(plain, MultiplierVariables)
    known = plain.without_cuts().lower(task)
    pairs = converted(task, plain, "pairs")
    assert bool((pairs.lower(task) >= known - 1e-9).all())
    back = converted(task, pairs, "multipliers")
    assert bool((back.lower(task) >= known - 1e-9).all())
    program = PlanetLP().bound(net, task.sweep.region, objective, Until()).lower
    assert bool((back.lower(task) <= program + 1e-8).all())


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=3)
def test_children_of_pairs_begin_no_lower_than_their_parents_and_wong_kolter(family: str, seed: int) -> None:
    """The hulls of a child are parts of its parent's, so the parent's multipliers give it no less."""
    net, region, objective = instance(family, seed)
    parent = SOLVERS["bdd_plus"].bound(net, region, objective, Until())
    below = child(region, seed)
    task = task_of(net, below, objective)
    start = stopped(SOLVERS["bdd_plus"]).resume(task, Until(), state(parent)).lower
    assert bool((start >= parent.lower - 1e-9).all())
    assert bool((start >= Linear(Slope.PARALLEL).bound(net, below, objective, Until()).lower - 1e-9).all())
    assert bool((SOLVERS["bdd_plus"].resume(task, Until(), state(parent)).lower >= start).all())


def test_states_of_tighter_solvers_start_looser_ones_but_not_alpha_crown() -> None:
    net, region, objective = instance("dense", 2)
    task = task_of(net, region, objective)
    for solver in ("active_set", "as_sp"):
        tight = state(SOLVERS[solver].bound(net, region, objective, Until()))
        loose = went_on(BigM(SHORT), task, tight)
        assert bool((loose.lower <= PlanetLP().bound(net, region, objective, Until()).lower + 1e-9).all())
        with pytest.raises(TypeError, match="slopes"):
            AlphaCrown(SHORT).begin(task, Until(), tight)


def test_masks_are_inherited_and_count_towards_the_most() -> None:
    net, region, objective = instance("conv", 8)
    old = state(ACTIVE.bound(net, region, objective, Until()))
    more = replace(ACTIVE, additions=Additions(5, 1, 5))
    new = state(went_on(more, task_of(net, child(region, 8), objective), old))
    assert (old.masks.count, new.masks.count) == (3, 5)
    for before, after in zip(old.masks.cuts, new.masks.cuts, strict=False):
        for a, b in zip(before, after, strict=True):
            assert a is not None
            assert b is not None
            assert torch.equal(a.bits, b.bits)


def test_children_need_no_initial_ascent() -> None:
    net, region, objective = instance("dense", 6)
    task = task_of(net, region, objective)
    for solver in (replace(ACTIVE, ascent=NOTHING), SOLVERS["saddle_point"]):
        cold = solver.bound(net, region, objective, Until())
        assert cold.iterations == 15 + (15 if isinstance(solver, SaddlePoint) else 0)
        assert went_on(solver, task, state(cold)).iterations == cold.iterations - 15
