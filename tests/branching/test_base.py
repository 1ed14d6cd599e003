"""What every rule promises."""

from __future__ import annotations

import networks
import pytest
import torch
from branching.views import ambiguous, random_view
from falsify import instances
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.base import Objective, Region
from verifier.bounding.core.sweep import Sweep
from verifier.branching import BRANCHERS
from verifier.branching.base import Brancher, View
from verifier.functions import RELU

pytestmark = pytest.mark.parametrize("brancher", [BRANCHERS.build(n) for n in BRANCHERS.names()], ids=BRANCHERS.names())


@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize("family", networks.FAMILIES)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=6)
def test_ambiguous_kinks_have_scores_and_stable_ones_have_not(family: str, brancher: Brancher[View], seed: int) -> None:
    view = random_view(family, seed)
    found, open_ = brancher.scores(view), ambiguous(view)
    assert found.shape == open_.shape
    assert bool((found[open_] >= 0).all())
    assert bool((found[~open_] == -1).all())


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_a_batch_is_scored_like_its_members(family: str, brancher: Brancher[View]) -> None:
    view = random_view(family, 4)
    together = brancher.scores(view)
    for k in range(3):
        row = torch.tensor([k])
        alone = View(view.sweep.select(row), view.objective.select(row), view.trace.select(row), view.probe)
        torch.testing.assert_close(brancher.scores(alone)[0], together[k], rtol=1e-9, atol=1e-12)


def test_a_group_that_nobody_reads_can_still_be_scored(brancher: Brancher[View]) -> None:
    """The output takes the input only; both neurons of the hidden layer are ambiguous."""
    hidden = instances.layer("hidden", 0, [[1.0], [-1.0]], [0.0, 0.5])
    net = networks.Network((1,), (hidden,), instances.layer("out", 0, [[1.0]], [0.0]))
    one = torch.ones(1, 1, dtype=torch.float64)
    region = Region(
        -one, one, (torch.tensor([[-1.0, -0.5]]).double(),), (torch.tensor([[1.0, 1.5]]).double(),), (RELU,)
    )
    sweep = Sweep.prepare(net, region, 2)
    objective = Objective(2, one.unsqueeze(0))
    trace = sweep.backward(objective, ())
    assert trace.coefficients == (None,)
    found = brancher.scores(View(sweep, objective, trace, lambda kinks: torch.zeros(*kinks.shape, 2).double()))
    assert found.shape == (1, 2)
    assert bool((found >= 0).all())
