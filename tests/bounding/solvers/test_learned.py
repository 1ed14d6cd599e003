"""Masks that are variables: the cuts of mixtures, their derivatives, the ascent with them, rounding, states."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import networks
import pytest
import torch
from bounding.cut_cases import SHORT, anywhere, cancelling, child_of, instance, random_point, random_rows, rises
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from verifier.bounding.core.ascent import Ascent, Averaging, Steps
from verifier.bounding.core.base import Objective, Until
from verifier.bounding.core.state import cat
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.balanced import BalancedGeometry
from verifier.bounding.cuts.masks import Form, Geometries
from verifier.bounding.hidden import RootBounds
from verifier.bounding.lp.bounder import RowCut, lp_with_cuts
from verifier.bounding.rows import Conjunction
from verifier.bounding.solvers.alpha_crown import SlopeDual
from verifier.bounding.solvers.face_dual import ConjunctionDual
from verifier.bounding.solvers.propagated import Layout, Propagated, PropagatedDual, Shares, find
from verifier.bounding.solvers.solver import Certified, Sizes, Task, variables_of

SEEDS = st.integers(0, 2**16)
LEARNED = Propagated.in_rounds(SHORT, SHORT).learned()


def begun(sweep: Sweep, objective: Objective) -> Shares:
    """Zero shares, and masks that begin where the oracle finds them."""
    slopes, averaging = SlopeDual(sweep, objective), Averaging(10)
    best = Ascent(14, Steps(0.2, 0.05)).run(slopes, slopes.start(), Until(), averaging)
    assert averaging.average is not None
    task = Task(sweep, objective)
    return Shares(best.point, find(task, averaging.average, 0.5, learned=True)).ready(task)


def dual_of(sweep: Sweep, objective: Objective) -> PropagatedDual:
    return PropagatedDual.of(Geometries(sweep), objective, begun(sweep, objective).masks)


def geometries(sweep: Sweep) -> list[BalancedGeometry]:
    """Those of all groups with kinks."""
    found = [Geometries(sweep).at(k, Form.LEARNED) for k in range(len(sweep.neurons))]
    return [geometry for geometry in found if isinstance(geometry, BalancedGeometry)]


def shares_at(geometry: BalancedGeometry, sweep: Sweep, seed: int, levels: int | None = None) -> torch.Tensor:
    """Random shares of a mask, of some levels between 0 and 1 or of any."""
    generator = torch.Generator().manual_seed(seed)
    shape = (len(sweep.region.lower), 2, sum(geometry.sizes))
    if levels is None:
        return torch.rand(shape, generator=generator, dtype=torch.float64)
    return torch.randint(levels + 1, shape, generator=generator).double() / levels


def random_values(sweep: Sweep, seed: int) -> list[torch.Tensor]:
    """An entry for the inputs and for every group that a group may read."""
    generator = torch.Generator().manual_seed(seed)
    sizes = [sweep.net.n_in, *(group.size for group in sweep.net.groups)]
    return [torch.randn(len(sweep.region.lower), 2, size, generator=generator, dtype=torch.float64) for size in sizes]


# ---------------------------------------------------------------- cuts of mixtures


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=SEEDS)
@settings(max_examples=4)
def test_a_mixture_of_bits_is_their_cut(family: str, seed: int) -> None:
    sweep, _ = instance(family, seed, count=2)
    values = random_values(sweep, seed)
    for geometry in geometries(sweep):
        shares = shares_at(geometry, sweep, seed, levels=1)
        mixed, plain = geometry.mixed(shares), geometry.cut(shares > 0.5)
        torch.testing.assert_close(mixed.offset, plain.offset, rtol=0, atol=1e-12)
        torch.testing.assert_close(mixed.zc, plain.zc, rtol=0, atol=1e-12)
        torch.testing.assert_close(mixed.forward(values), plain.forward(values), rtol=0, atol=1e-12)
        beta = torch.randn(mixed.offset.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        for (source, mine), (other, theirs) in zip(mixed.transpose(beta), plain.transpose(beta), strict=True):
            assert source == other
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("levels", [1, 3, 4, 16])
def test_a_mixture_is_the_mean_of_pure_cuts(family: str, levels: int) -> None:
    """Exactly where every share is a multiple of one over their number; proofs are written that way."""
    sweep, _ = instance(family, levels, count=2)
    values = random_values(sweep, levels)
    for geometry in geometries(sweep):
        mixed = geometry.mixed(shares_at(geometry, sweep, levels, levels))
        pure = mixed.pure(levels)
        assert len(pure) == levels
        assert all(cut.pure(levels) == (cut,) for cut in pure)  # these are bits
        for name in ("offset", "zc"):
            mean = torch.stack([getattr(cut, name) for cut in pure]).mean(dim=0)
            torch.testing.assert_close(getattr(mixed, name), mean, rtol=0, atol=1e-12)
        mean = torch.stack([cut.forward(values) for cut in pure]).mean(dim=0)
        torch.testing.assert_close(mixed.forward(values), mean, rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [4, 16, 64])
def test_the_mean_of_pure_masks_is_the_nearest_one(count: int) -> None:
    sweep, _ = instance("residual", 1)
    for geometry in geometries(sweep):
        shares = shares_at(geometry, sweep, 1)
        signs = [torch.cat(cut.signs, dim=-1) for cut in geometry.mixed(shares).pure(count) if cut.signs]
        assert len(signs) == count
        assert float((torch.stack(signs).mean(dim=0) + 0.5 - shares).abs().max()) <= 0.5 / count + 1e-12


@given(seed=SEEDS)
@settings(max_examples=20)
def test_no_activation_lies_above_a_face_of_a_mixture(seed: int) -> None:
    net = networks.dense(seed, (4, 6, 2))
    region = RootBounds().region(net, *networks.box(net, seed, 1.5), Until())
    sweep, objective = Sweep.prepare(net, region, 2), random_rows(net, seed, 1)
    assume(len(sweep.kinks[0].index))
    dual = dual_of(sweep, objective)
    faces = dual.bent(random_point(dual, seed))[0]
    assert faces is not None
    (at,) = faces.cuts
    x = networks.points(region.lower, region.upper, 400, seed).permute(1, 0, 2)
    x_hat = net.groups[0].forward([x])[..., sweep.kinks[0].index]
    generator = torch.Generator().manual_seed(seed)
    for most in (1.0, 4.0):
        face = faces.face([most * torch.rand(1, 1, x_hat.shape[-1], generator=generator, dtype=torch.float64)])
        height = face.slope * x_hat + face.intercept
        height = height + face.weights[0] * (at.cut.forward([x]) + at.cut.whole * (x_hat - faces.bias))
        assert bool((height >= x_hat.clamp(min=0) - 1e-12)[..., sweep.kinks[0].ambiguous[0, 0]].all())


# ---------------------------------------------------------------- the function


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("alone", [True, False], ids=["masks alone", "all variables"])
@given(seed=SEEDS)
@settings(max_examples=6)
def test_supergradients_equal_finite_differences(family: str, alone: bool, seed: int) -> None:
    """Also along masks alone, whose derivatives are small beside the others."""
    sweep, objective = instance(family, seed, count=2, rows=2)
    dual = dual_of(sweep, objective)
    assume(dual.layout.learned)
    point = random_point(dual, seed)
    direction = anywhere(point, seed)
    if alone:
        direction[..., : dual.slopes.variables + dual.layout.shares] = 0.0
    exact = 1e-6 if alone else 1e-4
    torch.testing.assert_close(*rises(dual, point, direction), rtol=10 * exact, atol=exact)


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=SEEDS)
@settings(max_examples=2)
def test_no_point_exceeds_the_linear_program_with_the_pure_cuts(family: str, seed: int) -> None:
    """A program that has all the cuts of a mixture is at least as tight as one with the mixture."""
    levels = 2
    sweep, objective = instance(family, seed)
    dual = dual_of(sweep, objective)
    assume(dual.layout.learned)
    point = random_point(dual, seed)
    masks = point[..., dual.slopes.variables + dual.layout.shares :]
    masks.mul_(levels).round_().div_(levels)
    cuts = []
    for block, part in dual.layout.split(point[..., dual.slopes.variables :])[len(dual.layout.blocks) :]:
        layer = sweep.net.layers[block.group]
        units = torch.eye(layer.size, dtype=torch.float64)
        weight = torch.cat([term.transpose(units) for _, term in layer.terms], dim=1)
        for neuron in sweep.kinks[block.group].index.tolist():
            for number in range(levels):
                bits = part[0, 0] > (number + 0.5) / levels
                kept = torch.where(weight[neuron] > 0, bits, ~bits)
                cuts.append(RowCut(block.group + 1, neuron, torch.arange(len(kept)), kept))
    program = float(lp_with_cuts(sweep.net, sweep.region, objective, cuts).lower)
    assert float(dual.evaluate(point).lower) <= program + 1e-8


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_the_ascent_gains_by_learning_and_stays_below_the_network(family: str) -> None:
    gained = 0.0
    for seed in range(6):
        sweep, objective = instance(family, seed, count=2, rows=2)
        start = begun(sweep, objective)
        task = Task(sweep, objective)
        stay = float(start.lower(task).sum())
        fixed = Propagated.in_rounds(SHORT, Ascent(40, Steps(0.1, 0.01))).begin(task, Until())
        learned = Propagated.in_rounds(SHORT, Ascent(40, Steps(0.1, 0.01))).learned().begin(task, Until())
        again = replace(LEARNED, ascent=Ascent(20, Steps(0.1, 0.01))).resume(task, Until(), start)
        assert float(again.lower.sum()) >= stay
        gained += float((learned.lower - fixed.lower).sum())
        x = networks.points(sweep.region.lower, sweep.region.upper, 2000, seed)  # [points, D, n0]
        assert objective.inputs is not None
        values = sweep.net.forward(x) @ objective.coefficients[0].T + x @ objective.inputs[0].T + 1.0
        assert bool((values.amin(dim=0) >= learned.lower - 1e-9).all())
    assert gained > 0.0


def test_masks_stay_where_there_is_more_than_one_cut() -> None:
    assert LEARNED.learns
    assert not Propagated.in_rounds(SHORT, SHORT, (0.5, 0.3)).learned().learns
    assert not Propagated.in_rounds(SHORT, SHORT, (0.3,)).learned().learns
    assert not Propagated.in_rounds(SHORT, SHORT, (None,)).learned().learns
    assert not Propagated.in_rounds(SHORT, SHORT, rounds=2).learned().learns


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_a_batch_equals_its_members(family: str) -> None:
    sweep, objective = instance(family, 5, count=3, rows=2)
    start = begun(sweep, objective)
    dual = PropagatedDual.of(Geometries(sweep), objective, start.masks)
    together = SHORT.run(dual, start.point, Until())
    for d in range(3):
        row = torch.tensor([d])
        alone = PropagatedDual.of(Geometries(sweep.select(row)), objective, start.masks.select(row))
        best = SHORT.run(alone, start.point[row], Until())
        torch.testing.assert_close(best.lower[0], together.lower[d], rtol=0, atol=1e-9)
        chosen = dual.select(row)
        at, here = together.point[row], chosen.evaluate(together.point[row])
        torch.testing.assert_close(here.lower[0], together.lower[d], rtol=0, atol=1e-12)
        torch.testing.assert_close(chosen.supergradient(at, here), alone.supergradient(at, alone.evaluate(at)))


def test_masks_are_projected_and_have_a_step_of_their_own() -> None:
    sweep, objective = instance("residual", 5)
    dual = dual_of(sweep, objective)
    masks = dual.slopes.variables + dual.layout.shares
    assert dual.variables - masks == sum(sweep.net.layers[b.group].inputs for b in dual.layout.learned) > 0
    assert set(dual.step_scale()[masks:].tolist()) == {dual.mask_scale}
    assert set(dual.step_scale()[dual.slopes.variables : masks].tolist()) == {dual.share_scale}
    point = 3.0 * torch.randn(dual.start().shape, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    before = point.clone()
    dual.project(point)
    torch.testing.assert_close(point[..., masks:], before[..., masks:].clamp(0.0, 1.0), rtol=0, atol=0)


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_masks_and_row_weights_together(family: str) -> None:
    sweep, objective = instance(family, 8)
    normal = torch.randn(1, 3, sweep.net.n_out + 1, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    rows = Conjunction(normal[..., 1:], None, normal[..., 0], torch.tensor([[True, True, False]]))
    dual = Shares(objective.coefficients[..., :0], begun(sweep, objective).masks).dual(Task.of_rows(sweep, rows))
    assert isinstance(dual, ConjunctionDual)
    point = random_point(dual, 8)
    point[..., dual.plain :] = torch.tensor([0.3, 0.7, 0.0], dtype=torch.float64)
    step = anywhere(point, 8)
    step[..., dual.plain :] = torch.tensor([1.0, -1.0, 0.0])
    torch.testing.assert_close(*rises(dual, point, step), rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- masks that are not learned any more


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=SEEDS)
@settings(max_examples=3)
def test_while_masks_are_kept_the_function_of_all_else_is_the_same(family: str, seed: int) -> None:
    sweep, objective = instance(family, seed, count=2, rows=2)
    whole = dual_of(sweep, objective)
    point = random_point(whole, seed)
    others = whole.slopes.variables + whole.layout.shares
    kept = whole.keeping(point[..., others:])
    assert kept.variables == others
    all_of_it, rest = whole.evaluate(point), kept.evaluate(point[..., :others])
    torch.testing.assert_close(rest.lower, all_of_it.lower, rtol=0, atol=1e-12)
    gains = whole.supergradient(point, all_of_it)[..., :others]
    torch.testing.assert_close(kept.supergradient(point[..., :others], rest), gains, rtol=1e-9, atol=1e-9)
    chosen = kept.select(torch.tensor([1])).evaluate(point[1:, ..., :others])  # regions leave ascents
    torch.testing.assert_close(chosen.lower, rest.lower[1:], rtol=0, atol=1e-12)


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_an_ascent_that_keeps_masks_moves_all_else(family: str) -> None:
    gained, moved = 0.0, family == "unread"  # there masks do not matter
    for seed in range(4):
        sweep, objective = instance(family, seed, count=2, rows=2)
        start, task = begun(sweep, objective), Task(sweep, objective)
        ascent = Ascent(20, Steps(0.1, 0.01))
        found = replace(LEARNED, ascent=ascent, keeps=True).resume(task, Until(), start)
        assert isinstance(found.state, Shares)
        masks = sum(Layout.of(start.masks, sweep).masks)
        assert found.state.point.shape == start.point.shape
        assert torch.equal(found.state.point[..., -masks:], start.point[..., -masks:])
        torch.testing.assert_close(found.state.lower(task), found.lower, rtol=0, atol=1e-9)
        gained += float((found.lower - start.lower(task)).sum())
        learned = replace(LEARNED, ascent=ascent).resume(task, Until(), start)
        moved |= not torch.equal(variables_of(learned).point[..., -masks:], start.point[..., -masks:])
    assert gained > 0
    assert moved


def test_masks_that_are_kept_beside_weights_of_rows() -> None:
    sweep, objective = instance("residual", 8)
    normal = torch.randn(1, 2, sweep.net.n_out + 1, generator=torch.Generator().manual_seed(8), dtype=torch.float64)
    task = Task.of_rows(sweep, Conjunction(normal[..., 1:], None, normal[..., 0], torch.tensor([[True, True]])))
    start = replace(begun(sweep, objective), weights=torch.full((1, 1, 2), 0.5, dtype=torch.float64))
    found = variables_of(replace(LEARNED, keeps=True).resume(task, Until(), start))
    masks = sum(Layout.of(start.masks, sweep).masks)
    assert torch.equal(found.point[..., -masks:], start.point[..., -masks:])
    assert found.weights is not None
    assert float(found.weights.sum()) == pytest.approx(1.0)
    assert bool((found.lower(task) >= start.lower(task) - 1e-12).all())


# ---------------------------------------------------------------- states


def test_bits_become_variables_once() -> None:
    sweep, objective = instance("conv", 3, count=2)
    task, averaging = Task(sweep, objective), Averaging(10)
    slopes = SlopeDual(sweep, objective)
    best = Ascent(14, Steps(0.2, 0.05)).run(slopes, slopes.start(), Until(), averaging)
    assert averaging.average is not None
    found = find(task, averaging.average, 0.5, learned=True)
    bits = {k: group.bits.double() for k, group in found.learned.items()}
    ready = Shares(best.point, found).ready(task)
    assert all(group.bits.shape[-1] == 0 for group in ready.masks.learned.values())
    dual = ready.dual(task)
    assert isinstance(dual, PropagatedDual)
    parts = dual.layout.split(ready.point[..., dual.slopes.variables :])
    assert all(bool((part == 0).all()) for _, part in parts[: len(dual.layout.blocks)])
    for block, part in parts[len(dual.layout.blocks) :]:
        torch.testing.assert_close(part, bits[block.group].expand_as(part), rtol=0, atol=0)
    moved = replace(ready, point=ready.point + 0.01)
    assert torch.equal(moved.ready(task).point, moved.point)  # what was learned is not overwritten


def test_states_are_joined_chosen_and_stored_in_half_precision() -> None:
    root, objective = instance("conv", 7, count=2, rows=2)
    splits = tuple(torch.zeros_like(low, dtype=torch.int8) for low in root.region.l_hat)
    root = Sweep.prepare(root.net, replace(root.region, splits=splits), root.layer)
    task = Task(root, objective)
    parent = LEARNED.bound(root.net, root.region, objective, Until())
    assert isinstance(parent.state, Shares)
    assert parent.state.masks.learned
    torch.testing.assert_close(parent.state.lower(task), parent.lower)
    swapped = cat([parent.state.select(torch.tensor([i])) for i in (1, 0)])
    torch.testing.assert_close(swapped.select(torch.tensor([1, 0])).lower(task), parent.lower)
    apart = cat([parent.state.part(0, 1), parent.state.part(1, 2)], dim=1)
    torch.testing.assert_close(apart.lower(task), parent.lower)
    small = parent.state.to(torch.float16)
    torch.testing.assert_close(small.lower(task), parent.lower, rtol=0, atol=2e-2)
    stay = replace(LEARNED, ascent=Ascent(0, SHORT.steps))
    for row in range(2):
        at = torch.tensor([row])
        child = Task(child_of(root.select(at), 1)[0], objective)
        start = stay.solve(child, stay.init(child, small.select(at)), Until()).lower
        assert bool((start >= parent.lower[row] - 2e-2).all())


def test_parts_equal_the_whole_and_are_proved() -> None:
    sweep, objective = instance("residual", 7, count=2, rows=3)
    whole = LEARNED.bound(sweep.net, sweep.region, objective, Until())
    apart = replace(LEARNED, memory_bytes=1).bound(sweep.net, sweep.region, objective, Until())
    torch.testing.assert_close(apart.lower, whole.lower, rtol=0, atol=1e-9)
    net, region = sweep.net, sweep.region
    proved = Certified(LEARNED).bound(net, region, objective, Until())
    quick = LEARNED.bound(net.to(dtype=torch.float32), region.to(torch.float32), objective.to(torch.float32), Until())
    torch.testing.assert_close(proved.lower, quick.lower.double(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_room_is_kept_for_all_that_children_inherit(family: str) -> None:
    sweep, objective = instance(family, 7)
    found = LEARNED.begin(Task(sweep, objective), Until())
    assert isinstance(found.state, Shares)
    net = sweep.net
    kinks = sum(len(k.index) for k in sweep.kinks)
    sizes = Sizes(net.n_in, net.neurons, kinks, sum(group.inputs for group in net.groups))
    assert found.state.point.shape[-1] <= LEARNED.inherits(sizes)


# ---------------------------------------------------------------- rounding


@given(seed=SEEDS)
@settings(max_examples=40)
def test_rounding_is_covered_for_all_mixtures(seed: int) -> None:
    """At the corner where all faces are exact every mixture is, so only rounding can make a bound exceed it."""
    net, lower, upper, exact = cancelling(seed)
    region = RootBounds().region(net, lower, upper, Until())
    assert bool(region.ambiguous(1).all())
    sweep, objective = Sweep.prepare(net, region, 2), Objective(2, torch.ones(1, 1, 1, dtype=torch.float64))
    dual = dual_of(sweep, objective)
    point = random_point(dual, seed)
    size = float(sweep.slacks[0].sum()) if sweep.slacks is not None else 0.0
    found = float(dual.evaluate(point).lower)
    assert Fraction(found) <= exact
    assert found >= float(exact) - 100 * size
    masks = dual.slopes.variables + dual.layout.shares
    point[..., masks:] = torch.rand(point[..., masks:].shape, generator=torch.Generator().manual_seed(seed)).double()
    assert Fraction(float(dual.evaluate(point).lower)) <= exact
    point[..., dual.slopes.variables : masks] *= 3.0  # no feasible weights: loose, but valid
    assert Fraction(float(dual.evaluate(point).lower)) <= exact


@given(seed=SEEDS)
@settings(max_examples=20)
def test_the_price_of_a_cut_covers_the_rounding_of_its_constants(seed: int) -> None:
    """Offset, zc and the sums of sweeps, against fractions; each differs by less than one slack of its layer."""
    net, lower, upper, _ = cancelling(seed)
    region = RootBounds().region(net, lower, upper, Until())
    sweep = Sweep.prepare(net, region, 2)
    assert sweep.slacks is not None
    (geometry,) = geometries(sweep)
    shares = torch.rand(1, 1, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    cut = geometry.mixed(shares)
    (_, term), layer = net.layers[0].terms[0], net.layers[0]
    weight = [[Fraction(w) for w in row] for row in term.transpose(torch.eye(4, dtype=torch.float64)).tolist()]
    low, high, s = ([Fraction(v) for v in side.flatten().tolist()] for side in (lower, upper, shares))
    vertex = [share * a + (1 - share) * b for share, a, b in zip(s, low, high, strict=True)]
    spread = [share * a - (1 - share) * b for share, a, b in zip(s, low, high, strict=True)]
    x = [Fraction(v) for v in networks.points(lower, upper, 1, seed).flatten().tolist()]
    rest = cut.forward([torch.tensor([float(v) for v in x], dtype=torch.float64).reshape(1, 1, 6)])
    for i, row in enumerate(weight):
        plain = sum((w * v for w, v in zip(row, vertex, strict=True)), Fraction(0))
        offset = (plain + sum((abs(w) * d for w, d in zip(row, spread, strict=True)), Fraction(0))) / 2
        masked = sum(
            (abs(w) * (share - Fraction(1, 2)) * v for w, share, v in zip(row, s, x, strict=True)), Fraction(0)
        )
        slack = Fraction(float(sweep.slacks[0].flatten()[i]))
        assert abs(Fraction(float(cut.offset[0, 0, i])) - offset) <= slack
        assert abs(Fraction(float(cut.zc[0, 0, i])) - plain - Fraction(float(layer.bias[i]))) <= slack
        assert abs(Fraction(float(rest[0, 0, i])) - masked) <= slack
