"""Splits at points: children cover their parents, multipliers of bounds are valid, verdicts are those of the oracle."""

from __future__ import annotations

from dataclasses import replace

import networks
import pytest
import torch
from falsify import instances
from search.boxes.deciding import replayed
from search.cases import BIG_M, begun, grow, ignore, nobody, root_of, slopes, unbounded, values_at
from search.mixed import GAP, MixedCase, mixed_case

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.hidden import RootBounds, Sharpened
from verifier.bounding.solvers.alpha_crown import AlphaCrown, SlopeDual
from verifier.bounding.solvers.big_m import BigM
from verifier.bounding.solvers.solver import Certified, Task, variables_of
from verifier.branching.babsr import BaBSR
from verifier.clock import Clock
from verifier.errors import InputError
from verifier.functions import PRODUCT, RELU, Function
from verifier.functions.sigmoids import Sigmoid, Tanh
from verifier.network.network import Affine, Network
from verifier.operators import Dense
from verifier.search.domains import Outcome
from verifier.search.journal import Journal, Listener, Split
from verifier.search.ladder import Ladder
from verifier.search.loop import Limits
from verifier.search.problem import ProblemSearch, Splitting
from verifier.search.sharpen import Sharpening
from verifier.search.signs.points import halves, points, shares, wide
from verifier.search.signs.root import Batch, Root
from verifier.search.signs.space import Policy, SignDomains, SignSpace
from verifier.search.signs.tighten import AfterSplit

pytestmark = pytest.mark.usefixtures("unchecked")

INTERVALS = Policy(tightening=AfterSplit(RootBounds(None)))
FEW = replace(INTERVALS, ladder=slopes(Ascent(4, Steps(0.1, 0.1)), Ascent(2, Steps(0.1, 0.1))), fill=4)
SEEDS = (3, 7)


def curved_root(seed: int, kinds: tuple[Function, ...] = (RELU, Sigmoid(), Tanh(), PRODUCT)) -> Root:
    """A clause that bounds do not close, on a network with at least one group that has no ReLUs."""
    net = networks.mixed(seed, (2, 4, 3, 4, 2), kinds)
    lower, upper = networks.box(net, seed, 1.0)
    rows = [instances.row({0: 1}, 1000.0)]  # all of the box is unsafe: nothing is ever closed
    box = instances.boxes(lower.tolist(), upper.tolist())
    return root_of(instances.problem(net, box, [(0, rows)]))


def open_domains(space: SignSpace, steps: int) -> SignDomains:
    return begun(space, steps)


def batch_of(space: SignSpace, some: SignDomains) -> Batch:
    return Batch(space.root, some.clause, some.signs, some.bounds)


def contains(batch: Batch, x: torch.Tensor) -> torch.Tensor:
    """Which domains [D] hold which points [P]: [D, P]."""
    low, high = batch.cut()
    at = values_at(batch.root, x)
    return ((at >= low.unsqueeze(1)) & (at <= high.unsqueeze(1))).all(dim=2)


def samples(root: Root, count: int, seed: int) -> torch.Tensor:
    return networks.points(root.region.lower, root.region.upper, count, seed)[:, 0]


# ------------------------------------------------------------ intervals and their halves


def test_points_are_inside_of_the_intervals_and_halves_meet_there() -> None:
    generator = torch.Generator().manual_seed(0)
    low = torch.randn(40, 9, generator=generator) * 10.0 ** torch.randint(-20, 20, (40, 9), generator=generator)
    high = low + low.abs() * 10.0 ** (-9 * torch.rand(40, 9, generator=generator))
    share = shares(low, high, low + 3 * (high - low) * (torch.rand(40, 9, generator=generator) - 0.5)).half()
    bounds = torch.cat([low, high], dim=1)
    at = points(bounds, share)
    may = wide(low.double(), high.double())
    assert bool(may.any())
    assert not bool(may.all())
    assert bool(((low < at) & (at < high))[may].all())
    side = torch.where(torch.arange(9) % 2 == 0, 1, -1).to(torch.int8).expand(40, 9)
    one, other = halves(bounds, side, at).chunk(2, dim=1), halves(bounds, -side, at).chunk(2, dim=1)
    assert torch.equal(torch.minimum(one[0], other[0]), low)
    assert torch.equal(torch.maximum(one[1], other[1]), high)
    assert torch.equal(torch.maximum(one[0], other[0]), torch.minimum(one[1], other[1]))


