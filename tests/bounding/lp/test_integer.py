"""Mixed-integer programs against the enumeration of all activation patterns, and their cuts."""

from __future__ import annotations

import math

import networks
import numpy as np
import oracle
import pytest
import torch
from bounding.cases import random_rows, root
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.lp.bounder import CutLP, PlanetLP
from verifier.bounding.lp.integer import MixedInteger
from verifier.clock import Clock
from verifier.network.network import Network

SEEDS = st.integers(0, 2**16)


def as_oracle(net: Network) -> oracle.Dag:
    """The same network as plain matrices."""
    nodes = []
    for layer in net.layers:
        weights = [term.forward(torch.eye(term.n_in, dtype=torch.float64)).T.numpy() for _, term in layer.terms]
        nodes.append(([source for source, _ in layer.terms], weights, layer.bias.numpy()))
    return oracle.dag(net.n_in, nodes)


def exact_minimum(net: Network, region: Region, rows: Objective) -> float:
    """Of the largest row, by all activation patterns."""
    assert rows.inputs is not None
    assert rows.constant is not None
    parts = rows.coefficients[0].numpy(), -rows.constant[0].numpy(), rows.inputs[0].numpy()
    box = region.lower[0].numpy(), region.upper[0].numpy()
    return oracle.minimum_of_max(as_oracle(net), box, *parts, method="enumeration").value


def largest(net: Network, rows: Objective, x0: np.ndarray) -> float:
    """The largest row at an input."""
    assert rows.inputs is not None
    assert rows.constant is not None
    x = torch.from_numpy(x0)[None]
    values = net.forward(x) @ rows.coefficients[0].T + x @ rows.inputs[0].T + rows.constant[0]
    return float(values.max())


def instance(seed: int, count: int, family: str = "dense") -> tuple[Network, Region, Objective]:
    net = networks.FAMILIES[family](seed)
    return net, root(net, *networks.box(net, seed, 0.4)), random_rows(net, seed, count)


def small(region: Region) -> bool:
    return sum(int(region.ambiguous(k).sum()) for k in range(1, region.known + 1)) <= 7


@pytest.mark.parametrize("rounds", [0, 2])
@given(seed=SEEDS, count=st.sampled_from([1, 3]), family=st.sampled_from(["dense", "residual"]))
@settings(max_examples=6)
def test_the_optimum_is_that_of_all_activation_patterns(rounds: int, seed: int, count: int, family: str) -> None:
    net, region, rows = instance(seed, count, family)
    if not small(region):
        return
    exact = exact_minimum(net, region, rows)
    found = MixedInteger(rounds).minimum(net, region, rows, Until())
    assert found.x0 is not None
    assert found.lower == pytest.approx(exact, abs=1e-4)
    assert largest(net, rows, found.x0) == pytest.approx(exact, abs=1e-4)


@given(seed=SEEDS, rounds=st.sampled_from([0, 1]))
@settings(max_examples=6)
def test_finds_a_point_or_says_that_there_is_none(seed: int, rounds: int) -> None:
    net, region, rows = instance(seed, 2)
    if not small(region):
        return
    assert rows.constant is not None
    exact = exact_minimum(net, region, rows)
    for margin in (1e-2, -1e-2):
        moved = Objective(rows.layer, rows.coefficients, rows.inputs, rows.constant - exact + margin)
        claim = MixedInteger(rounds).refute(net, region, moved, Until())
        assert claim.empty is (margin > 0)
        assert (claim.x0 is None) is (margin > 0)
        if claim.x0 is not None:
            assert largest(net, moved, claim.x0) <= 1e-6


def test_cuts_tighten_the_relaxation_that_is_branched_on() -> None:
    """Before HiGHS branches: the program over A is above that over M, and both are below the minimum."""
    net = networks.dense(3)
    region, rows = root(net, *networks.box(net, 3, 1.5)), random_rows(net, 3, 1)
    planet = PlanetLP().bound(net, region, rows, Until()).lower.item()
    cut = CutLP(2).bound(net, region, rows, Until()).lower.item()
    found = [MixedInteger(rounds).minimum(net, region, rows, Until()).lower for rounds in (0, 2)]
    assert planet + 1e-3 < cut <= min(found) + 1e-6
    assert found[0] == pytest.approx(found[1], abs=1e-5)


def test_without_time_nothing_is_claimed() -> None:
    net = networks.dense(1, (20, 60, 60, 60, 2))
    region, rows = root(net, *networks.box(net, 1, 0.5)), random_rows(net, 1, 1)
    claim = MixedInteger().refute(net, region, rows, Until(Clock.begin(0.0)))
    assert claim.late
    assert claim.x0 is None
    assert not claim.empty


def test_empty_boxes_are_empty() -> None:
    net, region, rows = instance(1, 1)
    crossed = Region(
        region.lower, region.upper, (region.u_hat[0] + 1, *region.l_hat[1:]), region.u_hat, region.functions
    )
    claim = MixedInteger().refute(net, crossed, rows, Until())
    assert claim.empty
    assert claim.lower == math.inf
