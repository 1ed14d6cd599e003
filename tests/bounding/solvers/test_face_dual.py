"""Rows that must hold together: weights, their supergradient, the simplex, and what rounding may cost."""

from __future__ import annotations

from fractions import Fraction

import networks
import numpy as np
import pytest
import torch
from falsify import instances
from hypothesis import given, settings
from hypothesis import strategies as st
from search.cases import Case, random_case, root_of

from verifier.bounding.core.ascent import Ascent, Steps
from verifier.bounding.core.base import Region, Until
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.hidden import RootBounds
from verifier.bounding.rows import Conjunction, onto_simplex
from verifier.bounding.solvers.alpha_crown import of_rows
from verifier.bounding.solvers.face_dual import ConjunctionDual
from verifier.functions import RELU
from verifier.network.network import Network
from verifier.search.signs.root import Batch, Root

LONG = Ascent(300, Steps(0.2, 1e-3))


def random_rows(net: Network, seed: int, count: int, present: list[int], mixed: bool) -> Conjunction:
    """Rows for `count` regions, the k-th with present[k % len] of them; padding holds rubbish."""
    generator = torch.Generator().manual_seed(seed)
    most = max(present)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    sizes = torch.tensor([present[k % len(present)] for k in range(count)])
    B = 0.3 * normal(count, most, net.n_in) if mixed else None
    return Conjunction(normal(count, most, net.n_out), B, normal(count, most), torch.arange(most) < sizes[:, None])


def regions(net: Network, seed: int, count: int, split: bool) -> Region:
    lower, upper = networks.box(net, seed, 0.7, count)
    region = RootBounds().region(net, lower, upper, Until())
    if not split:
        return region
    low, high = [t.clone() for t in region.l_hat], [t.clone() for t in region.u_hat]
    splits = [torch.zeros_like(t, dtype=torch.int8) for t in low]
    for k, sign in ((0, 1), (len(low) - 1, -1)):
        open_ = torch.nonzero(region.ambiguous(k + 1).all(dim=0)).flatten().tolist()
        for neuron in open_[:1]:
            splits[k][:, neuron] = sign
            (low if sign > 0 else high)[k][:, neuron] = 0.0
    return Region(lower, upper, tuple(low), tuple(high), (RELU,) * len(low), splits=tuple(splits))


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("split", [False, True], ids=["whole", "split"])
@given(seed=st.integers(0, 2**16), mixed=st.booleans())
@settings(max_examples=6)
def test_supergradients_equal_finite_differences(family: str, split: bool, seed: int, mixed: bool) -> None:
    """In all variables at once, and in the weights alone; these move within the plane of the simplex."""
    net = networks.FAMILIES[family](seed)
    region, rows = regions(net, seed, 3, split), random_rows(net, seed, 3, [3, 1, 2], mixed)
    dual = of_rows(Sweep.prepare(net, region, len(net.layers)), rows)
    generator = torch.Generator().manual_seed(seed)
    point = 0.1 + 0.8 * torch.rand(dual.start().shape, generator=generator, dtype=torch.float64)
    inside = rows.present.unsqueeze(1).double()
    point[..., dual.plain :] *= inside / (point[..., dual.plain :] * inside).sum(dim=-1, keepdim=True)
    gradient = dual.supergradient(point, dual.evaluate(point))
    h = 1e-7
    for part in (slice(None), slice(dual.plain, None)):
        direction = torch.zeros_like(point)
        direction[..., part] = torch.randn(point[..., part].shape, generator=generator, dtype=torch.float64)
        level = (direction[..., dual.plain :] * inside).sum(dim=-1, keepdim=True) / inside.sum(dim=-1, keepdim=True)
        direction[..., dual.plain :] = (direction[..., dual.plain :] - level) * inside
        ahead, behind = (dual.evaluate(point + s * h * direction).lower for s in (1, -1))
        expected = (ahead - behind) / (2 * h)
        torch.testing.assert_close((gradient * direction).sum(-1), expected, rtol=1e-4, atol=1e-4)


# ---------------------------------------------------------------- the simplex


def by_bisection(v: list[float]) -> list[float]:
    """The projection has the form max(v - shift, 0); the shift makes the sum 1."""
    low, high = min(v) - 1.0, max(v)
    for _ in range(200):
        shift = (low + high) / 2
        total = sum(max(value - shift, 0.0) for value in v)
        low, high = (shift, high) if total > 1 else (low, shift)
    return [max(value - (low + high) / 2, 0.0) for value in v]


