"""Sweeps over patches: the bounds of sweeps over whole images, in either precision, and never above a value."""

from __future__ import annotations

import networks
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from verifier.bounding import frugal
from verifier.bounding.core.base import Objective, Region, Until, unit_objectives
from verifier.bounding.frugal import Frugal
from verifier.bounding.hidden import RootBounds
from verifier.bounding.local import bounds, passes
from verifier.bounding.local.bounds import LocalBounds
from verifier.bounding.local.passes import Passes, RowForms
from verifier.bounding.local.reference import Reference
from verifier.bounding.local.sweep import LocalSweep
from verifier.bounding.relaxation.interval import interval_image
from verifier.bounding.solvers.crown import Linear, Slope
from verifier.clock import Clock
from verifier.network.network import Network
from verifier.operators import Chain, Conv, Select
from verifier.processes import Forks

BOTH = (torch.float32, torch.float64)


def images(seed: int, exact: bool = True) -> Network:
    """Strides, a shortcut by single places, identities, channels that come last; then a matrix."""
    generator = torch.Generator().manual_seed(seed)

    def conv(before: tuple[int, ...], channels: int, size: int, stride: int, pad: tuple[int, int]) -> Conv:
        weight = torch.randn(channels, before[0], size, size, generator=generator, dtype=torch.float64) / size
        weight = weight.float().double() if exact else weight
        return Conv(weight, before, (stride, stride), (pad, pad), (1, 1))

    first = conv((2, 10, 10), 3, 3, 1, (1, 1))
    last_channels = torch.arange(first.n_in).reshape(10, 10, 2).movedim(-1, 0).flatten()
    down = conv(first.out_shape, 3, 3, 2, (1, 1))
    shortcut = conv(first.out_shape, 3, 1, 2, (0, 0))
    again, third, fourth = (conv(down.out_shape, 3, 3, 1, (1, 1)) for _ in range(3))
    layers = [
        networks.affine("first", {0: Chain((Select(last_channels, first.n_in), first))}, generator),
        networks.affine("down", {1: down}, generator),
        networks.affine("joined", {1: shortcut, 2: again}, generator),
        networks.affine("third", {3: third}, generator),
        networks.affine("added", {3: Select.identity(third.n_out), 4: fourth}, generator),
        networks.affine("twice", {4: Select.identity(fourth.n_out), 5: Select.identity(fourth.n_out)}, generator),
        networks.affine("dense", {6: networks.matrix(4, fourth.n_out, generator)}, generator),
        networks.affine("out", {7: networks.matrix(2, 4, generator)}, generator),
    ]
    return Network((10, 10, 2), tuple(layers[:-1]), layers[-1])


FAMILIES = {**networks.FAMILIES, "images": images}


def bounded(net: Network, seed: int, radius: float) -> Region:
    return RootBounds().region(net, *networks.box(net, seed, radius), Until())


def before(region: Region, k: int) -> Region:
    found = Region(region.lower, region.upper)
    return Region(found.lower, found.upper, region.l_hat[: k - 1], region.u_hat[: k - 1], region.functions[: k - 1])


def swept(net: Network, region: Region, k: int, dtype: torch.dtype, slope: Slope = Slope.ADAPTIVE) -> torch.Tensor:
    """Lower bounds of +x_hat and -x_hat of all neurons of group k."""
    known = before(region, k)
    sweep = LocalSweep.of(Passes(net.to(dtype=dtype)), known, Reference.of(net, known, k), slope)
    every = torch.arange(net.layers[k - 1].size)
    sign = torch.ones(len(every), dtype=torch.float64)
    return torch.cat([sweep.lower(every, sign), sweep.lower(every, -sign)])


def crown(net: Network, region: Region, k: int, slope: Slope = Slope.ADAPTIVE) -> torch.Tensor:
    size = net.layers[k - 1].size
    rows = Objective(k, unit_objectives(size, torch.arange(size), region.lower))
    return Linear(slope).bound(net, before(region, k), rows, Until()).lower[0]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("slope", Slope)
