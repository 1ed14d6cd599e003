"""Cuts and masks: passes against masked matrices, validity of every cut, the oracle, the two forms of masks."""

from __future__ import annotations

import itertools

import networks
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding.core.base import Region, Until
from verifier.bounding.cuts.anderson import Cut, RowGeometry, SharedGeometry
from verifier.bounding.hidden import RootBounds
from verifier.network.network import Affine, Network
from verifier.operators import Chain, Dense, Select
from verifier.operators.signed import parts, signed, within_reach


def setting(family: str, seed: int, k: int) -> tuple[Network, Region, Affine, torch.Tensor]:
    """A network, two regions, group k and some of its neurons."""
    net = networks.FAMILIES[family](seed)
    lower, upper = networks.box(net, seed, 0.5, count=2)
    region = RootBounds().region(net, lower, upper, Until())
    layer = net.groups[k - 1]
    return net, region, layer, torch.arange(0, layer.size, 2)


def matrix(layer: Affine, index: torch.Tensor) -> torch.Tensor:
    """The rows of all terms side by side."""
    units = torch.eye(layer.size, dtype=torch.float64)[index]
    return torch.cat([term.transpose(units) for _, term in layer.terms], dim=1)


def inputs(net: Network, region: Region, layer: Affine, seed: int, count: int = 3) -> list[torch.Tensor | None]:
    """Random x[j] [D, S, n_j] of the sources of a layer, inside of their boxes."""
    generator = torch.Generator().manual_seed(seed)
    values: list[torch.Tensor | None] = [None] * (len(net.groups) + 1)
    for source, _ in layer.terms:
        low, high = region.source(source)
        t = torch.rand(low.shape[0], count, low.shape[1], generator=generator, dtype=torch.float64)
        values[source] = low.unsqueeze(1) + t * (high - low).unsqueeze(1)
    return values


def joined(values: list[torch.Tensor | None], layer: Affine) -> torch.Tensor:
    found = [values[source] for source, _ in layer.terms]
    return torch.cat([v for v in found if v is not None], dim=-1)


def dense_masks(cut: Cut, geometry: RowGeometry | SharedGeometry, w: torch.Tensor) -> torch.Tensor:
    """The masks of a cut as a full matrix per region and objective [D, S, a, n]."""
    if isinstance(geometry, RowGeometry):
        mask = cut.mask  # type: ignore[attr-defined]
        full = torch.zeros(*mask.shape[:2], *w.shape, dtype=torch.float64)
        place = geometry.columns.expand_as(mask)
        return full.scatter_add_(-1, place, (mask & (geometry.weights != 0)).double())
    halves = [kept.chunk(2, dim=-1) for kept in cut.kept]  # type: ignore[attr-defined]
    positive, negative = (torch.cat([h[i] for h in halves], dim=-1).unsqueeze(-2) for i in (0, 1))
    return torch.where(w > 0, positive, negative)


CASES = [("dense", 2), ("conv", 1), ("conv", 2), ("residual", 2), ("residual", 3)]


