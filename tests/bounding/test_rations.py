"""Where time does not suffice for all neurons, those are bounded at which most is lost for the work they take."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
import torch
from networks import box, dense
from search.cases import Hours

from verifier import clock
from verifier.bounding import rations
from verifier.bounding.core.base import Bound, Bounder, Objective, Region, Until
from verifier.bounding.hidden import Known, RootBounds, Sharpened, all_ambiguous
from verifier.bounding.rations import Rations
from verifier.bounding.solvers.crown import Linear
from verifier.clock import Clock
from verifier.network.network import Network

WIDTHS = (3, 6, 8, 7, 9, 8, 2)
INTERVALS = RootBounds(None)


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Hours:
    """A clock that only goes on when somebody says so."""
    made = Hours()
    monkeypatch.setattr(rations, "time", made)
    monkeypatch.setattr(clock, "time", made)
    return made


def work_before(net: Network, k: int) -> int:
    return max(1, sum(group.size for group in net.groups[: k - 1]))


def random_losses(net: Network, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.rand(group.size, generator=generator) for group in net.groups]


def greedy(net: Network, losses: list[torch.Tensor], groups: list[int], room: float) -> dict[int, set[int]]:
    """The neurons of some groups that fit, one after the other by worth, until one does not."""
    items = [(float(losses[k - 1][i]) / work_before(net, k), k, i) for k in groups for i in range(len(losses[k - 1]))]
    found: dict[int, set[int]] = {k: set() for k in groups}
    for _, k, i in sorted(items, reverse=True):
        room -= work_before(net, k)
        if room < 0:
            break
        found[k].add(i)
    return found


@pytest.mark.parametrize("seed", range(8))
def test_what_fits_is_what_is_worth_most(seed: int, hours: Hours) -> None:
    """The second group shows how long an entry takes; what then fits is what a greedy choice over all groups takes."""
    net = dense(seed, WIDTHS)
    losses = random_losses(net, seed)
    every = [torch.arange(group.size) for group in net.groups]
    made = Rations(net, losses, every)

    def work(neurons: torch.Tensor, until: Until) -> None:
        hours.now += 2.0 * len(neurons) * work_before(net, 2)

    made.spend(2, every[1], Until(), work)
    total = sum(work_before(net, k) * len(every[k - 1]) for k in (3, 4, 5))
    partly = 0
    for share in (0.0, 0.1, 0.3, 0.7, 1.0, 2.0):
        expected = greedy(net, losses, [3, 4, 5], share * total)
        chosen = made.chosen(3, every[2], 2.0 * share * total)
        assert set(chosen.tolist()) == expected[3]
        assert bool((losses[2][chosen].diff() <= 0).all()), "the greatest losses come first"
        partly += 0 < len(chosen) < len(every[2])
    assert partly


def test_all_are_taken_where_nothing_limits_the_time() -> None:
    net = dense(0, WIDTHS)
    losses, every = random_losses(net, 1), [torch.arange(group.size) for group in net.groups]
    chosen = Rations(net, losses, every).chosen(2, every[1], float("inf"))
    assert chosen.tolist() == losses[1].argsort(descending=True).tolist()


def test_the_first_group_has_its_share_of_the_time(hours: Hours) -> None:
    """As long as nobody knows what an entry takes, a group has no more than an equal part of what is left."""
    net, allowed = dense(0, WIDTHS), list[float]()
    every = [torch.arange(group.size) for group in net.groups]

    def work(neurons: torch.Tensor, until: Until) -> None:
        allowed.append(until.clock.remaining())
        hours.now += 1.0

    made = Rations(net, random_losses(net, 0), every)
    until = Until(Clock.begin(100.0))
    made.spend(2, every[1][:0], until, work)
    made.spend(2, every[1], until, work)
    made.spend(3, every[2], until, work)
    assert allowed == [25.0, pytest.approx(99.0 / 4), 98.0]  # nothing was learned from no neurons


def test_nothing_is_learned_from_a_group_whose_time_ran_out(hours: Hours) -> None:
    """Some of its neurons were not reached, so nobody knows what one takes; nor if no clock has ticked."""
    net, allowed, pace = dense(0, WIDTHS), list[float](), [50.0, 0.0, 1.0, 1.0]
    every = [torch.arange(group.size) for group in net.groups]

    def work(neurons: torch.Tensor, until: Until) -> None:
        allowed.append(until.clock.remaining())
        hours.now += pace[len(allowed) - 1]

    made = Rations(net, random_losses(net, 0), every)
    until = Until(Clock.begin(100.0))
    for k in (2, 3, 4, 5):
        made.spend(k, every[k - 1], until, work)
    assert allowed == pytest.approx([100.0 / 4, 50.0 / 3, 50.0 / 2, 49.0])


@dataclass(frozen=True)
class Slow(Bounder):
    """CROWN, on a clock that goes on by a second for every entry that sweeps touch."""

    hours: Hours
    seen: list[tuple[int, int]] = field(default_factory=list)  # group and rows

    def bound(self, net: Network, region: Region, objective: Objective, until: Until) -> Bound:
        self.hours.now += work_before(net, objective.layer) * objective.count / 2
        self.seen.append((objective.layer, objective.count))
        return Linear().bound(net, region, objective, Until())


def sharpened(net: Network, known: Region, bounder: Bounder, losses: list[torch.Tensor] | None, until: Until) -> Region:
    plan = None if losses is None else Rations(net, losses, all_ambiguous(net, known, frozenset()))
    made = Sharpened(Known(known), bounder, None, rations=plan, memory_bytes=1)  # neuron by neuron
    return made.completed(net, Region(known.lower, known.upper), until)


@pytest.mark.parametrize("seed", range(4))
def test_with_enough_time_bounds_are_the_same(seed: int, hours: Hours) -> None:
    net = dense(seed, WIDTHS)
    known = INTERVALS.region(net, *box(net, seed), Until())
    losses = random_losses(net, seed)
    all_of_them = sharpened(net, known, Slow(hours), None, Until())
    for until in (Until(), Until(Clock.begin(1e6))):
        some = sharpened(net, known, Slow(hours), losses, until)
        for mine, other in zip((*some.l_hat, *some.u_hat), (*all_of_them.l_hat, *all_of_them.u_hat), strict=True):
            assert torch.allclose(mine, other, rtol=1e-12, atol=1e-12)


def test_the_last_group_has_its_turn_if_most_is_lost_there(hours: Hours) -> None:
    """A third of the time that all neurons need: in order, it is over before the last group; by losses, it is not."""
    net = dense(3, WIDTHS)
    known = INTERVALS.region(net, *box(net, 3, radius=2.0), Until())
    losses = [torch.full((group.size,), 10.0 ** (3 * k)) for k, group in enumerate(net.groups)]
    everything = sum(
        work_before(net, k) * len(some) for k, some in enumerate(all_ambiguous(net, known, frozenset()), 1) if k > 1
    )
    in_order, by_losses = Slow(hours), Slow(hours)
    sharpened(net, known, in_order, None, Until(Clock.begin(everything / 3)))
    found = sharpened(net, known, by_losses, losses, Until(Clock.begin(everything / 3)))
    last = len(net.groups)
    assert last not in {k for k, _ in in_order.seen}
    assert last in {k for k, _ in by_losses.seen}
    for k in range(known.known):  # whatever is left out keeps what it had
        assert bool((found.l_hat[k] >= known.l_hat[k]).all())
        assert bool((found.u_hat[k] <= known.u_hat[k]).all())
