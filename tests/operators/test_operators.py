"""Laws of linear maps: adjoints, magnitudes against the materialised matrix, fusion, rounding depth."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from verifier.operators import (
    Chain,
    Conv,
    Dense,
    Diagonal,
    LinearMap,
    Select,
    Sparse,
    Sum,
    Transposed,
    add,
    compose,
    conv,
    gamma,
)
from verifier.operators.signed import parts

CASES = [
    "dense", "blocks", "sparse", "conv1d", "conv2d", "strided", "grouped", "dilated", "lopsided", "small", "transposed",
    "select", "padding", "repeated", "diagonal", "chain", "sum",
]  # fmt: skip


def build(case: str, seed: int) -> LinearMap:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    if case == "dense":
        return Dense(normal(3, 5))
    if case == "blocks":
        return Dense(normal(3, 2), repeats=4)
    if case == "sparse":
        return Sparse.of(normal(4, 6) * (normal(4, 6) > 0.5))
    if case == "conv1d":
        return Conv(normal(3, 2, 3), (2, 7), (2,), ((1, 1),), (1,))
    if case == "conv2d":
        return Conv(normal(3, 2, 3, 2), (2, 5, 4), (1, 1), ((1, 1), (0, 0)), (1, 1))
    if case == "strided":
        return Conv(normal(3, 2, 2, 2), (2, 6, 7), (3, 3), ((0, 0), (0, 0)), (1, 1))
    if case == "grouped":
        return Conv(normal(4, 1, 3, 3), (2, 5, 5), (2, 2), ((1, 1), (1, 1)), (1, 1), groups=2)
    if case == "dilated":
        return Conv(normal(2, 2, 2, 2), (2, 6, 5), (1, 2), ((0, 0), (0, 0)), (3, 2))
    if case == "lopsided":
        return Conv(normal(2, 1, 3, 3), (1, 5, 5), (2, 2), ((0, 1), (2, 1)), (1, 1))
    if case == "small":  # written out as a matrix
        return Conv(normal(4, 3, 3, 3), (3, 2, 2), (1, 1), ((1, 1), (1, 1)), (1, 1))
    if case == "transposed":
        return Transposed(Conv(normal(2, 3, 3, 3), (3, 5, 6), (2, 2), ((1, 0), (1, 1)), (1, 1)))
    if case == "select":
        return Select(torch.tensor([3, 0, 2]), 5)
    if case == "padding":
        return Select(torch.tensor([-1, 1, 0, -1, 3]), 4)
    if case == "repeated":
        return Select(torch.tensor([1, 1, -1, 0, 1]), 3)
    if case == "diagonal":
        return Diagonal(normal(4))
    if case == "chain":
        return Chain((Dense(normal(4, 3)), Diagonal(normal(4)), Dense(normal(2, 4))))
    return Sum((Dense(normal(3, 3)), Diagonal(normal(3)), Select(torch.tensor([2, -1, 0]), 3)))


def matrix_of(linear: LinearMap) -> torch.Tensor:
    """The matrix, column by column."""
    return linear.forward(torch.eye(linear.n_in, dtype=torch.float64)).T


@pytest.mark.parametrize("case", CASES)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=10)
def test_transpose_is_the_adjoint(case: str, seed: int) -> None:
    linear = build(case, seed)
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 3, linear.n_in, generator=generator, dtype=torch.float64)
    y = torch.randn(2, 3, linear.n_out, generator=generator, dtype=torch.float64)
    left, right = (linear.forward(x) * y).sum(-1), (x * linear.transpose(y)).sum(-1)
    torch.testing.assert_close(left, right, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_matrix_of_the_transpose(case: str) -> None:
    linear = build(case, 0)
    columns = linear.transpose(torch.eye(linear.n_out, dtype=torch.float64))
    torch.testing.assert_close(columns, matrix_of(linear), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_magnitude_is_the_absolute_matrix(case: str) -> None:
    linear = build(case, 1)
    r = torch.rand(3, linear.n_in, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = r @ matrix_of(linear).abs().T
    found = linear.magnitude(r)
    assert bool((found >= exact - 1e-12).all())
    if case not in ("chain", "sum"):
        torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("case", CASES)
def test_other_precision_keeps_the_map(case: str) -> None:
    linear = build(case, 2)
    x = torch.randn(4, linear.n_in, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    single = linear.to(dtype=torch.float32).forward(x.float())
    assert single.dtype is torch.float32
    torch.testing.assert_close(single.double(), linear.forward(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("outer", CASES)
@pytest.mark.parametrize("inner", CASES)
def test_composition_is_the_product(outer: str, inner: str) -> None:
    """Every pair, glued by a dense map where the sizes differ."""
    first, last = build(inner, 3), build(outer, 4)
    glue = Dense(torch.randn(last.n_in, first.n_out, generator=torch.Generator().manual_seed(5), dtype=torch.float64))
    x = torch.randn(2, first.n_in, generator=torch.Generator().manual_seed(6), dtype=torch.float64)
    whole = compose(compose(last, glue), first)
    torch.testing.assert_close(whole.forward(x), last.forward(glue.forward(first.forward(x))))
    assert whole.depth >= max(first.depth, last.depth)
    if first.n_out == last.n_in:
        torch.testing.assert_close(compose(last, first).forward(x), last.forward(first.forward(x)))


def test_fusions_leave_one_map() -> None:
    generator = torch.Generator().manual_seed(0)
    conv = build("conv2d", 0)
    assert isinstance(conv, Conv)
    per_channel = Diagonal(torch.tensor([2.0, 3.0, 5.0]).double().repeat_interleave(conv.n_out // 3))
    scaled = compose(per_channel, conv)
    assert isinstance(scaled, Conv)
    assert scaled.depth == conv.depth + 1
    torch.testing.assert_close(matrix_of(scaled), per_channel.scale[:, None] * matrix_of(conv))
    before = Diagonal(torch.tensor([2.0, 3.0]).double().repeat_interleave(conv.n_in // 2))
    assert isinstance(compose(conv, before), Conv)
    torch.testing.assert_close(matrix_of(compose(conv, before)), matrix_of(conv) * before.scale)
    uneven = Diagonal(torch.rand(conv.n_out, generator=generator, dtype=torch.float64))
    assert isinstance(compose(uneven, conv), Chain)
    flip = Select(torch.arange(4, -1, -1), 5)
    assert isinstance(compose(build("dense", 0), flip), Dense)
    assert isinstance(compose(flip, flip), Select)
    assert compose(conv, Select.identity(conv.n_in)) is conv


def test_grouped_convolution_after_a_scale_of_its_channels() -> None:
    conv = build("grouped", 0)
    scale = Diagonal(torch.tensor([2.0, -3.0]).double().repeat_interleave(conv.n_in // 2))
    torch.testing.assert_close(matrix_of(compose(conv, scale)), matrix_of(conv) * scale.scale)


def test_pieces_of_a_concatenation_become_one_selection() -> None:
    left, right = Select(torch.tensor([0, 1, -1, -1]), 3), Select(torch.tensor([-1, -1, 2, 0]), 3)
    whole = add(left, right)
    assert isinstance(whole, Select)
    assert whole.index.tolist() == [0, 1, 2, 0]
    overlapping = add(left, Select(torch.tensor([-1, 0, 2, 0]), 3))
    assert isinstance(overlapping, Sum)
    torch.testing.assert_close(matrix_of(overlapping)[1], torch.tensor([1.0, 1.0, 0.0]).double())


@given(seed=st.integers(0, 2**16), scale=st.sampled_from([1e-8, 1.0, 1e8]))
@settings(max_examples=25)
def test_rounding_stays_below_gamma(seed: int, scale: float) -> None:
    """The error of a long dot product with heavy cancellation, against rational arithmetic."""
    generator = torch.Generator().manual_seed(seed)
    linear = Dense(torch.randn(1, 200, generator=generator, dtype=torch.float64) * scale)
    x = torch.randn(200, generator=generator, dtype=torch.float64)
    x[100:] = -x[:100] * linear.weight[0, :100] / linear.weight[0, 100:]
    exact = sum(Fraction(w) * Fraction(v) for w, v in zip(linear.weight[0].tolist(), x.tolist(), strict=True))
    error = abs(Fraction(linear.forward(x)[0].item()) - exact)
    assert error <= Fraction(gamma(linear.depth)) * Fraction(linear.magnitude(x.abs())[0].item())


def test_sizes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot feed"):
        compose(build("dense", 0), build("dense", 0))
    with pytest.raises(ValueError, match="outside of a vector"):
        Select(torch.tensor([4]), 4)
    with pytest.raises(ValueError, match="different sizes"):
        Sum((Select.identity(3), Select.identity(4)))
    with pytest.raises(ValueError, match="larger than its padded input"):
        Conv(torch.ones(1, 1, 5, dtype=torch.float64), (1, 3), (1,), ((0, 0),), (1,))
    with pytest.raises(ValueError, match="do not fit a kernel"):
        Conv(torch.ones(1, 2, 3, dtype=torch.float64), (1, 5), (1,), ((0, 0),), (1,))


def test_parts_of_products_keep_the_precision_of_their_weights() -> None:
    """A factor that only selects says nothing about the precision of the others."""
    moved = add(Select.identity(3), Select(torch.tensor([2, 0, 1]), 3))
    linear = Chain((moved, Dense(torch.randn(2, 3)), Diagonal(torch.randn(2))))
    found = parts(linear)
    assert found is not None
    x = torch.rand(4, 3)
    assert torch.allclose(found[0].forward(x) + found[1].forward(x), linear.forward(x), atol=1e-5)


AXES = st.tuples(
    st.integers(1, 3), st.integers(1, 3), st.integers(1, 2), st.integers(3, 6), st.integers(0, 2), st.integers(0, 2)
)


@given(axes=st.lists(AXES, min_size=1, max_size=3), channels=st.tuples(st.integers(1, 3), st.integers(1, 3)))
@settings(max_examples=40)
def test_a_convolution_that_is_written_out_is_its_matrix(
    axes: list[tuple[int, int, int, int, int, int]], channels: tuple[int, int]
) -> None:
    kernel, stride, dilation, sizes, before, after = zip(*axes, strict=True)
    weight = torch.randn(*channels, *kernel, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assume(all(d * (k - 1) + 1 <= n + a + b for k, _, d, n, a, b in axes))
    made = Conv(weight, (channels[1], *sizes), stride, tuple(zip(before, after, strict=True)), dilation)
    plain = made._forward(torch.eye(made.n_in, dtype=torch.float64), weight).T
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(conv, "DENSE", {torch.float64: math.inf})
        assert made._matrix is not None
        torch.testing.assert_close(made._matrix, plain, rtol=1e-14, atol=1e-14)
