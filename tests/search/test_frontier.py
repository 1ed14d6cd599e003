"""The queue loses nothing, invents nothing, and gives out what it promises."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verifier.search.frontier import Domains, Frontier

KINKS = 3
BOUNDS = st.one_of(st.floats(-4, 0, width=32), st.sampled_from([-math.inf, math.nan, math.inf, 0.0]))
ACTIONS = st.lists(st.one_of(st.lists(BOUNDS, min_size=0, max_size=400), st.integers(1, 300)), min_size=1, max_size=8)


def domains(lower: list[float], first: int = 0, depths: list[int] | None = None) -> Domains:
    """Domains whose fields all say which one they are: the number is the clause."""
    number = torch.arange(first, first + len(lower))
    signs = torch.zeros(len(lower), KINKS, dtype=torch.int8)
    for row, depth in enumerate(depths or []):
        signs[row, :depth] = 1 - 2 * (row % 2)
    name = (number % 1000).half()
    return Domains(number, signs, torch.tensor(lower), name[:, None].repeat(1, 4), name[:, None].repeat(1, KINKS))


def worse(a: float, b: float) -> bool:
    """Whether a bound of `a` must leave before one of `b`."""
    return not math.isnan(b) and (math.isnan(a) or a < b) and b != -math.inf


@given(ACTIONS)
def test_pushes_and_pops_conserve_the_domains_and_the_worst_leave_first(actions: list[list[float] | int]) -> None:
    frontier, waiting, number = Frontier(10**9), dict[int, float](), 0
    for action in actions:
        if isinstance(action, list):
            frontier.push(domains(action, number))
            waiting.update(enumerate(action, start=number))
            number += len(action)
        elif waiting:
            out = frontier.pop(action)
            assert len(out) == min(action, len(waiting))
            names = (out.clause % 1000).half()
            assert torch.equal(out.warm, names[:, None].expand(-1, 4))
            assert torch.equal(out.scores, names[:, None].expand(-1, KINKS))
            left = [waiting.pop(k) for k in out.clause.tolist()]  # a KeyError is a domain that was not there
            assert all(str(a) == str(b) for a, b in zip(left, out.lower.tolist(), strict=True))
            assert not any(worse(b, a) for a in left for b in set(waiting.values()))
        assert frontier.open == len(waiting)
        assert frontier.most >= frontier.open
        known = [-math.inf if math.isnan(v) else v for v in waiting.values()]
        assert frontier.lower() == pytest.approx(min(known, default=math.inf)) or min(known, default=0) == math.inf
    if waiting:
        assert sorted(frontier.pop(10**6).clause.tolist()) == sorted(waiting)
    assert frontier.lower() == math.inf


def test_a_bound_that_is_no_number_leaves_first() -> None:
    frontier = Frontier(100)
    frontier.push(domains([-1.0, math.nan, -2.0]))
    assert frontier.lower() == -math.inf
    assert frontier.pop(1).clause.tolist() == [1]
    assert frontier.pop(1).clause.tolist() == [2]


def test_places_are_used_again() -> None:
    frontier = Frontier(10**9)
    frontier.push(domains([-1.0] * 256))
    size = frontier._rank.numel()
    for round_ in range(1, 20):
        assert len(frontier.pop(200)) == 200
        frontier.push(domains([-1.0] * 200, first=256 * round_))
    assert frontier._rank.numel() == size
    assert frontier.most == 256


@pytest.mark.parametrize("limit", [300, 5000])
def test_growth_slows_down_at_the_limit(limit: int) -> None:
    frontier = Frontier(limit)
    for k in range(60):
        frontier.push(domains([-1.0] * 100, first=100 * k))
        assert frontier._rank.numel() <= max(limit, 1.25 * frontier.open) + 256
    assert sorted(frontier.pop(6000).clause.tolist()) == list(range(6000))


def test_beyond_the_limit_the_deepest_leaves_first_until_memory_is_free() -> None:
    frontier = Frontier(3)
    frontier.push(domains([-1.0, -2.0, -3.0], depths=[1, 2, 0]))
    assert frontier.pop(1).clause.tolist() == [2]  # the worst bound
    frontier.push(domains([-9.0, -0.5], first=3, depths=[0, 3]))
    assert frontier.open == 4
    assert frontier.pop(1).clause.tolist() == [4]  # the deepest
    assert frontier.pop(1).clause.tolist() == [3]  # the worst again


def test_inherited_bounds_are_kept_and_closed_domains_are_left_out() -> None:
    nan, inf = math.nan, math.inf
    found = domains([-1.0, -2.0, inf, nan, -inf, nan]).open(torch.tensor([-1.5, -1.5, -1.0, -3.0, -4.0, nan]))
    assert found.clause.tolist() == [0, 1, 3, 4, 5]
    assert found.lower.tolist()[:4] == [-1.0, -1.5, -3.0, -4.0]
    assert math.isnan(found.lower[4])