NUMBERS = st.one_of(st.floats(-3, 3, allow_subnormal=False), st.sampled_from([0.0, 1.0, -1e6, 1e6, 0.25]))


@given(st.lists(st.tuples(NUMBERS, st.booleans()), min_size=1, max_size=7), st.integers(0, 6))
def test_the_nearest_point_of_the_simplex(entries: list[tuple[float, bool]], sure: int) -> None:
    present = [p or i == sure % len(entries) for i, (_, p) in enumerate(entries)]
    v = torch.tensor([[[value for value, _ in entries]]], dtype=torch.float64)
    found = onto_simplex(v, torch.tensor([[present]]))[0, 0]
    nearest = iter(by_bisection([value for (value, _), p in zip(entries, present, strict=True) if p]))
    expected = [next(nearest) if p else 0.0 for p in present]
    assert found.tolist() == pytest.approx(expected, abs=1e-8)
    assert bool((found >= 0).all())


@pytest.mark.parametrize(
    ("v", "expected"),
    [
        ([0.2, 0.8], [0.2, 0.8]),
        ([1.0, 1.0], [0.5, 0.5]),
        ([5.0, 0.0], [1.0, 0.0]),
        ([-3.0, -3.0, -3.5], [0.5, 0.5, 0.0]),
        ([0.5, 0.0, -0.5], [0.75, 0.25, 0.0]),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_known_projections_with_and_without_padding(v: list[float], expected: list[float], dtype: torch.dtype) -> None:
    padded = torch.tensor([[[*v, 7.0]], [[*v, -7.0]]], dtype=dtype)
    present = torch.tensor([[[True] * len(v) + [False]]] * 2)
    for line in onto_simplex(padded, present).tolist():
        assert line[0] == pytest.approx([*expected, 0.0], abs=1e-6)


# ---------------------------------------------------------------- bounds


def bound(case: Case, margin: float = 0.0) -> tuple[Root, torch.Tensor]:
    """The optimised bounds in float64 of the whole box, one per clause."""
    root = root_of(case.problem([margin] * len(case.claims)))
    dual = dual_of(root)
    best = Ascent(40, Steps(0.2, 0.01)).run(dual, dual.best_start(), Until())
    return root, best.lower[:, 0]


def dual_of(root: Root) -> ConjunctionDual:
    """The dual of every clause on its whole box."""
    batch = Batch.whole(root)
    return of_rows(batch.sweep(torch.float64), batch.rows(torch.float64))


@pytest.mark.parametrize("family", ["dense", "residual"])
@pytest.mark.parametrize("seed", range(3))
def test_bounds_are_below_the_exact_minimum_and_above_every_single_row(family: str, seed: int) -> None:
    case = random_case(family, seed, (3, 1, 2), mixed=bool(seed % 2))
    root, lower = bound(case)  # the exact minimum is moved to zero
    assert bool((lower <= 1e-7).all())
    for k, rows in enumerate((3, 1, 2)):
        for i in range(rows):
            weights = torch.zeros(3, 1, 3, dtype=torch.float64)
            weights[:, :, i] = 1.0
            dual = dual_of(root)
            single = dual.evaluate(dual.start(weights)).lower[k, 0]
            assert lower[k] >= single - 1e-12


def test_weights_move_when_all_rows_have_the_same_sign() -> None:
    """Far below zero all entries of the supergradient look alike; what counts is by how much they differ."""
    rows = [instances.row({0: 1}, 5), instances.row({0: -1}, 5), instances.row({0: 1}, 9)]
    root = root_of(instances.problem(line(), instances.boxes([[-1]], [[2]]), [(0, rows)]))
    dual = dual_of(root)
    best = LONG.run(dual, dual.start(), Until())
    assert float(best.lower) == pytest.approx(-5.0, abs=1e-2)  # (1/2, 1/2, 0)


def line() -> Network:
    """y = relu(x) - relu(-x) = x."""
    hidden = instances.layer("hidden", 0, [[1.0], [-1.0]], [0.0, 0.0])
    return Network((1,), (hidden,), instances.layer("out", 1, [[1.0, -1.0]], [0.0]))


def test_rows_that_can_hold_alone_but_not_together() -> None:
    """3 y + 1/2 <= 0 and 1/2 - y <= 0: the largest is at least 1/2, which weights (1/4, 3/4) prove exactly."""
    rows = [instances.row({0: 3}, "-0.5"), instances.row({0: -1}, "-0.5")]
    root = root_of(instances.problem(line(), instances.boxes([[-1]], [[1]]), [(0, rows)]))
    dual = dual_of(root)

    def at(*weights: float) -> float:
        return float(dual.evaluate(dual.start(torch.tensor([[weights]], dtype=torch.float64))).lower)

    assert at(0.25, 0.75) == pytest.approx(0.5, abs=1e-12)
    assert at(0.25, 0.75) <= 0.5
    assert at(1.0, 0.0) < -2
    assert at(0.0, 1.0) < -0.4
    assert at(0.5, 0.5) < 0
    best = LONG.run(dual, dual.start(), Until())
    assert float(best.lower) == pytest.approx(0.5, abs=1e-2)
    assert best.point[0, 0, dual.plain :].tolist() == pytest.approx([0.25, 0.75], abs=1e-2)


@pytest.mark.parametrize("family", networks.FAMILIES)
def test_a_batch_equals_its_members(family: str) -> None:
    net = networks.FAMILIES[family](5)
    region, rows = regions(net, 5, 4, split=True), random_rows(net, 5, 4, [3, 1, 2, 2], mixed=True)
    whole = of_rows(Sweep.prepare(net, region, len(net.layers)), rows)
    together = Ascent(15, Steps(0.2, 0.05)).run(whole, whole.start(), Until())
    for k in range(4):
        member = whole.select(torch.tensor([k]))
        alone = Ascent(15, Steps(0.2, 0.05)).run(member, member.start(), Until())
        torch.testing.assert_close(alone.lower[0], together.lower[k], rtol=0, atol=1e-9)
        torch.testing.assert_close(alone.point[0], together.point[k], rtol=0, atol=1e-6)


# ---------------------------------------------------------------- rounding


def exact_minimum(net: Network, box: list[list[float]], rows: Conjunction, weights: torch.Tensor) -> Fraction:
    """The minimum over the box of the weighted rows of an affine network, in rationals."""
    W = [
        [Fraction(v) for v in line] for line in net.output.terms[0][1].forward(torch.eye(net.n_in).double()).T.tolist()
    ]
    b = [Fraction(v) for v in net.output.bias.tolist()]
    w = [Fraction(v) for v in weights.tolist()]
    A = [[Fraction(v) for v in line] for line in rows.A[0].tolist()]
    assert rows.B is not None
    B = [[Fraction(v) for v in line] for line in rows.B[0].tolist()]
    mixed = [sum(w[i] * A[i][j] for i in range(len(w))) for j in range(net.n_out)]
    slopes = [
        sum(mixed[j] * W[j][i] for j in range(net.n_out)) + sum(w[r] * B[r][i] for r in range(len(w)))
        for i in range(net.n_in)
    ]
    constant = sum(m * v for m, v in zip(mixed, b, strict=True))
    constant -= sum(w[r] * Fraction(v) for r, v in enumerate(rows.c[0].tolist()))
    return constant + sum(min(s * Fraction(lo), s * Fraction(hi)) for s, lo, hi in zip(slopes, *box, strict=True))


@given(seed=st.integers(0, 2**20))
@settings(max_examples=60)
def test_rows_that_cancel_are_paid_for(seed: int) -> None:
    """Large rows whose combination is tiny: the rounding of the combination itself must be in the bound."""
    rng = np.random.default_rng(seed)
    net = networks.dense(seed, (2, 2))  # affine
    weights = torch.from_numpy(rng.dirichlet(np.ones(3)))
    size = 10.0 ** rng.integers(0, 9)
    A = size * rng.normal(size=(3, 2))
    A[2] = -(weights[0].item() * A[0] + weights[1].item() * A[1]) / weights[2].item()
    B, c = size * rng.normal(size=(3, 2)), size * rng.normal(size=3)
    B[2] = -(weights[0].item() * B[0] + weights[1].item() * B[1]) / weights[2].item()
    c[2] = -(weights[0].item() * c[0] + weights[1].item() * c[1]) / weights[2].item()
    rows = Conjunction(
        *(torch.from_numpy(part)[None] for part in (A, B, c)), present=torch.ones(1, 3, dtype=torch.bool)
    )
    box = rng.normal(size=2) - 1, rng.normal(size=2) + 4
    region = Region(*(torch.from_numpy(side)[None] for side in box))
    dual = of_rows(Sweep.prepare(net, region, 1), rows)
    lower = float(dual.evaluate(dual.start(weights[None, None])).lower)
    exact = exact_minimum(net, [side.tolist() for side in box], rows, weights)
    assert Fraction(lower) <= exact
    assert float(exact) - lower <= 1e-12 * size
