"""The propagated Anderson dual: gradients, its linear programs, masks in children, equality cases, rounding."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import networks
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from verifier.bounding.alpha_crown import SlopeDual
from verifier.bounding.ascent import Ascent, Steps
from verifier.bounding.average import Averaging
from verifier.bounding.base import Objective, Region, Until
from verifier.bounding.conjunction import Conjunction, ConjunctionDual
from verifier.bounding.cut_masks import CutMasks, Form, GroupBits, refreshed
from verifier.bounding.intermediate import Intermediate, RootBounds
from verifier.bounding.lp import PlanetLP, RowCut, lp_with_cuts
from verifier.bounding.propagated import PropagatedDual, find_masks
from verifier.bounding.sweep import Sweep
from verifier.network.network import Affine, Network

SEEDS = st.integers(0, 2**16)
KINDS: dict[str, tuple[float | None, ...]] = {
    "one": (0.5,),
    "thresholds": (0.3, 0.5, 0.7),
    "rows": (None,),
    "mixed": (0.5, None),
}


def instance(family: str, seed: int, count: int = 1, rows: int = 1, method: str = "best") -> tuple[Sweep, Objective]:
    net = networks.FAMILIES[family](seed)
    lower, upper = networks.box(net, seed, 1.0, count)
    region = RootBounds(Intermediate(method)).region(net, lower, upper, Until())
    kinks = Sweep.prepare(net, region, len(net.layers)).kinks
    region = replace(region, kinks=tuple(k.index for k in kinks))
    return Sweep.prepare(net, region, len(net.layers)), random_rows(net, seed, rows)


def random_rows(net: Network, seed: int, count: int) -> Objective:
    generator = torch.Generator().manual_seed(seed)
    weights = torch.randn(1, count, net.n_out, generator=generator, dtype=torch.float64)
    inputs = 0.1 * torch.randn(1, count, net.n_in, generator=generator, dtype=torch.float64)
    return Objective(len(net.layers), weights, inputs, torch.ones(1, count, dtype=torch.float64))


def masks_at_average(sweep: Sweep, objective: Objective, thresholds: tuple[float | None, ...]) -> CutMasks:
    dual, averaging = SlopeDual(sweep, objective), Averaging(10)
    Ascent(20, Steps(0.2, 0.05)).run(dual, dual.start(), Until(), averaging)
    assert averaging.average is not None
    assert averaging.average.count == 10
    return find_masks(dual, averaging.average, thresholds)


def random_masks(sweep: Sweep, objective: Objective, kind: str, seed: int) -> CutMasks:
    """Masks of the same forms with random bits: every mask is valid."""
    generator = torch.Generator().manual_seed(seed)

    def shuffled(group: GroupBits | None) -> GroupBits | None:
        return group and replace(group, bits=torch.rand(group.bits.shape, generator=generator) < 0.5)

    masks = masks_at_average(sweep, objective, KINDS[kind])
    return CutMasks(tuple(tuple(shuffled(group) for group in cut) for cut in masks.cuts))


def random_point(dual: PropagatedDual | ConjunctionDual, seed: int) -> torch.Tensor:
    """A feasible point in the interior, shares of several cuts included."""
    generator = torch.Generator().manual_seed(seed)
    point = 0.1 + 0.8 * torch.rand(dual.start().shape, generator=generator, dtype=torch.float64)
    dual.project(point)
    return 0.9 * point


def matrix(layer: Affine) -> torch.Tensor:
    units = torch.eye(layer.size, dtype=torch.float64)
    return torch.cat([term.transpose(units) for _, term in layer.terms], dim=1)


def row_cuts(sweep: Sweep, masks: CutMasks) -> list[RowCut]:
    """The cuts of the first region and objective, written out weight by weight from the definition of each form."""
    found = []
    for cut in masks.cuts:
        for k, group in enumerate(cut, start=1):
            if group is None:
                continue
            layer, index = sweep.net.layers[k - 1], sweep.kinks[k - 1].index
            for i, neuron in enumerate(index.tolist()):
                w = matrix(layer)[neuron]
                found.append(RowCut(k, neuron, torch.arange(len(w)), _kept(group, layer, w, i)))
    return found


def _kept(group: GroupBits, layer: Affine, w: torch.Tensor, i: int) -> torch.Tensor:
    bits = group.bits[0, 0]
    if group.form is Form.BALANCED:
        return torch.where(w > 0, bits, ~bits)
    if group.form is Form.SHARED:
        halves = [part.chunk(2) for part in bits.split([2 * term.n_in for _, term in layer.terms])]
        return torch.where(w > 0, torch.cat([h[0] for h in halves]), torch.cat([h[1] for h in halves]))
    mask = torch.zeros_like(w, dtype=torch.bool)
    mask[w != 0] = bits[i][: int((w != 0).sum())]
    return mask


# ---------------------------------------------------------------- the function


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
@given(seed=SEEDS)
@settings(max_examples=3)
def test_supergradients_equal_finite_differences(family: str, kind: str, seed: int) -> None:
    sweep, objective = instance(family, seed, count=2, rows=2)
    dual = PropagatedDual.of(sweep, objective, random_masks(sweep, objective, kind, seed))
    assume(dual.layout.size)
    point = random_point(dual, seed)
    gradient = dual.supergradient(point, dual.evaluate(point))
    direction = torch.randn(point.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    h = 1e-7
    ahead, behind = (dual.evaluate(point + s * h * direction).lower for s in (1, -1))
    torch.testing.assert_close((gradient * direction).sum(-1), (ahead - behind) / (2 * h), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
@given(seed=SEEDS)
@settings(max_examples=4)
def test_no_feasible_point_exceeds_the_linear_program_with_the_same_cuts(family: str, kind: str, seed: int) -> None:
    sweep, objective = instance(family, seed)
    masks = random_masks(sweep, objective, kind, seed)
    dual = PropagatedDual.of(sweep, objective, masks)
    program = lp_with_cuts(sweep.net, sweep.region, objective, row_cuts(sweep, masks)).lower
    assert float(dual.evaluate(random_point(dual, seed)).lower) <= float(program) + 1e-8
    best = Ascent(30, Steps(0.1, 0.02)).run(dual, dual.start(), Until())
    assert float(best.lower) <= float(program) + 1e-8


@pytest.mark.parametrize("family", networks.FAMILIES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(2))
def test_the_ascent_reaches_the_linear_program_with_the_same_cuts(family: str, kind: str, seed: int) -> None:
    """With interval bounds all boxes are implied, so that dual and program have the same optimum."""
    sweep, objective = instance(family, seed, method="interval")
    masks = masks_at_average(sweep, objective, KINDS[kind])
    dual = PropagatedDual.of(sweep, objective, masks)
    best = Ascent(300, Steps(0.2, 1e-3)).run(dual, dual.start(), Until())
    program = float(lp_with_cuts(sweep.net, sweep.region, objective, row_cuts(sweep, masks)).lower)
    planet = float(PlanetLP().bound(sweep.net, sweep.region, objective, Until()).lower)
    assert float(best.lower) == pytest.approx(program, abs=2e-3 + 0.02 * (program - planet))
