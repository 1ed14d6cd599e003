"""The queue loses nothing, invents nothing, and gives out what it promises."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from search.cases import EACH, Named, domains

from verifier.search.frontier import Frontier

BOUNDS = st.one_of(st.floats(-4, 0, width=32), st.sampled_from([-math.inf, math.nan, math.inf, 0.0]))
PUSH = st.lists(st.tuples(BOUNDS, st.integers(0, 2)), max_size=400)
ACTIONS = st.lists(st.one_of(PUSH, st.integers(1, 300)), min_size=1, max_size=8)


def worse(a: float, b: float) -> bool:
    """Whether a bound of `a` must leave before one of `b`."""
    return not math.isnan(b) and (math.isnan(a) or a < b) and b != -math.inf


@given(ACTIONS)
def test_pushes_and_pops_conserve_the_domains_and_the_worst_leave_first(
    actions: list[list[tuple[float, int]] | int],
) -> None:
    frontier: Frontier[Named] = Frontier(10**9)
    waiting, number = dict[int, tuple[float, int]](), 0
    for action in actions:
        if isinstance(action, list):
            frontier.push(domains([b for b, _ in action], number, tiers=[t for _, t in action]))
            waiting.update(enumerate(action, start=number))
            number += len(action)
        elif waiting:
            out = frontier.pop(action)
            (tier,) = set(out.tier.tolist())  # one tier only
            assert len(out) == min(action, sum(t == tier for _, t in waiting.values()))
            assert torch.equal(out.name, (out.number % 1000).half()[:, None].expand(-1, 4))
            assert torch.equal(out.clause, out.number % 7)
            left = [waiting.pop(k)[0] for k in out.number.tolist()]  # a KeyError is a domain that was not there
            assert all(str(a) == str(b) for a, b in zip(left, out.lower.tolist(), strict=True))
            rest = set(waiting.values())
            assert not any(worse(b, a) for a in left for b, t in rest if t == tier)
            assert not any(all(worse(b, a) for a in left) for b, _ in rest)  # the worst of all is among them
        assert frontier.open == len(waiting)
        assert frontier.most >= frontier.open
        known = [-math.inf if math.isnan(v) else v for v, _ in waiting.values()]
        assert frontier.lower() == pytest.approx(min(known, default=math.inf)) or min(known, default=0) == math.inf
    left_over = [k for _ in range(3) if frontier.open for k in frontier.pop(10**6).number.tolist()]
    assert sorted(left_over) == sorted(waiting)
    assert frontier.lower() == math.inf


def test_a_bound_that_is_no_number_leaves_first() -> None:
    frontier: Frontier[Named] = Frontier(100 * EACH)
    frontier.push(domains([-1.0, math.nan, -2.0]))
    assert frontier.lower() == -math.inf
    assert frontier.pop(1).number.tolist() == [1]
    assert frontier.pop(1).number.tolist() == [2]


def test_places_are_used_again() -> None:
    frontier: Frontier[Named] = Frontier(10**9)
    frontier.push(domains([-1.0] * 256))
    size = frontier._rank.numel()
    for round_ in range(1, 20):
        assert len(frontier.pop(200)) == 200
        frontier.push(domains([-1.0] * 200, first=256 * round_))
    assert frontier._rank.numel() == size
    assert frontier.most == 256


def test_what_is_given_out_is_not_overwritten() -> None:
    frontier: Frontier[Named] = Frontier(10**9)
    frontier.push(domains([-1.0] * 256))
    out = frontier.pop(256)
    numbers = out.number.tolist()
    frontier.push(domains([-1.0] * 256, first=1000))
    assert out.number.tolist() == numbers


@pytest.mark.parametrize("limit", [300, 5000])
def test_growth_slows_down_at_the_limit(limit: int) -> None:
    frontier: Frontier[Named] = Frontier(limit * EACH)
    for k in range(60):
        frontier.push(domains([-1.0] * 100, first=100 * k))
        assert frontier.limit == limit
        assert frontier._rank.numel() <= max(limit, 1.25 * frontier.open) + 256
    assert sorted(frontier.pop(6000).number.tolist()) == list(range(6000))


def test_beyond_the_limit_the_deepest_leaves_first_until_memory_is_free() -> None:
    frontier: Frontier[Named] = Frontier(3 * EACH)
    frontier.push(domains([-1.0, -2.0, -3.0], depths=[1, 2, 0]))
    assert frontier.pop(1).number.tolist() == [2]  # the worst bound
    frontier.push(domains([-9.0, -0.5], first=3, depths=[0, 3]))
    assert frontier.open == 4
    assert frontier.pop(1).number.tolist() == [4]  # the deepest
    assert frontier.pop(1).number.tolist() == [3]  # the worst again


def test_the_tier_of_the_worst_has_its_turn() -> None:
    frontier: Frontier[Named] = Frontier(10**9)
    frontier.push(domains([-1.0, -4.0, -2.0, -3.0, -0.5], tiers=[0, 1, 0, 0, 1]))
    assert sorted(frontier.pop(2).number.tolist()) == [1, 4]  # not 3, though its bound is worse than that of 4
    assert sorted(frontier.pop(2).number.tolist()) == [2, 3]
    assert frontier.pop(2).number.tolist() == [0]


def test_beyond_the_limit_a_batch_has_one_tier_too() -> None:
    frontier: Frontier[Named] = Frontier(2 * EACH)
    frontier.push(domains([-9.0, -1.0, -1.0, -1.0], depths=[0, 5, 4, 3], tiers=[0, 1, 0, 1]))
    assert sorted(frontier.pop(3).number.tolist()) == [1, 3]
    assert frontier.pop(1).number.tolist() == [0]  # the worst: two domains fit again


# ---------------------------------------------------------------- halves


@given(PUSH.filter(len), st.integers(0, 300))
def test_halves_are_disjoint_together_whole_and_alike(pushed: list[tuple[float, int]], popped: int) -> None:
    """Also when there are free places between the domains."""
    frontier: Frontier[Named] = Frontier(10**9)
    frontier.push(domains([b for b, _ in pushed], tiers=[t for _, t in pushed]))
    gone = set(frontier.pop(popped).number.tolist()) if 0 < popped < len(pushed) else set()
    whole = frontier.all()
    assert whole is not None
    assert sorted(whole.number.tolist()) == sorted(set(range(len(pushed))) - gone)
    assert torch.equal(whole.clause, whole.number % 7)
    if not frontier.open:
        return
    before, most, lower, share = frontier.open, frontier.most, frontier.lower(), frontier.share()
    other = frontier.halve()
    mine, given_away = frontier.all(), other.all()
    assert mine is not None
    numbers = [] if given_away is None else given_away.number.tolist()
    assert sorted(mine.number.tolist() + numbers) == sorted(whole.number.tolist())
    assert (frontier.open, other.open) == (len(mine), len(numbers))
    assert 0 <= frontier.open - other.open <= 1
    assert frontier.open + other.open == before
    assert frontier.lower() == lower  # the worst one stays
    assert other.lower() >= lower
    assert frontier.share() + other.share() == pytest.approx(share)
    assert (other.memory_bytes, frontier.most) == (frontier.memory_bytes, most)
    if given_away is not None:
        assert torch.equal(given_away.name, (given_away.number % 1000).half()[:, None].expand(-1, 4))
        assert torch.equal(given_away.tier, torch.tensor([pushed[k][1] for k in numbers], dtype=torch.int8))


@given(st.lists(BOUNDS, min_size=1, max_size=40))
def test_halves_alternate_from_the_worst_to_the_best(bounds: list[float]) -> None:
    frontier: Frontier[Named] = Frontier(10**9)
    frontier.push(domains(bounds))
    other = frontier.halve()

    def ranks(half: Frontier[Named]) -> list[float]:
        """From the worst to the best; what is no number is the worst of all."""
        found = half.all()
        return sorted(-math.inf if math.isnan(b) else b for b in ([] if found is None else found.lower.tolist()))

    ordered = sorted(-math.inf if math.isnan(b) else b for b in torch.tensor(bounds).tolist())
    assert ranks(frontier) == ordered[::2]
    assert ranks(other) == ordered[1::2]


def test_both_halves_go_on_by_themselves() -> None:
    frontier: Frontier[Named] = Frontier(10**9)
    frontier.push(domains([-1.0, -4.0, -2.0, -3.0, -5.0]))
    other = frontier.halve()
    assert frontier.pop(1).number.tolist() == [4]
    other.push(domains([-9.0], first=5))
    frontier.push(domains([-8.0], first=6))
    assert other.pop(9).number.tolist() == [5, 1, 2]
    assert frontier.pop(9).number.tolist() == [6, 3, 0]


def test_nothing_was_ever_open() -> None:
    assert Frontier(10**9).all() is None
    frontier: Frontier[Named] = Frontier(10**9)
    frontier.push(domains([-1.0]))
    frontier.pop(1)
    left = frontier.all()
    assert left is not None
    assert len(left) == 0


def test_the_worst_bound_is_never_rounded_up() -> None:
    """The bounds of boxes are float64, and what is proved must not grow by rounding."""
    bound = -0.7  # the nearest float32 lies above
    frontier: Frontier[Named] = Frontier(10**9)
    frontier.push(replace(domains([bound]), lower=torch.tensor([bound], dtype=torch.float64)))
    assert bound - 1e-7 < frontier.lower() < bound
