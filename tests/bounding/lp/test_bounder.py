"""Linear programs as references: exact values, order among relaxations, splits, cuts, deadlines."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import networks
import numpy as np
import oracle
import pytest
import torch
from bounding.cases import random_rows, root, value
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.base import Objective, Region, Until, unit_objectives
from verifier.bounding.lp.bounder import CutLP, PlanetLP, RowCut, cutting_planes, lp_with_cuts
from verifier.bounding.lp.cuts import most_violated_mask
from verifier.bounding.lp.model import Model
from verifier.bounding.lp.solver import Solver
from verifier.bounding.relaxation.interval import Interval
from verifier.bounding.solvers.crown import Linear, Slope
from verifier.clock import Clock
from verifier.functions import RELU
from verifier.network.network import Affine, Network
from verifier.operators import Chain, Dense, Diagonal

CLOSE = 1e-8
SEEDS = st.integers(0, 2**16)


def rows(net: Network, seed: int, count: int = 2) -> Objective:
    return random_rows(net, seed, count)


def instance(family: str, seed: int, radius: float = 0.3, count: int = 1) -> tuple[Network, Region]:
    net = networks.FAMILIES[family](seed)
    return net, root(net, *networks.box(net, seed, radius, count))


def planet(net: Network, region: Region, objective: Objective) -> torch.Tensor:
    return PlanetLP().bound(net, region, objective, Until()).lower


def cut(net: Network, region: Region, objective: Objective, rounds: int) -> torch.Tensor:
    return CutLP(rounds).bound(net, region, objective, Until()).lower


def split(region: Region, k: int, i: int, sign: int) -> Region:
    """The part of a region of one box where neuron i of group k has that sign."""
    splits = region.splits or tuple(torch.zeros(low.shape, dtype=torch.int8) for low in region.l_hat)
    splits, l_hat, u_hat = ([t.clone() for t in ts] for ts in (splits, region.l_hat, region.u_hat))
    splits[k - 1][0, i] = sign
    if sign > 0:
        l_hat[k - 1][0, i].clamp_(min=0)
    else:
        u_hat[k - 1][0, i].clamp_(max=0)
    return replace(region, l_hat=tuple(l_hat), u_hat=tuple(u_hat), splits=tuple(splits))


def first_ambiguous(region: Region) -> tuple[int, int] | None:
    for k in range(1, region.known + 1):
        found = torch.nonzero(region.ambiguous(k)[0]).flatten()
        if len(found):
            return k, int(found[0])
    return None


def leaves(region: Region) -> list[Region]:
    """All sign patterns of the ambiguous neurons."""
    at = first_ambiguous(region)
    if at is None:
        return [region]
    return [leaf for sign in (-1, 1) for leaf in leaves(split(region, *at, sign))]


def exact_minimum(net: Network, region: Region, objective: Objective) -> tuple[float, torch.Tensor]:
    """The minimum of objective 0 by enumeration of all leaves, and a minimiser."""
    found = [PlanetLP().bound(net, leaf, objective.part(0, 1), Until()) for leaf in leaves(region)]
    best = min(found, key=lambda bound: bound.lower.item())
    assert best.x0 is not None
    return best.lower.item(), best.x0[0, 0]


# The example of [SCB] sec:preact-example, whose values are known as fractions.


def example(l_hat: tuple[float, float], u_hat: tuple[float, float]) -> tuple[Network, Region, Objective]:
    net, lower, upper = networks.paper_example()
    pair = [torch.tensor([bounds], dtype=torch.float64) for bounds in ((-3.0, -1.0), (1.0, 3.0), l_hat, u_hat)]
    return (
        net,
        Region(lower, upper, (pair[0], pair[2]), (pair[1], pair[3]), (RELU, RELU)),
        Objective(3, torch.ones(1, 1, 1).double()),
    )


@pytest.mark.parametrize(
    ("l_hat", "u_hat", "over_m", "over_a"),
    [
        ((-9 / 4, -1 / 2), (3.0, 9 / 4), Fraction(-27, 22), Fraction(-81, 76)),
        ((-3.0, -2.0), (4.0, 3.0), Fraction(-9, 5), Fraction(-9, 7)),
        ((-2.0, 0.0), (3.0, 2.0), Fraction(-1), Fraction(-1)),
    ],
    ids=["intermediates over M", "interval intermediates", "exact intermediates"],
)
def test_values_of_the_papers_example(
    l_hat: tuple[float, float], u_hat: tuple[float, float], over_m: Fraction, over_a: Fraction
) -> None:
    net, region, row = example(l_hat, u_hat)
    assert planet(net, region, row).item() == pytest.approx(float(over_m), abs=1e-12)
    assert cut(net, region, row, 0).item() == pytest.approx(float(over_m), abs=1e-12)
    assert cut(net, region, row, 20).item() == pytest.approx(float(over_a), abs=1e-12)


def test_intermediate_bounds_over_m_and_both_ends_of_the_papers_example() -> None:
    net, region, _ = example((-3.0, -2.0), (4.0, 3.0))
    neurons = Objective(2, unit_objectives(2, torch.arange(2), region.lower))
    expected = torch.tensor([[-9 / 4, -1 / 2, -3.0, -9 / 4]], dtype=torch.float64)
    torch.testing.assert_close(planet(net, region, neurons), expected, rtol=0, atol=1e-12)
    ends = Objective(3, torch.tensor([[[1.0], [-1.0]]], dtype=torch.float64))
    found = [min(planet(net, leaf, ends.part(s, s + 1)).item() for leaf in leaves(region)) for s in (0, 1)]
    assert found == pytest.approx([-1.0, -5.0], abs=1e-12)


# Order: other bounds <= M <= M with cuts <= the network.


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=SEEDS, radius=st.sampled_from([0.1, 0.3, 1.0]))
@settings(max_examples=6)
def test_between_the_propagated_bounds_and_the_network(family: str, seed: int, radius: float) -> None:
    net, region = instance(family, seed, radius, count=2)
    objective = rows(net, seed)
    x = networks.points(region.lower, region.upper, 300, seed)
    over_m, over_a = planet(net, region, objective), cut(net, region, objective, 2)
    for bounder in (Interval(), Linear(), Linear(Slope.PARALLEL)):
        assert bool((bounder.bound(net, region, objective, Until()).lower <= over_m + CLOSE).all())
    assert bool((over_m <= over_a + CLOSE).all())
    assert bool((over_a <= value(net, objective, x) + CLOSE).all())


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=SEEDS)
@settings(max_examples=5)
def test_projecting_z_out_changes_nothing(family: str, seed: int) -> None:
    net, region = instance(family, seed)
    objective = rows(net, seed)
    torch.testing.assert_close(planet(net, region, objective), cut(net, region, objective, 0), rtol=0, atol=CLOSE)


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_exact_without_ambiguous_neurons_and_attained(family: str) -> None:
    net, region = instance(family, 7, radius=1e-3)
    assert first_ambiguous(region) is None
    objective = rows(net, 5)
    bound = PlanetLP().bound(net, region, objective, Until())
    assert bound.x0 is not None
    attained = value(net, objective, bound.x0.transpose(0, 1)).diagonal(dim1=0, dim2=2)
    torch.testing.assert_close(attained, bound.lower, rtol=0, atol=CLOSE)
    torch.testing.assert_close(bound.lower, Linear().bound(net, region, objective, Until()).lower, rtol=0, atol=CLOSE)


# Splits, and an independent implementation.


def as_oracle(net: Network) -> oracle.Dag:
    """The same network as plain matrices."""
    nodes = []
    for layer in net.layers:
        weights = [term.forward(torch.eye(term.n_in, dtype=torch.float64)).T.numpy() for _, term in layer.terms]
        nodes.append(([source for source, _ in layer.terms], weights, layer.bias.numpy()))
    return oracle.dag(net.n_in, nodes)


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("method", ["interval", "best"])
@given(seed=SEEDS, sign=st.sampled_from([-1, 0, 1]))
@settings(max_examples=5)
def test_agrees_with_the_oracle(family: str, method: str, seed: int, sign: int) -> None:
    net = networks.FAMILIES[family](seed)
    region = root(net, *networks.box(net, seed, 0.4), method)
    at = first_ambiguous(region)
    if sign and at is not None:
        region = split(region, *at, sign)
    objective = rows(net, seed, count=1)
    assert objective.inputs is not None
    assert objective.constant is not None
    row = [objective.coefficients[0].numpy(), -objective.constant[0].numpy(), objective.inputs[0].numpy()]
    box = region.lower[0].numpy(), region.upper[0].numpy()
    bounds = [(low[0].numpy(), high[0].numpy()) for low, high in zip(region.l_hat, region.u_hat, strict=True)]
    expected = oracle.planet_lp_of_max(as_oracle(net), box, bounds, *row)
    assert planet(net, region, objective).item() == pytest.approx(expected, abs=1e-7)


@given(seed=SEEDS, family=st.sampled_from(["dense", "residual"]))
@settings(max_examples=8)
def test_leaves_contain_the_minimum_and_cuts_never_pass_it(seed: int, family: str) -> None:
    net, region = instance(family, seed, radius=0.4)
    if sum(int(region.ambiguous(k).sum()) for k in range(1, region.known + 1)) > 6:
        return  # too many leaves
    objective = rows(net, seed, count=1)
    minimum, x0 = exact_minimum(net, region, objective)
    assert value(net, objective, x0[None, None]).item() == pytest.approx(minimum, abs=1e-7)
    assert objective.inputs is not None
    assert objective.constant is not None
    row = [objective.coefficients[0].numpy(), -objective.constant[0].numpy(), objective.inputs[0].numpy()]
    exact = oracle.minimum_of_max(as_oracle(net), (region.lower[0].numpy(), region.upper[0].numpy()), *row)
    assert minimum == pytest.approx(exact.value, abs=1e-6)
    bounds = [planet(net, region, objective).item(), *(cut(net, region, objective, r).item() for r in (1, 2, 4, 8))]
    for before, after in itertools.pairwise([*bounds, minimum]):
        assert before <= after + CLOSE


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=SEEDS)
@settings(max_examples=6)
def test_children_cover_their_parent_and_never_lie_below_it(family: str, seed: int) -> None:
    net, region = instance(family, seed)
    objective = rows(net, seed)
    at = first_ambiguous(region)
    if at is None:
        return
    parent = planet(net, region, objective)
    children = torch.stack([planet(net, split(region, *at, sign), objective) for sign in (-1, 1)])
    assert bool((children >= parent - CLOSE).all())
    x = networks.points(region.lower, region.upper, 300, seed)
    side = (net.preactivations(x)[at[0] - 1][..., at[1]] > 0).long().flatten()  # [P], one box
    assert bool((value(net, objective, x)[:, 0] >= children[side, 0] - CLOSE).all())


def test_a_blocking_split_constrains_the_input() -> None:
    """One neuron x_hat = x0 over [-1, 1]: min of the input itself is -1, and 0 once the neuron has to pass."""
    net = networks.dense(0, (1, 1, 1))
    one, nothing = torch.ones(1, 1).double(), torch.zeros(1).double()
    first = Affine("first", (1,), ((0, Dense(one)),), nothing, nothing)
    net = replace(net, groups=(first,))
    region = root(net, -one, one)
    up, down = torch.ones(1, 1, 1).double(), -torch.ones(1, 1, 1).double()
    for sign, inputs, expected in ((1, up, 0.0), (1, down, -1.0), (-1, up, -1.0), (-1, down, 0.0)):
        row = Objective(2, torch.zeros(1, 1, 1).double(), inputs)
        assert planet(net, split(region, 1, 0, sign), row).item() == pytest.approx(expected, abs=1e-12)


def test_an_empty_region_has_an_infinite_bound() -> None:
    """Both neurons of the example's first group see x0 - x1; blocking the larger and passing the smaller is void."""
    net, region, row = example((-3.0, -2.0), (4.0, 3.0))
    void = split(split(region, 1, 0, 1), 1, 1, -1)
    assert planet(net, void, row).item() == math.inf
    assert cut(net, void, row, 3).item() == math.inf
    crossed = replace(region, l_hat=(region.l_hat[0], region.u_hat[1] + 1), u_hat=region.u_hat)
    assert planet(net, crossed, row).item() == math.inf


