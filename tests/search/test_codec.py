"""Values as bytes, and back."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from verifier.result.verdict import Reason
from verifier.search.codec import decoded, encoded


@dataclass(frozen=True, eq=False)
class Pair:
    first: object
    second: object = None


plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.sampled_from(list(Reason)),
    lambda inner: (
        st.lists(inner, max_size=4).map(tuple) | st.dictionaries(st.text() | st.integers(), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(plain)
def test_plain_values_come_back(value: object) -> None:
    assert decoded(encoded(value), ()) == value
    again = decoded(encoded(Pair(value)), (Pair,))
    assert (again.first, again.second) == (value, None)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64, torch.int8, torch.int64, torch.bool])
@pytest.mark.parametrize("shape", [(), (0,), (3,), (0, 5), (2, 3), (5, 1, 2)])
def test_tensors_come_back_to_the_last_bit(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    values = (100 * torch.randn(shape)).to(dtype)
    strided = values if values.dim() != 2 else values.T.contiguous().T
    found = decoded(encoded((values, "between", strided)), ())
    for one in (found[0], found[2]):
        assert one.dtype is dtype
        assert torch.equal(one, values)


def test_numbers_without_digits_come_back() -> None:
    value = torch.tensor([math.nan, math.inf, -math.inf, -0.0])
    found = decoded(encoded((value, math.inf, -math.inf)), ())
    assert torch.equal(found[0].view(torch.int32), value.view(torch.int32))
    assert found[1:] == (math.inf, -math.inf)
    assert math.isnan(decoded(encoded(math.nan), ()))


def test_what_has_no_form_is_an_error() -> None:
    with pytest.raises(TypeError, match="object has no form"):
        encoded((1, object()))
    with pytest.raises(KeyError):
        decoded(encoded(Pair(1)), ())
    with pytest.raises(ValueError, match="belong to nothing"):
        decoded(encoded(torch.ones(3)) + b"x", ())
    with pytest.raises(ValueError, match="buffer"):
        decoded(encoded(torch.ones(3))[:-1], ())
