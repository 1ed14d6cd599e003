"""Zonotopes enclose what the network computes, in both precisions, and are as tight as parallel faces."""

from __future__ import annotations

from dataclasses import replace

import networks
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.base import Until
from verifier.bounding.hidden import RootBounds
from verifier.bounding.relaxation import bands
from verifier.bounding.relaxation.bands import curve_band
from verifier.bounding.relaxation.form import AffineForm, growth
from verifier.bounding.relaxation.zonotope import Zonotopes, image, propagate
from verifier.bounding.solvers.crown import Slope
from verifier.functions import PRODUCT
from verifier.functions.base import Scalar
from verifier.functions.powers import Power, PowerOptions
from verifier.functions.sigmoids import Sigmoid, Tanh
from verifier.network.network import Affine, Network
from verifier.operators import Dense

SEEDS = st.integers(0, 10_000)
FAMILY = st.sampled_from(sorted(networks.FAMILIES))
PRECISION = st.sampled_from([torch.float32, torch.float64])


def branches() -> Network:
    """y = relu(x_0) - relu(x_1) - x_0 / 2 + x_1 / 2; the two ReLUs lie in groups that do not read each other."""
    generator = torch.Generator().manual_seed(0)

    def layer(name: str, terms: dict[int, list[list[float]]]) -> object:
        made = networks.affine(name, {j: Dense(torch.tensor(w).double()) for j, w in terms.items()}, generator)
        return type(made)(made.name, made.shape, made.terms, torch.zeros_like(made.bias), made.bias_error)

    groups = layer("first", {0: [[1.0, 0.0]]}), layer("second", {0: [[0.0, 1.0]]})
    out = layer("out", {1: [[1.0]], 2: [[-1.0]], 0: [[-0.5, 0.5]]})
    return Network((2,), groups, out)  # type: ignore[arg-type]


def ends(found: Zonotopes) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Bounds of all groups and of the output, in float64."""
    pairs = [*zip(found.l_hat, found.u_hat, strict=True), found.output.ends()]
    return [(low.double(), high.double()) for low, high in pairs]


def test_what_may_have_no_value_leaves_nothing_known() -> None:
    """Sigmoid(1 / x): on boxes with 0 inside, at an end, and outside; and if nobody reads the reciprocal."""
    inverse, gate = Power(PowerOptions(-1.0)), Sigmoid()
    one, zero = torch.ones(1, dtype=torch.float64), torch.zeros(1, dtype=torch.float64)
    groups = (
        Affine("inverse", (1, 1), ((0, Dense(one.unsqueeze(0))),), zero, zero, inverse),
        Affine("gate", (1, 1), ((1, Dense(one.unsqueeze(0))),), zero, zero, gate),
    )
    lower, upper = (torch.tensor(ends, dtype=torch.float64).unsqueeze(1) for ends in ((-1, 0, 1), (1, 1, 2)))
    for source in (2, 0):
        output = Affine("output", (1, 1), ((source, Dense(one.unsqueeze(0))),), zero, zero)
        low, high = propagate(Network((1, 1), groups, output), lower, upper).output.ends()
        assert torch.isfinite(low).flatten().tolist() == [False, False, True]
        assert torch.isfinite(high).flatten().tolist() == [False, False, True]


@settings(max_examples=30)
@given(FAMILY, SEEDS, PRECISION, st.sampled_from([1, 2, 512]))
def test_every_point_is_enclosed(family: str, seed: int, dtype: torch.dtype, most: int) -> None:
    net = networks.FAMILIES[family](seed)
    lower, upper = networks.box(net, seed, 0.7, 3)
    found = propagate(net.to(dtype=dtype), lower, upper, most)
    values = net.preactivations(networks.points(lower, upper, 60, seed))
    for (low, high), x_hat in zip(ends(found), values, strict=True):
        assert bool((low - 1e-12 <= x_hat).all())
        assert bool((x_hat <= high + 1e-12).all())


@settings(max_examples=30)
@given(FAMILY, SEEDS)
def test_rounding_in_float32_is_paid_for(family: str, seed: int) -> None:
    """Boxes of a single point: all that is left of the bounds' width is the error term."""
    net = networks.FAMILIES[family](seed)
    point, _ = networks.box(net, seed, 0.0, 40)
    point = 1000 * point
    found = propagate(net.to(dtype=torch.float32), point, point)
    for (low, high), x_hat in zip(ends(found), net.preactivations(point), strict=True):
        assert bool((low <= x_hat).all())
        assert bool((x_hat <= high).all())
        assert float((high - low).max()) < 1.0