# Cuts.


@given(seed=SEEDS)
@settings(max_examples=20)
def test_the_oracle_finds_the_most_violated_mask(seed: int) -> None:
    rng = np.random.default_rng(seed)
    weight, low = rng.normal(size=5), rng.normal(size=5)
    high = low + rng.uniform(size=5)
    z, x = rng.uniform(), rng.uniform(low, high)
    l_check, u_check = np.where(weight >= 0, low, high), np.where(weight >= 0, high, low)

    def right_hand_side(mask: np.ndarray) -> float:
        masked = weight * mask @ x - (1 - z) * (weight * mask @ l_check)
        return float(masked + z * (weight * (1 - mask) @ u_check))

    best = min(right_hand_side(np.array(mask)) for mask in itertools.product([0, 1], repeat=5))
    found = most_violated_mask(weight, low, high, x, np.full(5, z)).astype(int)
    assert right_hand_side(found) == pytest.approx(best, abs=1e-12)


def every_cut(net: Network, region: Region) -> list[RowCut]:
    """All masks of all ambiguous neurons."""
    found = []
    for k in range(1, region.known + 1):
        width = sum(term.n_in for _, term in net.groups[k - 1].terms)
        masks = torch.tensor(list(itertools.product([False, True], repeat=width)))
        neurons = torch.nonzero(region.ambiguous(k)[0]).flatten().tolist()
        found += [RowCut(k, i, torch.arange(width), mask) for i in neurons for mask in masks]
    return found


