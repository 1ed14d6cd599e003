"""The dual solvers: gradients, validity at every iterate, their linear programs, equality cases, splits, batches."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache

import networks
import pytest
import torch
from bounding.cases import meetings
from falsify.instances import layer
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from verifier.bounding import HIDDEN
from verifier.bounding.core.ascent import Ascent, Dual, Steps
from verifier.bounding.core.base import Bounder, Objective, Region, Until
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.anderson import RowGeometry
from verifier.bounding.cuts.masks import Form, RandomMasks
from verifier.bounding.hidden import RootBounds
from verifier.bounding.lp.bounder import CutLP, PlanetLP
from verifier.bounding.relaxation.interval import Interval
from verifier.bounding.solvers.active_set import ActiveSet, Additions, OraclePoint
from verifier.bounding.solvers.alpha_crown import AlphaCrown, SlopeDual
from verifier.bounding.solvers.bdd_plus import BddPlus
from verifier.bounding.solvers.big_m import BigM, Start
from verifier.bounding.solvers.crown import Linear
from verifier.bounding.solvers.lagrangian import Lagrangian
from verifier.bounding.solvers.saddle_point import SaddlePoint
from verifier.functions import RELU
from verifier.network.network import Network

SHORT = Ascent(25, Steps(0.05, 0.01))
SOLVERS: dict[str, Bounder] = {
    "alpha_crown": AlphaCrown(SHORT),
    "big_m": BigM(SHORT),
    "big_m_zero": BigM(SHORT, Start.ZERO),
    "active_set": ActiveSet(SHORT, SHORT, Additions(10, 2, 3)),
    "active_set_shared": ActiveSet(SHORT, SHORT, Additions(10, 1, 3), masks=Form.SHARED, point=OraclePoint.AVERAGE),
    "active_set_random": ActiveSet(SHORT, SHORT, Additions(10, 2, 3), selection=RandomMasks(3)),
    "bdd_plus": BddPlus(25, weights=Steps(1.0, 20.0, linear=True)),
    "saddle_point": SaddlePoint(25, initial=ActiveSet(Ascent(0, SHORT.steps), SHORT, Additions(most=0))),
}
TIGHT = {"active_set", "active_set_shared", "active_set_random", "saddle_point"}  # may exceed the Planet relaxation


def untied(solver: Bounder) -> Bounder:
    """The same solver, beginning with all multipliers at zero.

    At those of CROWN's bound all coefficients of x vanish but for rounding: the last bits, which depend on the size of
    the batch and on the processor, would decide which way an ascent takes.
    """
    if isinstance(solver, SaddlePoint):
        return replace(solver, initial=replace(solver.initial, start=Start.ZERO))
    return replace(solver, start=Start.ZERO) if isinstance(solver, BigM | ActiveSet) else solver


def root(net: Network, seed: int, radius: float = 0.6, count: int = 2, method: str = "best") -> Region:
    lower, upper = networks.box(net, seed, radius, count)
    return HIDDEN.build(method).region(net, lower, upper, Until())


def rows(net: Network, seed: int, count: int = 2) -> Objective:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(1, count, net.n_out, generator=generator, dtype=torch.float64)
    inputs = 0.1 * torch.randn(1, count, net.n_in, generator=generator, dtype=torch.float64)
    return Objective(len(net.layers), weights, inputs, torch.ones(1, count, dtype=torch.float64))


def values(net: Network, objective: Objective, x: torch.Tensor) -> torch.Tensor:
    assert objective.inputs is not None
    assert objective.constant is not None
    return net.forward(x) @ objective.coefficients[0].T + x @ objective.inputs[0].T + objective.constant[0]


def with_split(net: Network, region: Region, sign: int) -> tuple[Region, int, int]:
    """Split the most ambiguous neuron of the first group, in all regions."""
    k = next(k for k in range(1, region.known + 1) if bool(region.ambiguous(k).all(dim=0).any()))
    neuron = int(torch.nonzero(region.ambiguous(k).all(dim=0))[0])
    low, high = [t.clone() for t in region.l_hat], [t.clone() for t in region.u_hat]
    splits = [torch.zeros_like(t, dtype=torch.int8) for t in low]
    splits[k - 1][:, neuron] = sign
    (low if sign > 0 else high)[k - 1][:, neuron] = 0.0
    return replace(region, l_hat=tuple(low), u_hat=tuple(high), splits=tuple(splits)), k, neuron


@cache
def program(family: str, seed: int, rounds: int | None, radius: float = 0.6, sign: int = 0) -> torch.Tensor:
    """The optimum of a linear program that several solvers are compared with: Planet's, or with so many rounds of cuts.

    With a sign a neuron is split.
    """
    net = networks.FAMILIES[family](seed)
    region, objective = root(net, seed, radius=radius, count=1), rows(net, seed)
    if sign:
        region, _, _ = with_split(net, region, sign)
    reference: Bounder = PlanetLP() if rounds is None else CutLP(rounds=rounds)
    return reference.bound(net, region, objective, Until()).lower


@meetings([*SOLVERS])
@given(seed=st.integers(0, 2**16))
@settings(max_examples=2)
def test_bounds_are_valid_and_below_their_linear_program(family: str, solver: str, seed: int) -> None:
    net = networks.FAMILIES[family](seed)
    region, objective = root(net, seed, count=1), rows(net, seed)
    found = SOLVERS[solver].bound(net, region, objective, Until())
    x = networks.points(region.lower, region.upper, 200, seed)
    assert bool((values(net, objective, x) >= found.lower).all())
    most = program(family, seed, 6 if solver in TIGHT else None)
    tolerance = 2e-3 if solver in TIGHT else 1e-6  # a finite number of rounds leaves a little of A
    assert bool((found.lower <= most + tolerance).all())


@meetings([*SOLVERS])
def test_no_iterate_is_invalid_and_the_best_is_kept(family: str, solver: str) -> None:
    net = networks.FAMILIES[family](11)
    region, objective = root(net, 11, count=1), rows(net, 11)
    most = program(family, 11, 8)
    start = _shortened(SOLVERS[solver], 0).bound(net, region, objective, Until()).lower
    for count in (1, 6):
        lower = _shortened(SOLVERS[solver], count).bound(net, region, objective, Until()).lower
        assert bool((lower <= most + 2e-3).all())
        assert bool((lower >= start - 1e-12).all())


def _shortened(solver: Bounder, count: int) -> Bounder:
    short = Ascent(count, SHORT.steps)
    if isinstance(solver, SaddlePoint | BddPlus):
        return replace(solver, iterations=count)
    assert isinstance(solver, AlphaCrown | BigM | ActiveSet)
    return replace(solver, ascent=short)


def duals(net: Network, seed: int, split: bool) -> dict[str, tuple[Dual, torch.Tensor]]:
    """Each dual function with a random interior point."""
    region = root(net, seed)
    if split:
        assume(any(bool(region.ambiguous(k).all(dim=0).any()) for k in range(1, region.known + 1)))
        region, _, _ = with_split(net, region, 1 if seed % 2 else -1)
    objective = rows(net, seed)
    sweep = Sweep.prepare(net, region, objective.layer)
    plain = Lagrangian(sweep, objective)
    generator = torch.Generator().manual_seed(seed)
    geometry = [RowGeometry.of(g, region, k.index) for g, k in zip(net.groups, sweep.kinks, strict=True)]
    masks = [torch.rand(2, 2, *g.columns.shape, generator=generator, dtype=torch.float64) < 0.5 for g in geometry]
    cut = plain.with_cuts(tuple(g.cut(mask) for g, mask in zip(geometry, masks, strict=True)))
    slopes = SlopeDual(sweep, objective)

    def random(shape: torch.Size) -> torch.Tensor:
        return 0.1 + 0.8 * torch.rand(shape, generator=generator, dtype=torch.float64)

    return {
        "slopes": (slopes, random(slopes.start().shape)),
        "big_m": (plain, random(plain.zero().shape)),
        "cuts": (cut, random(cut.zero().shape)),
    }


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("name", ["slopes", "big_m", "cuts"])
@pytest.mark.parametrize("split", [False, True])
@given(seed=st.integers(0, 2**16))
@settings(max_examples=3)
def test_supergradients_equal_finite_differences(family: str, name: str, split: bool, seed: int) -> None:
    net = networks.FAMILIES[family](seed)
    dual, point = duals(net, seed, split)[name]
    gradient = dual.supergradient(point, dual.evaluate(point))
    direction = torch.randn(point.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    h = 1e-7
    ahead, behind = (dual.evaluate(point + s * h * direction).lower for s in (1, -1))
    expected = (ahead - behind) / (2 * h)
    torch.testing.assert_close((gradient * direction).sum(-1), expected, rtol=1e-4, atol=1e-4)


def test_zero_multipliers_give_the_interval_image_of_the_last_layer() -> None:
    net = networks.dense(4, (3, 6, 6, 2))
    region = root(net, 4, radius=3.0, method="interval")
    assert not any(bool((low >= 0).all(dim=0).any()) for low in region.l_hat)  # no neuron passes
    objective = Objective(3, torch.eye(2, dtype=torch.float64).unsqueeze(0))
    dual = Lagrangian(Sweep.prepare(net, region, 3), objective)
    interval = Interval().bound(net, region, objective, Until()).lower
    torch.testing.assert_close(dual.evaluate(dual.zero()).lower, interval, rtol=0, atol=1e-9)


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_a_linear_bound_has_multipliers_of_the_same_value(family: str) -> None:
    net = networks.FAMILIES[family](6)
    region, objective = root(net, 6), rows(net, 6)
    dual = Lagrangian(Sweep.prepare(net, region, objective.layer), objective)
    linear = Linear().bound(net, region, objective, Until()).lower
    torch.testing.assert_close(dual.evaluate(Start.LINEAR.point(dual)).lower, linear, rtol=0, atol=1e-9)


def test_ties_of_z_go_up_as_in_the_paper() -> None:
    net = networks.dense(4, (3, 6, 6, 2))
    dual = Lagrangian(Sweep.prepare(net, root(net, 4, radius=3.0), 3), rows(net, 4))
    assert all(bool((z == 1).all()) for z in dual.evaluate(dual.zero()).z)


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=3)
def test_the_oracle_sees_a_vertex_of_the_boxes(family: str, seed: int) -> None:
    """Passing neurons go to the nearer end, everything else stays; averages are of the points themselves."""
    net = networks.FAMILIES[family](seed)
    region = root(net, seed, radius=0.3)
    dual, point = duals(net, seed, split=False)["big_m"]
    assert isinstance(dual, Lagrangian)
    dual = Lagrangian(Sweep.prepare(net, region, dual.objective.layer), dual.objective)
    point = torch.rand(dual.zero().shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    at = dual.evaluate(point)
    inside, vertex = OraclePoint.AVERAGE.values(dual, at), OraclePoint.MINIMISER.values(dual, at)
    for j, (x, end) in enumerate(zip(inside, vertex, strict=True)):
        assert x is not None
        assert end is not None
        low, high = (side.unsqueeze(1).expand_as(x) for side in region.source(j))
        torch.testing.assert_close((end - x).abs(), torch.minimum((x - low).abs(), (high - x).abs()), rtol=0, atol=0)
        assert bool(((end == low) | (end == high)).all())
        moved = end != x
        assert not bool(moved.any()) if j == 0 else not bool((moved & region.ambiguous(j).unsqueeze(1)).any())
    torch.testing.assert_close(list(inside), dual.primal(at)[0], rtol=0, atol=0)


def test_an_empty_active_set_is_big_m() -> None:
    net = networks.conv(3)
    region, objective = root(net, 3), rows(net, 3)
    big_m = BigM(SHORT).bound(net, region, objective, Until()).lower
    nothing = Ascent(0, SHORT.steps)
    active = ActiveSet(nothing, SHORT, Additions(most=0)).bound(net, region, objective, Until()).lower
    torch.testing.assert_close(active, big_m, rtol=0, atol=1e-12)


LONG = Ascent(500, Steps(0.3, 1e-3))


@pytest.mark.parametrize(
    ("l_hat", "u_hat", "planet", "anderson"),
    [
        ([-Fraction(9, 4), -Fraction(1, 2)], [Fraction(3), Fraction(9, 4)], Fraction(-27, 22), Fraction(-81, 76)),
        ([Fraction(-3), Fraction(-2)], [Fraction(4), Fraction(3)], Fraction(-9, 5), Fraction(-9, 7)),
        ([Fraction(-2), Fraction(0)], [Fraction(3), Fraction(2)], Fraction(-1), Fraction(-1)),
    ],
    ids=["planet bounds", "interval bounds", "exact bounds"],
)
def test_values_of_the_papers_example(
    l_hat: list[Fraction], u_hat: list[Fraction], planet: Fraction, anderson: Fraction
) -> None:
    net, lower, upper = networks.paper_example()
    first = RootBounds().region(net, lower, upper, Until())
    low, high = (torch.tensor([[float(v) for v in side]], dtype=torch.float64) for side in (l_hat, u_hat))
    region = replace(first, l_hat=(first.l_hat[0], low), u_hat=(first.u_hat[0], high))
    objective = Objective(3, torch.ones(1, 1, 1, dtype=torch.float64))
    assert BigM(LONG).bound(net, region, objective, Until()).lower.item() == pytest.approx(float(planet), abs=2e-3)
    assert AlphaCrown(LONG).bound(net, region, objective, Until()).lower.item() <= float(planet) + 1e-9
    active = ActiveSet(LONG, SHORT, Additions(80, 1, 6), point=OraclePoint.AVERAGE)
    found = active.bound(net, region, objective, Until()).lower.item()
    assert float(planet) - 2e-3 <= found <= float(anderson) + 1e-9
    assert found == pytest.approx(float(anderson), abs=1e-2)


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_alpha_crown_reaches_the_linear_program(family: str) -> None:
    """With interval intermediate bounds all boxes are implied, so that both have the same optimum."""
    net = networks.FAMILIES[family](9)
    region, objective = root(net, 9, method="interval", count=1), rows(net, 9)
    most = PlanetLP().bound(net, region, objective, Until()).lower
    found = AlphaCrown(Ascent(200, Steps(0.1, 1e-3))).bound(net, region, objective, Until()).lower
    torch.testing.assert_close(found, most, rtol=0, atol=3e-3)


@meetings([*SOLVERS])
@pytest.mark.parametrize("sign", [1, -1])
def test_splits_are_constraints(family: str, solver: str, sign: int) -> None:
    """Valid for all points on the split's side, never above the split's linear program, and used: it can help."""
    net = networks.FAMILIES[family](12)
    whole, objective = root(net, 12, radius=1.5, count=1), rows(net, 12)
    region, k, neuron = with_split(net, whole, sign)
    found = SOLVERS[solver].bound(net, region, objective, Until()).lower
    x = networks.points(region.lower, region.upper, 4000, 12)
    inside = net.preactivations(x)[k - 1][..., neuron] * sign >= 0
    assert bool(inside.any())
    assert bool((values(net, objective, x)[inside] >= found[0]).all())
    assert bool((found <= program(family, 12, 6 if solver in TIGHT else None, 1.5, sign) + 2e-3).all())


def test_split_multipliers_reach_the_linear_program_with_splits() -> None:
    gains = []
    for seed in range(4):
        net = networks.dense(seed, (3, 8, 8, 1))
        region, _, _ = with_split(net, root(net, seed, radius=1.0, method="interval", count=1), 1 if seed % 2 else -1)
        objective = rows(net, seed, count=1)
        ignoring = replace(region, splits=None)
        with_multipliers = AlphaCrown(Ascent(150, Steps(0.1, 1e-3))).bound(net, region, objective, Until()).lower
        without = AlphaCrown(Ascent(150, Steps(0.1, 1e-3))).bound(net, ignoring, objective, Until()).lower
        most = PlanetLP().bound(net, region, objective, Until()).lower
        torch.testing.assert_close(with_multipliers, most, rtol=0, atol=5e-3)
        gains.append(float(with_multipliers - without))
    assert max(gains) > 0.01


@pytest.mark.parametrize("solver", SOLVERS)
def test_a_batch_equals_its_members(solver: str) -> None:
    net, method = networks.residual(5), untied(SOLVERS[solver])
    region, objective = root(net, 5, count=3), rows(net, 5)
    sweep = Sweep.prepare(net, region, objective.layer)
    region = replace(region, kinks=tuple(kinks.index for kinks in sweep.kinks))
    together = method.bound(net, region, objective, Until()).lower
    for d in range(3):
        alone = method.bound(net, region.select(torch.tensor([d])), objective, Until()).lower
        torch.testing.assert_close(alone[0], together[d], rtol=0, atol=1e-9)
    parts = replace(method, memory_bytes=1).bound(net, region, objective, Until()).lower
    torch.testing.assert_close(parts, together, rtol=0, atol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_finished_regions_leave_and_the_others_do_not_notice(solver: str) -> None:
    net, method = networks.dense(8, (3, 10, 10, 1)), untied(SOLVERS[solver])
    region, objective = root(net, 8, radius=0.8, count=6), rows(net, 8, count=1)
    kinks = Sweep.prepare(net, region, objective.layer).kinks
    region = replace(region, kinks=tuple(k.index for k in kinks))
    free = method.bound(net, region, objective, Until()).lower
    threshold = float(free.flatten().sort().values[2:4].mean())  # three of six get there
    early = method.bound(net, region, objective, Until(threshold=threshold)).lower
    hard = early <= threshold
    assert 0 < int(hard.sum()) < 6
    torch.testing.assert_close(early[hard], free[hard], rtol=0, atol=1e-9)
    assert bool(((early > threshold) == (free > threshold)).all())


@pytest.mark.parametrize("size", [1.0, 1e6, 1e9, 1e12])
def test_bounds_far_looser_than_the_layer_do_not_hide_rounding(size: float) -> None:
    """One neuron x = relu(x0) over [-1, 1] whose bounds are said to be `size` wide, against rational arithmetic."""
    one = torch.ones(1, 1, dtype=torch.float64)
    net = Network((1,), (layer("hidden", 0, [[1.0]], [0.0]),), layer("output", 1, [[1.0]], [0.0]))
    for seed in range(400):
        share = torch.rand(6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        low, high, row = -size * (0.5 + share[0]), size * (0.5 + share[1]), 2 * share[2] - 1
        region = Region(-one, one, (low.view(1, 1),), (high.view(1, 1),), (RELU,))
        dual = Lagrangian(Sweep.prepare(net, region, 2), Objective(2, row.view(1, 1, 1)))
        point = torch.cat([share[3:], torch.zeros(1, dtype=torch.float64)]).view(1, 1, 4)
        l_hat, u_hat, lam, alpha, beta0, beta1 = (Fraction(float(v)) for v in (low, high, row, *share[3:]))
        f = lam - alpha + beta0 + beta1
        g = beta0 * u_hat + beta1 * l_hat
        exact = min(f * u_hat, Fraction(0)) - max(g, Fraction(0)) + beta1 * l_hat - abs(alpha - beta1)
        assert Fraction(dual.evaluate(point).lower.item()) <= exact
