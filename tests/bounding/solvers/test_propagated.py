"""The propagated Anderson dual: gradients, its linear programs, masks in children, equality cases, rounding."""

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
from verifier.bounding.cuts.masks import CutMasks, Form, Geometries, GroupBits
from verifier.bounding.hidden import RootBounds
from verifier.bounding.lp.bounder import PlanetLP, RowCut, lp_with_cuts
from verifier.bounding.rows import Conjunction
from verifier.bounding.solvers.alpha_crown import AlphaCrown, SlopeDual
from verifier.bounding.solvers.face_dual import ConjunctionDual
from verifier.bounding.solvers.propagated import Propagated, PropagatedDual, Shares, find
from verifier.bounding.solvers.solver import Certified, Task
from verifier.clock import Clock
from verifier.network.network import Affine

SEEDS = st.integers(0, 2**16)
KINDS: dict[str, tuple[float | None, ...]] = {
    "one": (0.5,),
    "thresholds": (0.3, 0.5, 0.7),
    "rows": (None,),
    "mixed": (0.5, None),
}
PAIRS = [
    (family, kind) for i, family in enumerate(networks.FAMILIES) for j, kind in enumerate(KINDS) if (i + j) % 2 == 0
]
"""Half of all combinations, every family and every kind at least once."""
ONCE = set(zip(networks.FAMILIES, KINDS, strict=True))
FEW = [pytest.param(*pair, marks=[] if pair in ONCE else pytest.mark.slow) for pair in PAIRS]
"""The same; by default every family and every kind once."""


def masks_at_average(sweep: Sweep, objective: Objective, thresholds: tuple[float | None, ...]) -> CutMasks:
    dual, averaging = SlopeDual(sweep, objective), Averaging(10)
    Ascent(14, Steps(0.2, 0.05)).run(dual, dual.start(), Until(), averaging)
    assert averaging.average is not None
    assert averaging.average.count == 10
    task = Task(sweep, objective)
    found = [find(task, averaging.average, threshold) for threshold in thresholds]
    return CutMasks(tuple(cut for mask in found for cut in mask.cuts))


def random_masks(sweep: Sweep, objective: Objective, kind: str, seed: int) -> CutMasks:
    """Masks of the same forms with random bits: every mask is valid."""
    generator = torch.Generator().manual_seed(seed)

    def shuffled(group: GroupBits | None) -> GroupBits | None:
        return group and replace(group, bits=torch.rand(group.bits.shape, generator=generator) < 0.5)

    masks = masks_at_average(sweep, objective, KINDS[kind])
    return CutMasks(tuple(tuple(shuffled(group) for group in cut) for cut in masks.cuts))


def matrix(layer: Affine) -> torch.Tensor:
    units = torch.eye(layer.size, dtype=torch.float64)
    return torch.cat([term.transpose(units) for _, term in layer.terms], dim=1)


def row_cuts(sweep: Sweep, masks: CutMasks) -> list[RowCut]:
    """The cuts of the first region and objective, written out weight by weight from the definition of each form."""
    found = []
    for cut in masks.cuts:
        for k, group in enumerate(cut, start=1):
            if group is None:
                continue
            layer, index = sweep.net.layers[k - 1], sweep.kinks[k - 1].index
            for i, neuron in enumerate(index.tolist()):
                w = matrix(layer)[neuron]
                found.append(RowCut(k, neuron, torch.arange(len(w)), _kept(group, layer, w, i)))
    return found


def _kept(group: GroupBits, layer: Affine, w: torch.Tensor, i: int) -> torch.Tensor:
    bits = group.bits[0, 0]
    if group.form is Form.BALANCED:
        return torch.where(w > 0, bits, ~bits)
    if group.form is Form.SHARED:
        halves = [part.chunk(2) for part in bits.split([2 * term.n_in for _, term in layer.terms])]
        return torch.where(w > 0, torch.cat([h[0] for h in halves]), torch.cat([h[1] for h in halves]))
    mask = torch.zeros_like(w, dtype=torch.bool)
    mask[w != 0] = bits[i][: int((w != 0).sum())]
    return mask


