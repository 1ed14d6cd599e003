"""The DAG itself: evaluation, gradients, and malformed graphs."""

from __future__ import annotations

import networks
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.network.network import Affine, Network
from verifier.operators import Dense


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_a_batch_equals_its_members(family: str) -> None:
    net = networks.FAMILIES[family](0)
    x = torch.randn(3, 4, net.n_in, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    whole = net.forward(x)
    assert whole.shape == (3, 4, net.n_out)
    for i in range(3):
        torch.testing.assert_close(whole[i, 1], net.forward(x[i, 1]))
    torch.testing.assert_close(net.preactivations(x)[-1], whole)


def test_residual_against_a_hand_written_forward() -> None:
    net = networks.residual(1)
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    w = {(k, j): term for k, layer in enumerate(net.layers, 1) for j, term in layer.terms}
    b = [layer.bias for layer in net.layers]
    x1 = (w[1, 0].forward(x) + b[0]).clamp(min=0)
    x2 = (w[2, 1].forward(x1) + w[2, 0].forward(x) + b[1]).clamp(min=0)
    x3 = (w[3, 2].forward(x2) + x1 + b[2]).clamp(min=0)
    y = w[4, 3].forward(x3) + w[4, 1].forward(x1) + w[4, 0].forward(x) + b[3]
    torch.testing.assert_close(net.forward(x), y)


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=10)
def test_gradient_equals_finite_differences(family: str, seed: int) -> None:
    net = networks.FAMILIES[family](seed)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(net.n_in, generator=generator, dtype=torch.float64)
    c = torch.randn(net.n_out, generator=generator, dtype=torch.float64)
    gradient = net.vjp(net.preactivations(x), c)
    h = 1e-7
    steps = h * torch.eye(net.n_in, dtype=torch.float64)
    difference = ((net.forward(x + steps) - net.forward(x - steps)) @ c) / (2 * h)
    torch.testing.assert_close(gradient, difference, rtol=1e-5, atol=1e-5)


def test_counts() -> None:
    net = networks.conv(0)
    assert (net.n_in, net.n_out, net.relus) == (16, 2, 32 + 8)
    assert net.last_use == (1, 2, 3)
    assert networks.residual(0).last_use == (4, 4, 3, 4)


def test_malformed_graphs_are_refused() -> None:
    def layer(sources: dict[int, int]) -> Affine:
        terms = tuple((j, Dense(torch.ones(2, n, dtype=torch.float64))) for j, n in sources.items())
        return Affine("bad", (2,), terms, torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))

    with pytest.raises(ValueError, match="comes later"):
        Network((3,), (layer({1: 2}),), layer({1: 2}))
    with pytest.raises(ValueError, match="has 3 entries, not 2"):
        Network((3,), (layer({0: 2}),), layer({1: 2}))
    with pytest.raises(ValueError, match="does not hold"):
        Affine("bad", (3,), (), torch.zeros(2, dtype=torch.float64), torch.zeros(2, dtype=torch.float64))
