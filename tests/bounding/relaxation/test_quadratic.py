"""Quadratic functions of symbols: tangents are nowhere above them, and lose nothing where they need not."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.state import cat
from verifier.bounding.relaxation.quadratic import Convexity, Quadratics, Tangents, minimiser, tangents

SEEDS = st.integers(0, 10_000)


def random(seed: int, boxes: int = 3, functions: int = 2, symbols: int = 4) -> Quadratics:
    generator = torch.Generator().manual_seed(seed)

    def new(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    form = new(boxes, functions, symbols, symbols)
    form = (form + form.transpose(-1, -2)) / 2 * new(boxes, functions, 1, 1).exp()
    return Quadratics(
        new(boxes, functions), new(boxes, functions, symbols), form, torch.zeros(boxes, functions, dtype=torch.float64)
    )


def points(count: int, symbols: int, seed: int) -> torch.Tensor:
    """Half of them corners."""
    eps = 2 * torch.rand(count, symbols, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 1
    eps[::2] = eps[::2].sign()
    return eps


def at(f: Quadratics, eps: torch.Tensor) -> torch.Tensor:
    """All functions at all points: [count, D, S]."""
    linear = torch.einsum("dsg,cg->cds", f.linear, eps)
    return f.constant + linear + torch.einsum("cg,dsgh,ch->cds", eps, f.form, eps)


def bounded(f: Quadratics, sweeps: int = 3) -> Tangents:
    return tangents(f, Convexity.of(f.form), None, sweeps)


@settings(max_examples=60)
@given(SEEDS, st.integers(0, 4))
def test_tangents_are_nowhere_above_the_function(seed: int, sweeps: int) -> None:
    f = random(seed)
    found = bounded(f, sweeps)
    eps = points(2000, 4, seed)
    values = at(f, eps)
    plane = torch.einsum("dsg,cg->cds", found.linear, eps) + found.constant - found.error
    room = 1e-13 * (1 + values.abs())
    assert bool((plane <= values + room).all())
    assert bool((found.lower <= values.amin(dim=0) + room.amax(dim=0)).all())
    assert bool((found.lower <= plane.amin(dim=0) + room.amax(dim=0)).all())
    assert bool((found.error <= 1e-9 * (1 + values.abs().amax(dim=0))).all())


@settings(max_examples=60)
@given(SEEDS)
def test_the_diagonal_makes_forms_convex(seed: int) -> None:
    f = random(seed)
    convexity = Convexity.of(f.form)
    least = torch.linalg.eigvalsh(f.form + torch.diag_embed(convexity.diagonal)).amin(dim=-1)
    assert bool((least >= -1e-12 * f.scale).all())
    assert bool((convexity.diagonal >= 0).all())


@settings(max_examples=40)
@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(-3, 3))
def test_one_symbol_is_bounded_exactly(constant: float, linear: float, form: float) -> None:
    f = Quadratics(
        torch.tensor([[constant]], dtype=torch.float64),
        torch.tensor([[[linear]]], dtype=torch.float64),
        torch.tensor([[[[form]]]], dtype=torch.float64),
        torch.zeros(1, 1, dtype=torch.float64),
    )
    ends = [constant + linear + form, constant - linear + form]
    if form > 0 and abs(linear) < 2 * form:
        ends.append(constant - linear**2 / (4 * form))
    assert float(bounded(f).lower) == pytest.approx(min(ends), abs=1e-8)


@settings(max_examples=8)
@given(SEEDS)
def test_convex_functions_lose_nothing(seed: int) -> None:
    """Below no point, and reached by one."""
    f = random(seed)
    form = f.form @ f.form
    form = form + form.diagonal(dim1=-2, dim2=-1).amax(dim=-1)[..., None, None] * torch.eye(4, dtype=torch.float64)
    f = Quadratics(f.constant, f.linear, form, f.error)
    found = bounded(f, sweeps=40)
    reached = torch.stack([f.values(found.point[:, s : s + 1])[:, s] for s in range(2)], dim=1)
    torch.testing.assert_close(found.lower, reached, rtol=0, atol=1e-6 * float(f.scale.max()))


def test_corners_of_steep_functions_are_exact() -> None:
    """A function that is monotone in every symbol has its minimum at a corner, where the diagonal costs nothing."""
    f = random(7)
    f = Quadratics(f.constant, f.linear.sign() * 40 * f.scale.unsqueeze(-1), f.form, f.error)
    corner = -f.linear.sign()
    least = torch.stack([f.values(corner[:, s : s + 1])[:, s] for s in range(2)], dim=1)
    torch.testing.assert_close(bounded(f).lower, least, rtol=0, atol=1e-9 * float(f.scale.max()))


@settings(max_examples=30)
@given(SEEDS)
def test_combinations_are_sums(seed: int) -> None:
    f = random(seed, functions=3)
    weights = torch.rand(3, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    eps = points(50, 4, seed)
    torch.testing.assert_close(at(f.combined(weights), eps)[..., 0], (at(f, eps) * weights).sum(dim=-1))
    mixed = Convexity.of(f.form).combined(weights)
    least = torch.linalg.eigvalsh(f.combined(weights).form + torch.diag_embed(mixed.diagonal)).amin(dim=-1)
    assert bool((least >= -1e-11 * f.scale.sum(dim=1, keepdim=True)).all())


def test_a_batch_is_its_members() -> None:
    f = random(3)
    whole, alone = bounded(f), cat([bounded(f.select(torch.tensor([d]))) for d in range(3)])
    torch.testing.assert_close(whole.lower, alone.lower)
    torch.testing.assert_close(whole.point, alone.point)


def test_more_sweeps_are_better_on_the_whole() -> None:
    f = random(11, boxes=50)
    lowers = [float(bounded(f, sweeps).lower.mean()) for sweeps in (0, 1, 3, 20)]
    assert lowers == sorted(lowers)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_what_is_no_number_proves_nothing(bad: float) -> None:
    for name in ("constant", "linear", "form", "error"):
        f = random(5)
        getattr(f, name)[1, 0] = bad
        lower = bounded(f).lower
        assert float(lower[1, 0]) == -float("inf")
        assert bool(torch.isfinite(lower[0]).all())


def test_points_stay_where_symbols_are() -> None:
    f = random(13)
    point, slope = minimiser(f.linear, f.form @ f.form, torch.ones_like(f.linear), 2)
    assert bool((point.abs() <= 1).all())
    torch.testing.assert_close(slope, f.linear + 2 * (f.form @ f.form @ point.unsqueeze(-1)).squeeze(-1))
