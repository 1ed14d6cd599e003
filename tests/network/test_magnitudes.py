"""The range of the error model: ordinary networks lie inside of it, and nothing is proved of the others."""

from __future__ import annotations

import networks
import pytest
import torch
from falsify import instances

from verifier.bounding.clauses import ClauseBounder
from verifier.bounding.core.base import Until
from verifier.network.magnitudes import LARGEST, beyond, spoiled
from verifier.network.network import Affine, Network
from verifier.operators import Chain, Dense, Diagonal, Sum, compose

ONE = torch.ones(1, dtype=torch.float64)


def chain(*weights: float, bias: float = 0.0) -> Network:
    layers = [instances.layer(f"layer{k}", k, [[w]], [bias]) for k, w in enumerate(weights)]
    return Network((1,), tuple(layers[:-1]), layers[-1])


def dense(weight: float) -> Dense:
    return Dense(torch.tensor([[weight]], dtype=torch.float64))


def single(term: Chain | Sum) -> Network:
    zero = torch.zeros(1, dtype=torch.float64)
    return Network((1,), (), Affine("out", (1,), ((0, term),), zero, zero))


@pytest.mark.parametrize("family", sorted(networks.FAMILIES))
def test_ordinary_networks_are_inside(family: str) -> None:
    net = networks.FAMILIES[family](0)
    assert beyond(net, torch.full((net.n_in,), 1e6, dtype=torch.float64)) is None


@pytest.mark.parametrize("weights", [(1e-40, 1.0), (1e-45, 1e-45), (1e30, 1e-30, 1e30), (1e-320, 1e100)])
def test_subnormal_weights_and_large_gains_are_inside(weights: tuple[float, ...]) -> None:
    assert beyond(chain(*weights), ONE) is None


@pytest.mark.parametrize(
    ("net", "where"),
    [
        (chain(1.5e308, 1e-308), "layer0"),
        (chain(1.0, 1e60, 1e70), "layer2"),
        (chain(1e-300, 1e200, 1e-200), "layer1"),  # the numbers are small, but not what underflows is magnified to
        (chain(1.0, float("inf")), "layer1"),
        (chain(1.0, float("nan")), "layer1"),
        (chain(1.0, bias=1e200), "layer0"),
        (single(Chain((dense(1e200), dense(1e-200)))), "out"),
        (single(Chain((dense(1e-300), dense(1e200), dense(1e-200)))), "out"),  # what underflows first is magnified then
        (single(Sum((dense(1e200), dense(-1e200)))), "out"),
    ],
)
def test_what_is_outside_is_named(net: Network, where: str) -> None:
    assert beyond(net, ONE) == where


@pytest.mark.parametrize("radius", [2 * LARGEST, float("inf"), float("nan")])
def test_boxes_may_be_outside(radius: float) -> None:
    assert beyond(chain(0.0, 1.0), radius * ONE) == "input"


def test_nothing_is_proved_of_a_spoiled_network() -> None:
    """The property holds by far, and bounds say so; but not for numbers that the model does not cover."""
    for net, closed in ((instances.tent(), True), (spoiled(instances.tent()), False)):
        problem = instances.problem(net, instances.boxes([[0, 0]], [[1, 1]]), [(0, [instances.row({0: 1}, -100)])])
        found = ClauseBounder().bound(problem, Until())
        assert found.closed is closed
        assert bool(torch.isfinite(found.lower).all()) is closed


def test_factors_whose_product_leaves_the_floats_stay_apart() -> None:
    """Entries that underflow or overflow would carry errors that are not relative to them."""
    for first, second, apart in ((1e-200, 1e-200, True), (1e200, 1e200, True), (1e-200, 1e200, False)):
        scale = Diagonal(torch.tensor([first], dtype=torch.float64))
        for other in (dense(second), Diagonal(torch.tensor([second], dtype=torch.float64))):
            assert isinstance(compose(scale, other), Chain) is apart
            assert isinstance(compose(other, scale), Chain) is apart
    zero = Diagonal(torch.zeros(1, dtype=torch.float64))
    assert not isinstance(compose(zero, dense(1e-300)), Chain)
