"""Scores read off a backward sweep: exact values by hand."""

from __future__ import annotations

import pytest
import torch
from branching.views import view_of
from falsify import instances

from verifier.bounding.core.base import Until
from verifier.bounding.hidden import RootBounds
from verifier.branching.intercept import Intercept
from verifier.network.network import Network


def test_scores_by_hand() -> None:
    """Coefficients -2, +3, -1, -1 over neurons with bounds (-1, 3), (-1, 1), (-2, 2), (1, 5)."""
    hidden = instances.layer("hidden", 0, [[2.0], [1.0], [2.0], [2.0]], [1.0, 0.0, 0.0, 3.0])
    net = Network((1,), (hidden,), instances.layer("out", 1, [[-2.0, 3.0, -1.0, -1.0]], [0.0]))
    one = torch.ones(1, 1, dtype=torch.float64)
    region = RootBounds().region(net, -one, one, Until())
    found = Intercept().scores(view_of(net, region, one))[0].tolist()
    # The upper face of (l, u) has the intercept -l u / (u - l): 3/4, 1/2, 1.
    tie = Intercept().tie
    expected = [2 * 0.75 + tie * 0.75 / 1.75, tie * 0.5 / 1.5, 1.0 + tie * 0.5]
    assert found == pytest.approx(expected, rel=1e-9)  # the last neuron passes: it is no kink
