"""Intermediate bounds by any bounder: never looser, valid, only where needed, within memory and time."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import networks
import pytest
import torch
from forks import watched
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Bound, Bounder, Objective, Region, Until
from verifier.bounding.hidden import IN_TURN, GroupBounds, Known, RootBounds, Sharpened, Workers
from verifier.bounding.solvers.active_set import ActiveSet, Additions
from verifier.bounding.solvers.alpha_crown import AlphaCrown
from verifier.bounding.solvers.big_m import BigM
from verifier.bounding.solvers.crown import Linear
from verifier.bounding.solvers.solver import Certified
from verifier.clock import Clock
from verifier.network.network import Network
from verifier.processes import Forks, forkable

SHORT = Ascent(10, Steps(0.1, 0.02))
BOUNDERS: dict[str, Bounder] = {
    "crown": Linear(),
    "alpha_crown": Certified(AlphaCrown(SHORT)),
    "big_m": Certified(BigM(SHORT)),
    "active_set": Certified(ActiveSet(SHORT, SHORT, Additions(4, 1, 2))),
}
INTERVAL = RootBounds(None)


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
            before = Region(lower, upper, region.l_hat[: k - 1], region.u_hat[: k - 1], region.functions[: k - 1])
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

    def bound(self, net: Network, region: Region, objective: Objective, until: Until) -> Bound:
        self.asked.append((objective.layer, objective.coefficients))
        return Bound(torch.full((region.count, objective.count), torch.nan, dtype=torch.float64), None)


@pytest.mark.parametrize("memory", [1, 2**30])
def test_only_ambiguous_neurons_are_asked_and_nan_changes_nothing(memory: int) -> None:
    net = networks.dense(5, (3, 8, 9, 2))
    lower, upper = networks.box(net, 5, 0.7)
    spy = Spy()
    region = Sharpened(INTERVAL, spy, memory_bytes=memory).region(net, lower, upper, Until())
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
    inner = (Certified(AlphaCrown(SHORT, memory_bytes=m), memory_bytes=m) for m in (2**30, 1))
    whole, apart = (
        Sharpened(RootBounds(memory_bytes=m), bounder, memory_bytes=m).region(net, lower, upper, Until())
        for m, bounder in zip((2**30, 1), inner, strict=True)
    )
    for k in range(len(net.groups)):
        torch.testing.assert_close(apart.l_hat[k], whole.l_hat[k], rtol=0, atol=1e-5)


def test_a_passed_deadline_leaves_the_base() -> None:
    net = networks.dense(1, (4, 10, 10, 2))
    lower, upper = networks.box(net, 1)
    spy = Spy()
    late = Sharpened(INTERVAL, spy).region(net, lower, upper, Until(Clock.begin(0.0)))
    assert spy.asked == []
    assert tighter(late, INTERVAL.region(net, lower, upper, Until()), 0.0)


# ---------------------------------------------------------------- bounds that are known


def test_known_bounds_are_given_as_copies() -> None:
    """Whoever tightens them in place must not change what somebody else still uses."""
    net = networks.residual(2)
    lower, upper = networks.box(net, 2, 0.8, count=3)
    known = RootBounds().region(net, lower, upper, Until())
    before = [side.clone() for side in known.l_hat + known.u_hat]
    again = Known(known).region(net, lower, upper, Until())
    assert all(torch.equal(a, b) for a, b in zip(again.l_hat + again.u_hat, before, strict=True))
    for side in again.l_hat + again.u_hat:
        side.fill_(7.0)
    Sharpened(Known(known), Certified(AlphaCrown(SHORT))).region(net, lower, upper, Until())
    assert all(torch.equal(a, b) for a, b in zip(known.l_hat + known.u_hat, before, strict=True))


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_sharpening_what_is_known_equals_sharpening_what_is_computed(family: str) -> None:
    """As long as the base does not depend on what was sharpened before it: the interval image of group 2 does not."""
    net = networks.FAMILIES[family](8)
    lower, upper = networks.box(net, 8, 0.9, count=2)
    known = INTERVAL.region(net, lower, upper, Until())
    one, other = (Sharpened(base, Linear()).region(net, lower, upper, Until()) for base in (INTERVAL, Known(known)))
    for k in range(2):
        torch.testing.assert_close(one.l_hat[k], other.l_hat[k], rtol=0, atol=0)
    assert tighter(other, known, 0.0)


# ---------------------------------------------------------------- several processes


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every group is worth sharing."""
    monkeypatch.setattr("verifier.bounding.hidden.WORTH_SHARING", -1)


