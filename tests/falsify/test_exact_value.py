"""Layers that floats compute without rounding: binarised networks are judged exactly where their sums are 0."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from torch import nn

from verifier.bounding.core.base import Region
from verifier.falsify.real import enclosed_outputs, exact_value
from verifier.network.lowering.run import lower
from verifier.network.network import Network


class Binarised(nn.Module):
    """Weights of -1 and 1, signs between them: sums are whole numbers, and often 0."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(1, 3, 2)
        self.dense = nn.Linear(27, 5)
        for parameter in self.parameters():
            parameter.data = torch.where(parameter.data > 0, 1.0, -1.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.dense(torch.sign(self.conv(torch.sign(x))).flatten(1))


def network(seed: int = 0) -> Network:
    return lower(Binarised(seed).double().eval(), (1, 1, 4, 4), {})


@pytest.mark.parametrize("seed", range(5))
def test_whole_numbers_are_exact(seed: int) -> None:
    net, random = network(seed), np.random.default_rng(seed)
    x = random.integers(-1, 2, 16).astype(np.float64)
    low, high = enclosed_outputs(net, x, x)
    assert torch.equal(low, high)
    assert torch.equal(low, net.forward(torch.from_numpy(x)))
    assert bool((net.preactivations(torch.from_numpy(x))[1] == 0).any()), "no sum is 0, so nothing was tried"


def test_what_rounds_is_not_exact() -> None:
    net = network()
    x = torch.full((1, 16), 0.1, dtype=torch.float64)
    layer = lower(nn.Linear(16, 2).double().eval(), (1, 16), {}).output
    found = exact_value(layer, Region(x, x))
    assert found is None
    assert exact_value(net.groups[0], Region(x, x)) is not None  # signs of the input itself
    assert exact_value(net.groups[0], Region(x, x + 1)) is None


def test_sums_that_fit_are_those_of_rational_arithmetic() -> None:
    random = np.random.default_rng(0)
    for scale in (2.0**-40, 1.0, 2.0**40):
        module = nn.Linear(6, 3).double()
        module.weight.data = torch.from_numpy(random.integers(-99, 99, (3, 6)) * scale)
        module.bias.data = torch.from_numpy(random.integers(-99, 99, 3) * 1.0)
        x = random.integers(-(2**20), 2**20, 6) * 2.0**-7
        layer = lower(module.eval(), (1, 6), {}).output
        point = torch.from_numpy(x)[None]
        found = exact_value(layer, Region(point, point))
        exact = [
            sum((Fraction(w) * Fraction(v) for w, v in zip(row, x.tolist(), strict=True)), Fraction(bias))
            for row, bias in zip(module.weight.tolist(), module.bias.tolist(), strict=True)
        ]
        if found is None:
            assert scale != 1.0, "whole numbers of this size fit"
        else:
            assert [Fraction(v) for v in found[0].tolist()] == exact
