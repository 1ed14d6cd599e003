"""References and tolls cover, in rational arithmetic, every error of the floats that they are paid for."""

from __future__ import annotations

from fractions import Fraction

import networks
import numpy as np
import pytest
import torch
from bounding.local.exact import ULP, Rationals, bounded, cancelling, cancelling_images, image, layer, network, rational

from verifier.bounding.core.base import Region
from verifier.bounding.local.reference import Reference, Toll, rounded_up
from verifier.bounding.relaxation.relu import Kinks
from verifier.bounding.solvers.crown import Slope
from verifier.network.network import Network
from verifier.operators import Dense, gamma

BOTH = (torch.float32, torch.float64)

Case = tuple[Network, Region]


def cases() -> dict[str, Case]:
    """Sums that cancel, far from zero; folded biases; convolutions; several sources."""
    nets = {
        "cancelling": (cancelling(0), 1e3, 0.1),
        "folded": (cancelling(1, error=1.0), 1e3, 1e-3),
        "images": (cancelling_images(0), 10.0, 0.3),
        "residual": (networks.residual(3), 1.0, 0.3),
    }
    return {name: (net, bounded(net, centre, radius)) for name, (net, centre, radius) in nets.items()}


@pytest.fixture(scope="module", params=list(cases()))
def case(request: pytest.FixtureRequest) -> Case:
    return cases()[request.param]


def reference(case: Case) -> Reference:
    net, region = case
    return Reference.of(net, region, len(net.layers))


def sizes(values: tuple[torch.Tensor, ...]) -> list[Rationals]:
    return [abs(rational(value)) for value in values]


def test_no_value_of_a_source_is_farther_away_than_its_reach(case: Case) -> None:
    found = reference(case)
    for j, (x, reach) in enumerate(zip(found.x, found.reach, strict=True)):
        for end in case[1].source(j):
            assert (abs(rational(end[0]) - rational(x)) <= rational(reach)).all()


def test_reaches_are_rounded_up() -> None:
    """Of boxes that lie so unevenly around zero that their middles, and the ways to them, are no floats."""
    low, high = torch.rand(2, 1, 100, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    region = Region(-low / 1000, high)
    found = Reference.of(network(100, layer(Dense(low))), region, 1)
    for end in (region.lower, region.upper):
        assert (abs(rational(end[0]) - rational(found.x[0])) <= rational(found.reach[0])).all()


def test_the_slack_covers_the_error_of_every_layer(case: Case) -> None:
    """That of the reference as computed, and the most that maps of their depth may err by; folded biases besides."""
    found = reference(case)
    x, size = [rational(value) for value in found.x], sizes(found.x)
    for group, x_hat, slack in zip(case[0].layers, found.x_hat, found.slack, strict=True):
        error = abs(rational(x_hat) - image(group, x) - rational(group.bias))
        most = Fraction(gamma(group.depth)) * (image(group, size, absolute=True) + abs(rational(group.bias)))
        assert (error + rational(group.bias_error) <= rational(slack)).all()
        assert (most + rational(group.bias_error) <= rational(slack)).all()


def test_the_slack_covers_what_underflows() -> None:
    net = network(1, layer(Dense(torch.tensor([[1e-200]], dtype=torch.float64))))
    x = torch.tensor([[1e-200]], dtype=torch.float64)
    found = Reference.of(net, Region(x, x), 1)
    assert found.x_hat[0].item() == 0
    assert Fraction(1e-200) ** 2 <= Fraction(found.slack[0].item())


def test_the_spread_is_no_smaller_than_what_the_layer_makes_of_the_reach(case: Case) -> None:
    found = reference(case)
    for group, spread in zip(case[0].layers, found.spread, strict=True):
        assert (image(group, sizes(found.reach), absolute=True) <= rational(spread)).all()


@pytest.mark.parametrize("dtype", BOTH)
def test_the_price_covers_all_roundings_of_a_pass(case: Case, dtype: torch.dtype) -> None:
    """n roundings cost at most n u / (1 - n u) of the magnitudes (Higham), and the layer its slack."""
    found, more = reference(case), 100
    for k, group in enumerate(case[0].layers, start=1):
        n_u = (group.depth + more) * ULP[dtype]
        rounding = n_u / (1 - n_u) * image(group, sizes(found.reach), absolute=True)
        assert (rounding + rational(found.slack[k - 1]) <= rational(found.price(group, k, dtype, more))).all()


def tolled(low: torch.Tensor, high: torch.Tensor) -> Kinks:
    one = torch.zeros(1, 1, dtype=torch.float64)
    return Kinks.of(Region(one, one, (low.unsqueeze(0),), (high.unsqueeze(0),)), 1)


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("slope", Slope)
@pytest.mark.parametrize("price", [0.0, 1e-3, 1e3])
def test_tolls_cover_faces_roundings_and_prices(dtype: torch.dtype, slope: Slope, price: float) -> None:
    """lam (x - r) >= mu (t - t_r) + |mu| price - toll, for the mu that floats make of lam, at all ends and the kink."""
    generator = torch.Generator().manual_seed(0)
    low, high, place, lam = torch.rand(4, 400, generator=generator, dtype=torch.float64)
    low, high = -low, high * torch.where(lam < 0.5, 1.0, 1e-3)
    at, prices = low + place * (high - low), torch.full_like(low, price)
    middle, half, both, side = Toll.of(tolled(low, high), at, slope, prices, dtype).tables
    for sign in (1, -1):
        rows = (sign * lam).to(dtype)
        mu = rational((rows * middle).addcmul_(rows.abs(), half))
        coefficient = rational(rows)
        toll = abs(coefficient) * rational(both) + coefficient * rational(side)
        start = np.maximum(rational(at), Fraction(0))
        for t in (rational(low), rational(high), rational(torch.zeros_like(low))):
            gain = coefficient * (np.maximum(t, Fraction(0)) - start) - mu * (t - rational(at))
            assert (gain - abs(mu) * Fraction(price) + toll >= 0).all()


@pytest.mark.parametrize("dtype", BOTH)
@pytest.mark.parametrize("size", [1.0, 1e-50])
def test_the_toll_of_a_neuron_that_passes_is_its_price(dtype: torch.dtype, size: float) -> None:
    price = size * (1 + torch.rand(50, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    at = torch.full_like(price, 1.5)
    middle, half, both, side = Toll.of(tolled(at - 1, at + 1), at, Slope.ADAPTIVE, price, dtype).tables
    assert (middle == 1).all()
    assert not half.any()
    assert not side.any()
    assert (rational(price) <= rational(both)).all()
    assert (both.double() <= price * (1 + 1e-5) + 1e-37).all()


def test_slopes_are_rounded_up() -> None:
    values = torch.rand(100, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = rounded_up(values, torch.float32)
    assert found.dtype is torch.float32
    assert (found.double() >= values).all()
    assert (found.double() <= values * (1 + 2.0**-23)).all()
    assert torch.equal(rounded_up(found.double(), torch.float32), found)
