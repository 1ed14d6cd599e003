"""BaBSR: its estimates are the changes of the bound that they stand for, and ties go to the intercepts."""

from __future__ import annotations

import networks
import numpy as np
import pytest
import torch
from branching.views import ambiguous, random_view, view_of
from falsify import instances
from hypothesis import given, settings
from hypothesis import strategies as st
from search.cases import twin

from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.hidden import RootBounds
from verifier.bounding.solvers.crown import Linear, Slope
from verifier.branching.babsr import BaBSR, estimates
from verifier.branching.base import View
from verifier.functions import RELU
from verifier.network.network import Network


def flat(net: Network, seed: int) -> Region:
    """The box is the origin, but the bounds leave room: of every x_hat only its bias is left."""
    generator = torch.Generator().manual_seed(seed)

    def wide(group: int) -> torch.Tensor:
        size = net.groups[group].size
        return 0.1 + 2 * torch.rand(1, size, generator=generator, dtype=torch.float64)

    origin = torch.zeros(1, net.n_in, dtype=torch.float64)
    return Region(origin, origin, (-wide(0),), (wide(0),), (RELU,))


@pytest.mark.usefixtures("unchecked")
@given(seed=st.integers(0, 2**16))
@settings(max_examples=25)
def test_one_layer_over_a_point_the_estimate_is_the_true_change(seed: int) -> None:
    """Wong and Kolter's bound is computed anew with each neuron fixed to either side."""
    net = networks.dense(seed, (3, 6, 2))
    region, rows = flat(net, seed), torch.randn(1, 2, generator=torch.Generator().manual_seed(seed)).double()
    found, intercepts = estimates(view_of(net, region, rows))

    def bound(low: torch.Tensor, high: torch.Tensor) -> float:
        cut = Region(region.lower, region.upper, (low,), (high,), (RELU,))
        return float(Linear(Slope.PARALLEL).bound(net, cut, Objective(2, rows.unsqueeze(1)), Until()).lower)

    (low,), (high,) = region.l_hat, region.u_hat
    before = bound(low, high)
    for i in range(6):
        passing, blocking = low.clone(), high.clone()
        passing[0, i] = blocking[0, i] = 0.0
        change = min(bound(passing, high) - before, bound(low, blocking) - before)
        assert float(found[0, i]) == pytest.approx(max(change, 0.0), abs=1e-9)
        lam = float(rows[0] @ net.output.terms[0][1].forward(torch.eye(6).double()).T[:, i])
        gap = float(-low[0, i] * high[0, i] / (high[0, i] - low[0, i]))
        assert float(intercepts[0, i]) == pytest.approx(max(-lam, 0.0) * gap, abs=1e-9)


