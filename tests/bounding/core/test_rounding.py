"""Rounding towards what is safe."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from verifier.bounding.core.rounding import float32_below


@given(st.floats(allow_nan=False))
def test_the_float32_below_is_the_nearest_one_there(value: float) -> None:
    """No more than the number, and the next float32 is more, whatever the number is."""
    exact = torch.tensor([value], dtype=torch.float64)
    found = float32_below(exact)
    assert found.dtype is torch.float32
    assert float(found) <= value
    above = torch.nextafter(found, torch.full_like(found, torch.inf))
    assert float(above) > value or float(found) == value


def test_what_is_no_number_stays_none() -> None:
    assert bool(float32_below(torch.tensor([float("nan")], dtype=torch.float64)).isnan().all())