def small_residual(seed: int) -> Network:
    """Two sources of two and three entries for the second group."""
    generator = torch.Generator().manual_seed(seed)
    layers = [
        networks.affine("first", {0: networks.matrix(3, 2, generator)}, generator),
        networks.affine(
            "second", {1: networks.matrix(3, 3, generator), 0: networks.matrix(3, 2, generator)}, generator
        ),
        networks.affine("out", {2: networks.matrix(1, 3, generator)}, generator),
    ]
    return Network((2,), tuple(layers[:-1]), layers[-1])


@given(seed=SEEDS)
@settings(max_examples=10)
def test_cutting_planes_reach_the_program_with_all_masks(seed: int) -> None:
    net = small_residual(seed)
    region = root(net, *networks.box(net, seed, 2.0))
    objective = rows(net, seed, count=1)
    all_masks = lp_with_cuts(net, region, objective, every_cut(net, region)).lower
    torch.testing.assert_close(cut(net, region, objective, 60), all_masks, rtol=0, atol=1e-5)


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=SEEDS)
@settings(max_examples=4)
def test_the_cuts_that_were_found_give_the_same_program(family: str, seed: int) -> None:
    net, region = instance(family, seed, radius=1.0)
    objective = rows(net, seed)
    model = Model.planet(net, region, objective.layer, with_z=True)
    solver = Solver(model.program)
    cost, constant = model.costs(net, objective, 0, 1)
    found = cutting_planes(model, solver, cost, CutLP(2), Until())
    cuts = [cut for added in found.cuts for cut in added]
    again = lp_with_cuts(net, region, objective, cuts).lower[0, 1].item()
    assert found.best.lower + constant == pytest.approx(again, abs=CLOSE)
    torch.testing.assert_close(
        lp_with_cuts(net, region, objective, []).lower, planet(net, region, objective), rtol=0, atol=CLOSE
    )


