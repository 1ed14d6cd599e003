"""Networks with too many neurons to be searched are written with fewer, or refused by the node that is too much."""

from __future__ import annotations

import pytest
import torch
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
    assert ModuleModel(module, shape).network().neurons <= count
    monkeypatch.setattr(tracing, "MOST_BOUNDED", 8)
    with pytest.raises(UnsupportedOperator, match="million neurons to bound"):
        ModuleModel(module, shape).network()


POOLS = {
    "plain": (nn.MaxPool2d(2), (1, 2, 4, 4)),
    "overlapping, padded": (nn.MaxPool2d(3, stride=2, padding=1), (1, 2, 5, 5)),
    "dilated": (nn.MaxPool2d((2, 3), stride=1, dilation=(2, 1)), (1, 1, 5, 6)),
    "overhanging": (nn.MaxPool1d(3, stride=2, ceil_mode=True), (1, 2, 6)),
    "in space": (nn.MaxPool3d(2, stride=(1, 2, 2), padding=(1, 0, 1)), (1, 2, 3, 4, 3)),
}


@pytest.mark.parametrize("name", POOLS)
def test_maxima_are_what_relus_give(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pool, shape = POOLS[name]
    model = ModuleModel(nn.Sequential(pool, nn.Flatten()), shape)
    by_relus = model.network()
    monkeypatch.setattr(tracing, "MOST_NEURONS", 0)
    whole = model.network()
    assert [group.function.name for group in whole.groups] == ["Max"]
    assert whole.neurons == whole.n_out < by_relus.neurons
    x = torch.randn(20, whole.n_in, dtype=torch.float64)
    assert torch.equal(whole.forward(x), pool(x.reshape(20, *shape[1:])).flatten(1))
    assert torch.allclose(whole.forward(x), by_relus.forward(x), rtol=0, atol=1e-12)