# ---------------------------------------------------------------- the function


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
@given(seed=SEEDS)
@settings(max_examples=2)
def test_supergradients_equal_finite_differences(family: str, kind: str, seed: int) -> None:
    sweep, objective = instance(family, seed, count=2, rows=2)
    dual = PropagatedDual.of(Geometries(sweep), objective, random_masks(sweep, objective, kind, seed))
    assume(dual.layout.size)
    point = random_point(dual, seed)
    torch.testing.assert_close(*rises(dual, point, anywhere(point, seed)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
@given(seed=SEEDS)
@settings(max_examples=2)
def test_no_feasible_point_exceeds_the_linear_program_with_the_same_cuts(family: str, kind: str, seed: int) -> None:
    sweep, objective = instance(family, seed)
    masks = random_masks(sweep, objective, kind, seed)
    dual = PropagatedDual.of(Geometries(sweep), objective, masks)
    program = lp_with_cuts(sweep.net, sweep.region, objective, row_cuts(sweep, masks)).lower
    assert float(dual.evaluate(random_point(dual, seed)).lower) <= float(program) + 1e-8
    best = Ascent(20, Steps(0.1, 0.02)).run(dual, dual.start(), Until())
    assert float(best.lower) <= float(program) + 1e-8
    beyond = random_point(dual, seed)
    for factor in (1.5, 4.0):  # weights that do not cancel z: what is left of it is paid for
        beyond[..., dual.slopes.variables :] *= factor
        assert float(dual.evaluate(beyond).lower) <= float(program) + 1e-8


@pytest.mark.parametrize(("family", "kind"), [*FEW, ("residual", "thresholds")])
def test_the_ascent_reaches_the_linear_program_with_the_same_cuts(family: str, kind: str) -> None:
    """With interval bounds all boxes are implied, so that dual and program have the same optimum."""
    sweep, objective = instance(family, 0, method="interval")
    masks = masks_at_average(sweep, objective, KINDS[kind])
    dual = PropagatedDual.of(Geometries(sweep), objective, masks)
    best = Ascent(200, Steps(0.2, 1e-3)).run(dual, dual.start(), Until())
    program = float(lp_with_cuts(sweep.net, sweep.region, objective, row_cuts(sweep, masks)).lower)
    planet = float(PlanetLP().bound(sweep.net, sweep.region, objective, Until()).lower)
    assert float(best.lower) == pytest.approx(program, abs=1e-3 + 0.02 * (program - planet))


@pytest.mark.parametrize(("family", "kind"), PAIRS)
def test_without_shares_it_is_alpha_crown(family: str, kind: str) -> None:
    sweep, objective = instance(family, 4, count=2, rows=2)
    plain, bent = SlopeDual(sweep, objective), None
    bent = PropagatedDual.of(Geometries(sweep), objective, random_masks(sweep, objective, kind, 4))
    point = torch.rand(plain.start().shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    wide = torch.nn.functional.pad(point, (0, bent.layout.size))
    torch.testing.assert_close(bent.evaluate(wide).lower, plain.evaluate(point).lower, rtol=0, atol=1e-9)
    gradient = plain.supergradient(point, plain.evaluate(point))
    found = bent.supergradient(wide, bent.evaluate(wide))[..., : plain.variables]
    torch.testing.assert_close(found, gradient, rtol=0, atol=1e-9)


@pytest.mark.parametrize(("family", "kind"), FEW)
def test_a_batch_equals_its_members(family: str, kind: str) -> None:
    sweep, objective = instance(family, 5, count=3, rows=2)
    masks = masks_at_average(sweep, objective, KINDS[kind])
    dual = PropagatedDual.of(Geometries(sweep), objective, masks)
    together = SHORT.run(dual, dual.start(), Until())
    for d in range(3):
        row = torch.tensor([d])
        alone = PropagatedDual.of(Geometries(sweep.select(row)), objective, masks.select(row))
        best = SHORT.run(alone, alone.start(), Until())
        torch.testing.assert_close(best.lower[0], together.lower[d], rtol=0, atol=1e-9)
        chosen = dual.select(row)
        at, here = together.point[row], chosen.evaluate(together.point[row])
        torch.testing.assert_close(here.lower[0], together.lower[d], rtol=0, atol=1e-12)
        torch.testing.assert_close(chosen.supergradient(at, here), alone.supergradient(at, alone.evaluate(at)))


@pytest.mark.parametrize("interval", [True, False], ids=["interval bounds", "planet bounds"])
def test_values_of_the_papers_example(interval: bool) -> None:
    """Over the interval bounds Planet gives -9/5 and Anderson -9/7, over Planet's own -27/22 and -81/76."""
    net, lower, upper = networks.paper_example()
    first = RootBounds().region(net, lower, upper, Until())
    low, high = ((-3.0, -2.0), (4.0, 3.0)) if interval else ((-9 / 4, -1 / 2), (3.0, 9 / 4))
    planet, anderson = (-9 / 5, -9 / 7) if interval else (-27 / 22, -81 / 76)
    sides = [torch.tensor([side], dtype=torch.float64) for side in (low, high)]
    region = replace(first, l_hat=(first.l_hat[0], sides[0]), u_hat=(first.u_hat[0], sides[1]))
    objective = Objective(3, torch.ones(1, 1, 1, dtype=torch.float64))
    first_ascent, then = Ascent(60, Steps(0.3, 1e-2)), Ascent(120, Steps(0.1, 1e-3))
    found = (
        Propagated.in_rounds(first_ascent, then, (None,), rounds=2).bound(net, region, objective, Until()).lower.item()
    )
    assert planet + 0.01 < found <= anderson + 1e-9
    if interval:  # all boxes are implied, so that nothing is lost by propagating
        assert found == pytest.approx(anderson, abs=1e-2)


@pytest.mark.parametrize("kind", KINDS)
@given(seed=SEEDS)
@settings(max_examples=10)
def test_faces_are_valid_for_all_shares(kind: str, seed: int) -> None:
    """In double precision also for weights that leave some of z: no activation lies above its upper face."""
    net = networks.dense(seed, (4, 6, 2))
    region = RootBounds().region(net, *networks.box(net, seed, 1.5), Until())
    sweep, objective = Sweep.prepare(net, region, 2), random_rows(net, seed, 1)
    assume(len(sweep.kinks[0].index))
    faces = PropagatedDual.of(Geometries(sweep), objective, random_masks(sweep, objective, kind, seed)).faces[0]
    assert faces is not None
    x = networks.points(region.lower, region.upper, 400, seed).permute(1, 0, 2)  # [D, points, n0]
    x_hat = net.groups[0].forward([x])[..., sweep.kinks[0].index]
    generator = torch.Generator().manual_seed(seed)
    for most in (1.0, 4.0):
        shares = [
            most * torch.rand(1, 1, x_hat.shape[-1], generator=generator, dtype=torch.float64) for _ in faces.cuts
        ]
        face = faces.face(shares)
        height = face.slope * x_hat + face.intercept
        for weight, at in zip(face.weights, faces.cuts, strict=True):
            height = height + weight * (at.cut.forward([x]) + at.cut.whole * (x_hat - faces.bias))
        assert bool((height >= x_hat.clamp(min=0) - 1e-12)[..., sweep.kinks[0].ambiguous[0, 0]].all())


# ---------------------------------------------------------------- masks


@pytest.mark.parametrize(("family", "kind"), FEW)
@pytest.mark.parametrize("sign", [1, -1])
def test_masks_of_the_root_are_valid_in_children_with_their_own_constants(family: str, kind: str, sign: int) -> None:
    root, objective = instance(family, 12)
    masks = masks_at_average(root, objective, KINDS[kind])
    sweep, k, neuron = child_of(root, sign)
    dual = PropagatedDual.of(Geometries(sweep), objective, masks)
    best = Ascent(40, Steps(0.1, 0.02)).run(dual, dual.start(), Until())
    program = lp_with_cuts(sweep.net, sweep.region, objective, row_cuts(sweep, masks)).lower
    assert float(best.lower) <= float(program) + 1e-8
    x = networks.points(sweep.region.lower, sweep.region.upper, 4000, 12)
    inside = sweep.net.preactivations(x)[k - 1][..., neuron] * sign >= 0
    assert bool(inside.any())
    assert objective.inputs is not None
    values = sweep.net.forward(x) @ objective.coefficients[0].T + x @ objective.inputs[0].T + 1.0
    assert bool((values[inside] >= best.lower[0]).all())
    point = random_point(dual, 12)
    torch.testing.assert_close(*rises(dual, point, anywhere(point, 3)), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_constants_follow_the_boxes_of_children(kind: str) -> None:
    """A blocked neuron narrows a box that the next group reads: no cut gets looser at z = 0 or 1, and some tighter."""
    tighter = 0
    for seed in range(3):
        root, objective = instance("dense", seed)
        masks = random_masks(root, objective, kind, seed)
        child, k, _ = child_of(root, -1)
        before, after = (PropagatedDual.of(Geometries(sweep), objective, masks).faces[k] for sweep in (root, child))
        assert before is not None
        assert after is not None
        for old, new in zip(before.cuts, after.cuts, strict=True):
            for z in (0.0, 1.0):
                gain = (z * old.cut.zc - old.cut.offset) - (z * new.cut.zc - new.cut.offset)
                assert bool((gain >= -1e-12).all())
                tighter += int((gain > 1e-3).sum())
    assert tighter > 0


def test_masks_are_gathered_joined_and_stacked() -> None:
    sweep, objective = instance("residual", 3, count=3)
    masks = masks_at_average(sweep, objective, (0.5, 0.3))
    assert masks.count == 2
    assert {g.form for cut in masks.cuts for g in cut if g is not None} == {Form.BALANCED, Form.SHARED}
    again = cat([masks.select(torch.tensor([0])), masks.select(torch.tensor([2, 2]))])
    both = again.join(masks)
    assert both.count == 4
    group = next(k for k, g in enumerate(masks.cuts[0]) if g is not None)
    for mine, old in zip(again.cuts, masks.cuts, strict=True):
        new, known = mine[group], old[group]
        assert new is not None
        assert known is not None
        assert torch.equal(new.bits, known.bits[[0, 2, 2]])
    with pytest.raises(ValueError, match="one structure"):
        cat([masks, CutMasks((masks.cuts[1], masks.cuts[0]))])


# ---------------------------------------------------------------- conjunctions


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=SEEDS)
@settings(max_examples=4)
def test_cuts_and_row_weights_together(family: str, seed: int) -> None:
    """Gradients in all variables, and a bound below the linear program of the weighted rows."""
    sweep, objective = instance(family, seed)
    normal = torch.randn(1, 3, sweep.net.n_out + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    rows = Conjunction(normal[..., 1:], None, normal[..., 0], torch.tensor([[True, True, False]]))
    masks = masks_at_average(sweep, objective, (0.5, 0.3))
    dual = Shares(objective.coefficients[..., :0], masks).dual(Task.of_rows(sweep, rows))
    assert isinstance(dual, ConjunctionDual)
    assume(dual.plain > dual.slopes.sweep.kinks[0].index.numel())
    point = random_point(dual, seed)
    weights = torch.tensor([0.3, 0.7, 0.0], dtype=torch.float64)
    point[..., dual.plain :] = weights
    at = dual.evaluate(point)
    step = anywhere(point, seed)
    step[..., dual.plain :] = torch.tensor([1.0, -1.0, 0.0])
    torch.testing.assert_close(*rises(dual, point, step), rtol=1e-4, atol=1e-4)
    weighted = rows.combined(sweep.layer, weights.reshape(1, 1, 3))
    program = lp_with_cuts(sweep.net, sweep.region, weighted, row_cuts(sweep, masks)).lower
    assert float(at.lower) <= float(program) + 1e-8


# ---------------------------------------------------------------- the bounder


@pytest.mark.parametrize(("family", "kind"), FEW)
def test_the_bounder_is_proved_in_double_precision(family: str, kind: str) -> None:
    sweep, objective = instance(family, 7, count=2, rows=3)
    net, region = sweep.net, sweep.region
    method = Propagated.in_rounds(SHORT, SHORT, KINDS[kind], rounds=2)
    proved = Certified(method).bound(net, region, objective, Until())
    quick = method.bound(net.to(dtype=torch.float32), region.to(torch.float32), objective.to(torch.float32), Until())
    torch.testing.assert_close(proved.lower, quick.lower.double(), rtol=1e-4, atol=1e-4)
    assert bool((proved.lower >= AlphaCrown(SHORT).bound(net, region, objective, Until()).lower - 1e-4).all())
    assert proved.iterations == 36


def test_parts_equal_the_whole() -> None:
    sweep, objective = instance("residual", 7, count=2, rows=3)
    method = Propagated.in_rounds(SHORT, SHORT, (0.5, 0.3))
    whole = method.bound(sweep.net, sweep.region, objective, Until())
    apart = replace(method, memory_bytes=1).bound(sweep.net, sweep.region, objective, Until())
    torch.testing.assert_close(apart.lower, whole.lower, rtol=0, atol=1e-9)
    assert isinstance(apart.state, Shares)
    assert apart.state.masks.count == 2


def test_states_are_kept_and_children_start_from_them() -> None:
    root, objective = instance("conv", 7, count=2, rows=2)
    splits = tuple(torch.zeros_like(low, dtype=torch.int8) for low in root.region.l_hat)
    root = Sweep.prepare(root.net, replace(root.region, splits=splits), root.layer)
    method = Propagated.in_rounds(SHORT, SHORT, (0.5, 0.3))
    parent = method.bound(root.net, root.region, objective, Until())
    assert isinstance(parent.state, Shares)
    task = Task(root, objective)
    torch.testing.assert_close(parent.state.lower(task), parent.lower)
    swapped = cat([parent.state.select(torch.tensor([i])) for i in (1, 0)])
    torch.testing.assert_close(swapped.select(torch.tensor([1, 0])).lower(task), parent.lower)
    small = parent.state.to(torch.float16)
    assert small.point.dtype is torch.float16
    torch.testing.assert_close(small.lower(task), parent.lower, rtol=0, atol=2e-2)
    stay = replace(method, ascent=Ascent(0, SHORT.steps))
    for row in range(2):  # every region has a first ambiguous neuron of its own
        at = torch.tensor([row])
        child = Task(child_of(root.select(at), 1)[0], objective)
        start = stay.solve(child, stay.init(child, small.select(at)), Until()).lower
        assert bool((start >= parent.lower[row] - 2e-2).all())


def test_cuts_of_a_parent_are_not_found_again() -> None:
    sweep, objective = instance("dense", 3)
    task = Task(sweep, objective)
    first = Propagated.one_by_one(SHORT, SHORT, (0.5,)).begin(task, Until())
    assert isinstance(first.state, Shares)
    more = Propagated.one_by_one(SHORT, SHORT, (0.5, 0.3)).begin(task, Until(), first.state)
    assert isinstance(more.state, Shares)
    assert more.iterations == 24
    assert more.state.masks.count == 2
    for mine, old in zip(more.state.masks.cuts[0], first.state.masks.cuts[0], strict=True):
        assert (mine is None) == (old is None)
        assert mine is None or old is None or torch.equal(mine.bits, old.bits)


def test_a_passed_deadline_leaves_the_bound_of_the_start_and_joins_with_later_parts() -> None:
    sweep, objective = instance("dense", 2, rows=2)
    late = Propagated.in_rounds(SHORT, SHORT).bound(sweep.net, sweep.region, objective, Until(Clock.begin(0.0)))
    crown = SlopeDual(sweep, objective)
    torch.testing.assert_close(late.lower, crown.evaluate(crown.start()).lower, rtol=0, atol=1e-12)
    assert isinstance(late.state, Shares)
    assert late.state.masks.count == 0
    full = Propagated.in_rounds(SHORT, SHORT).bound(sweep.net, sweep.region, objective, Until())
    assert isinstance(full.state, Shares)
    joined = cat([late.state.part(0, 1), full.state.part(1, 2)], dim=1)
    expected = torch.stack([late.lower[:, 0], full.lower[:, 1]], dim=1)
    torch.testing.assert_close(joined.lower(Task(sweep, objective)), expected)


# ---------------------------------------------------------------- rounding


@pytest.mark.parametrize("kind", KINDS)
@given(seed=SEEDS)
@settings(max_examples=12)
def test_rounding_is_covered_for_all_shares(kind: str, seed: int) -> None:
    net, lower, upper, exact = cancelling(seed)
    region = RootBounds().region(net, lower, upper, Until())
    assert bool(region.ambiguous(1).all())
    sweep, objective = Sweep.prepare(net, region, 2), Objective(2, torch.ones(1, 1, 1, dtype=torch.float64))
    dual = PropagatedDual.of(Geometries(sweep), objective, random_masks(sweep, objective, kind, seed))
    point = random_point(dual, seed)
    size = float(sweep.slacks[0].sum()) if sweep.slacks is not None else 0.0
    found = float(dual.evaluate(point).lower)
    assert Fraction(found) <= exact
    assert found >= float(exact) - 100 * size
    point[..., dual.slopes.variables :] *= 3.0  # no feasible weights: loose, but valid
    assert Fraction(float(dual.evaluate(point).lower)) <= exact
