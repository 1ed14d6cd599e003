"""Tiers at work: domains that share the memory of their box, cuts that are dropped, variables of other climbers."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cache

import networks
import pytest
import torch
from falsify import instances
from search.cases import (
    CUTS,
    GAP,
    STILL,
    UNIT,
    decide,
    domains_of,
    inside,
    patterns,
    random_case,
    root_of,
    signs_at,
    unsigned,
)

from verifier.bounding import HIDDEN
from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Region, Until
from verifier.bounding.core.state import is_repeated, tree_map
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.masks import CutMasks
from verifier.bounding.solvers import propagated
from verifier.bounding.solvers.propagated import PropagatedDual
from verifier.bounding.solvers.solver import Task
from verifier.network.network import Network
from verifier.search import rungs
from verifier.search.ladder import Ladder
from verifier.search.signs.root import Batch, Root
from verifier.search.signs.space import Policy
from verifier.search.tiers import Climbed, Climber, Tier

FIRST, SCOUT, THEN = Ascent(25, Steps(0.1, 0.02)), Ascent(15, Steps(0.1, 0.03)), Ascent(4, Steps(0.1, 0.05))
TIERS = {
    "slopes": rungs.slopes(FIRST, THEN),
    "one": rungs.cuts(FIRST, THEN, (0.5,), SCOUT),
    "two": rungs.cuts(FIRST, THEN, (0.5, None), SCOUT),
    "learned": rungs.cuts(FIRST, THEN, (0.5,), SCOUT, learn=True),
}
CASES = [("dense", 4), ("residual", 1), ("conv", 1)]
"""Three, three and two groups with several kinks each."""


@cache
def root_over(family: str, seed: int, counts: tuple[int, ...] = (1, 2)) -> Root:
    """One box."""
    case = random_case(family, seed, counts, mixed=True)
    return unsigned(root_of(case.problem([GAP] * len(counts))))


def domains(root: Root, where: str) -> Batch:
    """All signs of some kinks, for all clauses: of none, of the last group with some, or of all groups."""
    sizes = root.sizes
    starts = [sum(sizes[:k]) for k in range(len(sizes))]
    groups = [k for k, size in enumerate(sizes) if size]
    kinks = {"none": [], "last": [starts[groups[-1]]], "all": [starts[k] + sizes[k] - 1 for k in groups]}[where]
    some = patterns(len(kinks)) if kinks else torch.zeros(3, 0, dtype=torch.int8)
    signs = torch.zeros(len(some) * root.clauses, root.kinks, dtype=torch.int8)
    signs[:, kinks] = some.repeat(root.clauses, 1)
    return domains_of(root, signs, torch.arange(root.clauses).repeat_interleave(len(some)))


def on_its_own(batch: Batch, dtype: torch.dtype) -> Task:
    """The task of domains of one box that share no memory."""
    root, rows = batch.root, torch.zeros(len(batch), dtype=torch.long)
    double = dtype is torch.float64
    low, high = (side.to(dtype) for side in batch.cut())
    region = (root.region if double else root.rough).select(rows).with_kinks(low, high, batch.signs)
    assert region.splits is not None
    assert not any(map(is_repeated, (region.lower, *region.l_hat, *region.u_hat, *region.splits)))
    slacks = tuple(slack[rows] for slack in root.slacks) if double else None
    return Task.of_rows(
        Sweep.prepare(root.net if double else root.single, region, root.layer, slacks), batch.rows(dtype)
    )


def least_rows(batch: Batch, count: int = 2000) -> torch.Tensor:
    """The least of the largest rows at sampled points of each domain, infinite where none was met."""
    root = batch.root
    x = networks.points(root.region.lower, root.region.upper, count, 9)[:, 0]
    at, y, rows = signs_at(root, x), root.net.forward(x), batch.rows(torch.float64)
    found = []
    for d in range(len(batch)):
        g = y @ rows.A[d].T - rows.c[d]
        if rows.B is not None:
            g = g + x @ rows.B[d].T
        mine = g.masked_fill(~rows.present[d], -torch.inf).amax(dim=1)[inside(batch.signs[d], at)]
        found.append(mine.min() if len(mine) else torch.tensor(torch.inf))
    return torch.stack(found)


def begun_anew(tier: Tier, root: Root) -> tuple[Climber, Climbed]:
    climber = tier.climber(root)
    return climber, climber.begin(Batch.whole(root), None, Until())


_begun = cache(begun_anew)


def begun(tier: Tier, root: Root) -> tuple[Climber, Climbed]:
    """A climber that has bounded the whole boxes, and may be changed; what it found."""
    climber, found = _begun(tier, root)
    return copy(climber), found


# ---------------------------------------------------------------- memory that domains share


@pytest.mark.parametrize("where", ["none", "last", "all"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("family", "seed"), CASES)
def test_groups_without_splits_are_held_once(family: str, seed: int, dtype: torch.dtype, where: str) -> None:
    root = root_over(family, seed)
    batch = domains(root, where)
    region, own = batch.region(dtype), on_its_own(batch, dtype).sweep.region
    assert region.splits is not None
    assert own.splits is not None
    for name in ("l_hat", "u_hat", "splits"):
        for k, (mine, others) in enumerate(zip(getattr(region, name), getattr(own, name), strict=True)):
            assert torch.equal(mine, others)
            assert is_repeated(mine) == (not bool(own.splits[k].any())), (name, k)
    assert is_repeated(region.lower)


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("where", ["none", "last", "all"])
@pytest.mark.parametrize(("family", "seed"), CASES)
def test_bounds_of_domains_are_those_of_domains_on_their_own(family: str, seed: int, where: str, tier: str) -> None:
    """From given variables, in both precisions; in double precision they are valid, and that of the cover is exact."""
    root = root_over(family, seed)
    batch, (climber, whole) = domains(root, where), begun(TIERS[tier], root)
    rows = batch.clause
    state = replace(whole.state.select(rows), masks=climber._masks(batch))
    for dtype, close in ((torch.float32, 1e-6), (torch.float64, 1e-12)):
        shared, alone = batch.task(dtype), on_its_own(batch, dtype)
        own = replace(state, masks=climber.masks.select(rows))
        found, expected = state.lower(shared), own.lower(alone)
        torch.testing.assert_close(found, expected, rtol=close, atol=close)
        if dtype is torch.float64:
            assert bool((found[:, 0] <= least_rows(batch)).all())
            for clause in range(root.clauses):
                assert float(found[rows == clause].min()) <= GAP + 1e-9


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("where", ["last", "all"])
@pytest.mark.parametrize(("family", "seed"), CASES)
def test_gradients_over_domains_are_those_of_domains_on_their_own(
    family: str, seed: int, where: str, tier: str
) -> None:
    """With one clause all domains have the same masks, too; and nobody writes to what they share."""
    root = root_over(family, seed, (2,))
    batch, (climber, whole) = domains(root, where), begun(TIERS[tier], root)
    before = [tree_map(torch.clone, each) for each in (root.region, root.rough, climber.masks)]
    start = whole.variables[batch.clause]
    assert all(is_repeated(group.bits) for cut in climber._masks(batch).cuts for group in cut if group is not None)
    state = replace(climber._state(start), masks=climber.masks.select(batch.clause))
    for dtype, close in ((torch.float32, 1e-6), (torch.float64, 1e-12)):
        gradients = []
        for task, each in (
            (batch.task(dtype), replace(state, masks=climber._masks(batch))),
            (on_its_own(batch, dtype), state),
        ):
            dual = each.dual(task)
            point = each.start(task, dual)
            gradients.append(dual.supergradient(point, dual.evaluate(point)))
        torch.testing.assert_close(*gradients, rtol=close, atol=close)
    probed = climber.probe(batch, start)
    torch.testing.assert_close(probed, state.lower(on_its_own(batch, torch.float32))[:, 0], rtol=1e-6, atol=1e-6)
    found = climber.climb(batch, start, Until())
    assert bool((found.lower >= probed - 1e-6).all())
    sure = found.proof.lower(batch.task(torch.float64))[:, 0]
    assert bool((sure <= least_rows(batch)).all())
    torch.testing.assert_close(sure.float(), found.lower, rtol=1e-4, atol=1e-4)
    trace = found.retrace(torch.tensor([1, 0, 1]))
    torch.testing.assert_close(trace.lower[:, 0], found.lower[[1, 0, 1]], rtol=1e-5, atol=1e-5)
    for old, new in zip(before, (root.region, root.rough, climber.masks), strict=True):
        tree_map(lambda a, b: torch.testing.assert_close(a, b, rtol=0, atol=0) or a, old, new)


def bits(masks: CutMasks) -> list[torch.Tensor]:
    return [group.bits for cut in masks.cuts for group in cut if group is not None]


# ---------------------------------------------------------------- cuts that are dropped


@pytest.mark.parametrize("least", [0.05, 0.4, 0.9])
@pytest.mark.parametrize(("family", "seed"), CASES)
def test_a_tree_goes_on_with_the_cuts_that_are_left(
    family: str, seed: int, least: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = root_over(family, seed)
    monkeypatch.setattr(propagated, "LEAST", -torch.inf)
    every, all_cuts = begun_anew(TIERS["two"], root)
    monkeypatch.setattr(propagated, "LEAST", least)
    climber, whole = begun_anew(TIERS["two"], root)
    task, state = Batch.whole(root).task(), all_cuts.state
    dual = PropagatedDual.of(task.geometries, task.objective, state.masks)
    gained = dual.gained(task.weighted(state.weights), state.point)
    share = gained / gained.sum(dim=1, keepdim=True)
    worth = {k for row in share[gained.sum(dim=1) > 0].tolist() for k, part in enumerate(row) if part >= least}
    assert climber.masks.groups == (worth or every.masks.groups)
    sizes = [root.sizes[k] for _, k in climber.masks.places]
    weights = root.rows.c.shape[1]
    assert whole.variables.shape[1] == weights + 2 * root.kinks + sum(sizes) <= climber.width
    assert whole.state.masks.places == climber.masks.places
    first = Batch.whole(root)
    assert bool((whole.proof.lower(first.task(torch.float64))[:, 0] <= GAP + 1e-9).all())
    batch = domains(root, "all")
    found = climber.climb(batch, whole.variables[batch.clause], Until())
    sure = found.proof.lower(batch.task(torch.float64))[:, 0]
    torch.testing.assert_close(sure.float(), found.lower, rtol=1e-4, atol=1e-4)
    assert bool((sure <= least_rows(batch)).all())


# ---------------------------------------------------------------- variables of another climber


@cache
def roots(family: str, seed: int) -> tuple[Root, Root, list[torch.Tensor]]:
    """One box with loose and with better bounds, and which kinks are left: places among the loose ones."""
    problem = random_case(family, seed, (2,), mixed=True).problem([GAP])

    def bounded(method: str) -> Region:
        return HIDDEN.build(method).region(problem.network, problem.lower, problem.upper, Until())

    loose, tight = (unsigned(Root.of(problem, [bounded(m)], problem.clauses_of)) for m in ("interval", "best"))
    kept = [torch.searchsorted(old, new) for old, new in zip(loose.indices, tight.indices, strict=True)]
    assert all(torch.equal(old[at], new) for old, at, new in zip(loose.indices, kept, tight.indices, strict=True))
    assert loose.kinks > tight.kinks
    return loose, tight, kept


def codes(root: Root, pool: CutMasks) -> list[torch.Tensor]:
    """A number for every variable that says what it is: slope, multiplier, share or mask, of which neuron."""
    found = []
    kinds = [*((-2, k) for k in range(len(root.sizes))), *((-1, k) for k in range(len(root.sizes))), *pool.places]
    for kind, k in kinds:
        found.append(1.0 + 10000.0 * (kind + 2) + 1000.0 * k + root.indices[k].float())
    for k in pool.learned:
        found.append(1.0 + 100000.0 + 1000.0 * k + torch.arange(root.net.groups[k].inputs))
    return found


GROUPS = [({0, 1}, {0, 1}), ({0}, {0, 1}), ({0, 1}, {1}), ({0}, {1}), (set(), {0, 1}), ({0, 1}, set())]


@pytest.mark.parametrize(("before", "after"), GROUPS, ids=str)
@pytest.mark.parametrize(
    "cuts",
    [
        ("two", "two"),
        ("one", "two"),
        ("two", "one"),
        ("slopes", "one"),
        ("one", "slopes"),
        ("learned", "learned"),
        ("slopes", "learned"),
        ("learned", "two"),
        ("one", "learned"),
        ("learned", "slopes"),
    ],
)
@pytest.mark.parametrize(("family", "seed"), [("conv", 6), ("dense", 15)])
def test_variables_go_to_their_cuts_and_kinks(
    family: str, seed: int, cuts: tuple[str, str], before: set[int], after: set[int]
) -> None:
    """Shares belong to a cut and a group; cuts that are new have none yet, and masks those of the whole box."""
    loose, tight, kept = roots(family, seed)
    (old, _), (new, _) = begun(TIERS[cuts[0]], loose), begun(TIERS[cuts[1]], tight)
    old.masks, new.masks = old.masks.only(before), new.masks.only(after)
    weights = torch.tensor([[0.25, 0.75]]).repeat(2, 1)
    mine = torch.cat(codes(loose, old.masks))
    variables = torch.stack([torch.cat([weights[0], sign * mine]) for sign in (1.0, 0.5)])
    batch = Batch.whole(tight).select(torch.tensor([0, 0]))
    found = new.adopt(batch, variables, old, kept)
    assert found is not None
    parts = codes(tight, new.masks)
    known = [True] * (2 * len(tight.sizes)) + [place in old.masks.places for place in new.masks.places]
    masks = [new.learned[k][0, 0] for k in new.masks.learned]
    for row, scale in zip(found, (1.0, 0.5), strict=True):
        expected = [scale * part * ok for part, ok in zip(parts, known, strict=False)]
        for k, begins, part in zip(new.masks.learned, masks, parts[len(known) :], strict=True):
            expected.append(scale * part if k in old.masks.learned else begins)
        torch.testing.assert_close(row, torch.cat([weights[0], *expected]))


@pytest.mark.parametrize(("before", "after"), GROUPS, ids=str)
@pytest.mark.parametrize(("family", "seed"), [("conv", 6), ("dense", 15)])
@pytest.mark.parametrize("learn", [False, True], ids=["found", "learned"])
def test_bounds_from_adopted_variables_are_valid(
    family: str, seed: int, learn: bool, before: set[int], after: set[int]
) -> None:
    """Where nothing but bounds of hidden neurons is new, they are no worse than they were."""
    loose, tight, kept = roots(family, seed)
    tier = rungs.cuts(FIRST, STILL, (0.5,), SCOUT, learn=learn)
    (old, whole), (new, _) = begun(tier, loose), begun(tier, tight)
    full = old.masks
    old.masks, new.masks = full.only(before), new.masks.only(after)
    plain = [*loose.sizes, *loose.sizes]
    masks = [loose.net.groups[k].inputs for k in full.learned]
    sizes = [*plain, *(loose.sizes[k] for _, k in full.places), *masks]
    weights, *parts = whole.variables.split([2, *sizes], dim=1)
    names = [*full.places, *(("mask", k) for k in full.learned)]
    own = dict(zip(names, parts[len(plain) :], strict=True))
    left = [*old.masks.places, *(("mask", k) for k in old.masks.learned)]
    variables = torch.cat([weights, *parts[: len(plain)], *(own[name] for name in left)], dim=1)
    batch = Batch.whole(tight)
    row = new.adopt(batch, variables, old, kept)
    assert row is not None
    found = new.climb(batch, row, Until())
    sure = found.proof.lower(batch.task(torch.float64))[:, 0]
    assert bool((sure <= GAP + 1e-9).all())
    bare = TIERS["slopes"].climber(tight)
    without = bare._state(row[:, : 2 + 2 * tight.kinks]).lower(batch.task())[:, 0]
    if not before & after:
        torch.testing.assert_close(found.lower, without, rtol=1e-5, atol=1e-5)
    children = domains(tight, "all")
    below = new.climb(children, row[children.clause], Until())
    assert bool((below.proof.lower(children.task(torch.float64))[:, 0] <= least_rows(children)).all())


LADDERS = {
    "learned, two": ((0.5,), True, (0.5, 0.5), True),
    "learned, exact": ((0.5,), True, (0.5, None), True),
    "learned, found": ((0.5,), True, (0.5,), False),
    "found, learned": ((0.5,), False, (0.5,), True),
}


@pytest.mark.parametrize("name", LADDERS)
def test_tiers_that_learn_masks_beside_tiers_that_do_not(name: str) -> None:
    """Cuts of the tier below are taken over where they are of the same form."""
    thresholds, learn, above, learn_above = LADDERS[name]
    tiers = (
        rungs.cuts(FIRST, THEN, thresholds, SCOUT, learn),
        rungs.cuts(FIRST, THEN, above, SCOUT, learn_above),
    )
    root = root_over("dense", 4)
    whole = Batch.whole(root)
    lower, upper = (tier.climber(root) for tier in tiers)
    below = lower.begin(whole, None, Until())
    on_boxes = upper.begin(whole, below, Until())
    assert bool(upper.masks.learned) is (name == "found, learned")
    assert bool(lower.masks.learned) is (name != "found, learned")
    assert on_boxes.variables.shape[1] <= upper.width
    batch = domains(root, "all")
    row = upper.adopt(batch, below.variables[batch.clause], lower)
    assert row is not None
    assert row.shape[1] == on_boxes.variables.shape[1]
    found = upper.climb(batch, row, Until())
    sure = found.proof.lower(batch.task(torch.float64))[:, 0]
    assert bool((sure <= least_rows(batch)).all())


def test_new_masks_are_those_of_the_domains_own_clause() -> None:
    root = root_over("residual", 1)
    (old, below), (new, whole) = begun(TIERS["slopes"], root), begun(TIERS["learned"], root)
    size = sum(root.net.groups[k].inputs for k in new.masks.learned)
    learned = whole.variables[:, -size:]
    assert not torch.equal(learned[0], learned[1])
    clause = torch.tensor([1, 0, 1])
    row = new.adopt(Batch.whole(root).select(clause), below.variables[clause], old)
    assert row is not None
    assert torch.equal(row[:, -size:], learned[clause])


def test_a_tier_with_cuts_at_fewer_groups_than_the_one_below(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares go to their own cuts, so the start is worth what it is without the others."""
    monkeypatch.setattr(propagated, "LEAST", 0.05)
    first, scout = Ascent(30, Steps(0.1, 0.02)), Ascent(20, Steps(0.05, 0.02))
    one, two = (rungs.cuts(first, STILL, thresholds, scout) for thresholds in ((0.5,), (0.5, 0.5)))
    root = unsigned(root_of(random_case("dense", 13, (1,), mixed=True).problem([GAP])))
    whole = Batch.whole(root)
    lower, upper = one.climber(root), two.climber(root)
    below = lower.begin(whole, None, Until())
    upper.begin(whole, below, Until())
    assert upper.masks.groups < lower.masks.groups
    every = [torch.arange(size) for size in root.sizes]
    found, expected = (upper.adopt(whole, below.variables, lower, kept) for kept in (None, every))
    assert found is not None
    assert expected is not None
    torch.testing.assert_close(found, expected)


def test_a_search_over_a_network_without_groups() -> None:
    """The clause can hold, so that an ascent goes on long enough to look for cuts."""
    net = Network((1,), (), instances.layer("out", 0, [[1.0]], [0.0]))
    problem = instances.problem(net, UNIT, [(0, [instances.row({0: 1}, -0.5)])])
    decide(problem, Policy(Ladder((CUTS,))))
