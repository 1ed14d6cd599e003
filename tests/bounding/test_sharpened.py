"""Intermediate bounds by any bounder: never looser, valid, only where needed, within memory and time."""

from __future__ import annotations

from dataclasses import dataclass, field

import networks
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.active_set import ActiveSet, Additions
from verifier.bounding.alpha_crown import AlphaCrown
from verifier.bounding.ascent import Ascent, Steps
from verifier.bounding.base import Bound, Bounder, Objective, Proof, Region, Until
from verifier.bounding.big_m import BigM
from verifier.bounding.certified import Certified
from verifier.bounding.intermediate import GroupBounds, Intermediate, RootBounds, Sharpened
from verifier.bounding.linear import Linear
from verifier.clock import Clock
from verifier.network.network import Network

SHORT = Ascent(10, Steps(0.1, 0.02))
BOUNDERS: dict[str, Bounder] = {
    "crown": Linear(),
    "alpha_crown": Certified(AlphaCrown(SHORT)),
    "big_m": Certified(BigM(SHORT)),
    "active_set": Certified(ActiveSet(SHORT, SHORT, Additions(4, 1, 2))),
}
INTERVAL = RootBounds(Intermediate.INTERVAL)


def tighter(a: Region, b: Region, slack: float = 1e-12) -> bool:
    """Whether a's bounds are nowhere looser than b's."""
    lows = all(bool((x >= y - slack).all()) for x, y in zip(a.l_hat, b.l_hat, strict=True))
    return lows and all(bool((x <= y + slack).all()) for x, y in zip(a.u_hat, b.u_hat, strict=True))


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("bounder", BOUNDERS)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=2)
def test_valid_and_never_looser(family: str, bounder: str, seed: int) -> None:
    net = networks.FAMILIES[family](seed)
    lower, upper = networks.box(net, seed, 1.0, count=2)
    x_hats = net.preactivations(networks.points(lower, upper, 200, seed))
    for base in (INTERVAL, RootBounds()):
        sharp = Sharpened(base, BOUNDERS[bounder])
        region = sharp.region(net, lower, upper, Until())
        for low, high, x_hat in zip(region.l_hat, region.u_hat, x_hats, strict=False):
            assert bool((low <= x_hat).all())
            assert bool((x_hat <= high).all())
        for k in range(1, region.known + 1):  # from the same bounds of earlier groups
            before = Region(lower, upper, region.l_hat[: k - 1], region.u_hat[: k - 1])
            loose = base.group(net, before, k, Until())
            assert bool((region.l_hat[k - 1] >= loose[0]).all())
            assert bool((region.u_hat[k - 1] <= loose[1]).all())
    assert tighter(
        Sharpened(INTERVAL, BOUNDERS[bounder]).region(net, lower, upper, Until()), plain(INTERVAL, net, seed)
    )


def plain(base: GroupBounds, net: Network, seed: int) -> Region:
    return base.region(net, *networks.box(net, seed, 1.0, count=2), Until())


def test_bounds_wrap_bounds_and_get_tighter() -> None:
    net = networks.dense(3, (4, 12, 12, 12, 2))
    lower, upper = networks.box(net, 3, 0.6)
    once = Sharpened(INTERVAL, Linear())
    twice = Sharpened(once, Certified(AlphaCrown(SHORT)))
    widths = [
        float((r.u_hat[-1] - r.l_hat[-1]).sum())
        for r in (base.region(net, lower, upper, Until()) for base in (INTERVAL, once, twice))
    ]
    assert widths[0] > 1.1 * widths[1]
    assert widths[1] > 1.01 * widths[2]


def test_a_linear_bounder_gives_what_the_linear_sweep_gives() -> None:
    """The equality case: both ways to the same bound."""
    net = networks.conv(4)
    lower, upper = networks.box(net, 4, 0.5, count=2)
    best, wrapped = (b.region(net, lower, upper, Until()) for b in (RootBounds(), Sharpened(INTERVAL, Linear())))
    for k in range(len(net.groups)):
        torch.testing.assert_close(wrapped.l_hat[k], best.l_hat[k], rtol=0, atol=1e-12)
        torch.testing.assert_close(wrapped.u_hat[k], best.u_hat[k], rtol=0, atol=1e-12)


@dataclass(frozen=True)
class Spy(Bounder):
    """Notes what it is asked, and answers nothing: NaN."""

    asked: list[tuple[int, torch.Tensor]] = field(default_factory=list)

    def bound(
        self, net: Network, region: Region, objective: Objective, until: Until, warm: Proof | None = None
    ) -> Bound:
        self.asked.append((objective.layer, objective.coefficients))
        return Bound(torch.full((region.count, objective.count), torch.nan, dtype=torch.float64), None)


@pytest.mark.parametrize("memory", [1, 2**30])
def test_only_ambiguous_neurons_are_asked_and_nan_changes_nothing(memory: int) -> None:
    net = networks.dense(5, (3, 8, 9, 2))
    lower, upper = networks.box(net, 5, 0.7)
    spy = Spy()
    region = Sharpened(INTERVAL, spy).region(net, lower, upper, Until(memory_bytes=memory))
    alone = INTERVAL.region(net, lower, upper, Until())
    assert tighter(region, alone, 0.0)
    assert tighter(alone, region, 0.0)
    assert {layer for layer, _ in spy.asked} == {2}  # the first group's interval image is exact
    ambiguous = alone.ambiguous(2)[0].nonzero().flatten().tolist()
    assert 0 < len(ambiguous) < 9
    assert len(spy.asked) == (len(ambiguous) if memory == 1 else 1)
    signs = torch.cat([rows[0] for _, rows in spy.asked]).sum(dim=0)
    sizes = torch.cat([rows[0] for _, rows in spy.asked]).abs().sum(dim=0)
    assert signs.tolist() == [0.0] * 9
    assert sizes.nonzero().flatten().tolist() == ambiguous


def test_little_memory_changes_no_bound() -> None:
    net = networks.residual(6)
    lower, upper = networks.box(net, 6, 0.8, count=2)
    sharp = Sharpened(RootBounds(), Certified(AlphaCrown(SHORT)))
    whole, apart = (sharp.region(net, lower, upper, Until(memory_bytes=m)) for m in (2**30, 1))
    for k in range(len(net.groups)):
        torch.testing.assert_close(apart.l_hat[k], whole.l_hat[k], rtol=0, atol=1e-5)


def test_a_passed_deadline_leaves_the_base() -> None:
    net = networks.dense(1, (4, 10, 10, 2))
    lower, upper = networks.box(net, 1)
    spy = Spy()
    late = Sharpened(INTERVAL, spy).region(net, lower, upper, Until(Clock.begin(0.0)))
    assert spy.asked == []
    assert tighter(late, INTERVAL.region(net, lower, upper, Until()), 0.0)
