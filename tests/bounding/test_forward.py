"""Zonotopes over the inputs that move: valid wherever spreads begin to be rounded, and what each input accounts for."""

from __future__ import annotations

from dataclasses import replace

import networks
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding import forward
from verifier.bounding.core.base import Region
from verifier.bounding.forward import Forward, first_rounded, influences
from verifier.bounding.relaxation.interval import interval_image
from verifier.network.network import Affine, Network
from verifier.operators import Dense

FAMILIES = {**networks.FAMILIES, "mixed": networks.mixed}


def bounded(net: Network, lower: torch.Tensor, upper: torch.Tensor, thorough: bool = True) -> Region:
    """The bounds of the zonotope and of intervals."""
    region, walk = Region(lower, upper), Forward.begin(net, (lower, upper), 2**24, thorough)
    assert walk is not None
    for k, group in enumerate(net.groups, start=1):
        ends = walk.narrowed(k, interval_image(group, region))
        region = region.extended(group, *ends)
        walk.enter(k, ends, [j for j in range(k) if net.last_use[j] == k])
    return region


def widths(region: Region) -> float:
    return float(sum((high - low).sum() for low, high in zip(region.l_hat, region.u_hat, strict=True)))


def linear(weight: list[list[float]], bias: list[float]) -> Affine:
    term, own = Dense(torch.tensor(weight, dtype=torch.float64)), torch.tensor(bias, dtype=torch.float64)
    return Affine("layer", (len(bias),), ((0, term),), own, torch.zeros_like(own))


def chained(*layers: Affine) -> Network:
    made = [replace(layer, name=f"layer{j}", terms=((j, layer.terms[0][1]),)) for j, layer in enumerate(layers)]
    return Network((layers[0].terms[0][1].n_in,), tuple(made[:-1]), made[-1])


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("first", [1, 2, 9])
@given(seed=st.integers(0, 2**16), radius=st.sampled_from([1e-7, 0.01, 2.0]))
@settings(max_examples=8)
def test_no_value_lies_outside_wherever_rounding_begins(family: str, first: int, seed: int, radius: float) -> None:
    net = FAMILIES[family](seed)
    lower, upper = networks.box(net, seed, radius, count=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forward, "first_rounded", lambda _: first)
        found = bounded(net, lower, upper)
    x = networks.points(lower, upper, 200, seed)
    for low, high, x_hat in zip(found.l_hat, found.u_hat, net.preactivations(x), strict=False):
        assert bool(((x_hat >= low) & (x_hat <= high)).all())


@pytest.mark.parametrize("first", [1, 2])
def test_what_rounded_spreads_lose_is_counted(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two weights that are one in float32: their difference is lost, and what is left must still hold it."""
    monkeypatch.setattr(forward, "first_rounded", lambda _: first)
    apart = 2.0**-30
    net = chained(linear([[1.0], [1.0 + apart]], [4.0, 4.0]), linear([[1.0, -1.0]], [0.0]), linear([[1.0]], [0.0]))
    one = torch.ones(1, 1, dtype=torch.float64)
    found = bounded(net, -one, one)
    assert float(found.u_hat[1]) >= apart
    assert float(found.l_hat[1]) <= -apart
    assert float(found.u_hat[1]) < 1e-4


@pytest.mark.parametrize("seed", range(4))
def test_thorough_zonotopes_are_narrower(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forward, "QUICK_WORK", 0.0)  # no symbols but those of inputs
    net = networks.dense(seed, (3, 12, 12, 12, 2))
    lower, upper = networks.box(net, seed, 0.5)
    assert widths(bounded(net, lower, upper)) < 0.99 * widths(bounded(net, lower, upper, thorough=False))


@pytest.mark.parametrize("most", [0, 3])
def test_symbols_that_memory_or_work_do_not_allow_become_intervals(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Forward, "_room", lambda *_: most)
    net = networks.dense(1, (3, 12, 12, 12, 2))
    lower, upper = networks.box(net, 1, 0.5)
    x = networks.points(lower, upper, 200, 1)
    found = bounded(net, lower, upper)
    for low, high, x_hat in zip(found.l_hat, found.u_hat, net.preactivations(x), strict=False):
        assert bool(((x_hat >= low) & (x_hat <= high)).all())


def test_rounding_begins_where_little_follows_that_magnifies_it() -> None:
    wide = linear([[20.0] * 10] * 10, [0.0] * 10)
    deep = chained(*[wide] * 8)
    found = first_rounded(deep)
    assert 1 < found < len(deep.groups)
    assert first_rounded(chained(*[wide] * 7)) == found - 1  # it counts from the end
    assert first_rounded(networks.dense(0)) == 1


def test_only_groups_of_the_input_are_exact() -> None:
    net = networks.dense(0, (3, 4, 4, 2))
    walk = Forward.begin(net, networks.box(net, 0), 2**20, thorough=False)
    assert walk is not None
    assert not walk.exact(1)  # rounded in float32
    assert not walk.exact(2)


def test_inputs_account_for_what_they_move() -> None:
    first = linear([[1.0, -3.0, 5.0], [2.0, 0.0, 5.0]], [0.0, 0.0])
    net = chained(first, linear([[1.0, 1.0]], [0.0]))
    lower = torch.tensor([[0.0, 0.0, 1.0]], dtype=torch.float64)
    upper = torch.tensor([[2.0, 1.0, 1.0]], dtype=torch.float64)
    moving, shares = influences(net, (lower, upper))
    assert moving.tolist() == [0, 1]
    torch.testing.assert_close(shares, torch.tensor([2.0 / 3.0, 1.0 / 3.0], dtype=torch.float64))