def test_rounds_are_counted_as_they_were_made() -> None:
    net = networks.dense(3, (3, 12, 12, 2))
    region, objective = root(net, *networks.box(net, 3, 2.0)), rows(net, 3)
    assert PlanetLP().bound(net, region, objective, Until()).iterations == 0
    assert CutLP(0).bound(net, region, objective, Until()).iterations == 0
    assert CutLP(1).bound(net, region, objective, Until()).iterations == 1
    assert 1 < CutLP(500).bound(net, region, objective, Until()).iterations < 500  # until no cut is violated
    assert CutLP(3, tolerance=1e6).bound(net, region, objective, Until()).iterations == 0


def test_how_a_cut_is_written_does_not_matter() -> None:
    """Columns in any order, zeros listed or not; cuts of stable neurons are implied."""
    net, region = instance("residual", 7, radius=0.5)
    objective = rows(net, 6)
    generator = torch.Generator().manual_seed(0)
    dense, sparse = [], []
    for k, group in enumerate(net.groups, start=1):
        width = sum(term.n_in for _, term in group.terms)
        for i in range(group.size):
            mask = torch.rand(width, generator=generator) < 0.5
            chosen = torch.nonzero(mask).flatten().flip(0)
            sparse.append(RowCut(k, i, chosen, torch.ones(len(chosen), dtype=torch.bool)))
            if bool(region.ambiguous(k)[0, i]):
                dense.append(RowCut(k, i, torch.arange(width), mask))
    assert 0 < len(dense) < len(sparse)
    with_dense = lp_with_cuts(net, region, objective, dense).lower
    assert bool((with_dense > planet(net, region, objective) + 1e-4).any())
    torch.testing.assert_close(lp_with_cuts(net, region, objective, sparse).lower, with_dense, rtol=0, atol=CLOSE)


