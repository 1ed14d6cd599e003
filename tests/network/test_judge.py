"""The comparison with the original network must be able to fail."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from verifier.errors import InputError, SoundnessError
from verifier.network.judge import check_against, sample_box
from verifier.network.models.module import ModuleModel


@pytest.fixture
def model():
    torch.manual_seed(0)
    return ModuleModel(nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2)), (1, 3))


def test_agreement(model):
    network = model.network()
    assert check_against(model, network, (-np.ones(3), np.ones(3))) < 1e-6
    assert check_against(model, network.to(dtype=torch.float32), (-np.ones(3), np.ones(3))) < 1e-5


def test_a_lost_bias_is_found(model):
    network = model.network()
    wrong = replace(network, output=replace(network.output, bias=network.output.bias + 1e-2))
    with pytest.raises(SoundnessError, match=r"disagrees .* at output \d: .* against"):
        check_against(model, wrong, (-np.ones(3), np.ones(3)))


def test_a_lost_neuron_is_found(model):
    network = model.network()
    group = replace(network.groups[0], bias=network.groups[0].bias - torch.tensor([0, 0, 9.0, 0, 0]))
    with pytest.raises(SoundnessError):
        check_against(model, replace(network, groups=(group,)), (-np.ones(3), np.ones(3)))


def test_sizes_and_values(model):
    with pytest.raises(InputError, match="takes 3 inputs, but the box has 4"):
        check_against(model, model.network(), (np.zeros(4), np.ones(4)))
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 100.0)
    steep = ModuleModel(layer, (1, 1))
    with pytest.raises(InputError, match="not finite"):
        check_against(steep, steep.network(), (np.full(1, 1e38), np.full(1, 2e38)))


def test_samples_lie_in_the_box_and_include_its_ends():
    lower, upper = np.array([-1.0, 2.0, 5.0]), np.array([1.0, 2.5, 5.0])
    points = sample_box(lower, upper, np.random.default_rng(3), count=9)
    assert points.shape == (9, 3)
    assert (points >= lower).all()
    assert (points <= upper).all()
    assert (points[0] == lower).all()
    assert (points[1] == upper).all()
    assert len(np.unique(points, axis=0)) >= 7
    assert (points == sample_box(lower, upper, np.random.default_rng(3), count=9)).all()


@pytest.mark.parametrize(("numbers", "most"), [(0, 24 * 4 + 12), (10**8, 12 + 6)])
def test_a_model_of_many_numbers_is_run_less_often(model, numbers, most):
    """But at a dozen points of its boxes at least."""
    network, seen = model.network(), []

    class Counting:
        dtype = model.dtype

        def run(self, x):
            seen.extend(np.atleast_2d(x))
            return model.run(x)

    Counting.numbers = numbers
    lower = np.linspace(-1, 0, 40)[:, None].repeat(3, axis=1)
    assert check_against(Counting(), network, (lower, lower + 1)) < 1e-6
    assert 12 <= len(seen) <= most
    wrong = replace(network, output=replace(network.output, bias=network.output.bias + 1e-2))
    with pytest.raises(SoundnessError):
        check_against(Counting(), wrong, (lower, lower + 1))
