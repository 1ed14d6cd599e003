"""Domains, counters, and how reasons are weighed."""

from __future__ import annotations

import math
from dataclasses import fields

import pytest
import torch
from search.cases import domains

from verifier.bounding.core.state import cat
from verifier.result.verdict import Reason
from verifier.search.domains import Counts, Progress, outweighed


def test_selecting_and_joining_keeps_all_fields_in_step() -> None:
    made = domains([-1.0, -2.0, -3.0, -4.0], first=5, depths=[0, 1, 2, 3], tiers=[1, 0, 1, 0])
    by_mask = made.select(torch.tensor([True, False, True, False]))
    by_index = made.select(torch.tensor([3, 1]))
    order = torch.tensor([0, 2, 3, 1])
    found = cat([by_mask, by_index])
    for f in fields(made):
        assert torch.equal(getattr(found, f.name), getattr(made, f.name)[order])
    assert cat([made]) is made
    assert len(made.select(torch.tensor([], dtype=torch.long))) == 0


def test_the_memory_of_a_domain() -> None:
    # number and clause and depth: 8 bytes each; bound: 4; tier: 1; name: 4 halves
    assert domains([0.0, 0.0]).bytes_each == 3 * 8 + 4 + 1 + 8
    assert domains([]).bytes_each == 1


def test_counts_add_up_by_tier() -> None:
    one, other = Counts({"a": 3, "b": 1}, 2, 1, 10, 0.5), Counts({"b": 4, "c": 5}, 1, 2, 5, 0.25)
    assert one + other == Counts({"a": 3, "b": 5, "c": 5}, 3, 3, 15, 0.75)
    assert (one + other).domains == 16
    assert Counts() + one == one


def test_a_search_after_another() -> None:
    first = Progress(Counts({"a": 3}), open=0, max_open=9, lower=-0.5)
    then = Progress(Counts({"a": 1}, leaves=2), open=4, max_open=5, lower=-0.25)
    assert first + then == Progress(Counts({"a": 4}, leaves=2), open=4, max_open=9, lower=-0.5)
    assert (first + then).domains == 6
    assert Progress().lower == math.inf
    assert Progress().waiting(-2.0) == Progress(lower=-2.0)
    assert first.waiting(3.0) == first


def test_two_parts_of_the_same_tree() -> None:
    one = Progress(Counts({"a": 3}, batches=2), open=2, max_open=9, lower=-0.5, left=0.25)
    other = Progress(Counts({"a": 1, "b": 1}, leaves=2, batches=1), open=4, max_open=5, lower=-0.75, left=0.125)
    both = Progress(Counts({"a": 4, "b": 1}, leaves=2, batches=3), open=6, max_open=14, lower=-0.75, left=0.375)
    assert one.beside(other) == both
    assert other.beside(one) == both
    assert one.beside(Progress()) == one
    assert one.beside(Progress(lower=math.inf)).lower == -0.5  # a part that is closed hides nothing


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (None, None, None),
        (None, Reason.NUMERICS, Reason.NUMERICS),
        (Reason.NUMERICS, None, Reason.NUMERICS),
        (Reason.NUMERICS, Reason.TIMEOUT, Reason.TIMEOUT),
        (Reason.TIMEOUT, Reason.NUMERICS, Reason.TIMEOUT),
        (Reason.TIMEOUT, None, Reason.TIMEOUT),
    ],
)
def test_a_lack_of_time_outweighs_doubt(one: Reason | None, other: Reason | None, expected: Reason | None) -> None:
    assert outweighed(one, other) is expected
