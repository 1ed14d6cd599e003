"""Parts of maps: the same numbers, for the rows that are asked for."""

from __future__ import annotations

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from operators.test_operators import CASES, build

from verifier.operators import Chain, Conv, Diagonal, LinearMap, Select, Sum, Transposed, compose
from verifier.operators.base import places_of
from verifier.operators.part import part, places, reads


def windows(case: str) -> LinearMap:
    """Larger maps, of which parts are much smaller."""
    generator = torch.Generator().manual_seed(7)

    def kernel(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    plain = Conv(kernel(2, 3, 3, 3), (3, 12, 11), (1, 1), ((1, 1), (2, 0)), (1, 1))
    if case == "plain":
        return plain
    if case == "strided":
        return Conv(kernel(4, 3, 3, 2), (3, 12, 11), (2, 3), ((1, 1), (0, 1)), (1, 1))
    if case == "pooled":
        return Conv(kernel(3, 1, 2, 2), (3, 12, 11), (2, 2), ((0, 0), (0, 0)), (1, 1), groups=3)
    if case == "dilated":
        return Conv(kernel(2, 3, 3, 3), (3, 12, 11), (1, 2), ((2, 2), (1, 1)), (2, 2))
    if case == "transposed":
        return Transposed(Conv(kernel(3, 2, 4, 3), (2, 13, 12), (2, 2), ((1, 1), (0, 0)), (1, 1)))
    if case == "sparse transposed":  # places between the windows that none reaches
        return Transposed(Conv(kernel(3, 2, 1, 2), (2, 13, 12), (3, 2), ((0, 0), (0, 0)), (1, 1)))
    after = Conv(kernel(2, 2, 2, 2), plain.out_shape, (1, 1), ((0, 0), (1, 0)), (1, 1))
    if case == "sum":
        return Sum((plain, compose(Diagonal(kernel(plain.n_out)), plain)))
    if case == "chain":
        return Chain((plain, Diagonal(kernel(plain.n_out)), after))
    upsampled = torch.arange(plain.n_out).reshape(plain.out_shape).repeat_interleave(2, dim=1)
    return compose(Select(upsampled.flatten(), plain.n_out), plain)


WINDOWS = ["plain", "strided", "pooled", "dilated", "transposed", "sparse transposed", "sum", "chain", "upsampled"]


def assert_is_part(linear: LinearMap, rows: torch.Tensor, more: torch.Tensor, x: torch.Tensor) -> None:
    needed = reads(linear, rows)
    if not len(needed) and not len(more):
        return
    assert torch.equal(needed, needed.unique())
    columns = torch.cat([needed, more]).unique()
    small = part(linear, rows, columns)
    assert (small.n_in, small.n_out) == (len(columns), len(rows))
    torch.testing.assert_close(small.forward(x[columns]), linear.forward(x)[rows], rtol=1e-13, atol=1e-13)
    y = torch.cos(torch.arange(len(rows), dtype=torch.float64))
    whole = linear.transpose(torch.zeros(linear.n_out, dtype=torch.float64).index_add(0, rows, y))
    torch.testing.assert_close(small.transpose(y), whole[columns], rtol=1e-12, atol=1e-12)
    others = torch.ones(linear.n_in, dtype=torch.bool)
    others[columns] = False
    assert not bool(whole[others].any())  # nothing else is read


@pytest.mark.parametrize("case", CASES)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=10)
def test_a_part_has_the_rows_of_the_map(case: str, seed: int) -> None:
    linear = build(case, seed)
    generator = torch.Generator().manual_seed(seed)
    rows = torch.nonzero(torch.rand(linear.n_out, generator=generator) < 0.5).flatten()
    assume(len(rows))
    more = torch.nonzero(torch.rand(linear.n_in, generator=generator) < 0.3).flatten()
    assert_is_part(linear, rows, more, torch.randn(linear.n_in, generator=generator, dtype=torch.float64))


@pytest.mark.parametrize("case", WINDOWS)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=25)
def test_a_part_of_windows_has_the_rows_of_the_map(case: str, seed: int) -> None:
    linear = windows(case)
    generator = torch.Generator().manual_seed(seed)
    centre = int(torch.randint(linear.n_out, (), generator=generator))
    rows = torch.tensor(sorted({centre, min(centre + 1, linear.n_out - 1), max(centre - 12, 0)}))
    more = torch.nonzero(torch.rand(linear.n_in, generator=generator) < 0.1).flatten()
    assert_is_part(linear, rows, more, torch.randn(linear.n_in, generator=generator, dtype=torch.float64))


@pytest.mark.parametrize("case", ["plain", "strided", "dilated", "transposed", "chain"])
def test_one_row_of_a_convolution_reads_a_window(case: str) -> None:
    linear = windows(case)
    assert len(reads(linear, torch.tensor([linear.n_out // 2]))) < linear.n_in / 3


def test_rows_have_places_where_a_convolution_makes_them() -> None:
    plain, upsampled = windows("plain"), windows("upsampled")
    found, twice = places(plain), places(upsampled)
    assert found is not None
    assert twice is not None
    assert found[:, 1].tolist() == [0, 1]  # the second column of the first row
    assert twice[:, 11].tolist() == [0, 0]
    assert twice[0].max() == found[0].max()
    assert places(Diagonal(torch.ones(3, dtype=torch.float64))) is None
    nowhere = places(Chain((plain, Select(torch.tensor([-1, 4]), plain.n_out))))
    assert nowhere is not None
    assert nowhere.tolist() == [[-1, 0], [-1, 4]]


def test_places_are_those_of_a_tensor_of_that_shape() -> None:
    shape = (3, 4, 5)
    whole = torch.arange(60)
    for along, known in zip(places_of(whole, shape), torch.unravel_index(whole, shape), strict=True):
        assert torch.equal(along, known)
