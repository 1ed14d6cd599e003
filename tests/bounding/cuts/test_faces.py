"""Shares of several cuts at one neuron: the nearest feasible point and direction, against enumeration."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.cuts.faces import project, project_direction


def normals(entries: int, count: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`up` and `down` [C, N] as cuts have them: from random bounds and coefficients of z, some outside of them."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape: int) -> torch.Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    low, high = -uniform(count) - 0.05, uniform(count) + 0.05
    zc = low + (high - low) * (1.6 * uniform(entries, count) - 0.3)
    up, down = (zc - low) / -low, (high - zc) / high
    most = 1 / torch.maximum(up, down)
    return most * up, most * down


def enumerated(
    v: torch.Tensor, normal: tuple[torch.Tensor, torch.Tensor], bounds: torch.Tensor, free: torch.Tensor
) -> torch.Tensor:
    """The nearest point to v [C, N]: the best feasible one over all sets of entries and constraints that may bind."""
    best, nearest = torch.full(v.shape[1:], torch.inf, dtype=v.dtype), torch.full_like(v, torch.nan)
    for bits in itertools.product([False, True], repeat=len(v)):
        kept = free | torch.tensor(bits).unsqueeze(1)
        for active in ([], [0], [1], [0, 1]):
            found = _on_face(v * kept, [normal[i] * kept for i in active], bounds[active])
            feasible = ((found >= -1e-9) | free).all(dim=0)
            for side, bound in zip(normal, bounds, strict=True):
                feasible &= (side * found).sum(dim=0) <= bound + 1e-9
            distance = torch.where(feasible, (found - v).square().sum(dim=0), torch.inf)
            nearest = torch.where(distance < best, found, nearest)
            best = torch.minimum(best, distance)
    return nearest


def _on_face(v: torch.Tensor, normals: list[torch.Tensor], bounds: torch.Tensor) -> torch.Tensor:
    """The nearest point to v with equality in some constraints."""
    if not normals:
        return v
    a = torch.stack(normals).permute(2, 0, 1)  # [N, constraints, C]
    rest = (a @ v.T.unsqueeze(-1)).squeeze(-1) - bounds.T
    return v - (torch.linalg.pinv(a, rtol=1e-10) @ rest.unsqueeze(-1)).squeeze(-1).T


@pytest.mark.parametrize("entries", [2, 3, 4])
@given(seed=st.integers(0, 2**16))
@settings(max_examples=4)
def test_the_nearest_feasible_shares(entries: int, seed: int) -> None:
    up, down = normals(entries, 200, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    v = 1.5 * torch.rand(entries, 200, generator=generator, dtype=torch.float64)
    v[torch.rand(v.shape, generator=generator) < 0.2] = 0.0
    expected = enumerated(v, (up, down), torch.ones(2, 200, dtype=v.dtype), torch.zeros_like(v, dtype=torch.bool))
    r = v.clone()
    project(list(r), list(up), list(down))
    torch.testing.assert_close(r, expected, rtol=0, atol=1e-7)
    assert bool((r >= 0).all())
    assert bool(((r * up).sum(0) <= 1 + 1e-12).all())
    assert bool(((r * down).sum(0) <= 1 + 1e-12).all())


@pytest.mark.parametrize("entries", [2, 3, 4])
@given(seed=st.integers(0, 2**16))
@settings(max_examples=4)
def test_the_nearest_feasible_direction(entries: int, seed: int) -> None:
    up, down = normals(entries, 200, seed)
    generator = torch.Generator().manual_seed(seed + 1)
    r = 1.5 * torch.rand(entries, 200, generator=generator, dtype=torch.float64)
    r[torch.rand(r.shape, generator=generator) < 0.3] = 0.0
    project(list(r), list(up), list(down))
    g = torch.randn(r.shape, generator=generator, dtype=torch.float64)
    full = torch.stack([(r * side).sum(0) >= 1 - 1e-5 for side in (up, down)])
    assert 20 < int(full.any(dim=0).sum()) < 200
    bounds = torch.where(full, 0.0, torch.inf).double()
    bounds[:, ~full.any(dim=0)] = torch.inf
    found = g.clone()
    project_direction(list(found), list(r), list(up), list(down))
    inside = ~full.any(dim=0)
    torch.testing.assert_close(found[:, inside], g[:, inside], rtol=0, atol=0)
    at = torch.nonzero(~inside).flatten()
    finite = torch.where(torch.isfinite(bounds), bounds, 1e6)
    expected = enumerated(g[:, at], (up[:, at], down[:, at]), finite[:, at], (r > 0)[:, at])
    torch.testing.assert_close(found[:, at], expected, rtol=0, atol=1e-6)


def test_known_points() -> None:
    """Two cuts that take from the same weight share it; two that take from different ones do not disturb each other."""
    same = [torch.tensor([1.0]), torch.tensor([1.0])]
    none = [torch.tensor([0.0]), torch.tensor([0.0])]
    r = [torch.tensor([0.9]), torch.tensor([0.5])]
    project(r, same, none)
    assert [float(x) for x in r] == pytest.approx([0.7, 0.3])
    apart = [torch.tensor([1.0]), torch.tensor([0.0])], [torch.tensor([0.0]), torch.tensor([1.0])]
    r = [torch.tensor([1.4]), torch.tensor([0.5])]
    project(r, *apart)
    assert [float(x) for x in r] == pytest.approx([1.0, 0.5])
    g = [torch.tensor([5.0]), torch.tensor([3.0])]
    project_direction(g, [torch.tensor([0.7]), torch.tensor([0.3])], same, none)
    assert [float(x) for x in g] == pytest.approx([1.0, -1.0])  # only the difference matters


def test_single_precision_with_nearly_parallel_constraints() -> None:
    up = [torch.tensor([1.0]), torch.tensor([1.0])]
    down = [torch.tensor([1.0 - 1e-7]), torch.tensor([1.0])]
    r = [torch.tensor([0.8]), torch.tensor([0.8])]
    project(r, up, down)
    assert [float(x) for x in r] == pytest.approx([0.5, 0.5], abs=1e-4)
