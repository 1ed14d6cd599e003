"""Which masks are added: those of the oracle, or random ones of the same kind; and the cuts that are made of them."""

from __future__ import annotations

import networks
import pytest
import torch
from bounding.cases import random_rows, root

from verifier.bounding.core.ascent import Average
from verifier.bounding.core.state import is_repeated, repeated
from verifier.bounding.core.sweep import Sweep
from verifier.bounding.cuts.faces import CutFaces
from verifier.bounding.cuts.masks import CutMasks, Form, Geometries, MaskSet, MostViolated, RandomMasks, find_masks
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


@pytest.mark.parametrize("form", [Form.ROWS, Form.SHARED, Form.BALANCED])
@pytest.mark.parametrize("family", networks.FAMILIES)
def test_masks_of_some_groups_are_those_of_all_there(family: str, form: Form) -> None:
    geometries, average = asked(family)
    everywhere = find_masks(geometries, average, form)
    masks = CutMasks((everywhere, everywhere))
    assert masks.groups == {k for k, group in enumerate(everywhere) if group is not None}
    for groups in (masks.groups, frozenset({0}), frozenset({1, 7}), frozenset()):
        found = find_masks(geometries, average, form, groups=groups)
        some = masks.only(groups)
        assert some.count == masks.count
        assert some.groups == masks.groups & groups
        assert some.places == [(cut, k) for cut, k in masks.places if k in groups]
        for k, (mine, whole) in enumerate(zip(found, everywhere, strict=True)):
            assert [cut[k] is whole for cut in some.cuts] == [whole is None or k in groups] * 2
            assert (mine is None) == (whole is None or k not in groups)
            if mine is not None and whole is not None:
                assert mine.form is whole.form
                assert torch.equal(mine.bits, whole.bits)


@pytest.mark.parametrize("form", [Form.ROWS, Form.SHARED, Form.BALANCED])
@pytest.mark.parametrize("family", ["dense", "conv", "residual"])
@pytest.mark.parametrize("same_masks", [True, False])
def test_cuts_of_regions_that_share_their_memory(family: str, form: Form, same_masks: bool) -> None:
    """Constants, faces and passes are those of regions with memory of their own, but for the order of sums."""
    geometries, average = asked(family, 1)
    one, count, generator = geometries.sweep, 3, torch.Generator().manual_seed(1)
    apart = one.select(torch.zeros(count, dtype=torch.long))
    together = repeated(one, count)
    assert all(map(is_repeated, together.region.l_hat))
    assert not any(map(is_repeated, apart.region.l_hat))
    masks = CutMasks((find_masks(geometries, average, form),))
    for _, k in masks.places:
        found = []
        for sweep in (together, apart):
            group = (
                repeated(masks, count) if same_masks and sweep is together else masks.select(torch.zeros(count).long())
            ).cuts[0][k]
            geometry, kinks = Geometries(sweep).at(k, form), sweep.bent(k + 1)
            assert group is not None
            assert geometry is not None
            assert kinks is not None
            found.append(CutFaces.of([group.cut(geometry)], kinks, one.net.layers[k].bias, None).cuts[0])
        if form is Form.BALANCED:
            assert is_repeated(found[0].most) == same_masks
        for name in ("most", "turn", "lift", "up", "down"):
            torch.testing.assert_close(getattr(found[0], name), getattr(found[1], name), rtol=1e-13, atol=1e-13)
        x = [torch.randn(count, 2, n, generator=generator, dtype=torch.float64) for n in sizes(one)]
        beta = torch.randn(count, 2, one.kinks[k].count, generator=generator, dtype=torch.float64)
        mine, others = (face.cut for face in found)
        torch.testing.assert_close(mine.offset, others.offset, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(mine.zc, others.zc, rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(mine.forward(x), others.forward(x), rtol=1e-13, atol=1e-13)
        for (j, a), (i, b) in zip(mine.transpose(beta), others.transpose(beta), strict=True):
            assert i == j
            assert torch.equal(a, b)


def sizes(sweep: Sweep) -> list[int]:
    """Of all sources."""
    return [sweep.net.n_in, *(group.neurons for group in sweep.net.groups)]