def test_each_objective_starts_without_the_cuts_of_the_last() -> None:
    net, region = instance("residual", 6, radius=1.5)
    row = Objective(4, rows(net, 1, count=1).coefficients)
    twice = Objective(4, row.coefficients.repeat(1, 2, 1))
    assert cut(net, region, row, 2).item() > cut(net, region, row, 1).item() + 1e-2
    found = cut(net, region, twice, 1)
    assert found[0, 0].item() == pytest.approx(found[0, 1].item(), abs=CLOSE)


def test_cuts_help() -> None:
    """Guards the laws above, which a bounder without cuts would obey too."""
    net, region = instance("dense", 3, radius=1.5)
    objective = rows(net, 1)
    assert bool((cut(net, region, objective, 1) > planet(net, region, objective) + 1e-3).all())


def test_cuts_add_nothing_where_neurons_have_one_input() -> None:
    generator = torch.Generator().manual_seed(2)

    def scale() -> Diagonal:
        return Diagonal(torch.randn(4, generator=generator, dtype=torch.float64))

    layers = [networks.affine("first", {0: scale()}, generator), networks.affine("second", {1: scale()}, generator)]
    net = Network((4,), tuple(layers), networks.affine("out", {2: networks.matrix(2, 4, generator)}, generator))
    region = root(net, *networks.box(net, 0, 4.0))
    assert int(region.ambiguous(1).sum() + region.ambiguous(2).sum()) > 3
    objective = rows(net, 0, count=4)
    torch.testing.assert_close(cut(net, region, objective, 5), planet(net, region, objective), rtol=0, atol=CLOSE)


def test_masks_refer_to_the_product_of_composed_maps() -> None:
    generator = torch.Generator().manual_seed(4)
    inner, outer = networks.matrix(3, 4, generator), networks.matrix(4, 3, generator)
    first = networks.affine("first", {0: networks.matrix(4, 3, generator)}, generator)
    second = networks.affine("second", {1: Chain((inner, outer))}, generator)
    last = networks.affine("out", {2: networks.matrix(1, 4, generator)}, generator)
    composed = Network((3,), (first, second), last)
    product = replace(composed, groups=(first, replace(second, terms=((1, Dense(outer.weight @ inner.weight)),))))
    region = root(product, *networks.box(product, 1, 2.0))
    objective = rows(product, 0, count=3)
    over_a = cut(product, region, objective, 3)
    assert bool((over_a > planet(product, region, objective) + 1e-4).any())
    torch.testing.assert_close(cut(composed, region, objective, 3), over_a, rtol=0, atol=CLOSE)


# The bounder itself: batches, precision, deadlines, refusals.


@pytest.mark.parametrize("bounder", [PlanetLP(), CutLP(2)], ids=["lp", "lp_cuts"])
def test_a_batch_equals_its_members(bounder: PlanetLP | CutLP) -> None:
    net, region = instance("residual", 2, radius=1.0, count=3)
    objective = rows(net, 1, count=3)
    each = Objective(
        objective.layer, objective.coefficients.repeat(3, 1, 1) * torch.tensor([1.0, -1.0, 2.0]).view(3, 1, 1)
    )
    whole = bounder.bound(net, region, each, Until()).lower
    for d, s in itertools.product(range(3), range(3)):
        alone = region.select(torch.tensor([d]))
        found = bounder.bound(net, alone, each.select(torch.tensor([d])).part(s, s + 1), Until()).lower
        assert found.item() == pytest.approx(whole[d, s].item(), abs=1e-7 if bounder == PlanetLP() else 5e-3)