def ways(memory: int) -> dict[str, GroupBounds]:
    base = RootBounds(memory_bytes=memory)
    sharp = Certified(AlphaCrown(SHORT, memory_bytes=memory), memory_bytes=memory)
    return {
        "crown": base,
        "sharpened": Sharpened(base, Linear(memory_bytes=memory), memory_bytes=memory),
        "alpha_crown": Sharpened(INTERVAL, sharp, memory_bytes=memory),
    }


FORKS = pytest.mark.skipif(not forkable(), reason="forks work on Linux only")


@FORKS
@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("way", ways(1))
def test_several_processes_give_the_same_bounds(family: str, way: str) -> None:
    net = networks.FAMILIES[family](7)
    lower, upper = networks.box(net, 7, 0.9, count=2)
    alone = ways(2**27)[way].region(net, lower, upper, Until())
    for processes, memory in ((2, 2**30), (3, 2**12), (2, 1)):
        with watched() as forks:
            found = ways(memory)[way].region(net, lower, upper, Until(), Forks(processes))
        assert forks.children
        assert not forks.grandchildren
        assert len(forks.children) <= (processes - 1) * 2 * len(net.groups)
        for k in range(len(net.groups)):
            torch.testing.assert_close(found.l_hat[k], alone.l_hat[k], rtol=0, atol=1e-5)
            torch.testing.assert_close(found.u_hat[k], alone.u_hat[k], rtol=0, atol=1e-5)


def test_small_groups_are_not_worth_a_fork() -> None:
    net = networks.dense(3, (4, 12, 12, 12, 2))
    with watched() as forks:
        RootBounds().region(net, *networks.box(net, 3, 0.6), Until(), Forks(4))
    assert not forks.pairs


def after(looks: int) -> Until:
    """Nobody needs the answer any more after so many looks."""
    left = iter(range(looks))
    return Until(needless=lambda: next(left, None) is None)


@pytest.mark.usefixtures("eager")
@pytest.mark.parametrize("workers", [IN_TURN, Forks(1), pytest.param(Forks(2), marks=FORKS)])
@pytest.mark.parametrize("looks", [0, 1, 2, 5, 9])
def test_what_nobody_needs_any_more_leaves_valid_bounds(workers: Workers, looks: int) -> None:
    net = networks.dense(5, (3, 8, 9, 7, 2))
    lower, upper = networks.box(net, 5, 0.9)
    known = INTERVAL.region(net, lower, upper, Until())
    sharp = Sharpened(Known(known), Linear(), memory_bytes=1)
    with watched():
        found = sharp.region(net, lower, upper, after(looks), workers)
    assert tighter(found, known, 0.0)
    assert tighter(known, found, 0.0) == (looks == 0)
    x_hats = net.preactivations(networks.points(lower, upper, 200, 5))
    for low, high, x_hat in zip(found.l_hat, found.u_hat, x_hats, strict=False):
        assert bool(((low <= x_hat) & (x_hat <= high)).all())


@dataclass(frozen=True)
class Listener(Spy):
    """Notes how long it may take, too."""

    until: list[Until] = field(default_factory=list)

    def bound(self, net: Network, region: Region, objective: Objective, until: Until) -> Bound:
        self.until.append(until)
        return super().bound(net, region, objective, until)


def test_one_of_several_processes_asks_nobody() -> None:
    """Only the first process can hear whether the answer is still needed."""
    net, listener = networks.dense(5, (3, 8, 9, 2)), Listener()
    lower, upper = networks.box(net, 5, 0.7)
    whole = Until(Clock.begin(50), threshold=1.0, needless=lambda: False)
    Sharpened(INTERVAL, listener).region(net, lower, upper, whole, Forks(3))
    assert listener.until
    for until in listener.until:
        assert until == replace(whole, needless=None)


def test_the_answer_is_late_when_the_clock_says_so_or_nobody_needs_it() -> None:
    assert not Until().expired()
    assert Until(Clock.begin(0.0)).expired()
    assert Until(needless=lambda: True).expired()
    assert not Until(needless=lambda: False).expired()
    assert Until(Clock.begin(0.0), needless=lambda: False).expired()
    assert not Until(needless=lambda: True).alone().expired()
    assert Until(Clock.begin(0.0), needless=lambda: True).alone().expired()
