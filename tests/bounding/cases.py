"""Objectives and regions that several tests of bounds share."""

from __future__ import annotations

from collections.abc import Sequence

import networks
import pytest
import torch

from verifier.bounding import HIDDEN
from verifier.bounding.core.base import Objective, Region, Until
from verifier.network.network import Network


def meetings(solvers: Sequence[str]) -> pytest.MarkDecorator:
    """Families and solvers that meet: all of them, but some are slow.

    Windows and skip connections, which include chains of matrices, meet every solver, what nobody reads every second.
    """

    def often(family: str, number: int) -> bool:
        return number % {"conv": 1, "residual": 1, "unread": 2, "dense": 4}[family] == 0

    pairs = [(family, i) for i in range(len(solvers)) for family in networks.FAMILIES]
    some = [pytest.param(f, solvers[i], marks=[] if often(f, i) else pytest.mark.slow) for f, i in pairs]
    return pytest.mark.parametrize(("family", "solver"), some)


def root(net: Network, lower: torch.Tensor, upper: torch.Tensor, method: str = "best") -> Region:
    """Boxes with the bounds of all groups."""
    return HIDDEN.build(method).region(net, lower, upper, Until())


def random_rows(net: Network, seed: int, count: int) -> Objective:
    """Random rows over outputs and inputs, with constants."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    return Objective(len(net.layers), normal(1, count, net.n_out), normal(1, count, net.n_in), normal(1, count))


def value(net: Network, objective: Objective, x: torch.Tensor) -> torch.Tensor:
    """The objective at points [P, D, n0]: [P, D, S]."""
    assert objective.inputs is not None
    assert objective.constant is not None
    return net.forward(x) @ objective.coefficients[0].T + x @ objective.inputs[0].T + objective.constant[0]