def directly(net: Network, region: Region, row: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The smaller gain and the cost of the intercept for all neurons, one by one, in plain numpy."""
    dag = twin(net)
    lam = {j: np.zeros(len(group.bias)) for j, group in enumerate(dag.groups, start=1)}
    for source, weight in zip(dag.output.sources, dag.output.weights, strict=True):
        if source:
            lam[source] += row @ weight
    changes, costs = {}, {}
    for k in range(len(dag.groups), 0, -1):
        group, mu = dag.groups[k - 1], np.zeros(len(lam[k]))
        changes[k], costs[k] = np.full(len(mu), np.nan), np.full(len(mu), np.nan)
        for i, coefficient in enumerate(lam[k]):
            low, high = float(region.l_hat[k - 1][0, i]), float(region.u_hat[k - 1][0, i])
            if low >= 0 or high <= 0:
                mu[i] = coefficient if low >= 0 else 0.0
                continue
            slope, bias = high / (high - low), group.bias[i]
            costs[k][i] = -slope * low * -coefficient if coefficient < 0 else 0.0
            now = coefficient * slope * bias - costs[k][i]
            changes[k][i] = max(0.0, min(coefficient * bias - now, 0.0 - now))  # passing: slope 1; blocking: nothing
            mu[i] = coefficient * slope
        for source, weight in zip(group.sources, group.weights, strict=True):
            if source:
                lam[source] += mu @ weight
    order = range(1, len(dag.groups) + 1)
    return np.concatenate([changes[k] for k in order]), np.concatenate([costs[k] for k in order])


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("seed", range(4))
def test_scores_equal_a_computation_neuron_by_neuron(family: str, seed: int) -> None:
    net = networks.FAMILIES[family](seed)
    region = RootBounds().region(net, *networks.box(net, seed, 0.6), Until())
    rows = torch.randn(1, net.n_out, generator=torch.Generator().manual_seed(seed)).double()
    found, intercepts = estimates(view_of(net, region, rows))
    changes, costs = directly(net, region, rows[0].numpy())
    ambiguous_only = ~np.isnan(changes)
    assert found.shape[1] == ambiguous_only.sum() >= 2  # one box: kinks are what is ambiguous
    np.testing.assert_allclose(found[0].numpy(), changes[ambiguous_only], atol=1e-9)
    np.testing.assert_allclose(intercepts[0].numpy(), costs[ambiguous_only], atol=1e-9)


def by_hand(scale: float = 1.0) -> View:
    """Coefficients -2, 3, -1 over neurons x + 1/2, x, 2x - 1 with bounds (-1/2, 3/2), (-1, 1), (-3, 1)."""
    hidden = instances.layer("hidden", 0, [[1.0], [1.0], [2.0]], [0.5, 0.0, -1.0])
    net = Network((1,), (hidden,), instances.layer("out", 1, [[-2.0 * scale, 3.0 * scale, -1.0 * scale]], [0.0]))
    one = torch.ones(1, 1, dtype=torch.float64)
    return view_of(net, RootBounds().region(net, -one, one, Until()), one)


def test_scores_by_hand() -> None:
    # Slopes 3/4, 1/2, 1/4; intercepts 3/8, 1/2, 3/4; costs 3/4, 0, 3/4; lam b = -1, 0, 1.
    # Neuron 0: passing -1/4 + 3/4 = 1/2, blocking 3/4 + 3/4; neuron 1: 0; neuron 2: blocking -1/4 + 3/4 = 1/2.
    changes, intercepts = estimates(by_hand())
    assert changes[0].tolist() == pytest.approx([0.5, 0.0, 0.5], abs=1e-9)
    assert intercepts[0].tolist() == pytest.approx([0.75, 0.0, 0.75], abs=1e-9)
    tie = 0.5e-3 * 0.75 / 1.75
    assert BaBSR().scores(by_hand())[0].tolist() == pytest.approx([0.5 + tie, 0.0, 0.5 + tie], abs=1e-9)


def test_small_scores_leave_the_choice_to_the_intercepts() -> None:
    found = BaBSR(threshold=1e-3).scores(by_hand(scale=1e-3))[0]  # all changes are below the threshold
    assert found.tolist() == pytest.approx([0.5e-3 * 0.75e-3, 0.0, 0.5e-3 * 0.75e-3], rel=1e-2)


@given(seed=st.integers(0, 2**16), threshold=st.sampled_from([1e-3, 0.05, 0.5]))
@settings(max_examples=20)
def test_whatever_counts_is_above_all_ties_and_in_order(seed: int, threshold: float) -> None:
    view = random_view("residual", seed, boxes=1)
    changes, intercepts = (part[ambiguous(view)] for part in estimates(view))
    scores = BaBSR(threshold).scores(view)[ambiguous(view)]
    counts = changes > threshold
    assert bool((scores[counts] > threshold).all())
    assert bool((scores[~counts] < threshold).all())
    for part, key in ((counts, changes), (~counts, intercepts)):
        order = key[part].argsort(stable=True)
        steps, gaps = scores[part][order].diff(), key[part][order].diff()
        assert bool((steps[gaps > threshold] > 0).all())
        assert bool((scores[~counts].diff() * intercepts[~counts].diff() >= 0).all())
