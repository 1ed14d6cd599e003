"""Zonotopes enclose what the network computes, in both precisions, and are as tight as parallel faces."""

from __future__ import annotations

import networks
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.base import Until
from verifier.bounding.hidden import RootBounds
from verifier.bounding.relaxation.zonotope import Zonotopes, growth, propagate
from verifier.bounding.solvers.crown import Slope
from verifier.network.network import Network
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
