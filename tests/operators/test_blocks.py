"""Transposed convolutions as dense blocks: the numbers of the map, and nothing of what is left out."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.operators import Conv, blocks
from verifier.operators.base import places_of
from verifier.operators.blocks import DenseBlocks, arranged

CONVS = {
    "plain": ((3, 2, 3, 3), (2, 6, 7), (1, 1), ((1, 1), (2, 0)), (1, 1)),
    "strided": ((4, 3, 3, 2), (3, 9, 8), (2, 3), ((1, 1), (0, 1)), (1, 1)),
    "dilated": ((2, 3, 2, 3), (3, 8, 9), (2, 1), ((2, 2), (1, 1)), (2, 2)),
    "points": ((4, 3, 1, 1), (3, 7, 8), (2, 2), ((0, 0), (0, 0)), (1, 1)),
    "one axis": ((3, 2, 4), (2, 11), (2,), ((1, 2),), (1,)),
    "three axes": ((2, 2, 2, 1, 3), (2, 4, 3, 5), (1, 2, 1), ((0, 1), (0, 0), (1, 1)), (1, 1, 1)),
}


def conv(case: str, seed: int = 0) -> Conv:
    shape, *rest = CONVS[case]
    weight = torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return Conv(weight, *rest)  # type: ignore[arg-type]


def some(count: int, image: tuple[int, ...], seed: int, share: float) -> torch.Tensor:
    """About that share of the entries of an image, arranged."""
    chosen = torch.rand(count, generator=torch.Generator().manual_seed(seed)) < share
    return arranged(torch.nonzero(chosen).flatten(), image)


def made(case: str, seed: int, share: float) -> tuple[DenseBlocks, torch.Tensor]:
    """The transpose of some rows and columns in blocks, and as a matrix."""
    whole = conv(case, seed)
    rows, columns = some(whole.n_out, whole.out_shape, seed, share), some(whole.n_in, whole.in_shape, seed + 1, share)
    matrix = whole.transpose(torch.eye(whole.n_out, dtype=torch.float64))
    return DenseBlocks.transposed(whole, rows, columns), matrix[rows][:, columns].T


@pytest.mark.parametrize("side", [None, 1, 2, 8])
@pytest.mark.parametrize("case", CONVS)
@given(seed=st.integers(0, 2**16), share=st.sampled_from([0.0, 0.05, 0.5, 1.0]))
@settings(max_examples=6)
def test_products_are_those_of_the_matrix(case: str, side: int | None, seed: int, share: float) -> None:
    with pytest.MonkeyPatch.context() as patched:
        if side is not None:
            patched.setattr(blocks, "_best_side", lambda *_: side)
        found, matrix = made(case, seed, share)
    vectors = torch.randn(matrix.shape[1], 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    torch.testing.assert_close(found.product(vectors), matrix @ vectors, rtol=1e-12, atol=1e-12)
    single = found.to(torch.float32).product(vectors.float())
    assert single.dtype is torch.float32
    torch.testing.assert_close(single.double(), matrix @ vectors, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("case", CONVS)
def test_a_block_holds_its_own_columns_only(case: str) -> None:
    found, matrix = made(case, 7, 0.5)
    ends = [block.rows.stop for block in found.blocks]
    assert [block.rows.start for block in found.blocks] == [0, *ends[:-1]]
    assert ends[-1] == found.n_out == len(matrix)
    for block in found.blocks:
        assert torch.equal(matrix[block.rows][:, block.columns], block.matrix)
        assert torch.equal(torch.nonzero((matrix[block.rows] != 0).any(dim=0)).flatten(), block.columns)


@pytest.mark.parametrize("case", CONVS)
def test_sums_are_no_longer_than_the_depth_of_the_map_says(case: str) -> None:
    found, _ = made(case, 3, 1.0)
    for block in found.blocks:
        assert int((block.matrix != 0).sum(dim=1).max()) < conv(case).depth


def test_large_images_are_cut_small_ones_are_not() -> None:
    generator = torch.Generator().manual_seed(0)
    for size, count in ((32, 64), (2, 1)):
        weight = torch.randn(16, 16, 3, 3, generator=generator, dtype=torch.float64)
        large = Conv(weight, (16, size, size), (1, 1), ((1, 1), (1, 1)), (1, 1))
        every = arranged(torch.arange(large.n_in), large.in_shape)
        found = DenseBlocks.transposed(large, every, every)
        assert len(found.blocks) >= count
        assert sum(block.matrix.numel() for block in found.blocks) <= 4 * large.n_out * weight[0].numel()


def test_a_matrix_is_one_block() -> None:
    matrix, vectors = torch.randn(3, 4), torch.randn(4, 2)
    torch.testing.assert_close(DenseBlocks.whole(matrix).product(vectors), matrix @ vectors)


@given(height=st.integers(1, 9), width=st.integers(1, 9), power=st.integers(0, 4))
def test_squares_lie_side_by_side(height: int, width: int, power: int) -> None:
    image = (2, height, width)
    order = arranged(torch.arange(2 * height * width), image)
    assert torch.equal(order.sort().values, torch.arange(2 * height * width))
    _, y, x = places_of(order, image)
    squares = (y // 2**power) * width + x // 2**power
    assert len(squares.unique_consecutive()) == len(squares.unique())
