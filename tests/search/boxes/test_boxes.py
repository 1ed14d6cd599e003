"""Cuts: the halves cover their box, and several cuts at once do so too."""

from __future__ import annotations

from dataclasses import replace

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.search.boxes.boxes import BoxDomains, divisible, halved, middle, split


def boxes(low: list[list[float]], high: list[list[float]], gains: list[list[float]] | None = None) -> BoxDomains:
    count = len(low)
    whole = torch.zeros(count, dtype=torch.long)
    return BoxDomains(
        number=torch.arange(count),
        clause=whole,
        lower=torch.full((count,), -1.0, dtype=torch.float64),
        depth=whole.to(torch.int32),
        tier=whole.to(torch.int8),
        root=whole,
        pending=torch.ones(count, 1, dtype=torch.bool),
        low=torch.tensor(low, dtype=torch.float64),
        high=torch.tensor(high, dtype=torch.float64),
        gains=torch.tensor(gains or [[1.0] * len(low[0])] * count),
        kinks=whole.to(torch.int32),
        shrunk=torch.zeros(count, dtype=torch.bool),
    )


def inside(x: torch.Tensor, parts: BoxDomains) -> torch.Tensor:
    """Which points [P, n0] lie in some box."""
    within = (parts.low <= x.unsqueeze(1)) & (x.unsqueeze(1) <= parts.high)
    return within.all(dim=-1).any(dim=1)


def test_the_largest_gain_is_cut_in_the_middle() -> None:
    parts = halved(boxes([[0.0, 0.0]], [[1.0, 4.0]], [[2.0, 1.0]]))
    assert parts.low.tolist() == [[0.0, 0.0], [0.5, 0.0]]
    assert parts.high.tolist() == [[0.5, 4.0], [1.0, 4.0]]
    assert parts.gains.tolist() == [[1.0, 1.0]] * 2
    assert parts.depth.tolist() == [1, 1]


@settings(max_examples=50)
@given(st.integers(0, 10_000), st.integers(1, 40))
def test_parts_cover_the_box_without_a_gap(seed: int, wanted: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    centre, radius = torch.randn(1, 3, generator=generator).double(), torch.rand(1, 3, generator=generator).double()
    whole = boxes(
        (centre - radius).tolist(), (centre + radius).tolist(), torch.rand(1, 3, generator=generator).tolist()
    )
    parts = split(whole, wanted)
    assert len(parts) >= max(2, wanted)
    x = centre + radius * (2 * torch.rand(200, 3, generator=generator).double() - 1)
    assert bool(inside(x, parts).all())
    assert bool(inside(parts.low, parts).all())
    assert float(parts.low.amin()) >= float(whole.low.amin())
    volume = (parts.high - parts.low).prod(dim=1).sum()
    torch.testing.assert_close(volume, (whole.high - whole.low).prod())


def test_boxes_that_clipping_shrank_stay_whole_once() -> None:
    both = boxes([[0.0], [4.0]], [[2.0], [8.0]])
    parts = split(replace(both, shrunk=torch.tensor([True, False])), 1)
    assert parts.low.tolist() == [[0.0], [4.0], [6.0]]
    assert parts.high.tolist() == [[2.0], [6.0], [8.0]]
    assert parts.depth.tolist() == [1, 1, 1]
    assert len(split(replace(both, shrunk=torch.tensor([True, True])), 4)) == 4  # few boxes are cut all the same


def test_neighbouring_floats_cannot_be_cut() -> None:
    above = torch.nextafter(torch.tensor(1.0, dtype=torch.float64), torch.tensor(2.0, dtype=torch.float64))
    assert divisible(boxes([[1.0], [1.0], [1.0]], [[float(above)], [1.0], [2.0]])).tolist() == [False, False, True]


def test_the_middle_of_huge_ends_does_not_overflow() -> None:
    huge = torch.tensor([[1e308]], dtype=torch.float64)
    assert float(middle(huge, huge)) == 1e308
