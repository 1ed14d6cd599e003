"""Bounds of large networks: valid, as good as sweeps over the whole network, and cheap where asked to be."""

from __future__ import annotations

from dataclasses import replace

import networks
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding import frugal
from verifier.bounding.core.base import Region, Until
from verifier.bounding.frugal import Forward, Frugal, is_large
from verifier.bounding.hidden import RootBounds
from verifier.clock import Clock
from verifier.network.network import Network
from verifier.operators import Chain, Dense

FAMILIES = {**networks.FAMILIES, "mixed": networks.mixed}
SWEPT = Frugal(RootBounds())


@pytest.fixture(autouse=True)
def every_network_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frugal, "LARGE", 0.0)
    monkeypatch.setattr(frugal, "OVERHEAD", 0.0)


def holds(region: Region, net: Network, lower: torch.Tensor, upper: torch.Tensor, seed: int) -> bool:
    x = networks.points(lower, upper, 200, seed)
    ends = zip(region.l_hat, region.u_hat, net.preactivations(x), strict=False)
    return all(bool(((x_hat >= low) & (x_hat <= high)).all()) for low, high, x_hat in ends)


def folded(seed: int) -> Network:
    """The first group reads the input through two matrices, whose product cancels."""
    net = networks.dense(seed, (3, 6, 5, 2))
    generator = torch.Generator().manual_seed(seed)
    wide = networks.matrix(8, 3, generator)
    (_, first), *_ = net.groups[0].terms
    assert isinstance(first, Dense)
    term = Chain((wide, Dense(first.weight @ torch.linalg.pinv(wide.weight))))
    return replace(net, groups=(replace(net.groups[0], terms=((0, term),)), *net.groups[1:]))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("bounds", [SWEPT, SWEPT.cheap()])
@given(seed=st.integers(0, 2**16), radius=st.sampled_from([0.01, 0.3, 2.0]))
@settings(max_examples=8)
def test_no_value_lies_outside_of_the_bounds(family: str, bounds: Frugal, seed: int, radius: float) -> None:
    net = FAMILIES[family](seed)
    lower, upper = networks.box(net, seed, radius, count=2)
    assert holds(bounds.region(net, lower, upper, Until()), net, lower, upper, seed)


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("ask", [True, False])
def test_tiles_are_as_good_as_sweeps_over_the_whole_network(
    family: str, ask: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(frugal, "FEW_MOVING", -1)  # no zonotope
    monkeypatch.setattr(frugal, "WORTH_ASKING", 0.0 if ask else 1e30)
    monkeypatch.setattr(frugal, "LEAST_GAIN", -1.0)
    net = networks.FAMILIES[family](3)
    lower, upper = networks.box(net, 3, 0.3)
    found, plain = (method.region(net, lower, upper, Until()) for method in (SWEPT, RootBounds()))
    for mine, other in zip((*found.l_hat, *found.u_hat), (*plain.l_hat, *plain.u_hat), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-9, atol=1e-9)


@given(seed=st.integers(0, 2**16))
@settings(max_examples=10)
def test_a_zonotope_sees_through_matrices_that_cancel(seed: int) -> None:
    net = folded(seed)
    lower, upper = networks.box(net, seed, 0.3)
    cheap, plain = (m.region(net, lower, upper, Until()) for m in (SWEPT.cheap(), RootBounds(None)))
    assert holds(cheap, net, lower, upper, seed)
    width, wider = (r.u_hat[0] - r.l_hat[0] for r in (cheap, plain))
    assert float(width.mean()) < 0.9 * float(wider.mean())


def test_sweeps_that_gain_nothing_end_with_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frugal, "WORTH_ASKING", 0.0)
    monkeypatch.setattr(frugal, "SAMPLE", 2)
    monkeypatch.setattr(frugal, "LEAST_GAIN", 2.0)
    monkeypatch.setattr(frugal, "LEAST_SETTLED", 2.0)
    asked: list[int] = []
    bounds = frugal.TileBounds.bounds

    def counted(self: frugal.TileBounds, neurons: torch.Tensor) -> torch.Tensor:
        asked.append(len(neurons))
        return bounds(self, neurons)

    monkeypatch.setattr(frugal.TileBounds, "bounds", counted)
    net = networks.dense(0, (3, 40, 40, 2))
    lower, upper = networks.box(net, 0, 1.0)
    assert holds(SWEPT.region(net, lower, upper, Until()), net, lower, upper, 0)
    assert 0 < sum(asked) <= 2


def test_a_deadline_leaves_valid_bounds() -> None:
    net = networks.conv(1)
    lower, upper = networks.box(net, 1, 0.5)
    region = SWEPT.region(net, lower, upper, Until(Clock.begin(0.0)))
    cheap = SWEPT.cheap().region(net, lower, upper, Until())
    assert holds(region, net, lower, upper, 1)
    for mine, other in zip(region.l_hat, cheap.l_hat, strict=True):
        assert torch.equal(mine, other)


def test_steps_grow_to_the_whole_region() -> None:
    net = networks.conv(2)
    known = [region.known for region in SWEPT.steps(net, Region(*networks.box(net, 2, 0.5)), Until())]
    assert known == sorted(known)
    assert known[-1] == len(net.groups)


def test_inputs_that_hardly_move_get_no_symbols() -> None:
    net = networks.dense(0, (80, 5, 2))
    lower, upper = networks.box(net, 0, 1.0)
    assert Forward.begin(net, (lower, upper), 2**20) is None
    still = lower + (upper - lower) * torch.where(torch.arange(80) < 3, 1.0, 2.0**-40)
    assert Forward.begin(net, (lower, still), 2**20) is not None
    assert holds(SWEPT.cheap().region(net, lower, still, Until()), net, lower, still, 0)


def test_small_networks_keep_their_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frugal, "LARGE", 2e10)
    net = networks.conv(0)
    assert not is_large(net, 1)
    lower, upper = networks.box(net, 0, 0.5)
    found, plain = (method.region(net, lower, upper, Until()) for method in (SWEPT, RootBounds()))
    assert all(torch.equal(mine, other) for mine, other in zip(found.l_hat, plain.l_hat, strict=True))


def test_a_proof_is_written_with_bounds_that_others_compute_again() -> None:
    assert isinstance(SWEPT.first, RootBounds)
    assert SWEPT.told_of(lambda *_: None, lambda bounder: bounder) is SWEPT.base


def test_memory_is_handed_down() -> None:
    small = SWEPT.within(2**10)
    assert (small.memory_bytes, small.base.memory_bytes) == (2**10, 2**10)
    net = networks.conv(4)
    lower, upper = networks.box(net, 4, 0.5)
    assert holds(small.region(net, lower, upper, Until()), net, lower, upper, 4)