def test_nothing_is_split_that_has_no_width_or_too_much_of_it() -> None:
    low = torch.tensor([[1.0, 1.0, -torch.inf, -1e38, 0.0, 2.0]], dtype=torch.float64)
    high = torch.tensor([[1.0, 1.0 + 1e-7, 0.0, 1e38, 1e-3, 1.0]], dtype=torch.float64)
    assert wide(low, high).tolist() == [[False, False, False, False, True, False]]


# ------------------------------------------------------------ children


@pytest.mark.parametrize("seed", SEEDS)
def test_children_cover_their_parents_and_relus_alone_have_signs(seed: int) -> None:
    root = curved_root(seed)
    space = SignSpace(root, FEW, Until(), nobody)
    parents = open_domains(space, 4)
    children = space.split(parents).batch
    x = samples(root, 500, seed)
    mine = contains(batch_of(space, parents), x)
    assert bool(mine.any(dim=0).all())  # nothing is closed, so every point is somewhere
    made = contains(children, x)
    assert bool(made.any(dim=0)[mine.any(dim=0)].all())
    assert root.curved is not None
    assert not bool(children.signs[:, root.curved].any())
    low, high = children.cut()
    whole_low, whole_high = root.bounds()
    narrower = ((low > whole_low) | (high < whole_high))[:, root.curved]
    assert bool(narrower.any(dim=1).all())
    assert bool((children.depth > 4).all())


@pytest.mark.parametrize("seed", SEEDS)
def test_tightened_bounds_hold_at_all_points_of_a_domain(seed: int) -> None:
    root = curved_root(seed)
    for tightening in (AfterSplit(RootBounds(None)), AfterSplit(RootBounds())):
        space = SignSpace(root, replace(FEW, tightening=tightening), Until(), nobody)
        brood = space.split(open_domains(space, 3))
        x = samples(root, 400, seed)
        before, after = contains(brood.batch, x), contains(space.tighten(brood).batch, x)
        assert torch.equal(before, after)


class Heard(Listener):
    """Keeps where domains were split."""

    def __init__(self) -> None:
        self.splits: list[Split] = []

    def note(self, event: object) -> None:
        if isinstance(event, Split):
            self.splits.append(event)

    def keep(self, note: object) -> None:
        raise AssertionError


def test_the_journal_hears_group_entry_side_and_point() -> None:
    heard, root = Heard(), curved_root(SEEDS[0])
    space = SignSpace(root, replace(INTERVALS, fill=2), Until(), nobody, Journal([heard]))
    begun(space, 2)
    places = heard.splits[-1].places()
    (first,), (second,) = places
    group, entry, _, point = first
    assert second[:2] == (group, entry)
    assert {first[2], second[2]} == {-1, 1}
    assert second[3] == point
    index = int(root.places.tolist().index([group, entry]))
    low, high = root.bounds()
    assert float(low[0, index]) < point < float(high[0, index])


# ------------------------------------------------------------ multipliers


def straight(function: Function) -> Network:
    """y = x[0], beside a group that reads x[0] and that nobody needs."""
    zero = torch.zeros(1, dtype=torch.float64)
    one = torch.ones(1, 1, dtype=torch.float64)
    entries = torch.ones(function.arity, 1, dtype=torch.float64)
    none = torch.zeros(function.arity, dtype=torch.float64)
    group = Affine("group", (function.arity,), ((0, Dense(entries)),), none, none, function)
    output = Affine("output", (1,), ((0, Dense(one)), (1, Dense(0 * one))), zero, zero)
    return Network((1,), (group,), output)


