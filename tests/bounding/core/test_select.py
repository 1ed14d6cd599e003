"""Choosing by signs without branches gives what `torch.where` gives, bit for bit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from verifier.bounding.core.select import by_sign

SPECIAL = [0.0, -0.0, 1.0, -1.0, float("inf"), float("-inf"), 1e-45, -1e-45, 3.4e38, -3.4e38]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_pair_of_values_is_chosen_from_exactly(dtype: torch.dtype) -> None:
    """Infinite, subnormal and missing values of the side that is not chosen leave no trace."""
    values = torch.tensor([*SPECIAL, float("nan")], dtype=dtype)
    positive, negative = values.repeat_interleave(len(values)), values.repeat(len(values))
    for x in (2.5, -2.5, 1e-45, -1e-45, float("inf"), float("-inf")):
        signs = torch.full_like(positive, x)
        if not bool((signs != 0).all()):  # too small for the dtype
            continue
        chosen = by_sign(signs, positive, negative)
        expected = positive if x > 0 else negative
        assert torch.equal(chosen.nan_to_num(7.0), expected.nan_to_num(7.0))
        assert torch.equal(chosen.signbit(), expected.signbit())


@given(arrays("float32", (3, 2, 5), elements=st.floats(-2, 2, width=32)))
def test_sides_are_broadcast(x: object) -> None:
    signs = torch.as_tensor(x)
    low, high = -torch.arange(15.0).reshape(3, 1, 5), torch.arange(5.0)
    assert torch.equal(by_sign(signs, low, high) * signs, torch.where(signs >= 0, low, high) * signs)


@pytest.mark.parametrize("x", [0.0, -0.0, float("nan")])
def test_where_there_is_no_sign_it_is_one_of_both(x: float) -> None:
    assert float(by_sign(torch.tensor([x]), torch.tensor([3.0]), torch.tensor([4.0]))) in (3.0, 4.0)


def test_the_operands_stay_as_they_are() -> None:
    x, low, high = torch.tensor([1.0, -1.0]), torch.tensor([2.0, 3.0]), torch.tensor([4.0, 5.0])
    before = [t.clone() for t in (x, low, high)]
    assert by_sign(x, low, high).tolist() == [2.0, 5.0]
    assert all(torch.equal(a, b) for a, b in zip((x, low, high), before, strict=True))


def test_views_and_expanded_tensors_are_taken() -> None:
    x = torch.randn(6, 4).T
    low, high = torch.zeros(1, 1).expand(4, 6), torch.ones(12, 4)[::2].T
    assert torch.equal(by_sign(x, low, high), torch.where(x >= 0, low, high))
