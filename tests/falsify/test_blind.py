"""Points tried on networks that can only be run."""

from __future__ import annotations

import networks
import numpy as np
import pytest
from falsify import instances
from numpy.typing import NDArray

from verifier.clock import Clock
from verifier.falsify.blind import Blind
from verifier.property.property import Property


class Steps:
    """y = the number of inputs above 0.9, minus those below: flat nearly everywhere, so that no gradient helps."""

    def __init__(self) -> None:
        self.asked = 0

    def run(self, x: NDArray[np.float32]) -> NDArray[np.floating]:
        self.asked += x.size
        above = np.sign(x - np.float32(0.9)).sum(axis=-1, keepdims=True)
        return above.astype(np.float32)


def below(bound: object, inputs: int, sign: int = 1, width: float = 1.0) -> Property:
    """sign * Y_0 <= bound on the box [0, width]^inputs."""
    net = networks.dense(0, (inputs, 3, 1))
    box = instances.boxes([[0.0] * inputs], [[width] * inputs])
    return instances.problem(net, box, [(0, [instances.row({0: sign}, bound)])]).property


def test_a_rare_corner_is_found_step_by_step() -> None:
    """All twelve inputs must exceed 0.9, which one random inner point in 10^12 and one corner in 4096 does."""
    prop, model = below(-12, 12, sign=-1), Steps()
    witness = Blind().attack(model, prop, Clock.begin())
    assert witness is not None
    assert (witness.x > 0.9).all()
    assert witness.y.tolist() == [12.0]


def test_what_does_not_exist_is_not_found() -> None:
    assert Blind(visits=3).attack(Steps(), below(-13, 12, sign=-1), Clock.begin()) is None


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_gives_the_same_answer(seed: int) -> None:
    prop = below(-6, 8, sign=-1)
    first, second = (Blind(seed).attack(Steps(), prop, Clock.begin()) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first.x.tolist() == second.x.tolist()


def test_a_box_that_is_a_point_is_tried_once() -> None:
    model = Steps()
    assert Blind().attack(model, below(-1, 2, sign=-1, width=0.0), Clock.begin()) is None
    assert model.asked <= 2 * Blind().samples


def test_no_time_no_point() -> None:
    model = Steps()
    assert Blind().attack(model, below(-6, 8, sign=-1), Clock.begin(0.0)) is None
    assert model.asked == 0
