"""Sparse matrices with exact arithmetic: what is returned is exact, and what would be rounded is refused."""

from __future__ import annotations

from fractions import Fraction

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.network.entries import Entries, entries_of, product, rounds_nothing, total, unit
from verifier.operators import Dense

NUMBERS = st.one_of(
    st.sampled_from([0.0, 0.0, 1.0, -1.0, 0.5, 3.0]),
    st.floats(-8, 8, width=32),
    st.floats(-8, 8, width=16),
    st.sampled_from([2.0**-60, 1e-30, 2.0**40 + 1]),
)


def matrix(rows: int, columns: int) -> st.SearchStrategy[torch.Tensor]:
    some = st.lists(NUMBERS, min_size=rows * columns, max_size=rows * columns)
    return some.map(lambda values: torch.tensor(values, dtype=torch.float64).reshape(rows, columns))


def entries(weight: torch.Tensor) -> Entries:
    found = entries_of(Dense(weight))
    assert found is not None
    return found


def fractions(weight: torch.Tensor) -> list[list[Fraction]]:
    return [[Fraction(v) for v in row] for row in weight.tolist()]


@given(matrix(3, 4), matrix(4, 2))
@settings(max_examples=200)
def test_a_product_is_exact_or_refused(first: torch.Tensor, second: torch.Tensor) -> None:
    found = product(entries(first), entries(second))
    a, b = fractions(first), fractions(second)
    exact = [[sum(a[i][k] * b[k][j] for k in range(4)) for j in range(2)] for i in range(3)]
    if found is not None:
        assert fractions(found.dense()) == exact
        assert bool((found.values != 0).all())


@given(matrix(2, 3), matrix(2, 3), matrix(2, 3))
@settings(max_examples=100)
def test_a_sum_is_exact_or_refused(first: torch.Tensor, second: torch.Tensor, third: torch.Tensor) -> None:
    parts = (first, second, third)
    found = total([entries(part) for part in parts])
    if found is not None:
        a, b, c = (fractions(part) for part in parts)
        exact = [[a[i][j] + b[i][j] + c[i][j] for j in range(3)] for i in range(2)]
        assert fractions(found.dense()) == exact


def test_short_numbers_are_not_refused() -> None:
    """Weights that choose and average, times float32 numbers of similar size."""
    choose = torch.tensor([[1.0, -1.0, 0.0], [0.5, 0.5, -0.25]]).double()
    weights = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).double()
    found = product(entries(choose), entries(weights))
    assert found is not None
    torch.testing.assert_close(found.dense(), choose @ weights, rtol=0, atol=0)
    assert rounds_nothing(Dense(choose), weights[:, 0])


def test_what_needs_rounding_is_refused() -> None:
    long = torch.tensor([[1.0], [2.0**-60]], dtype=torch.float64)
    assert product(entries(torch.ones(1, 2, dtype=torch.float64)), entries(long)) is None
    assert not rounds_nothing(Dense(torch.ones(1, 2, dtype=torch.float64)), long[:, 0])
    third = torch.tensor([[1.0 / 3.0]], dtype=torch.float64)
    assert product(entries(third), entries(third)) is None
    assert total([entries(third), entries(third / 1024)]) is None
    one_too_many = (torch.tensor([[n]], dtype=torch.float64) for n in (321.0, 28059810762433.0))  # 2^53 + 1, rounded
    assert product(*map(entries, one_too_many)) is None


def test_units() -> None:
    values = torch.tensor([1.0, 3.0, -12.0, 0.375, 2.0**-1000, 1.0 + 2.0**-52], dtype=torch.float64)
    assert unit(values).tolist() == [1.0, 1.0, 4.0, 0.125, 2.0**-1000, 2.0**-52]