@pytest.mark.parametrize("function", [Sigmoid(), Tanh(), PRODUCT], ids=lambda function: function.name)
@pytest.mark.parametrize(("side", "exact"), [(1.0, 0.25), (-1.0, -0.5)])
def test_a_bound_of_a_neuron_bounds_what_it_reads(function: Function, side: float, exact: float) -> None:
    """0.25 <= t <= 0.5 with t = x, -1 <= x <= 1: the least value of x is 0.25, that of -x is -0.5; without it, -1."""
    net = straight(function)
    box = -torch.ones(1, 1, dtype=torch.float64), torch.ones(1, 1, dtype=torch.float64)
    l_hat = torch.full((1, function.arity), 0.25, dtype=torch.float64)
    u_hat = torch.full((1, function.arity), 0.5, dtype=torch.float64)
    splits = (torch.zeros(1, function.arity, dtype=torch.int8),)
    region = Region(*box, (l_hat,), (u_hat,), (function,), splits=splits)
    objective = Objective(2, torch.full((1, 1, 1), side, dtype=torch.float64))
    task = Task(Sweep.prepare(net, region, 2), objective)
    found = AlphaCrown(Ascent(120, Steps(0.2, 1e-3))).begin(task, Until())
    assert float(SlopeDual(task.sweep, objective).evaluate(SlopeDual(task.sweep, objective).start()).lower) <= -1.0
    rigorous = float(variables_of(found).lower(task))
    assert rigorous <= exact
    assert rigorous == pytest.approx(exact, abs=2e-3)


@pytest.mark.parametrize("seed", SEEDS)
def test_bounds_with_any_multipliers_hold_at_all_points_of_a_domain(seed: int) -> None:
    root = curved_root(seed)
    space = SignSpace(root, FEW, Until(), nobody)
    batch = batch_of(space, open_domains(space, 4))
    task = batch.task(torch.float64)
    dual, x = SlopeDual(task.sweep, task.objective), samples(root, 3000, seed)
    generator = torch.Generator().manual_seed(seed)
    start = dual.start()
    point = start + torch.randn(start.shape, generator=generator, dtype=start.dtype)
    dual.project(point)
    assert bool((point[..., dual.kinks :] < 0).any())
    inside = contains(batch, x)
    y = root.net.forward(x)
    value = (y @ task.objective.coefficients[:, 0].T).T + task.objective.constant[:, :1]
    least = torch.where(inside, value, torch.inf).amin(dim=1)
    assert bool((least < torch.inf).any())
    assert bool((dual.evaluate(point).lower[:, 0] <= least).all())


@pytest.mark.parametrize("seed", SEEDS)
def test_supergradients_are_those_of_finite_differences(seed: int) -> None:
    root = curved_root(seed)
    space = SignSpace(root, FEW, Until(), nobody)
    task = batch_of(space, open_domains(space, 3).select(slice(0, 2))).task(torch.float64)
    dual = SlopeDual(task.sweep, task.objective)
    generator = torch.Generator().manual_seed(seed)
    start = dual.start()
    point = start + 0.3 * torch.randn(start.shape, generator=generator, dtype=start.dtype)
    dual.project(point)
    gradient = dual.supergradient(point, dual.evaluate(point))
    step, wrong, tried = 1e-7, 0, 0
    for v in range(dual.kinks, dual.variables):
        up, down = point.clone(), point.clone()
        up[..., v] += step
        down[..., v] -= step
        difference = (dual.evaluate(up).lower - dual.evaluate(down).lower) / (2 * step)
        smooth = point[..., v].abs() > 1e-3  # else at the border, or where the multiplier changes its sign
        tried += int(smooth.sum())
        near = torch.isclose(difference, gradient[..., v], rtol=1e-4, atol=1e-5 * float(gradient.abs().max()))
        wrong += int((smooth & ~near).sum())
    assert tried > 10
    assert wrong <= 0.02 * tried  # there are kinks


# ------------------------------------------------------------ verdicts


def decide(case: MixedCase, moved: float, policy: Policy, limit: int) -> Outcome:
    problem = case.problem(moved)
    offer = replayed(instances.target(problem))
    return grow(root_of(problem), policy, offer, Limits(max_domains=limit), Until(Clock.begin(60)))


def check(case: MixedCase, policy: Policy, limit: int) -> bool:
    """No verdict is wrong; whether the safe instance was closed."""
    safe = decide(case, case.low - GAP, policy, limit)
    assert safe.witness is None
    unsafe = decide(case, case.high + GAP, policy, limit)
    assert unsafe.witness is not None or unsafe.reason is not None
    return safe.reason is None


