"""Scores read off a backward sweep: exact values by hand, and what every rule promises."""

from __future__ import annotations

import networks
import pytest
import torch
from falsify import instances
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.base import Objective, Region, Until
from verifier.bounding.intermediate import RootBounds
from verifier.bounding.linear import Linear
from verifier.bounding.sweep import Sweep
from verifier.branching.intercept import Intercept
from verifier.network.network import Network


def scores(net: Network, region: Region, objective: Objective) -> torch.Tensor:
    sweep = Sweep.prepare(net, region, objective.layer)
    return Intercept().scores(sweep, sweep.backward(objective, Linear().choices(sweep)))


def test_scores_by_hand() -> None:
    """Coefficients -2, +3, -1, -1 over neurons with bounds (-1, 3), (-1, 1), (-2, 2), (1, 5)."""
    hidden = instances.layer("hidden", 0, [[2.0], [1.0], [2.0], [2.0]], [1.0, 0.0, 0.0, 3.0])
    net = Network((1,), (hidden,), instances.layer("out", 1, [[-2.0, 3.0, -1.0, -1.0]], [0.0]))
    one = torch.ones(1, 1, dtype=torch.float64)
    region = RootBounds().region(net, -one, one, Until())
    found = scores(net, region, Objective(2, one.unsqueeze(0)))[0].tolist()
    # The upper face of (l, u) has the intercept -l u / (u - l): 3/4, 1/2, 1.
    tie = Intercept().tie
    expected = [2 * 0.75 + tie * 0.75 / 1.75, tie * 0.5 / 1.5, 1.0 + tie * 0.5]
    assert found == pytest.approx(expected, rel=1e-9)  # the last neuron passes: it is no kink


@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=8)
def test_ambiguous_kinks_have_scores_and_stable_ones_have_not(family: str, seed: int) -> None:
    net = networks.FAMILIES[family](seed)
    lower, upper = networks.box(net, seed, 0.6, 3)  # kinks of one box are stable in another
    region = RootBounds().region(net, lower, upper, Until())
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(3, 1, net.n_out, generator=generator, dtype=torch.float64)
    sweep = Sweep.prepare(net, region, len(net.layers))
    found = scores(net, region, Objective(len(net.layers), rows))
    ambiguous = torch.cat([kinks.ambiguous.squeeze(1) for kinks in sweep.kinks], dim=1)
    assert found.shape == ambiguous.shape
    assert bool((found[ambiguous] > 0).all())
    assert bool((found[~ambiguous] == -1).all())
