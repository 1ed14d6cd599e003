"""Bounds of attention: factors that repeat, maps that follow each other, groups that need no sweep."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import networks
import pytest
import torch
from bounding.cases import random_rows, root, value
from torch import nn

from verifier.bounding import HIDDEN, frugal, hidden
from verifier.bounding.clauses import ClauseBounder
from verifier.bounding.core.base import Objective, Region, Until
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.frugal import Frugal
from verifier.bounding.hidden import RootBounds, Sharpened, shares_of_loss
from verifier.bounding.solvers.crown import Linear
from verifier.loading import GivenFiles
from verifier.network.models.module import ModuleModel
from verifier.network.network import Network
from verifier.pipeline import problem_of

TOKENS, WIDTH = 3, 4


class Attention(nn.Module):
    """Tokens, a layer that mixes their features, attention, and a layer of ReLUs; the input is read by two maps."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.embed, self.mix = nn.Linear(WIDTH, 6), nn.Linear(6, 6)
        self.query, self.key, self.value = (nn.Linear(6, 2) for _ in range(3))
        self.hidden, self.out = nn.Linear(2, 5), nn.Linear(5, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.mix(self.embed(x.reshape(1, TOKENS, WIDTH)))
        weights = (self.query(x) @ self.key(x).transpose(1, 2)).softmax(-1)
        return self.out(self.hidden(weights @ self.value(x)).relu()).mean(1)


@pytest.fixture(scope="module")
def attention() -> Network:
    return ModuleModel(Attention(), (1, TOKENS * WIDTH)).network()


def boxed(net: Network, radius: float) -> tuple[torch.Tensor, torch.Tensor]:
    return networks.box(net, 3, radius, count=2)


@pytest.mark.parametrize("radius", [0.01, 0.3])
def test_bounds_of_attention_enclose_its_values(attention: Network, radius: float) -> None:
    lower, upper = boxed(attention, radius)
    region = root(attention, lower, upper)
    x = networks.points(lower, upper, 400, 1)
    for low, high, x_hat in zip(region.l_hat, region.u_hat, attention.preactivations(x), strict=False):
        assert bool(((x_hat >= low) & (x_hat <= high)).all())
    rows = random_rows(attention, 4, 3)
    assert bool((value(attention, rows, x) >= Linear().bound(attention, region, rows, Until()).lower).all())


def test_maps_that_follow_each_other_are_bounded_as_one(attention: Network) -> None:
    """Interval by interval, what the inner map adds up could no longer cancel in the outer one."""
    lower, upper = boxed(attention, 0.3)
    group = attention.groups[0]
    ((source, linear),) = group.terms
    assert source == 0
    assert not group.exact
    matrix = linear.forward(torch.eye(linear.n_in, dtype=torch.float64)).T
    radius = (upper - lower) / 2 @ matrix.abs().T
    region = root(attention, lower, upper)
    torch.testing.assert_close((region.u_hat[0] - region.l_hat[0]) / 2, radius, rtol=1e-9, atol=1e-12)
    loose = root(attention, lower, upper, "interval")
    assert bool((loose.u_hat[0] - loose.l_hat[0] > 2.2 * radius).any())


def test_entries_that_are_alike_are_bounded_once(attention: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    products = [k for k, group in enumerate(attention.groups, 1) if group.function.name == "Product"]
    assert [int(attention.groups[k - 1].alike.alone.sum()) for k in products] == [12, 15]  # type: ignore[union-attr]
    lower, upper = boxed(attention, 0.3)
    once = root(attention, lower, upper)
    monkeypatch.setattr(hidden, "_alike", lambda group: None)
    each = root(attention, lower, upper)
    for low, high, own_low, own_high in zip(once.l_hat, once.u_hat, each.l_hat, each.u_hat, strict=True):
        torch.testing.assert_close(low, own_low, rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(high, own_high, rtol=1e-9, atol=1e-12)


def test_whoever_repeats_bounds_row_by_row_gets_every_row(attention: Network) -> None:
    class Separately(Linear):
        separately = True

    lower, upper = boxed(attention, 0.3)
    k = next(k for k, group in enumerate(attention.groups, 1) if group.function.name == "Exp")
    before = root(attention, lower, upper)
    region = Region(lower, upper, before.l_hat[: k - 1], before.u_hat[: k - 1], before.functions[: k - 1])
    counts = []
    for bounder in (Linear(), Separately()):
        seen: list[int] = []
        told = Sharpened(RootBounds(None), bounder, lambda ends, rows, found, seen=seen: seen.append(rows.count))
        told.group(attention, region, k, Until())
        counts.append(sum(seen))
    assert counts == [attention.groups[k - 1].size, 2 * attention.groups[k - 1].size]  # t_j - t_i and t_i - t_j


@pytest.mark.parametrize("seed", range(6))
def test_planes_alone_are_those_of_whole_sweeps(seed: int) -> None:
    net = networks.mixed(seed)
    region = root(net, *networks.box(net, seed, 0.3, count=2), "interval")
    rows = random_rows(net, seed, 4)
    sweep = Sweep.prepare(net, region, rows.layer)
    choices = Linear().choices(sweep)
    whole, alone = sweep.backward(rows, choices).plane, sweep.plane(rows, choices)
    torch.testing.assert_close(alone.lower, whole.lower, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(alone.slope, whole.slope, rtol=1e-9, atol=1e-9)
    x = networks.points(region.lower, region.upper, 100, seed)
    assert bool((value(net, rows, x) >= alone.lower).all())


# -- groups that need no sweep -------------------------------------------------------------------------------


def rows_of(net: Network, above: float = 0.0) -> Objective:
    """Rows that are negative somewhere; or positive, if they are moved far up."""
    rows = random_rows(net, 4, 2)
    assert rows.constant is not None
    return replace(rows, inputs=None, constant=rows.constant - 5.0 + above)


def test_parts_of_the_loss_belong_to_somebody(attention: Network) -> None:
    lower, upper = boxed(attention, 0.02)
    region, rows = root(attention, lower, upper), rows_of(attention)
    shares = shares_of_loss(Sweep.prepare(attention, region, rows.layer), rows)
    kinds = [group.function.is_relu for group in attention.groups]
    assert all(0 <= share <= 1 for share in shares)
    assert [share for share, relu in zip(shares, kinds, strict=True) if relu] == [1.0]
    assert sum(share for share, relu in zip(shares, kinds, strict=True) if not relu) > 0


def test_rows_that_are_positive_already_need_no_sweep(attention: Network) -> None:
    region, rows = root(attention, *boxed(attention, 0.02)), rows_of(attention, above=50.0)
    shares = shares_of_loss(Sweep.prepare(attention, region, rows.layer), rows)
    assert shares == [float(group.function.is_relu) for group in attention.groups]


def test_where_bounds_are_far_off_everything_is_swept(attention: Network) -> None:
    lower, upper = boxed(attention, 30.0)
    region, rows = root(attention, lower, upper, "interval"), rows_of(attention)
    assert shares_of_loss(Sweep.prepare(attention, region, rows.layer), rows) == [1.0] * len(attention.groups)


def test_small_groups_are_swept_without_asking(attention: Network) -> None:
    bounds = RootBounds()
    assert bounds.for_rows(attention, boxed(attention, 0.02), rows_of(attention), Until()) is bounds


def test_laborious_groups_that_cost_nothing_keep_their_intervals(
    attention: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hidden, "LITTLE_WORK", 0)
    monkeypatch.setattr(hidden, "shares_of_loss", lambda sweep, rows: [0.0] * len(attention.groups))
    box = boxed(attention, 0.1)
    bounds = RootBounds().for_rows(attention, box, rows_of(attention), Until())
    relus = {k for k, group in enumerate(attention.groups, 1) if group.function.is_relu}
    assert bounds.skipped == set(range(2, len(attention.groups) + 1)) - relus  # no sweep touches anything before 1
    found, intervals = bounds.region(attention, *box, Until()), root(attention, *box, "interval")
    k = next(iter(relus))
    assert bool((found.u_hat[k - 1] <= intervals.u_hat[k - 1]).all())
    assert bool((found.u_hat[k - 1] < intervals.u_hat[k - 1]).any())
    x = networks.points(*box, 200, 2)
    for low, high, x_hat in zip(found.l_hat, found.u_hat, attention.preactivations(x), strict=False):
        assert bool(((x_hat >= low) & (x_hat <= high)).all())


def test_frugal_bounds_leave_attention_to_those_that_know_repetitions(
    attention: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    bounds, box, rows = Frugal(RootBounds()), boxed(attention, 0.1), rows_of(attention)
    assert bounds.for_rows(attention, box, rows, Until()) is bounds  # a small network
    monkeypatch.setattr(frugal, "LARGE", 0.0)
    assert bounds.for_rows(attention, box, rows, Until()) is bounds  # few inputs move
    monkeypatch.setattr(frugal, "FEW_MOVING", 4)
    assert bounds.for_rows(attention, box, rows, Until()) is bounds.base
    plain = networks.dense(1, (8, 6, 5, 2))
    box = networks.box(plain, 1, 0.1)
    assert bounds.for_rows(plain, box, rows_of(plain), Until()) is bounds  # nothing repeats


@pytest.mark.slow
def test_a_public_network_with_attention_is_bounded_at_the_root(benchmarks: Path) -> None:
    folder = benchmarks / "vit"
    names = "onnx/pgd_2_3_16.onnx", "vnnlib/pgd_2_3_16_2296.vnnlib"
    network, prop = (str(next(folder.glob(f"{name}*"))) for name in names)
    problem = problem_of(GivenFiles(network, prop).load(), seed=0)
    assert ClauseBounder(HIDDEN.build("best")).bound(problem, Until()).worst > 0.5
