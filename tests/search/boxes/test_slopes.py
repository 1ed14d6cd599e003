"""The ascent of boxes: it never loses, and stays inside of its limits."""

from __future__ import annotations

import networks
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.base import Region
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.relaxation.zonotope import propagate
from verifier.bounding.rows import Conjunction
from verifier.bounding.solvers.alpha_crown import of_rows
from verifier.bounding.solvers.face_dual import ConjunctionDual
from verifier.search.boxes.climb import climb, starts

SEEDS = st.integers(0, 10_000)
FAMILY = st.sampled_from(sorted(networks.FAMILIES))


def instance(family: str, seed: int, count: int = 4) -> tuple[ConjunctionDual, torch.Tensor]:
    """A dual at full width with two rows for each box, and weights of the rows."""
    net = networks.FAMILIES[family](seed)
    low, high = networks.box(net, seed, 0.6, count)
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    A, B, c = normal(count, 2, net.n_out), normal(count, 2, net.n_in), normal(count, 2)
    rows, found = Conjunction(A, B, c, torch.ones(count, 2, dtype=torch.bool)), propagate(net, low, high)
    region = Region(low, high, found.l_hat, found.u_hat, tuple(g.function for g in net.groups)).full_width()
    weights = torch.rand(count, 1, 2, generator=generator, dtype=torch.float64)
    sweep = Sweep.prepare(net, region, len(net.layers))
    return of_rows(sweep, rows), weights / weights.sum(dim=-1, keepdim=True)


@pytest.mark.usefixtures("unchecked")
@settings(max_examples=20)
@given(FAMILY, SEEDS)
def test_climbing_never_loses(family: str, seed: int) -> None:
    dual, weights = instance(family, seed)
    begun = [dual.evaluate(start).lower for start in starts(dual, weights)]
    found = climb(dual, weights, 5)
    assert bool((dual.evaluate(found).lower >= torch.maximum(*begun) - 1e-12).all())
    slopes, weights = found[..., : dual.plain], found[..., dual.plain :]
    assert bool(((slopes >= 0) & (slopes <= 1)).all())
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(4, 1, dtype=torch.float64))


@pytest.mark.usefixtures("unchecked")
@settings(max_examples=20)
@given(FAMILY, SEEDS)
def test_a_batch_is_its_members(family: str, seed: int) -> None:
    """Also where some members stop at once, because their bound is positive."""
    dual, weights = instance(family, seed)
    together = climb(dual, weights, 5)
    for d in range(4):
        rows = torch.tensor([d])
        alone = climb(dual.select(rows), weights[rows], 5)
        torch.testing.assert_close(alone[0], together[d], rtol=0, atol=1e-6)


@pytest.mark.usefixtures("unchecked")
@settings(max_examples=30)
@given(FAMILY, SEEDS)
def test_derivatives_are_differences(family: str, seed: int) -> None:
    dual, weights = instance(family, seed, 1)
    kinks, generator = dual.slopes.sweep.kinks, torch.Generator().manual_seed(seed)
    random = [torch.rand(k.upper.shape, generator=generator, dtype=torch.float64) for k in kinks]
    slopes = [k.faces(r) for k, r in zip(kinks, random, strict=True)]
    point, step = torch.cat([*slopes, weights], dim=-1), 1e-6
    at = dual.evaluate(point)
    gradient = dual.supergradient(point, at)[0, 0]
    ambiguous = torch.cat([k.ambiguous for k in kinks], dim=-1)[0, 0]
    for i in torch.nonzero(ambiguous).flatten().tolist():
        moved = point.clone()
        moved[0, 0, i] += step
        change = float(dual.evaluate(moved).lower - at.lower) / step
        assert change == pytest.approx(float(gradient[i]), abs=1e-4)
    moved = point.clone()
    moved[0, 0, dual.plain :] += step * torch.tensor([1.0, -1.0], dtype=torch.float64)
    change = float(dual.evaluate(moved).lower - at.lower) / step
    assert change == pytest.approx(float(gradient[-2] - gradient[-1]), abs=1e-4)