def test_multipliers_of_any_kind_prove_a_bound() -> None:
    """So a solver that is stopped, or wrong, cannot give an invalid one."""
    net, region = instance("residual", 5, radius=1.0)
    objective = rows(net, 5)
    model = Model.planet(net, region, objective.layer, with_z=True)
    cost, constant = model.costs(net, objective, 0, 0)
    rng = np.random.default_rng(0)
    minimum = planet(net, region, objective)[0, 0].item()
    for scale in (0.0, 0.1, 1.0, 10.0):
        y = scale * rng.normal(size=model.program.rows.count)
        found = model.program.dual_value(cost, y) + constant
        assert math.isfinite(found)
        assert found <= minimum + CLOSE


def test_deadlines_leave_valid_bounds() -> None:
    net = networks.dense(1, (20, 80, 80, 80, 2))
    region = root(net, *networks.box(net, 1, 0.5))
    objective = rows(net, 0)
    passed = Until(Clock.begin(0.0))
    assert bool((PlanetLP().bound(net, region, objective, passed).lower == -math.inf).all())
    model = Model.planet(net, region, objective.layer, with_z=False)
    cost, _ = model.costs(net, objective, 0, 0)
    times = []
    for _ in range(3):  # the shortest, since other programs may slow down some
        fresh, clock = Solver(model.program), Clock.begin()
        full = fresh.solve(cost, Until())
        times.append(clock.elapsed())
    solver = Solver(model.program)
    solver.solve(model.costs(net, objective, 0, 1)[0], Until())  # its time must not count
    ended_early = 0
    for share in (0.05, 0.1, 0.2) * 4:  # no single time is sure to be too short
        late = Solver(model.program).solve(cost, Until(Clock.begin(share * min(times))))
        assert math.isfinite(late.lower)
        assert late.lower <= full.lower + CLOSE
        ended_early += late.point is None
    assert ended_early
    assert solver.solve(cost, Until(Clock.begin(100 * max(times)))).lower == pytest.approx(full.lower, abs=CLOSE)


def test_float32_networks_are_solved_in_float64() -> None:
    net, region = instance("conv", 1)
    objective = rows(net, 1)
    single = [
        replace(region, lower=region.lower.float(), upper=region.upper.float()),
        Objective(objective.layer, objective.coefficients.float()),
    ]
    single[0] = replace(
        single[0], l_hat=tuple(t.float() for t in region.l_hat), u_hat=tuple(t.float() for t in region.u_hat)
    )
    found = PlanetLP().bound(net.to(dtype=torch.float32), single[0], single[1], Until())
    assert found.lower.dtype is torch.float32
    expected = planet(net, region, Objective(objective.layer, objective.coefficients))
    torch.testing.assert_close(found.lower.double(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("architecture", "image", "over_m", "one_round"),
    [
        ("base", "img8194", -0.26843, -0.19775),
        ("base", "img3161", -0.27290, None),
        pytest.param("deep", "img4325", -0.23324, None, marks=pytest.mark.slow),
    ],
)
def test_values_on_oval21(
    benchmarks: Path, architecture: str, image: str, over_m: float, one_round: float | None
) -> None:
    """The worst row at the root, against values from an independent prototype (five digits)."""
    from verifier.network.models.onnx import load_onnx
    from verifier.property.problem import canonicalise
    from verifier.property.vnnlib import load_property

    folder = benchmarks / "oval21"
    net = load_onnx(folder / "onnx" / f"cifar_{architecture}_kw.onnx.gz").network()
    (path,) = (folder / "vnnlib").glob(f"*{architecture}*{image}-*")
    problem = canonicalise(net, load_property(path))
    region = root(net, problem.lower, problem.upper)
    objective = Objective(len(net.layers), torch.cat([clause.A for clause in problem.rows]).unsqueeze(0))
    worst = int(Linear().bound(net, region, objective, Until()).lower[0].argmin())
    row = objective.part(worst, worst + 1)
    assert planet(net, region, row).item() == pytest.approx(over_m, abs=1e-5)
    if one_round is not None:
        assert cut(net, region, row, 1).item() == pytest.approx(one_round, abs=5e-3)
