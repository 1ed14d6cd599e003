"""Who works on what: whoever is lost when, all that is not closed is covered, and nothing counts twice."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest
from search.cluster.grown import Hand, Part, below, size

from verifier.errors import SoundnessError
from verifier.result.verdict import Reason
from verifier.search.cluster import policy
from verifier.search.cluster.policy import MOST_PIECES, WORTHWHILE, Coordinator, Order, Report
from verifier.search.domains import Counts

DEPTH = 9


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "WORTHWHILE", 2)


def check(coordinator: Coordinator[Part], depth: int = DEPTH) -> None:
    """Parts are disjoint, no domain comes from another one, and with what is committed they are the whole tree."""
    numbers = [k for part in coordinator.parts() for k in part]
    assert len(numbers) == len(set(numbers))
    ancestors = {k >> up for k in numbers for up in range(1, k.bit_length())}
    assert not ancestors & set(numbers)
    assert coordinator.committed.domains + sum(below(k, depth) for k in numbers) == size(depth)


@dataclass
class World:
    """Workers that come, answer, are lost, and answer after they were lost; in an order that chance decides."""

    rng: random.Random
    coordinator: Coordinator[Part]
    depth: int = DEPTH
    hands: dict[int, Hand] = field(default_factory=dict)
    orders: dict[int, Order[Part]] = field(default_factory=dict)
    late: list[tuple[int, Report[Part]]] = field(default_factory=list)
    now: float = 0.0
    born: int = 0
    kills: int = 0
    stale: int = 0

    def come(self) -> None:
        self.born += 1
        self.hands[self.born] = Hand(self.depth)
        self.coordinator.joined(self.born)

    def answer(self) -> None:
        worker = self.rng.choice(list(self.orders))
        report = self.hands[worker].follow(self.orders.pop(worker), self.rng.randint(1, 12), self.rng)
        assert self.coordinator.heard(worker, report, self.now)
        if self.rng.random() < 0.1:  # the network brings it twice
            assert not self.coordinator.heard(worker, report, self.now)

    def kill(self) -> None:
        """With or without an order; of some the report is already on its way."""
        worker = self.rng.choice(list(self.hands))
        hand, order = self.hands.pop(worker), self.orders.pop(worker, None)
        if order is not None and self.rng.random() < 0.5:
            self.late.append((worker, hand.follow(order, 5, self.rng)))
        self.coordinator.lost(worker)
        self.kills += 1

    def arrive_late(self) -> None:
        worker, report = self.late.pop(self.rng.randrange(len(self.late)))
        assert not self.coordinator.heard(worker, report, self.now)
        self.stale += 1

    def go(self, most: int, deadly: float) -> None:
        """Until nothing is left."""
        while not self.coordinator.over:
            self.now += self.rng.random()
            for worker, order in self.coordinator.orders(self.now):
                assert worker not in self.orders
                self.orders[worker] = order
            check(self.coordinator, self.depth)
            chance = self.rng.random()
            if len(self.hands) < most and (chance < 0.1 or not self.hands):
                self.come()
            elif self.hands and chance < 0.1 + deadly:
                self.kill()
            elif self.late and chance < 0.3:
                self.arrive_late()
            elif self.orders:
                self.answer()
            check(self.coordinator, self.depth)


@pytest.mark.parametrize("block", range(10))
def test_whatever_happens_when_nothing_is_lost_and_nothing_counts_twice(block: int) -> None:
    """A thousand random histories with one to nine workers."""
    kills = stale = 0
    for seed in range(100 * block, 100 * block + 100):
        rng = random.Random(seed)
        depth = rng.randint(3, 8)
        coordinator: Coordinator[Part] = Coordinator([frozenset({2, 3})], rng.choice([0.0, 2.0, 1e9]))
        coordinator.committed = Counts({"t": 3})
        world = World(rng, coordinator, depth)
        world.go(rng.randint(1, 9), rng.choice([0.0, 0.02, 0.1]))
        assert coordinator.counts.domains == coordinator.committed.domains == size(depth)
        kills, stale = kills + world.kills, stale + world.stale
    assert kills > 20
    assert stale > 2


def started(parts: list[Part], workers: int) -> tuple[Coordinator[Part], dict[int, Order[Part]]]:
    coordinator: Coordinator[Part] = Coordinator(parts, 10.0)
    for worker in range(workers):
        coordinator.joined(worker)
    return coordinator, dict(coordinator.orders(0.0))


def test_parts_that_wait_go_to_whoever_is_idle() -> None:
    coordinator, orders = started([frozenset({2}), frozenset({3})], 3)
    assert [orders[w].part for w in (0, 1)] == [frozenset({2}), frozenset({3})]
    assert (coordinator.idle, coordinator.waiting, coordinator.orders(0.0)) == (1, [], [])


def test_who_has_much_gives_as_many_pieces_as_there_are_idle_workers() -> None:
    coordinator, orders = started([frozenset({2})], 4)
    coordinator.heard(0, Report(orders[0].ticket, Counts(), 100), 1.0)
    ((worker, order),) = coordinator.orders(1.0)
    assert (worker, order.give, order.tell) == (0, 3, True)


def test_nobody_is_asked_for_pieces_that_others_were_asked_for() -> None:
    coordinator, orders = started([frozenset({2}), frozenset({3})], 3)
    coordinator.heard(0, Report(orders[0].ticket, Counts(), 100), 1.0)
    assert [order.give for _, order in coordinator.orders(1.0)] == [1]
    coordinator.heard(1, Report(orders[1].ticket, Counts(), 100), 1.0)
    assert [order.give for _, order in coordinator.orders(1.0)] == [0]


def test_pieces_that_a_lost_worker_was_asked_for_are_asked_of_others() -> None:
    coordinator, orders = started([frozenset({2}), frozenset({3})], 4)
    coordinator.heard(0, Report(orders[0].ticket, Counts(), 100), 1.0)
    assert [order.give for _, order in coordinator.orders(1.0)] == [2]
    coordinator.lost(0)
    assert [(worker, order.part) for worker, order in coordinator.orders(1.0)] == [(2, frozenset({2}))]
    coordinator.heard(1, Report(orders[1].ticket, Counts(), 100), 1.0)
    assert [(worker, order.give) for worker, order in coordinator.orders(1.0)] == [(1, 1)]


@pytest.mark.parametrize(("open_", "give"), [(3, 0), (4, 1), (7, 2), (1000, MOST_PIECES)])
def test_nobody_gives_more_than_it_has(open_: int, give: int) -> None:
    coordinator, orders = started([frozenset({2})], 30)
    coordinator.heard(0, Report(orders[0].ticket, Counts(), open_), 1.0)
    assert [order.give for _, order in coordinator.orders(1.0)] == [give]


def test_workers_tell_what_is_left_now_and_then() -> None:
    coordinator, orders = started([frozenset({2})], 1)
    ticket, told = orders[0].ticket, []
    for now in range(1, 25):
        part = frozenset({4, 5}) if told and told[-1] else None
        assert coordinator.heard(0, Report(ticket, Counts({"t": 1}), 2, part=part), float(now))
        ((_, order),) = coordinator.orders(float(now))
        ticket = order.ticket
        told.append(order.tell)
    assert sum(told) == 2
    assert coordinator.counts.domains == 24


def test_a_lost_worker_costs_what_it_has_not_told() -> None:
    coordinator, orders = started([frozenset({2})], 1)
    coordinator.heard(0, Report(orders[0].ticket, Counts({"t": 2}), 2, part=frozenset({4, 5})), 1.0)
    ((_, order),) = coordinator.orders(1.0)
    coordinator.heard(0, Report(order.ticket, Counts({"t": 6}), 4), 2.0)
    assert (coordinator.counts.domains, coordinator.committed.domains) == (8, 2)
    coordinator.lost(0)
    assert (coordinator.counts.domains, coordinator.committed.domains) == (2, 2)
    assert coordinator.waiting == [frozenset({4, 5})]
    assert not coordinator.over


def test_a_report_that_comes_once_more_after_the_next_order_does_not_count() -> None:
    coordinator, orders = started([frozenset({2})], 1)
    first: Report[Part] = Report(orders[0].ticket, Counts({"t": 2}), 2, part=frozenset({4, 5}))
    assert coordinator.heard(0, first, 1.0)
    ((_, order),) = coordinator.orders(1.0)
    assert not coordinator.heard(0, first, 2.0)
    assert coordinator.committed.domains == 2
    assert coordinator.heard(0, Report(order.ticket, Counts({"t": 4}), 0), 3.0)
    assert coordinator.committed.domains == 6


def test_pieces_without_a_word_on_the_rest_are_an_error() -> None:
    coordinator, orders = started([frozenset({2})], 1)
    with pytest.raises(SoundnessError):
        coordinator.heard(0, Report(orders[0].ticket, Counts(), 2, given=(frozenset({8}),)), 1.0)


def test_doubts_count_when_their_part_is_done() -> None:
    coordinator, orders = started([frozenset({2}), frozenset({3})], 2)
    coordinator.heard(0, Report(orders[0].ticket, Counts(), 0, doubt=Reason.NUMERICS, undecided=-0.5), 1.0)
    assert (coordinator.doubt, coordinator.undecided, coordinator.over) == (Reason.NUMERICS, -0.5, False)
    coordinator.heard(1, Report(orders[1].ticket, Counts(), 0), 1.0)
    assert (coordinator.doubt, coordinator.over) == (Reason.NUMERICS, True)


def test_the_usual_size_of_a_part_is_that_of_forks() -> None:
    from verifier.search import parallel

    assert parallel.WORTHWHILE == WORTHWHILE
