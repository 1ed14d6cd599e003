"""Parts of convolutions as dense blocks: the numbers of the map, in any order, and nothing of what is left out."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.operators import Conv, blocks
from verifier.operators.base import places_of
from verifier.operators.blocks import Blocks, arranged, product
from verifier.operators.signed import absolute, parts, signed

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


def made(case: str, seed: int, share: float) -> tuple[Blocks, torch.Tensor]:
    """Some rows and columns in blocks, and as a matrix."""
    whole = conv(case, seed)
    rows, columns = some(whole.n_out, whole.out_shape, seed, share), some(whole.n_in, whole.in_shape, seed + 1, share)
    matrix = whole.forward(torch.eye(whole.n_in, dtype=torch.float64)).T
    return Blocks.of(whole, rows, columns), matrix[rows][:, columns]


def matrix_of(linear: object) -> torch.Tensor:
    return linear.forward(torch.eye(linear.n_in, dtype=torch.float64)).T  # type: ignore[attr-defined]


@pytest.mark.parametrize("side", [None, 1, 2, 8])
@pytest.mark.parametrize("case", CONVS)
@given(seed=st.integers(0, 2**16), share=st.sampled_from([0.0, 0.05, 0.5, 1.0]))
@settings(max_examples=6)
def test_both_directions_are_those_of_the_matrix(case: str, side: int | None, seed: int, share: float) -> None:
    with pytest.MonkeyPatch.context() as patched:
        if side is not None:
            patched.setattr(blocks, "_best_side", lambda *_: side)
        found, matrix = made(case, seed, share)
    assert (found.n_out, found.n_in) == matrix.shape
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 3, found.n_in, generator=generator, dtype=torch.float64)
    y = torch.randn(5, found.n_out, generator=generator, dtype=torch.float64)
    torch.testing.assert_close(found.forward(x), x @ matrix.T, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.transpose(y), y @ matrix, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(found.magnitude(x.abs()), x.abs() @ matrix.abs().T, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(product(found.transposed, found.n_in, y.T.contiguous()), (y @ matrix).T)


@pytest.mark.parametrize("case", CONVS)
def test_a_block_holds_its_own_columns_only(case: str) -> None:
    found, matrix = made(case, 7, 0.5)
    ends = [block.rows.stop for block in found.blocks]
    assert [block.rows.start for block in found.blocks] == [0, *ends[:-1]]
    assert ends[-1] == found.n_out
    for block in found.blocks:
        assert bool((matrix[block.rows][:, block.columns] == block.matrix).all())
        assert bool((matrix[block.rows] != 0).any(dim=0).nonzero().flatten().eq(block.columns).all())


@pytest.mark.parametrize("case", CONVS)
def test_sums_are_no_longer_than_the_depth_says(case: str) -> None:
    found, _ = made(case, 3, 1.0)
    for block in (*found.blocks, *found.transposed):
        assert int((block.matrix != 0).sum(dim=1).max()) < found.depth


@pytest.mark.parametrize("case", CONVS)
def test_parts_absolute_values_and_rows_of_them(case: str) -> None:
    found, matrix = made(case, 5, 0.6)
    size, split, doubled = absolute(found), parts(found), signed(found)
    assert size is not None
    assert split is not None
    assert doubled is not None
    assert torch.equal(matrix_of(size), matrix.abs())
    assert torch.equal(matrix_of(split[0]), matrix.clamp(min=0))
    assert torch.equal(matrix_of(split[1]), matrix.clamp(max=0))
    assert torch.equal(matrix_of(doubled), torch.cat([matrix.clamp(min=0), matrix.clamp(max=0)], dim=1))
    index = torch.arange(0, found.n_out, 3)
    taken, y = found.taken(index), torch.randn(4, len(index), dtype=torch.float64)
    assert torch.equal(matrix_of(taken), matrix[index])
    torch.testing.assert_close(taken.transpose(y), y @ matrix[index])
    single = found.to(dtype=torch.float32)
    assert single.forward(torch.ones(1, found.n_in)).dtype is torch.float32
    assert found.reweighted(found.weights, 2).depth == found.depth + 2


@given(height=st.integers(1, 9), width=st.integers(1, 9), power=st.integers(0, 4))
def test_squares_lie_side_by_side(height: int, width: int, power: int) -> None:
    image = (2, height, width)
    order = arranged(torch.arange(2 * height * width), image)
    assert torch.equal(order.sort().values, torch.arange(2 * height * width))
    _, y, x = places_of(order, image)
    squares = (y // 2**power) * width + x // 2**power
    assert len(squares.unique_consecutive()) == len(squares.unique())