@pytest.mark.parametrize("most", [0.0, 0.3, 0.7, 10.0])
def test_in_float64_they_are_those_of_whole_sweeps(
    family: str, slope: Slope, most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(passes, "MOST", most)
    for seed, radius in ((0, 0.02), (1, 0.3)):
        net = FAMILIES[family](seed)
        region = bounded(net, seed, radius)
        for k in range(2, len(net.layers)):
            mine, plain = swept(net, region, k, torch.float64, slope), crown(net, region, k, slope)
            torch.testing.assert_close(mine, plain, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("exact", [True, False])
@given(seed=st.integers(0, 2**16), radius=st.sampled_from([1e-4, 0.02, 0.3]))
@settings(max_examples=8)
def test_in_float32_they_are_a_little_lower_and_never_higher(exact: bool, seed: int, radius: float) -> None:
    net = images(seed, exact)
    region = bounded(net, seed, radius)
    for k in range(2, len(net.layers)):
        mine, plain = swept(net, region, k, torch.float32), crown(net, region, k)
        size = 1.0 + plain.abs().max()
        assert bool((mine <= plain + 1e-9 * size).all())
        assert bool((mine >= plain - 2e-3 * size).all())


@pytest.mark.parametrize("dtype", BOTH)
def test_whole_rows_hold_no_neurons_that_block(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """What these pay does not matter: their tables may hold anything."""
    monkeypatch.setattr(passes, "MOST", 0.0)
    net = images(5)
    region = bounded(net, 5, 0.1)
    known = before(region, 7)
    maps = Passes(net.to(dtype=dtype))
    sweep = LocalSweep.of(maps, known, Reference.of(net, known, 7), Slope.ADAPTIVE)
    blocked = 0
    for k, toll in enumerate(sweep.tolls, 1):
        live = maps.neurons(known, k)
        blocks = torch.ones(len(toll.tables[0]), dtype=torch.bool).index_fill_(0, live, False)
        assert torch.equal(blocks, region.u_hat[k - 1][0] <= 0)
        toll.tables[:, blocks] = torch.nan
        blocked += int(blocks.sum())
    assert blocked > 100
    every = torch.arange(4)
    assert bool(sweep.lower(every, torch.ones(4, dtype=torch.float64)).isfinite().all())


def test_maps_are_cut_before_forks_share_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "MOST", 0.0)
    net = images(5)
    region = bounded(net, 5, 0.1)
    known, maps = before(region, 7), Passes(net)
    LocalSweep.of(maps, known, Reference.of(net, known, 7), Slope.ADAPTIVE).prepare()
    cut = dict(maps.known)
    every = torch.arange(4)
    LocalSweep.of(maps, known, Reference.of(net, known, 7), Slope.ADAPTIVE).lower(every, every.double() + 1)
    assert maps.known == cut
    assert set(cut) == {(k, source) for k in range(1, 7) for source, _ in net.layers[k - 1].terms}


def test_early_groups_of_images_are_swept_over_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passes, "MOST", 0.7)
    net = images(0)
    forms = RowForms.of(net, 3)
    whole, first, second = forms.sources
    assert whole is None  # 9 of 10 places along each axis
    assert first is not None
    assert second is not None
    assert (first.size, first.stride, first.offset) == ((7, 7), (2, 2), (3, 3))
    assert (second.size, second.stride, second.offset) == ((3, 3), (1, 1), (1, 1))
    assert RowForms.of(net, 7).layer is None


@given(seed=st.integers(0, 2**16), radius=st.sampled_from([0.02, 0.2]))
@settings(max_examples=5)
def test_ambiguous_neurons_have_the_bounds_of_float64(seed: int, radius: float) -> None:
    """Given the same bounds of earlier groups; without these, intervals of passing neurons may differ a little."""
    net = images(seed)
    region = bounded(net, seed, radius)
    for k in range(2, len(net.layers)):
        known, group = before(region, k), net.groups[k - 1]
        low, high = interval_image(group, known)
        for _ in LocalBounds.of(net, Slope.ADAPTIVE, 2**20).narrow(known, k, (low, high), Until()):
            pass
        plain = RootBounds().group(net, known, k, Until())
        open_ = group.function.bends(*plain)
        assert torch.equal(group.function.bends(low, high), open_)
        for mine, other in ((low, plain[0]), (high, plain[1])):
            torch.testing.assert_close(mine[open_], other[open_], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("count", [1, 2])
@given(seed=st.integers(0, 2**16), radius=st.sampled_from([0.02, 0.2]))
@settings(max_examples=4)
def test_no_value_lies_outside_of_the_bounds(count: int, seed: int, radius: float) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(frugal, "WORTH_PATCHES", 0.0)
        patched.setattr(bounds, "WORTH_SHARING", 0 if count > 1 else bounds.WORTH_SHARING)
        patched.setattr(bounds, "NEAR", 2**14)
        net = images(seed)
        box = networks.box(net, seed, radius)
        found = Frugal(RootBounds()).region(net, *box, Until(), Forks(count))
    x_hats = net.preactivations(networks.points(*box, 200, seed))
    for low, high, x_hat in zip(found.l_hat, found.u_hat, x_hats, strict=False):
        assert bool(((x_hat >= low) & (x_hat <= high)).all())


def test_a_deadline_leaves_intervals() -> None:
    net = images(2)
    region = bounded(net, 2, 0.1)
    ends = region.l_hat[2] - 1.0, region.u_hat[2] + 1.0
    kept = [end.clone() for end in ends]
    late = Until(Clock.begin(0.0))
    for _ in LocalBounds.of(net, Slope.ADAPTIVE, 2**20).narrow(before(region, 3), 3, ends, late):
        pass
    assert all(torch.equal(mine, other) for mine, other in zip(ends, kept, strict=True))


def test_they_serve_one_box_without_splits_and_relus_alone() -> None:
    found = LocalBounds.of(images(0), Slope.ADAPTIVE, 2**20)
    region = bounded(images(0), 0, 0.1)
    assert found.serves(before(region, 3), 3)
    assert not found.serves(Region(region.lower, region.upper), 1)  # its intervals are exact
    two = region.select(torch.tensor([0, 0]))
    assert not found.serves(before(two, 3), 3)
    mixed = networks.mixed(0)
    assert not LocalBounds.of(mixed, Slope.ADAPTIVE, 2**20).serves(Region(*networks.box(mixed, 0)), 2)


@pytest.mark.parametrize("scale", [1e30, 1e-30, 1e-44])
def test_at_the_ends_of_float32_nothing_is_claimed_that_does_not_hold(scale: float) -> None:
    net = images(4)
    lower, upper = networks.box(net, 4, 0.2)
    region = RootBounds().region(net, lower * scale, upper * scale, Until())
    for k in range(2, len(net.layers)):
        mine, plain = swept(net, region, k, torch.float32), crown(net, region, k)
        assert bool((~(mine > plain + 1e-9 * plain.abs())).all())


def test_weights_that_float32_does_not_hold_are_left_to_float64() -> None:
    net = images(0)
    huge = net.groups[1].terms[0][1]
    assert isinstance(huge, Conv)
    assert LocalBounds.of(net, Slope.ADAPTIVE, 2**20).single is not None
    huge.weight.mul_(2.0**40)
    assert LocalBounds.of(net, Slope.ADAPTIVE, 2**20).single is None


@pytest.mark.parametrize("count", [2, 3])
def test_products_of_more_than_two_matrices_are_left_to_float64(count: int) -> None:
    """What underflows before the first of them is magnified by all others."""
    generator = torch.Generator().manual_seed(0)
    product = Chain(tuple(networks.matrix(3, 3, generator) for _ in range(count)))
    layers = [networks.affine("first", {0: product}, generator), networks.affine("out", {1: product}, generator)]
    found = LocalBounds.of(Network((3,), (layers[0],), layers[1]), Slope.ADAPTIVE, 2**20)
    assert (found.single is None) == (count > 2)
