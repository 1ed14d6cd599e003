"""Groups of maxima in sweeps, zonotopes and searches: valid bounds, and the verdicts of the same network of ReLUs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import verifier
from verifier import pipeline
from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.hidden import RootBounds
from verifier.bounding.relaxation.zonotope import propagate
from verifier.bounding.solvers.alpha_crown import AlphaCrown
from verifier.bounding.solvers.crown import Linear
from verifier.bounding.solvers.solver import Certified
from verifier.network.lowering import tracing
from verifier.network.models.module import ModuleModel
from verifier.network.network import Network
from verifier.result.verdict import Reason, Verdict
from verifier.shapes import Tensor

SHORT = Ascent(10, Steps(0.1, 0.02))


def modules(seed: int) -> tuple[nn.Module, tuple[int, ...]]:
    torch.manual_seed(seed)
    end = [nn.Flatten(), nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2)]
    conv = nn.Conv2d(1, 2, 3, padding=1)
    if seed % 2:
        return nn.Sequential(conv, nn.ReLU(), nn.MaxPool2d(2), *end), (1, 4, 4)
    return nn.Sequential(conv, nn.MaxPool2d(3, stride=2, padding=1), nn.ReLU(), *end), (1, 4, 4)


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """All networks are written with maxima."""
    monkeypatch.setattr(tracing, "MOST_NEURONS", 0)
    return monkeypatch


def boxes(net: Network, seed: int, width: float = 0.4) -> tuple[Tensor, Tensor]:
    centre = torch.randn(3, net.n_in, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return centre - width, centre + width


def samples(low: Tensor, high: Tensor, count: int = 300) -> Tensor:
    """Points [count, D, n] of the boxes, corners among them."""
    share = torch.rand(count, *low.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(5))
    share[::3] = share[::3].round()
    return low + share * (high - low)


@pytest.mark.parametrize("seed", range(4))
def test_sweeps_are_below_all_samples(seed: int, whole: pytest.MonkeyPatch) -> None:
    module, shape = modules(seed)
    net = ModuleModel(module, (1, *shape)).network()
    assert "Max" in {group.function.name for group in net.groups}
    low, high = boxes(net, seed)
    region = RootBounds().region(net, low, high, Until())
    values = net.preactivations(samples(low, high))
    for l_hat, u_hat, x_hat in zip(region.l_hat, region.u_hat, values, strict=False):
        assert bool(((l_hat <= x_hat) & (x_hat <= u_hat)).all())
    rows = Objective(len(net.layers), torch.tensor([[[1.0, -1.0], [-1.0, 0.5]]], dtype=torch.float64))
    least = (values[-1].unsqueeze(-2) * rows.coefficients).sum(dim=-1).amin(dim=0)
    for bounder in (Linear(), Certified(AlphaCrown(SHORT))):
        assert bool((bounder.bound(net, region, rows, Until()).lower <= least).all())


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("seed", range(4))
def test_zonotopes_hold_all_samples(seed: int, double: bool, whole: pytest.MonkeyPatch) -> None:
    module, shape = modules(seed)
    net = ModuleModel(module, (1, *shape)).network()
    low, high = boxes(net, seed, 0.1)
    found = propagate(net if double else net.to(dtype=torch.float32), low, high)
    values = net.preactivations(samples(low, high))
    for l_hat, u_hat, x_hat in zip(found.l_hat, found.u_hat, values, strict=False):
        assert bool(((l_hat <= x_hat) & (x_hat <= u_hat)).all())
    ends = found.output.ends()
    assert bool(((ends[0] <= values[-1]) & (values[-1] <= ends[1])).all())


def test_a_point_is_exact(whole: pytest.MonkeyPatch) -> None:
    """On a box without width nothing is lost but rounding."""
    module, shape = modules(1)
    net = ModuleModel(module, (1, *shape)).network()
    x = torch.randn(2, net.n_in, dtype=torch.float64)
    region = RootBounds().region(net, x, x, Until())
    rows = Objective(len(net.layers), torch.eye(2, dtype=torch.float64).unsqueeze(0))
    assert torch.allclose(Linear().bound(net, region, rows, Until()).lower, net.forward(x), atol=1e-9)
    assert isinstance(region, Region)


def decided(module: nn.Module, shape: tuple[int, ...], least: float) -> verifier.Result:
    box = np.full(shape, -0.5), np.full(shape, 0.5)
    unsafe = [([[-1.0, 0.0]], [-least])]
    return verifier.verify(module, lower=box[0], upper=box[1], unsafe=unsafe, threads=1, timeout=60)


@pytest.mark.parametrize("seed", range(4))
def test_a_search_finds_the_same_verdicts(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    module, shape = modules(seed)
    net = ModuleModel(module, (1, *shape)).network()
    most = float(net.forward(torch.rand(4000, net.n_in, dtype=torch.float64) - 0.5)[:, 0].max())
    for least in (most - 0.05, most + 0.5):
        wanted = decided(module, shape, least).verdict
        with monkeypatch.context() as patch:
            patch.setattr(tracing, "MOST_NEURONS", 0)
            assert decided(module, shape, least).verdict is wanted


def test_what_is_too_large_for_a_search_is_bounded_and_attacked(whole: pytest.MonkeyPatch) -> None:
    whole.setattr(pipeline, "MOST_NEURONS", 0)
    module, shape = modules(1)
    net = ModuleModel(module, (1, *shape)).network()
    most = float(net.forward(torch.rand(4000, net.n_in, dtype=torch.float64) - 0.5)[:, 0].max())
    assert decided(module, shape, most - 0.05).verdict is Verdict.SAT
    assert decided(module, shape, most + 20.0).verdict is Verdict.UNSAT
    open_one = decided(module, shape, most + 0.25)
    assert (open_one.verdict, open_one.reason) == (Verdict.UNKNOWN, Reason.LIMIT)
    assert "million neurons" in (open_one.message or "")
