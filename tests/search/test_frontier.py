"""The queue loses nothing, invents nothing, and gives out what it promises."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verifier.search.domains import Domains
from verifier.search.frontier import Frontier
from verifier.shapes import Float, Tensor

BOUNDS = st.one_of(st.floats(-4, 0, width=32), st.sampled_from([-math.inf, math.nan, math.inf, 0.0]))
PUSH = st.lists(st.tuples(BOUNDS, st.integers(0, 2)), max_size=400)
ACTIONS = st.lists(st.one_of(PUSH, st.integers(1, 300)), min_size=1, max_size=8)


@dataclass(frozen=True, eq=False)
class Named(Domains):
    """Domains whose fields all say which one they are."""

    name: Float[Tensor, "D 4"]


def domains(
    lower: list[float], first: int = 0, depths: list[int] | None = None, tiers: list[int] | None = None
) -> Named:
    number = torch.arange(first, first + len(lower))
    depth = torch.tensor(depths or [0] * len(lower), dtype=torch.long)
    tier = torch.tensor(tiers or [0] * len(lower), dtype=torch.int8)
    name = (number % 1000).half()[:, None].repeat(1, 4)
    return Named(number, number % 7, torch.tensor(lower), depth, tier, name)


EACH = domains([0.0]).bytes_each


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
