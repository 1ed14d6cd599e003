"""Networks with more neurons than anybody can bound are refused while they are read, by the node that is too much."""

from __future__ import annotations

import pytest
from torch import nn

from verifier.errors import UnsupportedOperator
from verifier.network.lowering import tracing
from verifier.network.models.module import ModuleModel


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5), nn.ReLU()), (1, 3)),
        (nn.Sequential(nn.MaxPool2d(2)), (1, 1, 4, 4)),
    ],
)
def test_too_many_neurons_are_refused(
    module: nn.Module, shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    count = ModuleModel(module, shape).network().neurons
    monkeypatch.setattr(tracing, "MOST_NEURONS", count)
    assert ModuleModel(module, shape).network().neurons == count
    monkeypatch.setattr(tracing, "MOST_NEURONS", 8)
    with pytest.raises(UnsupportedOperator, match="million neurons to bound"):
        ModuleModel(module, shape).network()
