"""Matrices by their entries: what is returned is exact, what would be rounded is refused, and maps are kept whole."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.network.entries import (
    Entries,
    convolutions,
    entries_of,
    map_of,
    product,
    rounds_nothing,
    total,
    unit,
)
from verifier.operators import Chain, Conv, Dense, Diagonal, LinearMap, Select, Sparse

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


# -- maps as entries, and back -------------------------------------------------------------------------------


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)), dtype=torch.float64)


WEIGHT = torch.tensor([[1.0, 0.0, -2.0], [0.0, 0.5, 0.0]]).double()
CONVS: dict[str, Conv] = {
    "one axis": Conv(normal(3, 2, 3), (2, 7), (2,), ((1, 1),), (1,)),
    "two axes": Conv(normal(3, 2, 3, 2), (2, 5, 4), (1, 1), ((1, 1), (0, 0)), (1, 1)),
    "lopsided": Conv(normal(2, 1, 3, 3), (1, 6, 6), (2, 2), ((0, 1), (2, 1)), (1, 1)),
    "dilated": Conv(normal(2, 2, 2, 2), (2, 6, 5), (1, 2), ((0, 0), (0, 0)), (3, 2)),
    "three axes": Conv(normal(2, 1, 2, 2, 2), (1, 3, 4, 3), (1, 2, 1), ((0, 0), (1, 1), (0, 0)), (1, 1, 1)),
    "a single tap": Conv(normal(3, 4, 1, 1), (4, 2, 3), (1, 1), ((0, 0), (0, 0)), (1, 1)),
}
MAPS: dict[str, LinearMap] = {
    "dense": Dense(WEIGHT),
    "sparse": Sparse.of(WEIGHT),
    "select": Select(torch.tensor([2, -1, 0]), 4),
    "diagonal": Diagonal(torch.tensor([2.0, 0.0, -1.0]).double()),
    "product": Chain((Diagonal(torch.tensor([2.0, 1.0, -1.0]).double()), Sparse.of(WEIGHT), Dense(WEIGHT.T))),
    **CONVS,
}


def known(linear: LinearMap) -> Entries:
    found = entries_of(linear)
    assert found is not None
    return found


def matrix_of(linear: LinearMap) -> torch.Tensor:
    return linear.forward(torch.eye(linear.n_in, dtype=torch.float64)).T


@pytest.mark.parametrize("name", MAPS)
def test_entries_are_those_of_the_matrix(name: str) -> None:
    linear = MAPS[name]
    found = known(linear)
    torch.testing.assert_close(found.dense(), matrix_of(linear), rtol=0, atol=0)
    assert bool((found.values != 0).all())
    order = found.rows * linear.n_in + found.columns
    assert bool((order[1:] > order[:-1]).all())
    torch.testing.assert_close(matrix_of(map_of(found)), matrix_of(linear), rtol=0, atol=0)


def test_rounded_or_hidden_weights_have_no_entries() -> None:
    conv = CONVS["one axis"]
    grouped = Conv(normal(2, 1, 2), (2, 3), (1,), ((0, 0),), (1,), groups=2)
    rounded = replace(conv, roundings=1)
    for linear in (Dense(WEIGHT, roundings=1), Dense(WEIGHT, repeats=2), grouped, rounded, Chain((grouped,) * 1)):
        assert entries_of(linear) is None


@pytest.mark.parametrize("name", CONVS)
def test_convolutions_are_recognised_among_templates(name: str) -> None:
    """Also with some of its channels only, on either side."""
    conv, wrong = CONVS[name], Conv(normal(1, 1, 5), (1, 5), (1,), ((0, 0),), (1,))
    few = replace(conv, weight=conv.weight[:2, :1].contiguous(), in_shape=(1, *conv.in_shape[1:]))
    for wanted in (conv, few):
        found = map_of(known(wanted), [wrong, conv])
        assert isinstance(found, Conv)
        assert (found.in_shape, found.out_shape) == (wanted.in_shape, wanted.out_shape)
        assert torch.equal(found.weight, wanted.weight)


@pytest.mark.parametrize("place", [0, -1])
def test_one_entry_that_differs_makes_it_a_plain_matrix(place: int) -> None:
    conv = CONVS["two axes"]
    entries = known(conv)
    values = entries.values.clone()
    values[place] += 1.0
    assert not isinstance(map_of(replace(entries, values=values), [conv]), Conv)


def test_templates_are_found_inside_of_products() -> None:
    conv = CONVS["one axis"]
    assert convolutions([Chain((conv, Dense(normal(2, conv.n_out)))), Dense(WEIGHT), conv]) == [conv, conv]
