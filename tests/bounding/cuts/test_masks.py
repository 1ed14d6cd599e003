"""Which masks are added: those of the oracle, or random ones of the same kind."""

from __future__ import annotations

import networks
import pytest
import torch
from bounding.cases import random_rows, root

from verifier.bounding.core.ascent import Average
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.masks import Form, Geometries, MaskSet, MostViolated, RandomMasks, find_masks
from verifier.bounding.solvers.lagrangian import Lagrangian
from verifier.bounding.solvers.multipliers import Start


def asked(family: str, boxes: int = 2) -> tuple[Geometries, Average]:
    """The inner minimiser at the multipliers of CROWN's bound, for two rows in each box."""
    net = networks.FAMILIES[family](3)
    region = root(net, *networks.box(net, 3, 0.6, boxes))
    sweep = Sweep.prepare(net, region, len(net.layers))
    dual = Lagrangian(sweep, random_rows(net, 3, 2))
    at = dual.evaluate(Start.LINEAR.point(dual))
    average = Average(torch.arange(boxes))
    average.add(dual.primal(at)[0], at.z)
    return Geometries(sweep), average


def bits(masks: MaskSet) -> list[torch.Tensor]:
    return [group.bits for group in masks if group is not None]


@pytest.mark.parametrize("form", [Form.ROWS, Form.SHARED])
@pytest.mark.parametrize("family", networks.FAMILIES)
def test_random_masks_stand_where_the_oracles_do(family: str, form: Form) -> None:
    geometries, average = asked(family)
    oracle = MostViolated().masks(geometries, average, form, 0.5, 0)
    found = RandomMasks().masks(geometries, average, form, 0.5, 0)
    assert [b.shape for b in bits(found)] == [b.shape for b in bits(oracle)]
    assert [group is None for group in found] == [group is None for group in oracle]
    assert all(group is None or group.form is form for group in found)
    for one in bits(found):
        assert one.dtype is torch.bool
        assert bool((one == one[:1, :1]).all())  # alike in all regions and for all objectives


def test_the_oracle_is_asked() -> None:
    geometries, average = asked("dense")
    found = MostViolated().masks(geometries, average, Form.ROWS, 0.5, 7)
    expected = find_masks(geometries, average, Form.ROWS)
    assert all(bool((a == b).all()) for a, b in zip(bits(found), bits(expected), strict=True))


def test_coins_are_fair_repeatable_and_new_each_time() -> None:
    geometries, average = asked("conv")

    def tossed(seed: int, number: int) -> torch.Tensor:
        found = RandomMasks(seed).masks(geometries, average, Form.ROWS, 0.5, number)
        return torch.cat([b[0, 0].flatten() for b in bits(found)])

    first = tossed(0, 0)
    assert bool((tossed(0, 0) == first).all())
    for other in (tossed(0, 1), tossed(1, 0)):
        assert 0.3 < float((other == first).double().mean()) < 0.7
    several = torch.stack([tossed(0, number) for number in range(20)]).double()
    assert float(several.mean()) == pytest.approx(0.5, abs=2.5 / several.numel() ** 0.5)