def both_cuts(case: tuple[str, int], seed: int) -> list[tuple[Cut, RowGeometry | SharedGeometry]]:
    net, region, layer, index = setting(*case[:1], seed, case[1])
    values = inputs(net, region, layer, seed)
    rows = RowGeometry.of(layer, region, index)
    shared = SharedGeometry.of(layer, region, index)
    assert shared is not None
    z = torch.rand(2, 3, len(index), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return [(rows.cut(rows.excess(values, z) >= 0), rows), (shared.cut(shared.bits(values, 0.4)), shared)]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_passes_and_constants_equal_those_of_the_masked_matrix(case: tuple[str, int]) -> None:
    net, region, layer, index = setting(case[0], 3, case[1])
    w, values = matrix(layer, index), inputs(net, region, layer, 8)
    x = joined(values, layer)
    low, high = (torch.cat([region.source(j)[side] for j, _ in layer.terms], dim=-1) for side in (0, 1))
    l_check = torch.where(w > 0, low.unsqueeze(1), high.unsqueeze(1)).unsqueeze(1)
    u_check = torch.where(w > 0, high.unsqueeze(1), low.unsqueeze(1)).unsqueeze(1)
    beta = torch.rand(2, 3, len(index), generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    for cut, geometry in both_cuts(case, 3):
        kept = dense_masks(cut, geometry, w) * w
        assert 0 < int((kept != 0).sum()) < (w != 0).sum() * 6
        torch.testing.assert_close(cut.forward(values), (kept * x.unsqueeze(-2)).sum(-1))
        torch.testing.assert_close(cut.offset, (kept * l_check).sum(-1))
        rest = ((w - kept) * u_check).sum(-1)
        torch.testing.assert_close(cut.zc, layer.bias[index] + cut.offset + rest)
        back = torch.cat([part for _, part in cut.transpose(beta)], dim=-1)
        torch.testing.assert_close(back, (kept * beta.unsqueeze(-1)).sum(-2))
        first = torch.tensor([1])
        torch.testing.assert_close(cut.select(first).transpose(beta[first])[0][1], cut.transpose(beta)[0][1][first])


@pytest.mark.parametrize("case", CASES, ids=str)
@given(seed=st.integers(0, 2**16))
@settings(max_examples=10)
def test_no_true_activation_violates_a_cut(case: tuple[str, int], seed: int) -> None:
    """x = relu(x_hat) with z = 1 where it passes and 0 where not satisfies every cut, whatever the mask."""
    net, region, layer, index = setting(case[0], seed, case[1])
    values = inputs(net, region, layer, seed + 1)
    x_hat = layer.forward(values)[..., index]
    x, z = x_hat.clamp(min=0), (x_hat > 0).double()
    for cut, _ in both_cuts(case, seed):
        assert bool((x <= cut.forward(values) - cut.offset + z * cut.zc + 1e-9).all())


def test_the_oracle_finds_the_most_violated_mask() -> None:
    net, region, layer, index = setting("dense", 5, 1)
    values = inputs(net, region, layer, 5)
    rows = RowGeometry.of(layer, region, index)
    generator = torch.Generator().manual_seed(0)
    z = torch.rand(2, 3, len(index), generator=generator, dtype=torch.float64)

    def right_hand_side(cut: Cut) -> torch.Tensor:
        return cut.forward(values) - cut.offset + z * cut.zc

    best = right_hand_side(rows.cut(rows.excess(values, z) >= 0))
    for bits in itertools.product([False, True], repeat=rows.columns.shape[1]):
        mask = torch.tensor(bits).expand(2, 3, len(index), -1)
        assert bool((best <= right_hand_side(rows.cut(mask)) + 1e-12).all())


def test_one_threshold_gives_the_oracle_at_that_z() -> None:
    net, region, layer, index = setting("conv", 2, 2)
    values = inputs(net, region, layer, 2)
    rows, shared = RowGeometry.of(layer, region, index), SharedGeometry.of(layer, region, index)
    assert shared is not None
    z = torch.full((2, 3, len(index)), 0.3, dtype=torch.float64)
    by_rows = rows.cut(rows.excess(values, z) >= 0)
    by_shared = shared.cut(shared.bits(values, 0.3))
    for name in ("offset", "zc"):
        torch.testing.assert_close(getattr(by_rows, name), getattr(by_shared, name))
    torch.testing.assert_close(by_rows.forward(values), by_shared.forward(values))


@pytest.mark.parametrize("case", ["dense", "blocks", "conv2d", "grouped", "transposed", "repeated", "diagonal", "sum"])
def test_parts_add_up_and_keep_their_signs(case: str) -> None:
    from operators.test_operators import build, matrix_of

    linear = build(case, 0)
    found = parts(linear)
    assert found is not None
    assert within_reach(linear)
    positive, negative = (matrix_of(part) for part in found)
    torch.testing.assert_close(positive + negative, matrix_of(linear))
    assert bool((positive >= 0).all())
    assert bool((negative <= 0).all())
    assert bool((positive * negative == 0).all())
    both = signed(linear)
    assert both is not None
    torch.testing.assert_close(matrix_of(both), torch.cat([positive, negative], dim=1))


def test_parts_of_a_product_are_those_of_its_entries() -> None:
    """(AB)+ is not A+ B+: a difference of two equal rows is zero, not the sum of its parts."""
    difference = Chain((Dense(torch.ones(2, 3, dtype=torch.float64)), Dense(torch.tensor([[1.0, -1.0]]).double())))
    found = parts(difference)
    assert found is not None
    assert float(found[0].magnitude(torch.ones(3, dtype=torch.float64))) == 0.0
    moved = Chain((Select(torch.tensor([2, 0]), 3), Dense(torch.tensor([[1.0, -1.0]]).double())))
    found = parts(moved)
    assert found is not None
    assert isinstance(found[0], Chain)


def test_products_that_are_too_large_have_no_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verifier.operators.signed.MATERIALISE_ENTRIES", 5)
    product = Chain((Dense(torch.ones(2, 3, dtype=torch.float64)), Dense(torch.ones(2, 2, dtype=torch.float64))))
    assert parts(product) is None
    assert signed(product) is None
    assert not within_reach(product)
    moved = Chain((Select(torch.tensor([2, 0]), 3), Dense(torch.ones(4, 2, dtype=torch.float64))))
    assert within_reach(moved)
    assert parts(moved) is not None
    layer = Affine("composed", (2,), ((0, product),), torch.zeros(2).double(), torch.zeros(2).double())
    ones = torch.ones(1, 3, dtype=torch.float64)
    assert SharedGeometry.of(layer, Region(-ones, ones), torch.tensor([0])) is None