def test_groups_that_do_not_read_each_other_have_symbols_of_their_own() -> None:
    """With one symbol for both ReLUs their errors would cancel, and y would seem to be zero everywhere."""
    ones = torch.ones(1, 2, dtype=torch.float64)
    low, high = propagate(branches(), -ones, ones).output.ends()
    assert float(low) == pytest.approx(-0.5)
    assert float(high) == pytest.approx(0.5)


@settings(max_examples=30)
@given(SEEDS)
def test_chains_are_bounded_as_by_parallel_faces(seed: int) -> None:
    net = networks.dense(seed)
    lower, upper = networks.box(net, seed, 0.8, 2)
    found = propagate(net, lower, upper)
    swept = RootBounds(Slope.PARALLEL).region(net, lower, upper, Until())
    for k in range(len(net.groups)):
        kinked = (swept.l_hat[k] < 0) & (swept.u_hat[k] > 0)
        torch.testing.assert_close(found.l_hat[k][kinked], swept.l_hat[k][kinked], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(found.u_hat[k][kinked], swept.u_hat[k][kinked], rtol=1e-9, atol=1e-9)


def test_an_affine_network_is_bounded_exactly() -> None:
    net = networks.dense(3, (3, 2))
    lower, upper = networks.box(net, 3, 0.5)
    low, high = propagate(net, lower, upper).output.ends()
    weight = net.output.terms[0][1].weight  # type: ignore[attr-defined]
    centre = net.output.bias + weight @ (lower + upper)[0] / 2
    radius = weight.abs() @ (upper - lower)[0] / 2
    torch.testing.assert_close(low[0], centre - radius)
    torch.testing.assert_close(high[0], centre + radius)


@pytest.mark.usefixtures("unchecked")
@settings(max_examples=30)
@given(FAMILY, SEEDS, PRECISION)
def test_a_batch_is_its_members(family: str, seed: int, dtype: torch.dtype) -> None:
    net = networks.FAMILIES[family](seed).to(dtype=dtype)
    lower, upper = networks.box(net, seed, 0.7, 4)
    together = propagate(net, lower, upper)
    for d in range(4):
        alone = propagate(net, lower[d : d + 1], upper[d : d + 1])
        assert int(alone.ambiguous) == int(together.ambiguous[d])
        for (low, high), (one_low, one_high) in zip(ends(together), ends(alone), strict=True):
            torch.testing.assert_close(low[d], one_low[0], rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(high[d], one_high[0], rtol=1e-5, atol=1e-5)


def test_overflow_gives_no_bound() -> None:
    net = networks.dense(1).to(dtype=torch.float32)
    far = torch.full((1, 3), 1e38, dtype=torch.float64)
    found = propagate(net, -far, far)
    assert not bool((found.output.ends()[0] > 0).any())


def test_growth_ends_where_the_analysis_does() -> None:
    assert growth(10, torch.float64) < growth(100, torch.float64) < 1e-12
    assert growth(2_000_000, torch.float32) == float("inf")


@settings(max_examples=40)
@given(SEEDS, PRECISION, st.sampled_from([1e-6, 0.05, 0.5, 2.0]), st.sampled_from([1, 3, 512]))
def test_points_of_networks_of_any_function_are_enclosed(seed: int, dtype: torch.dtype, r: float, most: int) -> None:
    net = networks.mixed(seed)
    lower, upper = networks.box(net, seed, r, 3)
    found = propagate(net.to(dtype=dtype), lower, upper, most)
    values = net.preactivations(networks.points(lower, upper, 3000, seed))
    for (low, high), x_hat in zip(ends(found), values, strict=True):
        room = 1e-13 * x_hat.abs()
        assert bool((low - room <= x_hat).all())
        assert bool((x_hat <= high + room).all())


@settings(max_examples=30)
@given(SEEDS)
def test_rounding_in_float32_is_paid_for_by_any_function(seed: int) -> None:
    net = networks.mixed(seed)
    point, _ = networks.box(net, seed, 0.0, 40)
    found = propagate(net.to(dtype=torch.float32), 30 * point, 30 * point)
    for (low, high), x_hat in zip(ends(found), net.preactivations(30 * point), strict=True):
        assert bool((low <= x_hat).all())
        assert bool((x_hat <= high).all())
        assert float(((high - low) / (1 + x_hat.abs())).max()) < 0.1


@pytest.mark.usefixtures("unchecked")
@settings(max_examples=30)
@given(SEEDS, st.sampled_from([0.05, 0.5, 2.0]))
def test_single_precision_encloses_about_what_double_does(seed: int, radius: float) -> None:
    net = networks.mixed(seed)
    lower, upper = networks.box(net, seed, radius, 3)
    exact, found = ends(propagate(net, lower, upper)), ends(propagate(net.to(dtype=torch.float32), lower, upper))
    for (low, high), (single_low, single_high) in zip(exact, found, strict=True):
        room = 1e-3 * (1 + high - low)
        assert bool((single_low >= low - room).all())
        assert bool((single_high <= high + room).all())


@pytest.mark.usefixtures("unchecked")
@settings(max_examples=30)
@given(SEEDS, st.sampled_from([0.05, 0.5]))
def test_halves_are_bounded_better_than_the_whole(seed: int, radius: float) -> None:
    """Not every bound of every half is better, but the worst one never falls much behind."""
    net = networks.mixed(seed)
    lower, upper = networks.box(net, seed, radius, 3)
    cut = upper.clone()
    cut[:, 0] = (lower + upper)[:, 0] / 2
    whole, half = propagate(net, lower, upper), propagate(net, lower, cut)
    wide, narrow = (found.output.radius + found.output.error for found in (whole, half))
    assert bool((narrow <= 1.05 * wide).all())


def test_a_product_of_one_symbol_with_itself_is_not_negative() -> None:
    """x^2 on [-1, 1] and x (2 - x) on [0, 2]: the diagonal has a sign, which the corners of the box do not see."""
    generator = torch.Generator().manual_seed(0)
    twice = networks.affine("twice", {0: Dense(torch.tensor([[1.0], [1.0]]).double())}, generator)
    square = replace(twice, bias=torch.zeros(2).double(), function=PRODUCT)
    out = networks.affine("out", {1: Dense(torch.ones(1, 1).double())}, generator)
    net = Network((1,), (square,), replace(out, bias=torch.zeros(1).double()))
    one = torch.ones(1, 1, dtype=torch.float64)
    low, high = propagate(net, -one, one).output.ends()
    assert (float(low), float(high)) == pytest.approx((0.0, 1.0), abs=1e-9)
    mirrored = replace(square, terms=((0, Dense(torch.tensor([[1.0], [-1.0]]).double())),))
    mirrored = replace(mirrored, bias=torch.tensor([0.0, 2.0]).double())
    low, high = propagate(replace(net, groups=(mirrored,)), 0 * one, 2 * one).output.ends()
    assert (float(low), float(high)) == pytest.approx((0.0, 1.0), abs=1e-9)


@pytest.mark.parametrize("function", [Sigmoid(), Tanh()], ids=lambda f: f.name)
def test_the_band_of_a_curve_is_that_of_its_chord(function: Scalar) -> None:
    """On [1, 3] the function is concave: the chord below, the parallel tangent above."""
    generator = torch.Generator().manual_seed(0)
    group = networks.affine("g", {0: Dense(torch.ones(1, 1).double())}, generator)
    group = replace(group, bias=torch.zeros(1).double(), function=function)
    low, high = torch.tensor([[1.0]]).double(), torch.tensor([[3.0]]).double()
    band = curve_band(function, image(group, [AffineForm.of_box(low, high, torch.float64)]), (low, high))
    slope = (function.value(high) - function.value(low)) / 2
    torch.testing.assert_close(band.slopes[0], slope)
    t = torch.linspace(1, 3, 2001, dtype=torch.float64)
    rest = function.value(t) - slope * t
    torch.testing.assert_close((band.offset - band.gap).squeeze(), rest.min(), rtol=0, atol=1e-6)
    torch.testing.assert_close((band.offset + band.gap).squeeze(), rest.max(), rtol=0, atol=1e-6)


def test_what_is_not_defined_has_no_bound() -> None:
    """Numbers beyond those of the error model are no bounds of anything."""
    net = networks.mixed(0, kinds=(PRODUCT,))
    far = torch.full((1, 2), 1e30, dtype=torch.float64)
    assert not bool((propagate(net.to(dtype=torch.float32), -far, far).output.ends()[0] > -1e38).any())


@pytest.mark.usefixtures("unchecked")
@settings(max_examples=30)
@given(SEEDS, PRECISION, st.sampled_from([[], [0], [1, 2]]))
def test_inputs_that_stand_still_need_no_symbols(seed: int, dtype: torch.dtype, moving: list[int]) -> None:
    """Decimals leave intervals of two neighbouring floats: they count as errors, and cost next to nothing."""
    net = networks.mixed(seed, (4, 4, 4, 2))
    lower, upper = networks.box(net, seed, 0.5, 3)
    index = torch.tensor(moving, dtype=torch.long)
    still = torch.ones(4, dtype=torch.bool).index_fill(0, index, False)
    upper = torch.where(still, torch.nextafter(lower, upper), upper)
    net = net.to(dtype=dtype)
    few, all_of_them = propagate(net, lower, upper, moving=index), propagate(net, lower, upper)
    assert len(few.output.spread) == len(all_of_them.output.spread) - int(still.sum())
    values = networks.mixed(seed, (4, 4, 4, 2)).preactivations(networks.points(lower, upper, 300, seed))
    for (low, high), (low_too, high_too), x_hat in zip(ends(few), ends(all_of_them), values, strict=True):
        torch.testing.assert_close(low, low_too, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(high, high_too, rtol=1e-4, atol=1e-4)
        assert bool((low - 1e-12 <= x_hat).all())
        assert bool((x_hat <= high + 1e-12).all())


@settings(max_examples=30)
@given(SEEDS, PRECISION)
def test_deviations_of_products_count_the_errors_of_both_factors(seed: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(seed)

    def signs(*shape: int) -> torch.Tensor:
        return 2 * torch.randint(2, shape, generator=generator).double() - 1

    def factor() -> AffineForm:
        centre, spread, error = (torch.randn(*shape, generator=generator) for shape in ((1, 4), (3, 1, 4), (1, 4)))
        return AffineForm(*(x.to(dtype) for x in (centre, spread, spread.abs().sum(dim=0) * 1.001, error.abs())))

    p, q = factor(), factor()
    low, high = bands._deviations(p, q)
    for _ in range(40):
        eps = signs(3, 1, 1)
        s, t = (f.centre + (eps * f.spread).sum(dim=0) + signs(1, 4) * f.error for f in (p, q))
        left = s * t - q.centre.double() * s - p.centre.double() * t
        assert bool((left >= low - 1e-12).all() & (left <= high + 1e-12).all())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_group_that_is_left_out_adds_nothing_to_the_output(dtype: torch.dtype) -> None:
    """As in a network whose output does not read it; its pre-activations are bounded all the same."""
    net = networks.mixed(4, kinds=(PRODUCT,)).to(dtype=dtype)
    last = len(net.groups)
    box = networks.box(net, 4, 0.3, 3)
    unread = replace(net, output=replace(net.output, terms=tuple(term for term in net.output.terms if term[0] != last)))
    found, whole, other = propagate(net, *box, without={last}), propagate(net, *box), propagate(unread, *box)
    assert all(torch.equal(*pair) for pair in zip(found.l_hat, whole.l_hat, strict=True))
    assert found.noises[-1].neuron.shape[1] == 0
    assert len(found.output.spread) < len(whole.output.spread)
    for mine, theirs in zip(found.output.ends(), other.output.ends(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-5 if dtype == torch.float32 else 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_products_with_a_fixed_factor_and_relus_of_zero_get_no_symbols(dtype: torch.dtype) -> None:
    """Their gaps are those of rounding alone; what they enclose stays enclosed."""
    generator = torch.Generator().manual_seed(0)
    zero = torch.zeros(2, 2)
    zero[0, 0] = 1.0
    first = networks.affine("first", {0: Dense(zero.double())}, generator)  # the second neuron reads nothing
    first = replace(first, bias=torch.zeros_like(first.bias))
    second = networks.affine("second", {1: Dense(torch.eye(2).double())}, generator)
    second = replace(second, bias=torch.zeros_like(second.bias))
    pairs = networks.affine("pairs", {2: Dense(torch.tensor([[1.0, 0.0], [0.0, 0.0]]).double())}, generator)
    pairs = replace(pairs, bias=torch.tensor([0.0, 0.3]).double(), function=PRODUCT)
    out = networks.affine("out", {3: Dense(torch.ones(1, 1).double())}, generator)
    net = Network((2,), (first, second, pairs), out)
    low, high = torch.tensor([[0.25, 0.0]]).double(), torch.tensor([[0.75, 1.0]]).double()
    found = propagate(net.to(dtype=dtype), low, high)
    assert len(found.output.spread) == 2
    assert found.ambiguous.tolist() == [0]
    lower, upper = found.output.ends()
    x = networks.points(low, high, 500, 0)
    y = net.forward(x)
    assert bool((lower.double() <= y.amin()).all())
    assert bool((upper.double() >= y.amax()).all())
    assert float(upper - lower) == pytest.approx(0.15, rel=1e-4)
