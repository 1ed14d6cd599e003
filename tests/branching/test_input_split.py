"""The gain of a cut is attributed to the input that makes the bound loose."""

from __future__ import annotations

import pytest
import torch
from falsify.instances import layer

from verifier.bounding.relaxation.zonotope import propagate
from verifier.branching.input_split import BoxView, InputSplit
from verifier.network.network import Network

BOX = torch.tensor([[-1.0, -1.0]], dtype=torch.float64), torch.tensor([[1.0, 1.0]], dtype=torch.float64)


def gains(net: Network, coefficients: list[list[float]], variation: tuple[float, float] = (0.0, 0.0)) -> list[float]:
    lam = [torch.tensor([values], dtype=torch.float64) for values in coefficients]
    found = InputSplit().scores(BoxView(propagate(net, *BOX), lam, torch.tensor([variation], dtype=torch.float64)))
    return list(found[0].tolist())


def one_group(weight: list[list[float]]) -> Network:
    return Network((2,), (layer("g", 0, weight, [0.0] * len(weight)),), layer("out", 1, [[1.0] * len(weight)], [0.0]))


def test_a_neuron_charges_the_inputs_that_widen_it() -> None:
    """Radius 3, of which 2 and 1 come from the inputs; at zero tilt the height grows with half the radius."""
    assert gains(one_group([[2.0, -1.0]]), [[-1.0]]) == pytest.approx([1.0, 0.5])


def test_the_lower_face_counts_half() -> None:
    assert gains(one_group([[2.0, -1.0]]), [[1.0]]) == pytest.approx([0.5, 0.25])


def test_the_plane_adds_its_own_variation() -> None:
    expected = [0.0, 4.0 * InputSplit().plane_share]
    assert gains(one_group([[2.0, 0.0]]), [[0.0]], (0.0, 4.0)) == pytest.approx(expected)


def test_later_neurons_charge_earlier_ones() -> None:
    """Bounds of the second group: -1/2 and 1/2.  Input 0 spreads it by 1/2, the error of the first ReLU by 1/4.

    At a sensitivity of 1/2 that is 1/4 directly and 1/8 through the first neuron, which only input 0 widens.
    """
    first = layer("first", 0, [[1.0, 0.0]], [0.0])
    second = layer("second", 1, [[1.0]], [-0.5])
    net = Network((2,), (first, second), layer("out", 2, [[1.0]], [0.0]))
    assert gains(net, [[0.0], [-1.0]]) == pytest.approx([0.375, 0.0])


def test_stable_neurons_and_unread_groups_charge_nobody() -> None:
    net = Network((2,), (layer("g", 0, [[1.0, 0.0]], [5.0]),), layer("out", 1, [[1.0]], [0.0]))
    assert gains(net, [[-1.0]]) == [0.0, 0.0]
    nothing = torch.zeros(1, 2, dtype=torch.float64)
    found = InputSplit().scores(BoxView(propagate(one_group([[1.0, 1.0]]), *BOX), [None], nothing))
    assert found.tolist() == [[0.0, 0.0]]


def test_what_symbols_cost_besides_is_charged_as_well() -> None:
    """Three units of the neuron's symbol, of whose radius 2 and 1 come from the inputs; a half of input 0 itself."""
    found = propagate(one_group([[2.0, -1.0]]), *BOX)
    owed = torch.tensor([[0.5], [0.0], [3.0]], dtype=torch.float64)
    scores = InputSplit().scores(BoxView(found, [], torch.zeros(1, 2, dtype=torch.float64), owed))
    assert scores[0].tolist() == pytest.approx([2.5, 1.0])