def decided(seeds: range, limit: int) -> tuple[int, int]:
    """Of so many cases, so many were closed."""
    cases = [case for seed in seeds if (case := mixed_case(seed)) is not None and not case.net.piecewise_linear]
    policies = (Policy(), INTERVALS, Policy(tightening=AfterSplit(RootBounds())))
    return len(cases), sum(check(case, policies[k % 3], limit) for k, case in enumerate(cases))


def test_verdicts_are_those_of_the_oracle() -> None:
    count, closed = decided(range(600, 605), 300)
    assert count >= 3
    assert closed >= 2


@pytest.mark.slow
@pytest.mark.parametrize("first", range(700, 1100, 40))
def test_verdicts_are_those_of_the_oracle_on_many(first: int) -> None:
    count, closed = decided(range(first, first + 40), 1000)
    assert count >= 25
    assert closed >= 0.7 * count


def test_the_whole_search_splits_signs_and_points_in_turns() -> None:
    case = next(case for seed in range(630, 660) if (case := mixed_case(seed)) and not case.net.piecewise_linear)
    for moved, sat in ((case.low - GAP, False), (case.high + GAP, True)):
        problem = case.problem(moved)
        whole = ProblemSearch(INTERVALS, Limits(max_domains=5000), splitting=Splitting.RELUS)
        outcome = whole.run(problem, unbounded(problem), instances.target(problem), Clock.begin(60), ignore)
        assert outcome.witness is None or sat
        assert outcome.reason is not None or (outcome.witness is not None) == sat


# ------------------------------------------------------------ other searches


@pytest.mark.parametrize("seed", SEEDS)
def test_domains_move_to_the_same_bounds_unchanged(seed: int) -> None:
    """Slopes are those of neurons, multipliers those of entries of x_hat: nothing gets out of place."""
    root = curved_root(seed)
    first, second = (SignSpace(root, FEW, Until(), nobody) for _ in range(2))
    waiting = open_domains(first, 3)
    open_domains(second, 1)
    moved = second._moved(waiting, first)
    assert moved is not None
    assert first.schedule.widths == [sum(root.neurons) + root.kinks + 1]
    for name in ("variables", "bounds", "shares", "scores", "signs"):
        assert torch.equal(getattr(moved, name), getattr(waiting, name))


def test_a_search_with_sharper_bounds_and_one_of_two_processes_agree_with_the_oracle() -> None:
    case = next(case for seed in range(630, 660) if (case := mixed_case(seed)) and not case.net.piecewise_linear)
    problem = case.problem(case.low - GAP)
    sharpening = Sharpening(Certified(AlphaCrown(Ascent(4, Steps(0.1, 0.05)))), after=0.0)
    plain = ProblemSearch(FEW, Limits(max_domains=3000), splitting=Splitting.RELUS)
    for search in (replace(plain, sharpening=sharpening), replace(plain, cores=2)):
        outcome = search.run(problem, unbounded(problem), instances.target(problem), Clock.begin(60), ignore)
        assert outcome.witness is None


@pytest.mark.parametrize(
    ("search", "word"),
    [
        (ProblemSearch(Policy(Ladder((BIG_M,)))), "the tier 'big_m'"),
        (ProblemSearch(Policy(brancher=BaBSR())), "the branching rule BaBSR"),
        (ProblemSearch(splitting=Splitting.MIP), "a mixed-integer program"),
        (ProblemSearch(intermediate=Sharpened(RootBounds(), BigM())), "the bounder of hidden neurons"),
    ],
    ids=["tier", "branching", "mip", "hidden"],
)
def test_methods_that_know_relus_only_are_refused(search: ProblemSearch, word: str) -> None:
    search.check(networks.dense(0, (2, 3, 2)))
    ProblemSearch().check(networks.mixed(0, (2, 3, 2), (Sigmoid(),)))
    with pytest.raises(InputError) as error:
        search.check(networks.mixed(0, (2, 3, 2), (Sigmoid(),)))
    assert str(error.value) == f"{word} knows ReLUs only, but group 1 of the network ('mixed0') applies Sigmoid"
